//! Gradients that wait on a device for others, to be added to them.

use crate::gpu::Gpu;
use crate::gpu::device::buffer;
use crate::gpu::dispatch::Dispatch;
use crate::gpu::frame::{Frame, new_table};
use crate::shader::{Accelerator, Operand, Recorder, Shader};
use crate::state::{DeviceGradient, WaitingGradients};
use crate::{Error, Result};
use std::sync::Arc;

/// What waits, the newest at the end, and memory that has been used for it. All of it goes with who holds this.
#[derive(Debug)]
pub(super) struct Aside {
    gpu: Arc<Gpu>,
    waiting: Vec<Copies>,
    spare: Vec<Copies>,
}

/// Copies of gradients, and how they are added to those that come later.
#[derive(Debug)]
struct Copies {
    gradients: Vec<DeviceGradient>,
    addition: Option<Addition>,
}

/// The kernels of one addition, bound to what they read and write.
#[derive(Debug)]
struct Addition {
    /// What is added to.
    to: Vec<DeviceGradient>,
    table: wgpu::BindGroup,
    dispatches: Vec<Dispatch>,
}

impl Aside {
    pub(super) fn new(gpu: Arc<Gpu>) -> Self {
        Self { gpu, waiting: Vec::new(), spare: Vec::new() }
    }
}

impl Copies {
    /// Room for these gradients.
    fn of(gpu: &Gpu, gradients: &[DeviceGradient]) -> Result<Self> {
        let place = |gradient: &DeviceGradient| {
            let memory = gpu.storage("waiting gradients", gradient.elements as u64 * 4)?;
            Ok(DeviceGradient { memory, ..gradient.clone() })
        };
        Ok(Self { gradients: gradients.iter().map(place).collect::<Result<_>>()?, addition: None })
    }

    /// Whether they are of the same weights.
    fn fit(&self, gradients: &[DeviceGradient]) -> bool {
        let same = |(copy, held): (&DeviceGradient, &DeviceGradient)| {
            (copy.store, copy.elements) == (held.store, held.elements)
        };
        self.gradients.len() == gradients.len() && self.gradients.iter().zip(gradients).all(same)
    }

    /// The kernels that add them to `to`; those of the last time, if these are the same gradients.
    fn addition(&mut self, gpu: &Gpu, to: Vec<DeviceGradient>) -> Result<&Addition> {
        let is_same = |known: &Addition| {
            let same = |(known, to): (&DeviceGradient, &DeviceGradient)| known.memory.is(&to.memory);
            known.to.len() == to.len() && known.to.iter().zip(&to).all(same)
        };
        let known = self.addition.take().filter(is_same);
        let addition = match known {
            Some(known) => known,
            None => self.bound(gpu, to)?,
        };
        Ok(self.addition.insert(addition))
    }

    fn bound(&self, gpu: &Gpu, to: Vec<DeviceGradient>) -> Result<Addition> {
        if !self.fit(&to) {
            return Err(Error::Internal("the gradients that wait on the device are of other weights".into()));
        }
        let (memory, table) = new_table(gpu, 1)?;
        let mut recorder = Recorder::new(gpu, 1, Operand::new(&memory, 0, 1));
        for (waiting, held) in self.gradients.iter().zip(&to) {
            let elements = waiting.elements;
            Shader::new("add gradients", include_str!("aside.wgsl"))
                .read("waiting", "f32", Operand::new(&waiting.memory, 0, elements))
                .write("gradient", "f32", Operand::new(&held.memory, 0, elements))
                .number("elements", elements)
                .elements(&mut recorder, elements)?;
        }
        let dispatches = Dispatch::all(gpu, recorder.recorded, 0);
        gpu.compile(&dispatches)?;
        Ok(Addition { to, table, dispatches })
    }
}

impl WaitingGradients for Aside {
    fn lay_aside(&mut self, gradients: Vec<DeviceGradient>) -> Result<()> {
        let gpu = &self.gpu;
        gpu.check()?;
        let copies = match self.spare.pop().filter(|copies| copies.fit(&gradients)) {
            Some(copies) => copies,
            None => {
                // Others are of other gradients.
                self.spare.clear();
                Copies::of(gpu, &gradients)?
            }
        };
        let mut encoder = gpu.device.create_command_encoder(&Default::default());
        for (from, to) in gradients.iter().zip(&copies.gradients) {
            let bytes = from.elements as u64 * 4;
            encoder.copy_buffer_to_buffer(buffer(&from.memory), 0, buffer(&to.memory), 0, bytes);
        }
        gpu.submit(encoder.finish());
        gpu.count(|statistics| statistics.submits += 1);
        self.waiting.push(copies);
        gpu.check()
    }

    fn add_to(&mut self, gradients: Vec<DeviceGradient>) -> Result<()> {
        let gone = || Error::Internal("no gradients wait on the device".into());
        let mut copies = self.waiting.pop().ok_or_else(gone)?;
        let Addition { table, dispatches, .. } = copies.addition(&self.gpu, gradients)?;
        let mut frame = Frame::begin(&self.gpu, table);
        dispatches.iter().for_each(|dispatch| frame.record(dispatch, 0));
        frame.finish(0)?;
        self.spare.push(copies);
        Ok(())
    }

    fn forget(&mut self) {
        self.spare.append(&mut self.waiting);
    }
}

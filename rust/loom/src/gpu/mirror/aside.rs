//! Gradients that wait on a device for others, to be added to them.

use crate::gpu::Gpu;
use crate::gpu::device::buffer;
use crate::gpu::dispatch::Dispatch;
use crate::gpu::frame::{Frame, new_table};
use crate::shader::{Accelerator, Allocation, Operand, Recorder, Shader};
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
    table: (Allocation, wgpu::BindGroup),
    /// Of each gradient.
    additions: Vec<Option<Addition>>,
}

/// The kernels of one addition, bound to what they read and write.
#[derive(Debug)]
struct Addition {
    /// What is added to.
    to: Allocation,
    dispatches: Vec<Dispatch>,
}

impl Aside {
    pub(super) fn new(gpu: Arc<Gpu>) -> Self {
        Self { gpu, waiting: Vec::new(), spare: Vec::new() }
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        self.gpu.let_go_of_staging();
    }
}

impl Copies {
    /// Room for these gradients.
    fn of(gpu: &Gpu, gradients: &[DeviceGradient]) -> Result<Self> {
        let place = |gradient: &DeviceGradient| {
            let memory = gpu.storage("waiting gradients", gradient.elements as u64 * 4)?;
            Ok(DeviceGradient { memory, ..gradient.clone() })
        };
        let additions = gradients.iter().map(|_| None).collect();
        let gradients = gradients.iter().map(place).collect::<Result<_>>()?;
        Ok(Self { gradients, table: new_table(gpu, 1)?, additions })
    }

    /// Whether they are of the same weights.
    fn fit(&self, gradients: &[DeviceGradient]) -> bool {
        let same = |(copy, held): (&DeviceGradient, &DeviceGradient)| {
            (copy.store, copy.elements) == (held.store, held.elements)
        };
        self.gradients.len() == gradients.len() && self.gradients.iter().zip(gradients).all(same)
    }

    /// The kernels that add to `to` what waits of the same weights; those of the last time, if it is the same memory.
    fn addition(&mut self, gpu: &Gpu, to: &DeviceGradient) -> Result<&[Dispatch]> {
        let same = |held: &DeviceGradient| (held.store, held.elements) == (to.store, to.elements);
        let number = self.gradients.iter().position(same).ok_or_else(|| {
            Error::Internal("the gradients that wait on the device are of other weights".into())
        })?;
        let known = self.additions[number].take().filter(|known| known.to.is(&to.memory));
        let addition = match known {
            Some(known) => known,
            None => self.bound(gpu, number, to)?,
        };
        Ok(&self.additions[number].insert(addition).dispatches)
    }

    fn bound(&self, gpu: &Gpu, number: usize, to: &DeviceGradient) -> Result<Addition> {
        let mut recorder = Recorder::new(gpu, 1, Operand::new(&self.table.0, 0, 1));
        let elements = to.elements;
        Shader::new("add gradients", include_str!("aside.wgsl"))
            .read("waiting", "f32", Operand::new(&self.gradients[number].memory, 0, elements))
            .write("gradient", "f32", Operand::new(&to.memory, 0, elements))
            .number("elements", elements)
            .elements(&mut recorder, elements)?;
        let dispatches = Dispatch::all(gpu, recorder.recorded, 0);
        gpu.compile(&dispatches)?;
        Ok(Addition { to: to.memory.clone(), dispatches })
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

    fn add_to(&mut self, gradients: &[DeviceGradient], below: usize) -> Result<()> {
        let Self { gpu, waiting, .. } = self;
        let copies = waiting.iter_mut().rev().nth(below);
        let copies = copies.ok_or_else(|| Error::Internal("no gradients wait on the device".into()))?;
        let table = copies.table.1.clone();
        let mut frame = Frame::begin(gpu, &table);
        for to in gradients {
            copies.addition(gpu, to)?.iter().for_each(|dispatch| frame.record(dispatch, 0));
        }
        frame.finish(0)
    }

    fn release(&mut self, count: usize) {
        let left = self.waiting.len().saturating_sub(count);
        self.spare.extend(self.waiting.drain(left..));
    }

    fn forget(&mut self) {
        self.spare.append(&mut self.waiting);
    }
}

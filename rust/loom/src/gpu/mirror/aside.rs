//! Gradients that wait on a device for others, to be added to them.

use crate::gpu::Gpu;
use crate::gpu::device::buffer;
use crate::gpu::dispatch::Dispatch;
use crate::gpu::frame::{Frame, new_table};
use crate::shader::{Accelerator, Allocation, Operand, Recorder, Shader};
use crate::{Error, Result};

/// Gradients, or copies of them: by store, with how many elements they have.
pub(super) type Gradients = Vec<(usize, usize, Allocation)>;

/// What waits, the newest at the end, and memory that has been used for it.
#[derive(Debug, Default)]
pub(super) struct Aside {
    waiting: Vec<Gradients>,
    spare: Vec<Gradients>,
}

impl Aside {
    /// Copies gradients to where they wait.
    pub(super) fn copy(&mut self, gpu: &Gpu, gradients: &Gradients) -> Result<()> {
        gpu.check()?;
        let fits = |copies: &Gradients| {
            copies.len() == gradients.len()
                && copies.iter().zip(gradients).all(|(copy, held)| (copy.0, copy.1) == (held.0, held.1))
        };
        let copies = match self.spare.pop().filter(fits) {
            Some(copies) => copies,
            None => {
                // Others are of other gradients.
                self.spare.clear();
                let place = |(store, elements, _): &(usize, usize, Allocation)| {
                    Ok((*store, *elements, gpu.storage("waiting gradients", *elements as u64 * 4)?))
                };
                gradients.iter().map(place).collect::<Result<_>>()?
            }
        };
        let mut encoder = gpu.device.create_command_encoder(&Default::default());
        for ((_, elements, from), (_, _, to)) in gradients.iter().zip(&copies) {
            encoder.copy_buffer_to_buffer(buffer(from), 0, buffer(to), 0, *elements as u64 * 4);
        }
        gpu.submit(encoder.finish());
        gpu.count(|statistics| statistics.submits += 1);
        self.waiting.push(copies);
        gpu.check()
    }

    /// Adds the newest gradients that wait to those that are where a store's number says.
    pub(super) fn add<'a>(
        &mut self,
        gpu: &Gpu,
        gradient: impl Fn(usize) -> Option<&'a Allocation>,
    ) -> Result<()> {
        let gone = || Error::Internal("no gradients wait on the device".into());
        let copies = self.waiting.pop().ok_or_else(gone)?;
        let (table, group) = new_table(gpu, 1)?;
        let mut recorder = Recorder::new(gpu, 1, Operand::new(&table, 0, 1));
        for (store, elements, waiting) in &copies {
            let held = gradient(*store).ok_or_else(gone)?;
            Shader::new("add gradients", include_str!("aside.wgsl"))
                .read("waiting", "f32", Operand::new(waiting, 0, *elements))
                .write("gradient", "f32", Operand::new(held, 0, *elements))
                .number("elements", *elements)
                .elements(&mut recorder, *elements)?;
        }
        let dispatches = Dispatch::all(gpu, recorder.recorded, 0);
        gpu.compile(&dispatches)?;
        let mut frame = Frame::begin(gpu, &group);
        dispatches.iter().for_each(|dispatch| frame.record(dispatch, 0));
        frame.finish(0)?;
        self.spare.push(copies);
        Ok(())
    }

    /// Lets go of what waits, after a step that has failed, say.
    pub(super) fn forget(&mut self) {
        self.spare.append(&mut self.waiting);
    }
}

//! Commands on their way to a device, and what is sent along with them: each submit takes longer than a small kernel.

use super::Gpu;
use super::device::buffer;
use super::staging::MOST_KEPT;
use crate::Result;
use crate::shader::{Accelerator, Allocation, Operand};

/// So many bytes are copied once more, to share a piece of memory.
const FEW: usize = 4096;

/// Commands that the device has not been given yet.
#[derive(Debug)]
pub(super) struct Unsent {
    pub(super) encoder: wgpu::CommandEncoder,
    /// Memory that they copy from, which is there for others once they are done.
    from: Vec<Allocation>,
}

impl Unsent {
    /// None yet.
    pub(super) fn new(gpu: &Gpu) -> Self {
        Self { encoder: gpu.device.create_command_encoder(&Default::default()), from: Vec::new() }
    }

    /// Adds copies to the device.
    pub(super) fn copy(&mut self, sent: Sent) {
        for (to, from, bytes) in sent.parts {
            let there = buffer(to.allocation());
            self.encoder.copy_buffer_to_buffer(buffer(&sent.staging), from, there, to.offset(), bytes);
        }
        self.from.push(sent.staging);
    }

    /// Begins a pass whose kernels read this step table.
    pub(super) fn begin_pass(
        &mut self,
        table: &wgpu::BindGroup,
        timestamp_writes: Option<wgpu::ComputePassTimestampWrites<'_>>,
    ) -> wgpu::ComputePass<'static> {
        let descriptor = wgpu::ComputePassDescriptor { label: None, timestamp_writes };
        let mut pass = self.encoder.begin_compute_pass(&descriptor).forget_lifetime();
        pass.set_bind_group(1, table, &[]);
        pass
    }

    /// Ends them, which is most of the work there is with them.
    pub(super) fn finish(self) -> Finished {
        Finished { commands: self.encoder.finish(), from: self.from }
    }

    /// Gives them to the device.
    pub(super) fn submit(self, gpu: &Gpu) -> wgpu::SubmissionIndex {
        self.finish().submit(gpu)
    }
}

/// Commands that are ready for the device.
#[derive(Debug)]
pub(super) struct Finished {
    commands: wgpu::CommandBuffer,
    from: Vec<Allocation>,
}

impl Finished {
    /// Gives them to the device.
    pub(super) fn submit(self, gpu: &Gpu) -> wgpu::SubmissionIndex {
        let submission = gpu.submit(self.commands);
        for staging in self.from {
            gpu.keep_idle(staging, Some(submission.clone()));
        }
        submission
    }
}

/// Bytes for operands, where a device can copy them from.
#[derive(Debug)]
pub(super) struct Sent {
    staging: Allocation,
    /// Where each part goes, from where, and how long it is.
    parts: Vec<(Operand, u64, u64)>,
}

impl Sent {
    /// Puts these bytes one behind the other.
    fn new(gpu: &Gpu, contents: &[(Operand, &[u8])]) -> Result<Self> {
        let total: usize = contents.iter().map(|(_, content)| content.len()).sum();
        let staging = gpu.writable_staging(total as u64)?;
        let view = buffer(&staging).slice(..total as u64).get_mapped_range_mut();
        let mut view = view.map_err(|error| gpu.unreadable(&error.to_string()))?;
        let (mut parts, mut from) = (Vec::with_capacity(contents.len()), 0);
        for (to, content) in contents {
            view.slice(from..from + content.len()).copy_from_slice(content);
            parts.push((to.clone(), from as u64, content.len() as u64));
            from += content.len();
        }
        drop(view);
        buffer(&staging).unmap();
        gpu.count(|statistics| statistics.bytes_up += total as u64);
        Ok(Self { staging, parts })
    }
}

/// What goes to the device with the next commands, in the order in which it was sent.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    sent: Vec<Sent>,
    /// Few bytes each, which share a piece of memory.
    few: Vec<(Operand, Vec<u8>)>,
}

impl Outbox {
    /// Has the next commands copy these bytes, a multiple of four of them, to an operand, instead of what was for
    /// the same memory and has been used by nobody; many bytes go there at once.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) where the device was lost or is out of memory.
    pub(super) fn put(&mut self, gpu: &Gpu, to: Operand, bytes: &[u8]) -> Result<()> {
        let same = |other: &Operand| other.allocation().is(to.allocation()) && other.offset() == to.offset();
        self.sent.iter_mut().for_each(|sent| sent.parts.retain(|(other, ..)| !same(other)));
        self.few.retain(|(other, _)| !same(other));
        match bytes.len() {
            0 => {}
            len if len > MOST_KEPT as usize || !len.is_multiple_of(4) => {
                gpu.upload(to.allocation(), to.offset(), bytes);
            }
            len if len > FEW => self.sent.push(Sent::new(gpu, &[(to, bytes)])?),
            _ => self.few.push((to, bytes.to_vec())),
        }
        Ok(())
    }

    /// Takes all of it; where that fails it is still there.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub(super) fn empty(&mut self, gpu: &Gpu) -> Result<Vec<Sent>> {
        if !self.few.is_empty() {
            let few: Vec<(Operand, &[u8])> =
                self.few.iter().map(|(to, bytes)| (to.clone(), &**bytes)).collect();
            self.sent.push(Sent::new(gpu, &few)?);
            self.few.clear();
        }
        Ok(std::mem::take(&mut self.sent))
    }
}

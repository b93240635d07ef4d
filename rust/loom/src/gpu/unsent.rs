//! Commands on their way to a device, and what is sent along with them: each submit takes longer than a small kernel.

use super::Gpu;
use super::device::buffer;
use crate::Result;
use crate::shader::{Allocation, Operand};

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
    pub(super) fn copy(&mut self, sent: Vec<Sent>) {
        for Sent { to, bytes, staging } in sent {
            let there = buffer(to.allocation());
            self.encoder.copy_buffer_to_buffer(buffer(&staging), 0, there, to.offset(), bytes);
            self.from.push(staging);
        }
    }

    /// Gives them to the device.
    pub(super) fn submit(self, gpu: &Gpu) -> wgpu::SubmissionIndex {
        let submission = gpu.submit(self.encoder.finish());
        for staging in self.from {
            gpu.keep_idle(staging, Some(submission.clone()));
        }
        submission
    }
}

/// Bytes for an operand, where a device can copy them from.
#[derive(Debug)]
pub(super) struct Sent {
    to: Operand,
    bytes: u64,
    staging: Allocation,
}

impl Sent {
    /// Puts bytes, a multiple of four of them, where a copy of [`Unsent::copy`] finds them.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) where the device was lost or is out of memory.
    pub(super) fn new(gpu: &Gpu, to: Operand, content: &[u8]) -> Result<Self> {
        let bytes = content.len() as u64;
        let staging = gpu.writable_staging(bytes)?;
        let view = buffer(&staging).slice(..bytes).get_mapped_range_mut();
        view.map_err(|error| gpu.unreadable(&error.to_string()))?.copy_from_slice(content);
        buffer(&staging).unmap();
        gpu.count(|statistics| statistics.bytes_up += bytes);
        Ok(Self { to, bytes, staging })
    }

    /// Whether it is for the beginning of the same memory.
    pub(super) fn is_for(&self, other: &Operand) -> bool {
        self.to.allocation().is(other.allocation()) && self.to.offset() == other.offset()
    }
}

//! Reading back what a device holds, while it goes on with what was submitted later.

use super::Gpu;
use super::device::buffer;
use super::staging::{MOST_SPARE, Mapped, best_fit};
use crate::shader::{Allocation, Operand};
use crate::state::{Fetch, Landed};
use crate::{Error, Result};
use std::fmt;
use std::sync::mpsc::channel;
use std::sync::{Arc, PoisonError};

/// Operands on their way to the host.
pub(super) struct Fetching {
    gpu: Arc<Gpu>,
    staging: Allocation,
    bytes: u64,
    submission: wgpu::SubmissionIndex,
    mapped: Option<Mapped>,
}

impl fmt::Debug for Fetching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fetching({} bytes)", self.bytes)
    }
}

impl Fetching {
    /// Has these operands, one behind the other, copied once all that was submitted so far has ended.
    ///
    /// # Errors
    /// [`Error::Device`] where the device was lost or is out of memory.
    pub(super) fn begin(gpu: &Arc<Gpu>, operands: &[Operand]) -> Result<Self> {
        gpu.check()?;
        let bytes: u64 = operands.iter().map(|operand| operand.elements as u64 * 4).sum();
        let staging = gpu.spare_staging(bytes)?;
        let mut encoder = gpu.device.create_command_encoder(&Default::default());
        let mut at = 0;
        for operand in operands {
            let size = operand.elements as u64 * 4;
            if size > 0 {
                let from = buffer(operand.allocation());
                encoder.copy_buffer_to_buffer(from, operand.offset(), buffer(&staging), at, size);
            }
            at += size;
        }
        let submission = gpu.submit(encoder.finish());
        let mapped = (bytes > 0).then(|| begin_mapping(&staging, bytes, wgpu::MapMode::Read));
        Ok(Self { gpu: gpu.clone(), staging, bytes, submission, mapped })
    }
}

impl Fetch for Fetching {
    fn land(self: Box<Self>) -> Result<Box<dyn Landed>> {
        let Self { gpu, staging, bytes, submission, mapped } = *self;
        let Some(mapped) = mapped else { return Ok(Box::new(Read { gpu, staging, view: None })) };
        gpu.wait_beside(submission)?;
        gpu.end_mapping(&mapped)?;
        let view = buffer(&staging).slice(..bytes).get_mapped_range();
        let view = view.map_err(|error| gpu.unreadable(&error.to_string()))?;
        gpu.count(|statistics| {
            statistics.submits += 1;
            statistics.bytes_down += bytes;
        });
        Ok(Box::new(Read { gpu, staging, view: Some(view) }))
    }
}

/// What was read back.
struct Read {
    gpu: Arc<Gpu>,
    staging: Allocation,
    view: Option<wgpu::BufferView>,
}

impl fmt::Debug for Read {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Read({} bytes)", self.bytes().len())
    }
}

impl Landed for Read {
    fn bytes(&self) -> &[u8] {
        self.view.as_deref().unwrap_or_default()
    }
}

impl Drop for Read {
    fn drop(&mut self) {
        if let Some(view) = self.view.take() {
            drop(view);
            buffer(&self.staging).unmap();
        }
        self.gpu.keep_staging(self.staging.clone());
    }
}

/// Asks for a buffer's first bytes to be there for the host.
pub(super) fn begin_mapping(staging: &Allocation, bytes: u64, mode: wgpu::MapMode) -> Mapped {
    let (sender, mapped) = channel();
    buffer(staging).slice(..bytes).map_async(mode, move |result| {
        // Nobody listens any more where waiting has failed.
        let _ = sender.send(result);
    });
    mapped
}

impl Gpu {
    /// Waits until a buffer is there for the host, whose last use on the device has ended.
    pub(super) fn end_mapping(&self, mapped: &Mapped) -> Result<()> {
        match mapped.recv() {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(self.unreadable(&error.to_string())),
            Err(error) => Err(self.unreadable(&error.to_string())),
        }
    }

    /// Why a buffer is not there for the host.
    pub(super) fn unreadable(&self, why: &str) -> Error {
        match self.check() {
            Err(error) => error,
            Ok(()) => Error::Device(format!("reading back from {} failed: {why}", self.adapter())),
        }
    }

    /// Memory that so many bytes are read back by: what fits best of that which has been used, where that fits well.
    pub(super) fn spare_staging(&self, bytes: u64) -> Result<Allocation> {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = best_fit(&spare, bytes, Allocation::size) {
            return Ok(spare.swap_remove(place));
        }
        drop(spare);
        self.staging(bytes.max(4))
    }

    /// Keeps memory for the next time, which is no longer mapped.
    pub(super) fn keep_staging(&self, staging: Allocation) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < MOST_SPARE {
            spare.push(staging);
        }
    }
}

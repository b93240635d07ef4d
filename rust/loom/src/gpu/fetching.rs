//! Reading back what a device holds, while it goes on with what was submitted later.

use super::Gpu;
use super::device::buffer;
use crate::shader::{Allocation, Operand};
use crate::state::Fetch;
use crate::{Error, Result};
use std::fmt;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, PoisonError};

/// The most pieces of host memory that are kept for the next time: making such memory takes longer than using it.
const MOST_SPARE: usize = 64;

/// Operands on their way to the host.
pub(super) struct Fetching {
    gpu: Arc<Gpu>,
    staging: Allocation,
    bytes: u64,
    submission: wgpu::SubmissionIndex,
    mapped: Receiver<std::result::Result<(), wgpu::BufferAsyncError>>,
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
        let (sender, mapped) = channel();
        if bytes > 0 {
            buffer(&staging).slice(..bytes).map_async(wgpu::MapMode::Read, move |result| {
                // Nobody listens any more where waiting has failed.
                let _ = sender.send(result);
            });
        }
        Ok(Self { gpu: gpu.clone(), staging, bytes, submission, mapped })
    }
}

impl Fetch for Fetching {
    fn finish(self: Box<Self>, take: &mut dyn FnMut(&[u8])) -> Result<()> {
        if self.bytes == 0 {
            take(&[]);
            return Ok(());
        }
        let refused = |why: String| match self.gpu.check() {
            Err(error) => error,
            Ok(()) => Error::Device(format!("reading back from {} failed: {why}", self.gpu.adapter())),
        };
        self.gpu.wait_for(Some(self.submission.clone()))?;
        match self.mapped.recv() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(refused(error.to_string())),
            Err(error) => return Err(refused(error.to_string())),
        }
        let held = buffer(&self.staging);
        let view = held.slice(..self.bytes).get_mapped_range().map_err(|error| refused(error.to_string()))?;
        take(&view);
        drop(view);
        held.unmap();
        self.gpu.count(|statistics| {
            statistics.submits += 1;
            statistics.bytes_down += self.bytes;
        });
        self.gpu.keep_staging(self.staging);
        Ok(())
    }
}

impl Gpu {
    /// Memory that so many bytes are read back by: some that has been used, where that fits well.
    pub(super) fn spare_staging(&self, bytes: u64) -> Result<Allocation> {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |held: &Allocation| held.size() >= bytes && held.size() <= (2 * bytes).max(16);
        if let Some(place) = spare.iter().position(fits) {
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

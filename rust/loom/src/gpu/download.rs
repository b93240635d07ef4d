//! Reading back what a device holds.

use super::Gpu;
use super::device::buffer;
use super::staging::MOST_KEPT;
use super::unsent::Unsent;
use crate::shader::{Allocation, Operand};
use crate::{Error, Result};

impl Gpu {
    /// Reads operands back, each into its bytes; waits for all that was submitted before.
    ///
    /// # Errors
    /// [`Error::Device`] where the device was lost or is out of memory.
    pub(super) fn download(&self, parts: &mut [(Operand, &mut [u8])]) -> Result<()> {
        self.download_after(None, parts)
    }

    /// The same behind commands that the device has not been given yet.
    ///
    /// # Errors
    /// As [`download`](Self::download).
    pub(super) fn download_after(
        &self,
        before: Option<Unsent>,
        parts: &mut [(Operand, &mut [u8])],
    ) -> Result<()> {
        self.check()?;
        let total: u64 = parts.iter().map(|(_, bytes)| padded(bytes.len())).sum();
        if total == 0 {
            if let Some(before) = before {
                before.submit(self);
            }
            return Ok(());
        }
        let kept = total <= MOST_KEPT;
        let staging = match if kept { self.spare_staging(total) } else { self.staging(total) } {
            Ok(staging) => staging,
            Err(error) => {
                // What was to be done is done, though nobody sees what has come of it.
                before.map(|before| before.submit(self));
                return Err(error);
            }
        };
        self.download_by(&staging, before, parts)?;
        if kept {
            self.keep_staging(staging);
        }
        Ok(())
    }

    /// Memory that so many bytes are read back by.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    pub(super) fn staging(&self, bytes: u64) -> Result<Allocation> {
        use wgpu::BufferUsages as Usage;
        self.allocate("reading back", bytes, Usage::MAP_READ | Usage::COPY_DST)
    }

    /// [`download_after`](Self::download_after) by memory that is there already.
    ///
    /// # Errors
    /// [`Error::Device`] where the device was lost.
    pub(super) fn download_by(
        &self,
        staging: &Allocation,
        before: Option<Unsent>,
        parts: &mut [(Operand, &mut [u8])],
    ) -> Result<()> {
        let total: u64 = parts.iter().map(|(_, bytes)| padded(bytes.len())).sum();
        let mut commands = before.unwrap_or_else(|| Unsent::new(self));
        let encoder = &mut commands.encoder;
        let mut at = 0;
        for (operand, bytes) in parts.iter() {
            let size = padded(bytes.len());
            if size > 0 {
                let from = buffer(operand.allocation());
                encoder.copy_buffer_to_buffer(from, operand.offset(), buffer(staging), at, size);
            }
            at += size;
        }
        let copied = commands.submit(self);
        let mapped = self.map(buffer(staging), total, copied)?;
        let mut at = 0;
        for (_, bytes) in parts.iter_mut() {
            bytes.copy_from_slice(&mapped[at..at + bytes.len()]);
            at += padded(bytes.len()) as usize;
        }
        drop(mapped);
        buffer(staging).unmap();
        self.count(|statistics| {
            statistics.submits += 1;
            statistics.bytes_down += total;
        });
        Ok(())
    }

    /// Waits until a buffer can be read, which this submission has filled.
    fn map(
        &self,
        buffer: &wgpu::Buffer,
        bytes: u64,
        filled: wgpu::SubmissionIndex,
    ) -> Result<wgpu::BufferView> {
        let (sender, receiver) = std::sync::mpsc::channel();
        buffer.slice(..bytes).map_async(wgpu::MapMode::Read, move |result| {
            // Nobody listens any more where waiting has failed.
            let _ = sender.send(result);
        });
        let refused = |why: String| match self.check() {
            Err(error) => error,
            Ok(()) => Error::Device(format!("reading back from {} failed: {why}", self.adapter())),
        };
        // The newest that is known of may be another thread's, and older.
        self.wait_for(Some(filled))?;
        match receiver.recv() {
            Ok(Ok(())) => {
                buffer.slice(..bytes).get_mapped_range().map_err(|error| refused(error.to_string()))
            }
            Ok(Err(error)) => Err(refused(error.to_string())),
            Err(error) => Err(refused(error.to_string())),
        }
    }
}

/// Copies are made in units of four bytes.
fn padded(bytes: usize) -> u64 {
    bytes.next_multiple_of(4) as u64
}

//! Reading back what a device holds.

use super::Gpu;
use super::device::buffer;
use super::staging::MOST_KEPT;
use crate::shader::{Allocation, Operand};
use crate::{Error, Result};

impl Gpu {
    /// Reads operands back, each into its bytes; waits for all that was submitted before.
    ///
    /// # Errors
    /// [`Error::Device`] where the device was lost or is out of memory.
    pub(super) fn download(&self, parts: &mut [(Operand, &mut [u8])]) -> Result<()> {
        self.check()?;
        let total: u64 = parts.iter().map(|(_, bytes)| padded(bytes.len())).sum();
        if total == 0 {
            return Ok(());
        }
        if total > MOST_KEPT {
            return self.download_by(&self.staging(total)?, parts);
        }
        let staging = self.spare_staging(total)?;
        self.download_by(&staging, parts)?;
        self.keep_staging(staging);
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

    /// [`download`](Self::download) by memory that is there already.
    ///
    /// # Errors
    /// [`Error::Device`] where the device was lost.
    pub(super) fn download_by(&self, staging: &Allocation, parts: &mut [(Operand, &mut [u8])]) -> Result<()> {
        let total: u64 = parts.iter().map(|(_, bytes)| padded(bytes.len())).sum();
        let mut encoder = self.device.create_command_encoder(&Default::default());
        let mut at = 0;
        for (operand, bytes) in parts.iter() {
            let size = padded(bytes.len());
            if size > 0 {
                let from = buffer(operand.allocation());
                encoder.copy_buffer_to_buffer(from, operand.offset(), buffer(staging), at, size);
            }
            at += size;
        }
        self.submit(encoder.finish());
        let mapped = self.map(buffer(staging), total)?;
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

    /// Waits until a buffer can be read.
    fn map(&self, buffer: &wgpu::Buffer, bytes: u64) -> Result<wgpu::BufferView> {
        let (sender, receiver) = std::sync::mpsc::channel();
        buffer.slice(..bytes).map_async(wgpu::MapMode::Read, move |result| {
            // Nobody listens any more where waiting has failed.
            let _ = sender.send(result);
        });
        let refused = |why: String| match self.check() {
            Err(error) => error,
            Ok(()) => Error::Device(format!("reading back from {} failed: {why}", self.adapter())),
        };
        self.wait()?;
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

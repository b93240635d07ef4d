//! Reading back what a device holds.

use super::Gpu;
use super::device::buffer;
use crate::shader::Operand;
use crate::{Error, Result};

impl Gpu {
    /// Reads operands back, each into its bytes; waits for all that was submitted before.
    ///
    /// # Errors
    /// [`Error::Device`] where the device was lost or is out of memory.
    pub(super) fn download(&self, parts: &mut [(Operand, &mut [u8])]) -> Result<()> {
        self.check()?;
        let padded = |bytes: usize| bytes.next_multiple_of(4) as u64;
        let total: u64 = parts.iter().map(|(_, bytes)| padded(bytes.len())).sum();
        if total == 0 {
            return Ok(());
        }
        use wgpu::BufferUsages as Usage;
        let staging = self.allocate("reading back", total, Usage::MAP_READ | Usage::COPY_DST)?;
        let mut encoder = self.device.create_command_encoder(&Default::default());
        let mut at = 0;
        for (operand, bytes) in parts.iter() {
            let size = padded(bytes.len());
            if size > 0 {
                let from = buffer(operand.allocation());
                encoder.copy_buffer_to_buffer(from, operand.offset(), buffer(&staging), at, size);
            }
            at += size;
        }
        self.submit(encoder.finish());
        let mapped = self.map(buffer(&staging), total)?;
        let mut at = 0;
        for (_, bytes) in parts.iter_mut() {
            bytes.copy_from_slice(&mapped[at..at + bytes.len()]);
            at += padded(bytes.len()) as usize;
        }
        drop(mapped);
        buffer(&staging).unmap();
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
        self.device.poll(wgpu::PollType::wait_indefinitely()).map_err(|error| refused(error.to_string()))?;
        self.check()?;
        match receiver.recv() {
            Ok(Ok(())) => {
                buffer.slice(..bytes).get_mapped_range().map_err(|error| refused(error.to_string()))
            }
            Ok(Err(error)) => Err(refused(error.to_string())),
            Err(error) => Err(refused(error.to_string())),
        }
    }
}

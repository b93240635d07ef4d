//! Memory of the host that a device copies from, written by several threads, and used again and again: asking for such
//! memory takes longer than filling it.

use super::Gpu;
use super::device::buffer;
use super::fetching::begin_mapping;
use super::staging::{Idle, MOST_KEPT, MOST_SPARE, best_fit};
use crate::Result;
use crate::shader::{Allocation, Operand};
use crate::state::{Outbound, PIECE_BYTES};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// What operands are to be replaced by, one behind the other.
pub(super) struct Sending {
    gpu: Arc<Gpu>,
    staging: Allocation,
    bytes: u64,
    /// Who writes a piece has it alone.
    pieces: Vec<Mutex<wgpu::BufferViewMut>>,
    operands: Vec<Operand>,
}

impl fmt::Debug for Sending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sending({} bytes)", self.bytes)
    }
}

impl Sending {
    /// Memory for what these operands are to be replaced by.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) where the device was lost or is out of memory.
    pub(super) fn begin(gpu: &Arc<Gpu>, operands: Vec<Operand>) -> Result<Self> {
        gpu.check()?;
        let bytes: u64 = operands.iter().map(|operand| operand.elements as u64 * 4).sum();
        let staging = gpu.writable_staging(bytes.max(4))?;
        let held = buffer(&staging);
        let pieces = (0..bytes).step_by(PIECE_BYTES).map(|start| {
            let end = (start + PIECE_BYTES as u64).min(bytes);
            let view = held.slice(start..end).get_mapped_range_mut();
            view.map(Mutex::new).map_err(|error| gpu.unreadable(&error.to_string()))
        });
        let pieces = pieces.collect::<Result<_>>()?;
        Ok(Self { gpu: gpu.clone(), staging, bytes, pieces, operands })
    }
}

impl Outbound for Sending {
    fn put(&self, mut at: usize, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (piece, start) = (at / PIECE_BYTES, at % PIECE_BYTES);
            let (here, rest) = bytes.split_at(bytes.len().min(PIECE_BYTES - start));
            let mut view = self.pieces[piece].lock().unwrap_or_else(PoisonError::into_inner);
            view.slice(start..start + here.len()).copy_from_slice(here);
            at += here.len();
            bytes = rest;
        }
    }

    fn send(self: Box<Self>) -> Result<()> {
        let Self { gpu, staging, bytes, pieces, operands } = *self;
        drop(pieces);
        buffer(&staging).unmap();
        gpu.check()?;
        let mut encoder = gpu.device.create_command_encoder(&Default::default());
        let mut at = 0;
        for operand in &operands {
            let size = operand.elements as u64 * 4;
            if size > 0 {
                let to = buffer(operand.allocation());
                encoder.copy_buffer_to_buffer(buffer(&staging), at, to, operand.offset(), size);
            }
            at += size;
        }
        let submission = Some(gpu.submit(encoder.finish()));
        gpu.count(|statistics| {
            statistics.submits += 1;
            statistics.bytes_up += bytes;
        });
        gpu.keep_idle(staging, submission);
        gpu.check()
    }
}

impl Gpu {
    /// Memory that so many bytes are sent by, ready to be written.
    pub(super) fn writable_staging(&self, bytes: u64) -> Result<Allocation> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let found = best_fit(&idle, bytes, |idle| idle.staging.size()).map(|place| idle.swap_remove(place));
        drop(idle);
        let Some(Idle { staging, submission, mapped }) = found else { return self.new_writable(bytes) };
        // Mostly it has been there for long.
        let told = mapped.try_recv().ok().or_else(|| {
            let _ = self.in_turn(|| self.device.poll(wgpu::PollType::Poll));
            mapped.try_recv().ok()
        });
        if told.is_none() && bytes <= MOST_KEPT {
            // A little more memory rather than waiting for the device.
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            if idle.len() < MOST_SPARE {
                idle.push(Idle { staging, submission, mapped });
            }
            drop(idle);
            return self.new_writable(bytes);
        }
        match told {
            Some(Ok(())) => {}
            Some(Err(error)) => return Err(self.unreadable(&error.to_string())),
            None => {
                self.wait_for(submission)?;
                self.end_mapping(&mapped)?;
            }
        }
        Ok(staging)
    }

    /// New memory that is ready to be written from the start.
    fn new_writable(&self, bytes: u64) -> Result<Allocation> {
        use wgpu::BufferUsages as Usage;
        let staging = self.allocate("sending", bytes, Usage::MAP_WRITE | Usage::COPY_SRC)?;
        let mapped = begin_mapping(&staging, staging.size(), wgpu::MapMode::Write);
        let _ = self.in_turn(|| self.device.poll(wgpu::PollType::Poll));
        self.end_mapping(&mapped)?;
        Ok(staging)
    }

    /// Keeps memory for the next time, once what was submitted has copied it.
    pub(super) fn keep_idle(&self, staging: Allocation, submission: Option<wgpu::SubmissionIndex>) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MOST_SPARE {
            let mapped = begin_mapping(&staging, staging.size(), wgpu::MapMode::Write);
            idle.push(Idle { staging, submission, mapped });
        }
    }

    /// Lets go of memory that gradients came and went by, once nobody trains with it any more.
    pub(super) fn let_go_of_staging(&self) {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).retain(|held| held.size() <= MOST_KEPT);
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

//! How long frames and their kernels take on the device, by timestamps.

use super::Gpu;
use super::device::buffer;
use super::statistics::Timing;
use crate::Result;
use crate::shader::Operand;

/// The most timestamps of one frame; what comes later is not timed.
const MOST: u32 = 4096;

/// The timestamps of one frame.
pub(super) struct Timer {
    queries: wgpu::QuerySet,
    used: u32,
    /// The kernels between timestamps, where each is timed: its number, and that of the one before it.
    kernels: Option<Vec<(String, u32)>>,
    /// Beginning and end of each pass.
    passes: Vec<(u32, u32)>,
}

impl Timer {
    /// For a frame, where anything is to be measured.
    pub(super) fn new(gpu: &Gpu) -> Option<Self> {
        let kernels = match gpu.timing() {
            Timing::Off => return None,
            Timing::Frames => None,
            Timing::Kernels => Some(Vec::new()),
        };
        let queries = gpu.device.create_query_set(&wgpu::QuerySetDescriptor {
            label: Some("frame times"),
            ty: wgpu::QueryType::Timestamp,
            count: MOST,
        });
        Some(Self { queries, used: 0, kernels, passes: Vec::new() })
    }

    /// Timestamps for the ends of the next pass.
    pub(super) fn next_pass(&mut self) -> Option<wgpu::ComputePassTimestampWrites<'_>> {
        let first = self.used;
        if first + 2 > MOST {
            return None;
        }
        self.used += 2;
        self.passes.push((first, first + 1));
        Some(wgpu::ComputePassTimestampWrites {
            query_set: &self.queries,
            beginning_of_pass_write_index: Some(first),
            end_of_pass_write_index: Some(first + 1),
        })
    }

    /// A timestamp after a kernel, where each is timed.
    pub(super) fn after(&mut self, pass: &mut wgpu::ComputePass<'_>, label: &str) {
        if let Some(kernels) = &mut self.kernels
            && self.used < MOST
        {
            pass.write_timestamp(&self.queries, self.used);
            kernels.push((label.to_string(), self.used));
            self.used += 1;
        }
    }

    /// The time of all passes, once they are done; that of the kernels goes to the device's table.
    pub(super) fn finish(self, gpu: &Gpu) -> Result<f64> {
        if self.used == 0 {
            return Ok(0.0);
        }
        use wgpu::BufferUsages as Usage;
        let bytes = u64::from(self.used) * 8;
        let resolved = gpu.allocate("frame times", bytes, Usage::QUERY_RESOLVE | Usage::COPY_SRC)?;
        let mut encoder = gpu.device.create_command_encoder(&Default::default());
        encoder.resolve_query_set(&self.queries, 0..self.used, buffer(&resolved), 0);
        gpu.submit(encoder.finish());
        let mut ticks = vec![0u64; self.used as usize];
        let operand = Operand::new(&resolved, 0, ticks.len() * 2);
        gpu.download(&mut [(operand, bytemuck::cast_slice_mut(&mut ticks))])?;
        let period = f64::from(gpu.queue.get_timestamp_period()) * 1e-9;
        let seconds =
            |from: u32, to: u32| ticks[to as usize].saturating_sub(ticks[from as usize]) as f64 * period;
        // A kernel's time counts from the timestamp before it: the last kernel's, or its pass's start.
        for (label, at) in self.kernels.iter().flatten() {
            let starts = self.passes.iter().map(|pass| pass.0);
            let ends = self.kernels.iter().flatten().map(|(_, at)| *at);
            let from = starts.chain(ends).filter(|other| other < at).max().unwrap_or(*at);
            gpu.count_kernel(label, seconds(from, *at));
        }
        Ok(self.passes.iter().map(|(from, to)| seconds(*from, *to)).sum())
    }
}

//! The command frame: dispatches in order, submitted in parts while the rest is recorded.

use super::Gpu;
use super::device::buffer;
use super::dispatch::{Dispatch, Work as Doing};
use super::pipeline::Pipeline;
use super::recording;
use super::steps::STEP_BYTES;
use super::timer::Timer;
use super::unsent::Unsent;
use super::work::Work;
use crate::Result;
use crate::shader::{Accelerator, Allocation, HostCall, Operand};
use std::sync::Arc;

/// Dispatches after which what there is is submitted, so that the device works while the rest
/// is recorded: few at first, since until then it has nothing to do, then ever more.
const FIRST_SUBMIT: usize = 32;
/// The most dispatches of one submit.
const LARGEST_SUBMIT: usize = 512;

/// Commands on their way to a device.
pub(super) struct Frame<'a> {
    gpu: &'a Gpu,
    table: &'a wgpu::BindGroup,
    open: Option<(Unsent, wgpu::ComputePass<'static>)>,
    /// What comes before the next kernel, in the same submit.
    before: Option<Unsent>,
    waiting: usize,
    /// How many may wait until they are submitted.
    enough: usize,
    dispatches: u64,
    submits: u64,
    timer: Option<Timer>,
    /// The newest kernel.
    last: Option<Arc<Pipeline>>,
    /// What could not be recorded.
    refused: Result<()>,
}

impl<'a> Frame<'a> {
    /// An empty frame whose kernels read this step table.
    pub(super) fn begin(gpu: &'a Gpu, table: &'a wgpu::BindGroup) -> Self {
        let timer = Timer::new(gpu);
        Self {
            gpu,
            table,
            open: None,
            before: None,
            waiting: 0,
            enough: FIRST_SUBMIT,
            dispatches: 0,
            submits: 0,
            timer,
            last: None,
            refused: Ok(()),
        }
    }

    /// The same after commands that the device has not been given yet.
    pub(super) fn after(self, before: Option<Unsent>) -> Self {
        Self { before, ..self }
    }

    /// Adds a dispatch, as that of step number `step` of the frame.
    pub(super) fn record(&mut self, dispatch: &Dispatch, step: u32) {
        if self.refused.is_err() {
            // What follows would compute from what is not there.
            return;
        }
        let bound = match &dispatch.work {
            Doing::Kernel(bound) => bound,
            Doing::Host(call) => return self.refused = self.compute(call),
        };
        let (gpu, table) = (self.gpu, self.table);
        let pipeline = match gpu.compiled(&bound.pipeline) {
            Ok(pipeline) => pipeline,
            Err(error) => return self.refused = Err(error),
        };
        let (timer, before) = (&mut self.timer, &mut self.before);
        let (_, pass) = self.open.get_or_insert_with(|| {
            let mut commands = before.take().unwrap_or_else(|| Unsent::new(gpu));
            let timestamps = timer.as_mut().and_then(Timer::next_pass);
            let pass = commands.begin_pass(table, timestamps);
            (commands, pass)
        });
        bound.put(pass, pipeline, step + dispatch.ahead);
        if let Some(timer) = timer {
            timer.after(pass, bound.pipeline.label());
        }
        self.dispatches += 1;
        self.waiting += 1;
        self.last = Some(bound.pipeline.clone());
        if self.waiting >= self.enough || gpu.cuts_every_dispatch() {
            self.enough = (2 * self.enough).min(LARGEST_SUBMIT);
            self.submit();
        }
    }

    /// Adds dispatches, each as that of a step's number; where they are many, several threads record them.
    pub(super) fn record_all(&mut self, dispatches: &[(&Dispatch, u32)]) {
        let kernels = || dispatches.iter().all(|(dispatch, _)| matches!(dispatch.work, Doing::Kernel(_)));
        let whole = self.open.is_none() && self.timer.is_none() && !self.gpu.cuts_every_dispatch();
        if !(whole && self.refused.is_ok() && dispatches.len() >= recording::FEWEST && kernels()) {
            return dispatches.iter().for_each(|(dispatch, step)| self.record(dispatch, *step));
        }
        let (first, last) = dispatches.split_at(dispatches.len() - recording::LAST);
        let parts = recording::parts(first);
        let recorded = recording::submit(self.gpu, self.table, &parts, self.before.take());
        self.submits += parts.len() as u64;
        self.dispatches += first.len() as u64;
        if recorded.is_err() {
            return self.refused = recorded;
        }
        last.iter().for_each(|(dispatch, step)| self.record(dispatch, *step));
    }

    /// Cuts the frame: waits for all that was recorded, and has the host compute.
    fn compute(&mut self, call: &HostCall) -> Result<()> {
        self.submit();
        self.gpu.check()?;
        let bytes = |operands: &[Operand]| -> Vec<Vec<u8>> {
            operands.iter().map(|operand| vec![0; operand.elements * 4]).collect()
        };
        let (mut reads, mut writes) = (bytes(&call.reads), bytes(&call.writes));
        let operands = call.reads.iter().chain(&call.writes).cloned();
        let mut parts: Vec<(Operand, &mut [u8])> =
            operands.zip(reads.iter_mut().chain(&mut writes).map(Vec::as_mut_slice)).collect();
        self.gpu.download(&mut parts)?;
        drop(parts);
        let reads: Vec<&[u8]> = reads.iter().map(Vec::as_slice).collect();
        let mut results: Vec<&mut [u8]> = writes.iter_mut().map(Vec::as_mut_slice).collect();
        call.work.run(call.rows, &reads, &mut results)?;
        for (operand, bytes) in call.writes.iter().zip(&writes) {
            self.gpu.upload(operand.allocation(), operand.offset(), bytes);
        }
        Ok(())
    }

    /// Sends what is recorded to the device; the next dispatch starts a new pass.
    pub(super) fn submit(&mut self) {
        if let Some(commands) = self.unsent() {
            commands.submit(self.gpu);
            self.submits += 1;
            self.waiting = 0;
        }
    }

    /// What has not been submitted yet.
    fn unsent(&mut self) -> Option<Unsent> {
        // A pass ends where it is dropped.
        let open = self.open.take().map(|(commands, _)| commands);
        open.or_else(|| self.before.take())
    }

    /// Submits the rest and counts the frame.
    ///
    /// # Errors
    /// [`Error::Device`] for what the device has refused so far.
    pub(super) fn finish(mut self, steps: usize) -> Result<()> {
        self.submit();
        self.count(steps)
    }

    /// Counts the frame, and leaves the last of its commands to who goes on with them at once.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub(super) fn finish_unsent(mut self, steps: usize) -> Result<Option<Unsent>> {
        if self.timer.is_some() {
            self.submit();
        }
        let unsent = self.unsent();
        self.count(steps)?;
        Ok(unsent)
    }

    fn count(mut self, steps: usize) -> Result<()> {
        self.gpu.note_work(Work { steps, dispatches: self.dispatches, last: self.last.take() });
        let seconds = match self.timer.take() {
            Some(timer) => timer.finish(self.gpu)?,
            None => 0.0,
        };
        self.gpu.count(|statistics| {
            statistics.frames += 1;
            statistics.steps += steps as u64;
            statistics.dispatches += self.dispatches;
            statistics.submits += self.submits;
            statistics.device_seconds += seconds;
        });
        self.gpu.check()?;
        self.refused
    }
}

/// A table with room for what changes in so many steps.
pub(super) fn new_table(gpu: &Gpu, steps: usize) -> Result<(Allocation, wgpu::BindGroup)> {
    let table = gpu.storage("step table", (steps * STEP_BYTES) as u64)?;
    let group = gpu.device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: Some("step table"),
        layout: &gpu.pipelines.table,
        entries: &[wgpu::BindGroupEntry { binding: 0, resource: buffer(&table).as_entire_binding() }],
    });
    Ok((table, group))
}

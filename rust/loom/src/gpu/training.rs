//! Many training steps in one frame: batches gathered on the device, a verdict on each step, losses
//! read back once at the end.

use super::Gpu;
use super::frame::{ACTIVE, Frame, note_writes};
use super::kernel::{Kernel, Template};
use super::memory::{Memory, Operand};
use super::recorder::{Bind, Dispatch, Recorder};
use super::steps::{STEP_BYTES, encode_step};
use crate::cpu::StepValues;
use crate::network::Registry;
use crate::program::{Phase, Program, Value};
use crate::{Error, Result};

/// Examples that were copied to the device once, for many epochs.
#[derive(Debug)]
pub(crate) struct Resident {
    /// (rows, elements a row), each with the port that takes a batch of it.
    arrays: Vec<ResidentArray>,
    rows: usize,
    order: Operand,
}

#[derive(Debug)]
struct ResidentArray {
    data: Operand,
    width: usize,
    port: Value,
}

impl Resident {
    /// Copies whole arrays of 32-bit elements; `None` where one is larger than kernels can see.
    ///
    /// # Errors
    /// [`Error::Device`] where the device is out of memory.
    pub(crate) fn new(gpu: &Gpu, rows: usize, arrays: &[(Value, usize, &[u8])]) -> Result<Option<Self>> {
        let limit = gpu.capabilities().max_binding;
        if arrays.iter().any(|(_, _, bytes)| bytes.len() > limit) {
            return Ok(None);
        }
        let mut resident = Vec::with_capacity(arrays.len());
        for &(port, width, bytes) in arrays {
            let data = Operand::allocate(gpu, "training examples", bytes.len() / 4)?;
            gpu.upload(data.allocation(), 0, bytes);
            gpu.count(|statistics| statistics.bytes_up += bytes.len() as u64);
            resident.push(ResidentArray { data, width, port });
        }
        let order = Operand::allocate(gpu, "order of the examples", rows)?;
        Ok(Some(Self { arrays: resident, rows, order }))
    }

    /// Rows of the examples.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Adds what copies a batch into the ports of a run.
    fn record(&self, recorder: &mut Recorder<'_>, memory: &Memory, program: &Program) -> Result<()> {
        const THREADS: usize = 256;
        let rows = recorder.rows();
        for array in &self.arrays {
            let port = memory.value(program, array.port, rows)?;
            let wide = array.width.is_multiple_of(4);
            let kernel = Template::new(include_str!("gather.wgsl"))
                .section("TYPE", if wide { "vec4<u32>" } else { "u32" })
                .constant("THREADS", THREADS)
                .kernel("gather");
            let width = if wide { array.width / 4 } else { array.width };
            let operands =
                [Bind::Read(self.order.clone()), Bind::Read(array.data.clone()), Bind::Write(port)];
            let groups = (rows * width).div_ceil(THREADS);
            recorder.dispatch(&kernel, &operands, &[rows as u32, width as u32], groups)?;
        }
        Ok(())
    }
}

/// One step of a frame.
#[derive(Clone, Debug)]
pub(crate) struct FrameStep {
    /// Its values.
    pub values: StepValues,
    /// Rows of its batch.
    pub rows: usize,
    /// Where they start in the frame's order.
    pub first_row: usize,
}

/// What a step has come to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Outcome {
    /// Its losses, summed.
    pub loss: f32,
    /// The gradient norm, where the program has one.
    pub norm: f32,
    /// Whether it was not finite, or came after one that halted the frame.
    pub left_out: bool,
}

/// Words of one step's outcome.
const OUTCOME_WORDS: usize = 4;

/// Runs training steps one after another in one frame and waits for their outcomes.
///
/// `order` names the rows of the resident examples that the steps take; without `resident`, the
/// batch is in the run already, and there is one step. With `halts`, a step that is not finite
/// ends the frame; otherwise only that step is left out.
///
/// # Errors
/// [`Error::Device`] where the device cannot run a step or was lost.
pub(crate) fn train_frame(
    memory: &mut Memory,
    program: &Program,
    registry: &mut Registry,
    steps: &[FrameStep],
    resident: Option<(&Resident, &[u32])>,
    phases: std::ops::RangeInclusive<Phase>,
    halts: bool,
) -> Result<Vec<Outcome>> {
    let gpu = memory.gpu().clone();
    gpu.check()?;
    let ports = program.ports();
    let Some(losses) = ports.row_losses else {
        return Err(Error::Internal("a training program lacks its losses".into()));
    };
    if let Some((resident, order)) = resident {
        gpu.upload(resident.order.allocation(), 0, bytemuck::cast_slice(order));
    }
    let table: Vec<u8> = steps.iter().flat_map(|step| encode_step(&step.values, step.first_row)).collect();
    debug_assert_eq!(table.len(), steps.len() * STEP_BYTES);
    memory.set_table(&table)?;
    gpu.upload(memory.control().allocation(), 0, bytemuck::cast_slice(&ACTIVE));
    let outcomes = memory.outcomes(steps.len() * OUTCOME_WORDS)?;

    let until_verdict = *phases.start()..=Phase::Verdict;
    let mut lists: Vec<((usize, bool), [std::sync::Arc<Vec<Dispatch>>; 2], Vec<Dispatch>, Vec<Dispatch>)> =
        Vec::new();
    for step in steps {
        let key = (step.rows, step.values.gradients_zeroed);
        if lists.iter().any(|(known, ..)| *known == key) {
            continue;
        }
        let mut mirror = registry.mirror()?;
        let mut list = |phases| memory.dispatches(program, registry, &mut mirror, key.0, key.1, phases);
        let both = [list(until_verdict.clone())?, list(Phase::Update..=Phase::Commit)?];
        let mut recorder = Recorder::new(&gpu, step.rows, memory.control().clone());
        if let Some((resident, _)) = resident {
            resident.record(&mut recorder, memory, program)?;
        }
        let gather = std::mem::take(&mut recorder.dispatches);
        let losses = memory.value(program, losses, step.rows)?;
        let norm = match ports.gradient_norm {
            Some(norm) => memory.value(program, norm, step.rows)?,
            None => losses.clone(),
        };
        let operands = [
            Bind::Read(losses),
            Bind::Read(norm),
            Bind::Write(memory.control().clone()),
            Bind::Write(outcomes.clone()),
        ];
        let constants = [step.rows as u32, u32::from(halts)];
        recorder.dispatch(&verdict(ports.gradient_norm.is_some()), &operands, &constants, 1)?;
        lists.push((key, both, gather, recorder.dispatches));
    }
    let mut frame = Frame::begin(&gpu, memory.table_group());
    for (number, step) in steps.iter().enumerate() {
        let key = (step.rows, step.values.gradients_zeroed);
        let found = lists.iter().find(|(known, ..)| *known == key);
        let Some((_, [before, after], gather, verdict)) = found else { continue };
        for dispatch in gather.iter().chain(before.iter()).chain(verdict).chain(after.iter()) {
            frame.record(dispatch, number as u32);
        }
    }
    frame.finish(steps.len())?;
    let mut words = vec![0u32; steps.len() * OUTCOME_WORDS];
    Frame::download(&gpu, &mut [(outcomes, bytemuck::cast_slice_mut(&mut words))])?;
    note_writes(program, registry, &phases)?;
    Ok(words
        .chunks_exact(OUTCOME_WORDS)
        .map(|words| Outcome {
            loss: f32::from_bits(words[0]),
            norm: f32::from_bits(words[1]),
            left_out: words[2] != 0,
        })
        .collect())
}

fn verdict(has_norm: bool) -> Kernel {
    Template::new(include_str!("verdict.wgsl")).flag("HAS_NORM", has_norm).kernel("verdict")
}

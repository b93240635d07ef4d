//! Many training steps in one frame: batches gathered on the device, a verdict on each step, losses
//! read back once at the end.

use super::Gpu;
use super::dispatch::{Dispatch, schedule};
use super::execute::note_writes;
use super::memory::{Left, Memory, StepKey, Stored};
use super::mirror::of_gpu;
use super::staging::MOST_KEPT;
use super::steps::{STEP_BYTES, control_before, encode_step};
use crate::ops::Op;
use crate::ops::measure::{Header, MeasureMemory};
use crate::program::{FrameStep, Outcome, Outcomes, Phase, Place, Program, Step};
use crate::shader::{Accelerator, Bind, Operand, Recorder, Shader};
use crate::state::{LossScale, Registry};
use crate::tensor::Precision;
use crate::{Error, Result};
use std::sync::Arc;

/// Examples that were copied to the device once, for many epochs.
#[derive(Debug)]
pub(crate) struct Resident {
    /// Inputs, targets and, where there are such, weights, with the elements of a row.
    arrays: Vec<(Operand, usize)>,
    rows: usize,
    order: Operand,
}

impl Resident {
    /// Copies whole arrays of 32-bit elements: inputs, targets, and weights if any. `None` where one
    /// is larger than kernels can see, or all together than the device has memory for.
    ///
    /// # Errors
    /// [`Error::Device`] where the device was lost.
    pub(crate) fn new(gpu: &Gpu, rows: usize, arrays: &[&[u8]]) -> Result<Option<Self>> {
        let limit = gpu.capabilities().max_binding;
        if arrays.iter().any(|bytes| bytes.len() > limit) {
            return Ok(None);
        }
        let mut resident = Vec::with_capacity(arrays.len());
        for bytes in arrays {
            let data = match Operand::allocate(gpu, "training examples", bytes.len() / 4) {
                Ok(data) => data,
                Err(error) if gpu.is_lost() => return Err(error),
                // Batches then go there one by one.
                Err(_) => return Ok(None),
            };
            gpu.upload(data.allocation(), 0, bytes);
            resident.push((data, bytes.len() / 4 / rows.max(1)));
        }
        match Operand::allocate(gpu, "order of the examples", rows) {
            Ok(order) => Ok(Some(Self { arrays: resident, rows, order })),
            Err(error) if gpu.is_lost() => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// What copies a batch into the ports of a run, for the step that comes so many after the one it
    /// is replayed with.
    fn gather(
        &self,
        gpu: &Gpu,
        memory: &Memory,
        program: &Program,
        rows: usize,
        ahead: u32,
    ) -> Result<Vec<Dispatch>> {
        let mut recorder = Recorder::new(gpu, rows, memory.control().clone());
        let ports = program.ports();
        let takers = [ports.input, ports.target, ports.sample_weight];
        for ((data, width), port) in self.arrays.iter().zip(takers.into_iter().flatten()) {
            let batch = memory.value(program, port, rows)?;
            let (unit, kind) = if width.is_multiple_of(4) { (4, "vec4<u32>") } else { (1, "u32") };
            Shader::new("gather", include_str!("gather.wgsl"))
                .read("order", "u32", self.order.clone())
                .read("data", kind, data.clone())
                .write("batch", kind, batch)
                .number("rows", rows)
                // Units of a row.
                .number("width", width / unit)
                .elements(&mut recorder, rows * width / unit)?;
        }
        Ok(Dispatch::all(gpu, recorder.recorded, ahead))
    }
}

impl crate::program::Resident for Resident {
    fn rows(&self) -> usize {
        self.rows
    }
}

/// Words of one step's outcome.
const OUTCOME_WORDS: usize = 4;

/// Runs training steps one after another in one frame and waits for their outcomes.
///
/// `resident` are examples on the device with the rows of them that the steps take; without them
/// the batch is in the run already, and there is one step. `kept` keeps that many elements of each
/// step's output. With `halts`, a step that is not finite ends the frame; otherwise only that
/// step is left out. In mixed precision, such a step is left out and halves the loss scale while that
/// is above 1, whatever `halts` says.
///
/// # Errors
/// [`Error::Device`] where the device cannot run a step or was lost.
pub(crate) fn train_frame(
    memory: &mut Memory,
    program: &Program,
    registry: &mut Registry,
    steps: &[FrameStep],
    resident: Option<(&Resident, &[u32])>,
    kept: Option<usize>,
    halts: bool,
) -> Result<Outcomes> {
    let gpu = memory.gpu().clone();
    gpu.check()?;
    let watch = registry.watch.clone().filter(|_| program.ports().judges);
    if let Some((resident, order)) = resident {
        gpu.upload(resident.order.allocation(), 0, bytemuck::cast_slice(order));
    }
    let table: Vec<u8> = steps.iter().flat_map(|step| encode_step(&step.values, step.first_row)).collect();
    debug_assert_eq!(table.len(), steps.len() * STEP_BYTES);
    memory.set_table(&table)?;
    let first = steps.first().map(|step| step.values.clone()).unwrap_or_default();
    memory.set_control(control_before(&first), false)?;
    // All that fits memory which is kept from frame to frame has steps recorded once.
    let mut kept_whole = true;
    let mut left = |what, elements| -> Result<Operand> {
        let (operand, is_kept) = memory.left(what, steps.len() * elements)?;
        kept_whole &= is_kept;
        Ok(operand)
    };
    let outcomes = left(Left::Outcomes, OUTCOME_WORDS)?;
    let outputs = match kept {
        Some(elements) => Some((left(Left::Outputs, elements)?, elements)),
        None => None,
    };
    let figures = match watch.as_ref().map(|places| places.memory.kept()) {
        Some(kept) => Some((left(Left::Measures, kept)?, kept)),
        None => None,
    };
    let resident = resident.map(|(resident, _)| resident);
    let key = |rows, next| StepKey {
        rows,
        next,
        halts,
        keeps: [&outputs, &figures].map(|kept| kept.as_ref().map(|(_, elements)| *elements)),
        examples: resident.map(|resident| resident.order.allocation().number()),
    };
    let mut lists = Vec::new();
    let followers = steps.iter().skip(1).map(|step| step.rows).map(Some).chain([None]);
    // A step's list gathers the next step's batch while the weights are being updated.
    let keys: Vec<(usize, Option<usize>)> = steps.iter().map(|step| step.rows).zip(followers).collect();
    for &(rows, next) in &keys {
        if lists.iter().any(|(known, _)| *known == (rows, next)) {
            continue;
        }
        let mut held = registry.mirror()?;
        let mirror = of_gpu(&mut **held)?;
        let stored = Stored { registry, carried: registry.carried.as_ref() };
        memory.prepare(program, stored, mirror)?;
        if kept_whole && let Some(list) = memory.step(key(Some(rows), next)) {
            lists.push(((rows, next), list));
            continue;
        }
        let measures = match &watch {
            Some(places) => Some(mirror.operand(Place::State(places.measures), registry)?),
            None => None,
        };
        let mut recorder = Recorder::new(&*gpu, rows, memory.control().clone());
        let judged = measures.as_ref().filter(|_| program.ports().recovers);
        let looks = last_looks(program).filter(|_| judged.is_none());
        record_verdict(
            &mut recorder,
            memory,
            program,
            (&outcomes, judged, looks.map(|(_, step)| step)),
            halts,
        )?;
        if let Some((outputs, elements)) = &outputs {
            let output = output_of(memory, program, rows)?;
            record_keep(&mut recorder, output, outputs, *elements)?;
        }
        if let (Some((figures, kept)), Some(measures)) = (&figures, &measures) {
            record_keep(&mut recorder, measures.slice(0, *kept)?, figures, *kept)?;
        }
        let verdict = Dispatch::all(&gpu, recorder.recorded, 0);
        let gathered = match (resident, next) {
            (Some(resident), Some(next)) => resident.gather(&gpu, memory, program, next, 1)?,
            _ => Vec::new(),
        };
        let all = program.steps.len();
        let mut list = |phases, part| memory.dispatches(program, stored, mirror, rows, true, (phases, part));
        // The verdict does the work of a step that brings looks together.
        let (end, behind) = looks.map_or((all, all), |(place, _)| (place, place + 1));
        let before = [
            list(Phase::Forward..=Phase::Verdict, 0..end)?,
            list(Phase::Forward..=Phase::Verdict, behind..all)?,
        ];
        let after = list(Phase::States..=Phase::Commit, 0..all)?;
        let before = before.iter().flat_map(|list| list.iter().cloned());
        let list = Arc::new(schedule(before.chain(verdict).chain(after.iter().cloned()).chain(gathered)));
        gpu.compile(&list)?;
        if kept_whole {
            memory.keep_step(key(Some(rows), next), &list);
        }
        lists.push(((rows, next), list));
    }
    let first = match (resident, steps.first()) {
        (Some(resident), Some(step)) => {
            let key = key(None, Some(step.rows));
            match memory.step(key) {
                Some(first) => first,
                None => {
                    let first = Arc::new(resident.gather(&gpu, memory, program, step.rows, 0)?);
                    gpu.compile(&first)?;
                    memory.keep_step(key, &first);
                    first
                }
            }
        }
        _ => Arc::default(),
    };
    // Memory for what comes back is there before anything moves.
    let kept = outputs.as_ref().map_or(0, |(_, elements)| steps.len() * elements);
    let measured = figures.as_ref().map_or(0, |(_, elements)| steps.len() * elements);
    let bytes = ((steps.len() * OUTCOME_WORDS + kept + measured) * 4) as u64;
    let staging = if bytes > MOST_KEPT { gpu.staging(bytes)? } else { gpu.spare_staging(bytes)? };
    let mut frame = memory.frame()?;
    let mut all: Vec<(&Dispatch, u32)> = first.iter().map(|dispatch| (dispatch, 0)).collect();
    for (number, key) in (0u32..).zip(&keys) {
        if let Some((_, list)) = lists.iter().find(|(known, _)| known == key) {
            all.extend(list.iter().map(|dispatch| (dispatch, number)));
        }
    }
    frame.record_all(&all);
    let last = frame.finish_unsent(steps.len())?;
    note_writes(program, registry, &(Phase::Forward..=Phase::Commit))?;
    let mut words = vec![0u32; steps.len() * OUTCOME_WORDS];
    let mut kept = vec![0f32; kept];
    let mut parts = vec![(outcomes, bytemuck::cast_slice_mut(&mut words))];
    if let Some((operand, _)) = outputs {
        parts.push((operand, bytemuck::cast_slice_mut(&mut kept)));
    }
    let mut measures = vec![0f32; measured];
    if let Some((operand, _)) = figures {
        parts.push((operand, bytemuck::cast_slice_mut(&mut measures)));
    }
    gpu.download_by(&staging, last, &mut parts)?;
    if bytes <= MOST_KEPT {
        gpu.keep_staging(staging);
    }
    let outcomes = words.chunks_exact(OUTCOME_WORDS).map(|words| Outcome {
        loss: f32::from_bits(words[0]),
        norm: f32::from_bits(words[1]),
        left_out: words[2] != 0,
        overflowed: words[2] == 2,
        refused: (words[2] % 8 == 5).then_some(words[2] / 8),
        exploded: words[2] == 3 || words[2] == 4,
        taken_back: words[2] == 4,
        scale: f32::from_bits(words[3]),
    });
    Ok(Outcomes { steps: outcomes.collect(), outputs: kept, measures })
}

/// The step that brings the last looks ahead together, and where it stands: what it makes only the verdict reads.
fn last_looks(program: &Program) -> Option<(usize, &Step)> {
    let foreseen = program.ports().foreseen?;
    program.steps.iter().enumerate().find(|(_, step)| {
        matches!(&step.op, Op::Foresight(looks) if looks.judged.is_none())
            && step.writes.first() == Some(&foreseen)
    })
}

/// Adds the verdict on a step, which brings `looks` together where they are not yet.
fn record_verdict(
    recorder: &mut Recorder<'_>,
    memory: &Memory,
    program: &Program,
    (outcomes, measures, looks): (&Operand, Option<&Operand>, Option<&Step>),
    halts: bool,
) -> Result<()> {
    let (ports, rows) = (program.ports(), recorder.rows());
    let Some(losses) = ports.row_losses else {
        return Err(Error::Internal("a training program lacks its losses".into()));
    };
    let losses = memory.value(program, losses, rows)?;
    let norm = match ports.gradient_norm {
        Some(norm) => memory.value(program, norm, rows)?,
        None => losses.clone(),
    };
    let mut shader = Shader::new("verdict", include_str!("verdict.wgsl"))
        .flag("HAS_NORM", ports.gradient_norm.is_some())
        .flag("SCALED", program.precision() == Precision::Mixed)
        .constant("GROWTH_STEPS", LossScale::GROWTH_STEPS)
        .float("LARGEST_SCALE", f64::from(LossScale::LARGEST))
        .flag("JUDGED", measures.is_some())
        .read("losses", "f32", losses)
        .read("norm", "f32", norm)
        .bind("control", "Control", Bind::Write(memory.control().clone()))
        .write("outcomes", "vec4<u32>", outcomes.clone())
        .number("rows", rows)
        // Whether a step that is not finite ends the frame.
        .number("halts", halts);
    shader = match measures {
        Some(measures) => shader
            .section("ACTION", format!("measures[{}]", MeasureMemory::header(Header::Action)))
            .read("measures", "f32", measures.clone()),
        None => shader.section("ACTION", "1.0"),
    };
    let looks = match (looks, ports.foreseen, measures) {
        (Some(Step { op: Op::Foresight(looks), reads, .. }), ..) => {
            let reads: Vec<Operand> =
                reads.iter().map(|look| memory.value(program, *look, rows)).collect::<Result<_>>()?;
            let text;
            (shader, text) = looks.bring_together(shader, &reads);
            text
        }
        // Where the measures judge steps, they have been told.
        (_, Some(foreseen), None) => {
            shader = shader.read("foreseen", "f32", memory.value(program, foreseen, rows)?);
            "found = u32(foreseen[0]);".to_string()
        }
        _ => String::new(),
    };
    shader.section("LOOKS", looks).groups(recorder, 1)
}

/// A program's output.
fn output_of(memory: &Memory, program: &Program, rows: usize) -> Result<Operand> {
    let Some(output) = program.ports().output else {
        return Err(Error::Internal("a training program lacks its output".into()));
    };
    memory.value(program, output, rows)
}

/// Adds what keeps a step's `output` for after the frame.
fn record_keep(recorder: &mut Recorder<'_>, output: Operand, outputs: &Operand, stride: usize) -> Result<()> {
    let elements = output.elements;
    Shader::new("keep output", include_str!("keep.wgsl"))
        .read("output", "f32", output)
        .write("outputs", "f32", outputs.clone())
        .number("elements", elements)
        // Elements that each step has room for.
        .number("stride", stride)
        .elements(recorder, elements)
}

//! Runs phases of a program in one frame, whose dispatches are recorded once.

use super::dispatch::Dispatch;
use super::memory::{Memory, Stored};
use super::mirror::of_gpu;
use super::steps::{control_before, encode_step};
use crate::ops::StepValues;
use crate::program::{Access, FrameTick, Phase, Program};
use crate::state::Registry;
use crate::{Error, Result};
use std::ops::{Range, RangeInclusive};
use std::sync::PoisonError;

/// Runs these steps of these phases of a program once for each of these values, in one frame, without waiting for them to end. Their
/// dispatches are recorded once; several runs are of inference alone, where nothing else changes between them. With `fetches`
/// the last of the frame is held back for the caller, who is going to fetch what it makes.
///
/// # Errors
/// [`Error::Device`] where the device cannot run a step, naming the layer.
pub(crate) fn execute(
    memory: &mut Memory,
    program: &Program,
    rows: usize,
    access: Access<'_>,
    (phases, part): (RangeInclusive<Phase>, Range<usize>),
    values: &[StepValues],
    fetches: bool,
) -> Result<()> {
    let gpu = memory.gpu().clone();
    gpu.check()?;
    let Some(first) = values.first() else { return Ok(()) };
    memory.set_row_places(&first.places)?;
    let list = {
        let registry = access.get();
        let stored = Stored { registry, carried: access.carried() };
        let mut held = registry.mirror()?;
        let mirror = of_gpu(&mut **held)?;
        let zeroed = first.gradients_zeroed;
        memory.dispatches(program, stored, mirror, rows, zeroed, (phases.clone(), part))?
    };
    let table: Vec<u8> = values.iter().flat_map(|values| encode_step(values, 0)).collect();
    memory.set_table(&table)?;
    // What goes forwards alone comes to no verdict.
    memory.set_control(control_before(first), *phases.end() == Phase::Forward)?;
    let mut frame = memory.frame()?;
    let steps = 0..values.len() as u32;
    let all: Vec<(&Dispatch, u32)> =
        steps.flat_map(|number| list.iter().map(move |dispatch| (dispatch, number))).collect();
    frame.record_all(&all);
    if fetches {
        memory.hold_back(frame.finish_unsent(values.len())?);
    } else {
        frame.finish(values.len())?;
    }
    if let Access::Exclusive(registry) = access {
        note_writes(program, registry, &phases)?;
    }
    Ok(())
}

/// Notes in the mirror what these phases have written on the device.
pub(super) fn note_writes(
    program: &Program,
    registry: &mut Registry,
    phases: &RangeInclusive<Phase>,
) -> Result<()> {
    let Some(mirror) = registry.mirror.take() else {
        return Err(Error::Internal("a network without a mirror ran on a GPU".into()));
    };
    let mut inner = mirror.into_inner().unwrap_or_else(PoisonError::into_inner);
    let outcome = of_gpu(&mut *inner).map(|mirror| mirror.note_writes(program, registry, phases));
    registry.mirror = Some(inner.into());
    outcome
}

/// Runs a program once for each of these ticks in one frame, without waiting for them to end: each
/// place of the ring has its dispatches recorded once.
///
/// # Errors
/// [`Error::Device`] where the device cannot run a step, naming the layer.
pub(crate) fn execute_ticks(
    memory: &mut Memory,
    program: &Program,
    rows: usize,
    registry: &mut Registry,
    phases: RangeInclusive<Phase>,
    ticks: &[FrameTick],
) -> Result<()> {
    let gpu = memory.gpu().clone();
    gpu.check()?;
    let Some(first) = ticks.first() else { return Ok(()) };
    let mut lists = Vec::with_capacity(ticks.len());
    for tick in ticks {
        if let Some(ring) = &mut registry.ring {
            ring.clock = tick.clock;
        }
        let stored = Stored { registry, carried: None };
        let mut held = registry.mirror()?;
        let mirror = of_gpu(&mut **held)?;
        let zeroed = tick.values.gradients_zeroed;
        let all = 0..program.steps.len();
        lists.push(memory.dispatches(program, stored, mirror, rows, zeroed, (phases.clone(), all))?);
    }
    let table: Vec<u8> = ticks.iter().flat_map(|tick| encode_step(&tick.values, 0)).collect();
    memory.set_table(&table)?;
    memory.set_control(control_before(&first.values), *phases.end() == Phase::Forward)?;
    let mut frame = memory.frame()?;
    let steps = lists.iter().zip(0u32..);
    let all: Vec<(&Dispatch, u32)> =
        steps.flat_map(|(list, number)| list.iter().map(move |dispatch| (dispatch, number))).collect();
    frame.record_all(&all);
    frame.finish(ticks.len())?;
    note_writes(program, registry, &phases)
}

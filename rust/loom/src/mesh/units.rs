//! Layers that a processor runs by themselves, side by side with others.

use crate::cpu::execute;
use crate::ops::StepValues;
use crate::precision::in_precision;
use crate::program::{Access, LayerPath, Part, PartOwner, Phase, Program, Run};
use crate::simd::Cpu;
use crate::state::{Registry, StateCopies};
use crate::train::odd_state;
use crate::{Device, Result};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Below this many multiplications a tick stays on one thread: forking would cost more than it saves.
const FEWEST_TO_FORK: usize = 1 << 15;
/// From this many on, a layer has all threads to itself.
const FEWEST_FOR_ALL: usize = 1 << 22;

/// Layers that run one after another, and by themselves.
#[derive(Debug)]
pub(super) struct Unit {
    pub(super) run: Run,
    /// What it writes, out of the registry while it runs.
    pub(super) parts: Vec<Part>,
    /// Multiplications of a tick, about.
    pub(super) work: usize,
    /// Whether it overwrites what its layers keep.
    pub(super) commits: bool,
    /// Whether it takes part in the tick at hand.
    pub(super) active: bool,
    /// Whether its gradients start anew.
    pub(super) fresh: bool,
    pub(super) outcome: Result<()>,
    /// Its layers, by number.
    pub(super) layers: Vec<usize>,
}

impl Unit {
    pub(super) fn new(
        program: Program,
        parts: Vec<PartOwner>,
        work: usize,
        layers: &[usize],
        rows: usize,
    ) -> Result<Self> {
        let commits = program.commits_states();
        let mut run = Device::cpu().run(Arc::new(program))?;
        run.rows = rows;
        let parts = parts.into_iter().map(|owner| Part { owner, ..Part::default() }).collect();
        let layers = layers.to_vec();
        Ok(Self { run, parts, work, commits, active: true, fresh: false, outcome: Ok(()), layers })
    }

    fn execute(
        &mut self,
        cpu: &Cpu,
        registry: &Registry,
        phases: &RangeInclusive<Phase>,
        values: &StepValues,
    ) {
        let values = StepValues { gradients_zeroed: self.fresh, ..values.clone() };
        let access = Access::Part(registry, &mut self.parts);
        self.outcome = in_precision!(self.run.program().precision(), T => execute::<T>(cpu, &mut self.run, access, phases.clone(), &values));
    }

    /// Takes what it writes out of the registry, or puts it back.
    pub(super) fn exchange(&mut self, registry: &mut Registry) {
        for part in &mut self.parts {
            match (part.owner, &mut registry.ring) {
                (PartOwner::Ring { member, age }, Some(ring)) => {
                    std::mem::swap(&mut part.buffer, ring.buffer_mut(member, age));
                }
                (PartOwner::Gradient(store), _) => {
                    std::mem::swap(&mut part.buffer, &mut registry.gradients[store]);
                }
                _ => {}
            }
        }
    }
}

/// A tick's program, as a device runs it.
#[derive(Debug)]
pub(super) enum Compiled {
    /// One program for each unit.
    Units(Vec<Unit>),
    /// One program for all.
    Whole(Box<Run>),
}

/// Runs the units that take part: large ones one by one on all threads, the others side by side.
pub(super) fn run_parts(
    cpu: &Cpu,
    registry: &Registry,
    units: &mut [Unit],
    phases: &RangeInclusive<Phase>,
    values: &StepValues,
) {
    let small = |unit: &Unit| unit.active && unit.work < FEWEST_FOR_ALL;
    for unit in units.iter_mut().filter(|unit| unit.active && !small(unit)) {
        unit.execute(cpu, registry, phases, values);
    }
    let run = |units: &mut [Unit]| {
        for unit in units.iter_mut().filter(|unit| small(unit)) {
            unit.execute(cpu, registry, phases, values);
        }
    };
    let work: usize = units.iter().filter(|unit| small(unit)).map(|unit| unit.work).sum();
    if work < FEWEST_TO_FORK {
        run(units);
    } else {
        cpu.pool().for_each_chunk(units, 1, |_, units| run(units));
    }
}

/// Has what the layers of all units keep take on a tick's; where anything of it is not finite, all is put
/// back, and what it was is told.
pub(super) fn take_on_states(
    registry: &mut Registry,
    units: &mut [Unit],
    copies: &mut StateCopies,
    values: &StepValues,
) -> Result<Option<(Option<LayerPath>, String)>> {
    copies.clear();
    for unit in units.iter_mut().filter(|unit| unit.commits) {
        let program = unit.run.program().clone();
        copies.add(registry, &program);
        unit.run.execute(Access::Exclusive(registry), Phase::States..=Phase::States, values)?;
        if let Some(odd) = odd_state(registry, &program) {
            copies.put_back(registry);
            return Ok(Some(odd));
        }
    }
    Ok(None)
}

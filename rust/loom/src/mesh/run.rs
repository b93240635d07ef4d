//! Runs ticks: on the CPU the layers of one tick side by side, on a GPU many ticks in one frame.

use super::Mesh;
use super::gradients::scale_of;
use super::tick::{HELD_INPUT, INPUT, Tick, carried_in, output_of};
use super::units::{Compiled, Unit, run_parts, take_on_states};
use crate::cpu::execute;
use crate::network::Network;
use crate::ops::StepValues;
use crate::precision::in_precision;
use crate::program::{Access, FrameTick, PartOwner, Phase, Run};
use crate::simd::Cpu;
use crate::state::Registry;
use crate::train::{Fault, describe_at, keep_on_device};
use crate::{Error, Result};
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

impl Mesh {
    /// What lowers a tick of this mesh.
    pub(super) fn lowering<'a>(&'a self, network: &'a Network) -> Tick<'a> {
        Tick {
            network,
            wiring: &self.wiring,
            rows: self.rows,
            training: self.training,
            given: &self.given,
            watch: self.watch.as_ref().map(|(watch, _)| watch),
            targets: if self.learning.is_some() { &self.targets } else { &[] },
            input_gradients: if self.wants_input { &self.input_gradients } else { &[] },
        }
    }

    /// Multiplications of a unit's forward pass, about.
    fn work(&self, network: &Network, layers: &[usize]) -> usize {
        let placed = layers.iter().filter_map(|layer| network.layers().nth(*layer));
        let parameters = placed.filter_map(|placed| Some(network.registry.stores[placed.store?].len()));
        let outputs: usize = layers.iter().map(|layer| self.wiring.shapes[*layer].len()).sum();
        self.rows.saturating_mul(parameters.sum::<usize>() + outputs)
    }

    pub(super) fn compile_forward(&self, network: &Network) -> Result<Compiled> {
        let tick = self.lowering(network);
        match network.device().frames() {
            None => {
                let mut units = Vec::with_capacity(self.wiring.units.len());
                for layers in &self.wiring.units {
                    let carried = layers.iter().flat_map(|layer| self.wiring.carried_by(*layer));
                    let carried = carried.map(|number| carried_in(&self.wiring, number));
                    let written = layers.iter().map(|layer| output_of(*layer)).chain(carried);
                    let parts = written.map(|member| PartOwner::Ring { member, age: 0 }).collect();
                    let work = self.work(network, layers);
                    units.push(Unit::new(tick.forward(layers, false)?, parts, work, layers, self.rows)?);
                }
                Ok(Compiled::Units(units))
            }
            Some(_) => {
                let all: Vec<usize> = (0..self.wiring.inputs.len()).collect();
                let program = Arc::new(tick.forward(&all, self.keeps_input())?);
                Ok(Compiled::Whole(network.device().run(program)?.into()))
            }
        }
    }

    pub(super) fn compile_backward(&self, network: &Network) -> Result<Compiled> {
        let tick = self.lowering(network);
        match network.device().frames() {
            None => {
                let mut units = Vec::with_capacity(self.wiring.units.len());
                for layers in &self.wiring.units {
                    let mut parts = Vec::new();
                    for &layer in layers {
                        let edges = self.wiring.edges_of(layer).map(|edge| tick.edge(edge));
                        parts.extend(edges.map(|member| PartOwner::Ring { member, age: 1 }));
                        let kept = tick.targets.get(layer).copied().into_iter();
                        let kept = kept.chain(self.wiring.inputs_of(layer, tick.input_gradients));
                        parts.extend(kept.map(|member| PartOwner::Ring { member, age: 0 }));
                    }
                    let placed = layers.first().and_then(|layer| network.layers().nth(*layer));
                    parts.extend(placed.and_then(|placed| placed.store).map(PartOwner::Gradient));
                    let work = 3 * self.work(network, layers);
                    units.push(Unit::new(tick.backward(layers)?, parts, work, layers, self.rows)?);
                }
                Ok(Compiled::Units(units))
            }
            Some(_) => {
                let all: Vec<usize> = (0..self.wiring.inputs.len()).collect();
                let program = Arc::new(tick.backward(&all)?);
                Ok(Compiled::Whole(network.device().run(program)?.into()))
            }
        }
    }

    /// What a tick of this number brings along.
    fn values(&self, network: &Network, tick: u64) -> StepValues {
        let loss_scale = scale_of(network) as f32;
        StepValues { seed: network.seed(), step: tick, loss_scale, ..StepValues::default() }
    }

    /// The threads and the instruction set that ticks are computed with.
    fn processor(&self) -> Result<&Cpu> {
        match &self.cpu {
            Some(cpu) => Ok(cpu),
            None => Cpu::global(),
        }
    }

    /// Whether inputs of past ticks are kept: for going backwards, and where a cell hands them on.
    pub(super) fn keeps_input(&self) -> bool {
        (self.training && self.window > 0) || self.wiring.hands_on_input()
    }

    /// Runs the next `count` ticks; the registry holds the ring.
    pub(super) fn run_forward(
        &mut self,
        network: &mut Network,
        compiled: &mut Compiled,
        count: usize,
    ) -> Result<()> {
        match self.training {
            true => {
                network.passes.note_training();
                network.keep_back()?;
            }
            false => _ = network.passes.note(),
        }
        match compiled {
            Compiled::Units(units) => {
                for _ in 0..count {
                    self.tick_units(network, units)?;
                }
                Ok(())
            }
            Compiled::Whole(run) => {
                /// Ticks of one frame.
                const MOST_TICKS: usize = 256;
                let last = if run.program().commits_states() { Phase::States } else { Phase::Forward };
                let mut left = count;
                while left > 0 {
                    let part = left.min(MOST_TICKS);
                    let ticks: Vec<FrameTick> = (self.tick + 1..=self.tick + part as u64)
                        .map(|tick| FrameTick { clock: tick, values: self.values(network, tick) })
                        .collect();
                    let (rows, phases) = (self.rows, Phase::Forward..=last);
                    if last == Phase::States {
                        // None of these ticks counts where one has made something infinite.
                        let program = run.program().clone();
                        let work = |network: &mut Network| run_frame(run, rows, network, phases, &ticks);
                        if let Some(fault) = keep_on_device(network, &program, work)? {
                            return Err(fault.error_of_call());
                        }
                    } else {
                        run_frame(run, rows, network, phases, &ticks)?;
                    }
                    self.count_ticks(part);
                    left -= part;
                }
                Ok(())
            }
        }
    }

    fn tick_units(&mut self, network: &mut Network, units: &mut [Unit]) -> Result<()> {
        let tick = self.tick + 1;
        let values = self.values(network, tick);
        let keeps_input = self.keeps_input();
        let registry = &mut network.registry;
        if let Some(ring) = &mut registry.ring {
            ring.clock = tick;
            if keeps_input {
                let held = std::mem::take(ring.buffer_mut(HELD_INPUT, 0));
                ring.buffer_mut(INPUT, 0).bytes_mut().copy_from_slice(held.bytes());
                *ring.buffer_mut(HELD_INPUT, 0) = held;
            }
        }
        self.run_units(registry, units, &(Phase::Forward..=Phase::Forward), &values)?;
        let mut copies = std::mem::take(&mut registry.copies);
        let fault = take_on_states(registry, units, &mut copies, &values);
        network.registry.copies = copies;
        if let Some((path, what)) = fault? {
            return Err(Fault { layer: describe_at(network, path.as_ref()), what }.error_of_call());
        }
        self.count_ticks(1);
        Ok(())
    }

    /// Runs the units that take part, each writing its own parts alone: in any order, on any threads.
    fn run_units(
        &self,
        registry: &mut Registry,
        units: &mut [Unit],
        phases: &RangeInclusive<Phase>,
        values: &StepValues,
    ) -> Result<()> {
        let cpu = self.processor()?;
        units.iter_mut().for_each(|unit| unit.exchange(registry));
        let shared = &*registry;
        let ran = catch_unwind(AssertUnwindSafe(|| run_parts(cpu, shared, units, phases, values)));
        units.iter_mut().for_each(|unit| unit.exchange(registry));
        if let Err(panic) = ran {
            resume_unwind(panic);
        }
        let outcomes = units.iter_mut().map(|unit| std::mem::replace(&mut unit.outcome, Ok(())));
        outcomes.collect()
    }

    /// Goes back through the last `count` ticks, newest first; the registry holds the ring.
    ///
    /// Losses are means over `batch_rows` rows, where anything is measured.
    pub(super) fn run_backward(
        &self,
        network: &mut Network,
        compiled: &mut Compiled,
        count: usize,
        batch_rows: u64,
    ) -> Result<()> {
        network.registry.prepare_gradients(network.precision().size())?;
        let edges: Vec<usize> =
            (0..self.wiring.edges.len()).map(|e| self.lowering(network).edge(e)).collect();
        if let Some(ring) = &mut network.registry.ring {
            ring.clock = self.tick;
            edges.iter().for_each(|edge| ring.clear(*edge, 0));
        }
        match compiled {
            Compiled::Units(units) => self.units_back(network, units, count, batch_rows, &edges)?,
            Compiled::Whole(run) => {
                let ticks: Vec<FrameTick> = (0..count as u64)
                    .map(|age| {
                        let gradients_zeroed = age == 0 && network.registry.gradients_zeroed;
                        let values = self.values(network, self.tick - age);
                        let values = StepValues { gradients_zeroed, batch_rows, ..values };
                        FrameTick { clock: self.tick - age, values }
                    })
                    .collect();
                run_frame(run, self.rows, network, Phase::Forward..=Phase::Exchange, &ticks)?;
            }
        }
        network.registry.gradients_zeroed = false;
        Ok(())
    }

    /// Layers that no gradient has reached yet are left out.
    fn units_back(
        &self,
        network: &mut Network,
        units: &mut [Unit],
        count: usize,
        batch_rows: u64,
        edges: &[usize],
    ) -> Result<()> {
        let anew = network.registry.gradients_zeroed;
        units.iter_mut().for_each(|unit| unit.fresh = anew);
        // Which edges bring something to the tick at hand.
        let mut sent = vec![false; edges.len()];
        for age in 0..count {
            let tick = self.tick - age as u64;
            let values = StepValues { batch_rows, ..self.values(network, tick) };
            let mut sending = vec![false; edges.len()];
            let Some(ring) = &mut network.registry.ring else {
                return Err(Error::Internal("a mesh went back without its ring".into()));
            };
            ring.clock = tick;
            for unit in units.iter_mut() {
                let reached = |layer: &usize| {
                    self.given_ticks.contains(&(*layer, tick))
                        || self.wiring.edges_to(*layer).any(|edge| sent[edge])
                };
                // Measures are over all ticks of the window.
                unit.active = self.watch.is_some() || unit.layers.iter().any(reached);
                if !unit.active && self.wants_input {
                    let layers = unit.layers.iter();
                    let members =
                        layers.flat_map(|layer| self.wiring.inputs_of(*layer, &self.input_gradients));
                    members.for_each(|member| ring.clear(member, 0));
                }
                for edge in unit.layers.iter().flat_map(|layer| self.wiring.edges_of(*layer)) {
                    sending[edge] = unit.active;
                    if !unit.active {
                        ring.clear(edges[edge], 1);
                    }
                }
            }
            self.run_units(&mut network.registry, units, &(Phase::Forward..=Phase::Backward), &values)?;
            for unit in units.iter_mut().filter(|unit| unit.active) {
                if self.watch.is_some() {
                    let values = StepValues { gradients_zeroed: unit.fresh, ..values.clone() };
                    let access = Access::Exclusive(&mut network.registry);
                    unit.run.execute(access, Phase::Exchange..=Phase::Exchange, &values)?;
                }
                unit.fresh = false;
            }
            sent = sending;
        }
        for unit in units.iter_mut() {
            for part in unit.parts.iter().filter(|_| unit.fresh) {
                if let PartOwner::Gradient(store) = part.owner {
                    network.registry.gradients[store].bytes_mut().fill(0);
                }
            }
            unit.active = true;
        }
        Ok(())
    }
}

/// Runs a program by itself once for each of these ticks, by age; the registry holds the ring.
///
/// Of `values` the batch's rows count, and whether gradients are zeroed: for the first tick alone.
pub(super) fn run_ticks(
    mesh: &Mesh,
    run: &mut Run,
    network: &mut Network,
    ages: &[usize],
    values: &StepValues,
) -> Result<()> {
    let ticks = ages.iter().enumerate().map(|(number, age)| {
        let tick = mesh.ticks() - *age as u64;
        let gradients_zeroed = values.gradients_zeroed && number == 0;
        (tick, StepValues { gradients_zeroed, batch_rows: values.batch_rows, ..mesh.values(network, tick) })
    });
    let ticks: Vec<(u64, StepValues)> = ticks.collect();
    if network.device().frames().is_some() {
        let ticks: Vec<FrameTick> =
            ticks.into_iter().map(|(clock, values)| FrameTick { clock, values }).collect();
        return run_frame(run, mesh.rows(), network, Phase::Forward..=Phase::Exchange, &ticks);
    }
    let cpu = mesh.processor()?;
    let phases = Phase::Forward..=Phase::Exchange;
    for (tick, values) in ticks {
        let registry = &mut network.registry;
        if let Some(ring) = &mut registry.ring {
            ring.clock = tick;
        }
        let access = Access::Exclusive(registry);
        in_precision!(run.program().precision(), T => execute::<T>(cpu, run, access, phases.clone(), &values)?);
    }
    Ok(())
}

/// Runs a program once for each tick in one frame.
fn run_frame(
    run: &mut Run,
    rows: usize,
    network: &mut Network,
    phases: RangeInclusive<Phase>,
    ticks: &[FrameTick],
) -> Result<()> {
    run.rows = rows;
    let engine = run.engine().clone();
    match engine.frames() {
        Some(frames) => frames.ticks(run, &mut network.registry, phases, ticks),
        None => Err(Error::Internal("a mesh's program is not on its device".into())),
    }
}

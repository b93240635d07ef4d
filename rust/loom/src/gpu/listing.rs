//! How steps of a program become a list of dispatches.

use super::dispatch::Dispatch;
use super::memory::{ListKey, MAX_LISTS, Memory, Stored, most_joined_rows};
use super::mirror::Mirror;
use super::repeating;
use super::temporaries::may_wait;
use crate::ops::{Direction, Op};
use crate::program::{Phase, Place, Program, Step, Together, Unit, Value, Write, units};
use crate::shader::{BothGradients, GpuOperation, Operand, Recorded, Recorder};
use crate::state::Ring;
use crate::{Error, Result};
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

/// What was recorded, and for which unit each of it.
type Listed = (Vec<Recorded>, Vec<usize>);

impl Memory {
    /// The dispatches of these phases, recorded unless they already are.
    pub(super) fn dispatches(
        &mut self,
        program: &Program,
        stored: Stored<'_>,
        mirror: &mut Mirror,
        rows: usize,
        gradients_zeroed: bool,
        (phases, part): (RangeInclusive<Phase>, Range<usize>),
    ) -> Result<Arc<Vec<Dispatch>>> {
        let registry = stored.registry;
        self.prepare(program, stored, mirror)?;
        let turn = registry.ring.as_ref().map_or(0, Ring::turn);
        let key = ListKey { rows, gradients_zeroed, phases, part, turn };
        if let Some((_, list)) = self.lists.iter().find(|(known, _)| *known == key) {
            return Ok(list.clone());
        }
        let runs = |step: &Step| key.phases.contains(&step.phase);
        let numbers: Vec<usize> = key.part.clone().filter(|number| runs(&program.steps[*number])).collect();
        let mut units = units(program, numbers.clone(), rows, most_joined_rows(&self.gpu, program));
        if !self.sharing.keeps(program, &units) {
            // Shares were made for other numbers of rows.
            units = numbers.into_iter().map(Unit::alone).collect();
        }
        let listing =
            Listing { memory: self, mirror, program, stored, rows, gradients_zeroed, units: &units };
        let (mut recorded, of_units) = listing.record(&vec![1; units.len()])?;
        if self.gpu.joins_all() {
            // Products that run as one dispatch need not be cut in as many parts as it takes to fill the device.
            // A weight's gradient may stand with that of its bias.
            let is_product = |unit: &Unit| {
                let op = |number: &usize| &program.steps[*number].op;
                unit.together.is_none()
                    && unit
                        .members
                        .iter()
                        .any(|number| matches!(op(number), Op::Product(_) | Op::BiasGradient(_)))
            };
            let mut crowds = vec![1; units.len()];
            for (unit, crowd) in of_units.iter().zip(repeating::crowds(&self.gpu, &recorded)) {
                crowds[*unit] = crowd.max(crowds[*unit]);
            }
            if units.iter().zip(&crowds).any(|(unit, crowd)| *crowd > 1 && is_product(unit)) {
                let (joined, _) = listing.record(&crowds)?;
                if may_wait(&self.gpu, &joined) {
                    recorded = joined;
                }
            }
        }
        let list = self.temporaries.place(&self.gpu, recorded)?;
        self.gpu.compile(&list)?;
        self.gpu.check()?;
        // One for each turn of a ring, and twice that for gradients.
        if self.lists.len() >= MAX_LISTS + registry.ring.as_ref().map_or(0, |ring| 2 * ring.turns()) {
            self.lists.clear();
        }
        let list = Arc::new(list);
        self.lists.push((key, list.clone()));
        Ok(list)
    }
}

/// What a list is made of.
struct Listing<'a> {
    memory: &'a Memory,
    mirror: &'a Mirror,
    program: &'a Program,
    stored: Stored<'a>,
    rows: usize,
    gradients_zeroed: bool,
    units: &'a [Unit],
}

impl Listing<'_> {
    /// Everything recorded, where the kernel of each unit is made with so many like it at once.
    fn record(&self, crowds: &[usize]) -> Result<Listed> {
        let memory = self.memory;
        let mut recorder = Recorder::new(&*memory.gpu, self.rows, memory.control.clone());
        recorder.places_later = true;
        let by_sequence = self.stored.carried.is_some_and(|carried| carried.by_sequence);
        recorder.row_places = memory.row_places.clone().filter(|_| by_sequence);
        let mut of_units = Vec::new();
        let mut place = 0;
        while place < self.units.len() {
            recorder.crowd = crowds[place];
            let next = place + self.unit(&mut recorder, place)?;
            of_units.resize(recorder.recorded.len(), place);
            place = next;
        }
        Ok((recorder.recorded, of_units))
    }

    /// Records the unit at a place, with the one behind it where they are one; returns how many these are.
    fn unit(&self, recorder: &mut Recorder<'_>, place: usize) -> Result<usize> {
        let unit = &self.units[place];
        let step = |number: &usize| &self.program.steps[*number];
        if let Some((together, reads, writes)) = &unit.together {
            recorder.reads = reads.iter().map(|value| self.operand(value)).collect::<Result<_>>()?;
            recorder.writes = writes.iter().map(|value| self.operand(value)).collect::<Result<_>>()?;
            recorder.accumulate = false;
            let recorded = match together {
                Together::Products(products) => products.record_together(recorder),
                Together::Keep(keep) => keep.record(recorder).map(|()| true),
                Together::Summed(summed) => summed.record(recorder).map(|()| true),
                Together::Squares(sums) => sums.record(recorder),
            };
            if !recorded.map_err(|error| at_step(step(&unit.members[0]), error))? {
                unit.members.iter().try_for_each(|member| self.step(recorder, step(member)))?;
            }
            return Ok(1);
        }
        let alone = |place: usize| {
            let unit = self.units.get(place).filter(|unit| unit.together.is_none())?;
            unit.members.first().map(step)
        };
        let Some(first) = alone(place) else { return Ok(1) };
        let weight_step = alone(place + 1).filter(|next| goes_with(first, next));
        let (Op::BiasGradient(sum), Some(weight_step)) = (&first.op, weight_step) else {
            self.step(recorder, first)?;
            return Ok(1);
        };
        let (bias, weight) = (self.operand(&first.writes[0])?, self.operand(&weight_step.writes[0])?);
        let max_binding = self.memory.gpu.capabilities().max_binding;
        recorder.both = BothGradients::of(&weight, &bias, sum.into(), max_binding);
        let offered = recorder.both.is_some();
        self.step(recorder, weight_step)?;
        let taken_over = offered && recorder.both.take().is_none();
        if !taken_over {
            self.step(recorder, first)?;
        }
        Ok(2)
    }

    fn step(&self, recorder: &mut Recorder<'_>, step: &Step) -> Result<()> {
        recorder.reads = step.reads.iter().map(|value| self.operand(value)).collect::<Result<_>>()?;
        recorder.writes = step.writes.iter().map(|value| self.operand(value)).collect::<Result<_>>()?;
        recorder.versions = match &step.op {
            Op::Encode(encode) => self.mirror.versions(encode.store, self.stored.registry)?,
            _ => Vec::new(),
        };
        recorder.path = step.path;
        recorder.accumulate = match step.write {
            Write::Set => false,
            Write::Add => true,
            Write::First => !self.gradients_zeroed,
        };
        step.op.record(recorder).map_err(|error| at_step(step, error))
    }

    /// Where a value lies.
    fn operand(&self, value: &Value) -> Result<Operand> {
        let Self { program, rows, stored: Stored { registry, carried }, .. } = *self;
        match program.value(program.owner(*value)).place {
            Place::Buffer(_) => self.memory.value(program, *value, rows),
            Place::Carried(number) => {
                let memory = carried.and_then(|carried| carried.on_device.as_ref());
                let allocation = memory.and_then(|memory| memory.allocations.get(number));
                let sequences = carried.map_or(rows, |carried| carried.rows_of(rows));
                let elements = program.value(*value).len(sequences);
                allocation
                    .map(|allocation| Operand::new(allocation, 0, elements))
                    .ok_or_else(|| Error::Internal("nothing is carried by this call".into()))
            }
            Place::Ring { member, age } => {
                let elements = program.value(*value).len(rows);
                let operand = registry.ring.as_ref().and_then(|ring| ring.operand(member, age, elements));
                operand.ok_or_else(|| Error::Internal("a program of ticks ran without a ring".into()))
            }
            place => self.mirror.operand(place, registry),
        }
    }
}

/// The error with the step that a device has refused.
fn at_step(step: &Step, error: Error) -> Error {
    match (&step.at, error) {
        (Some(path), Error::Device(message)) => {
            Error::Device(format!("layer {path}, {}: {message}", step.op))
        }
        (_, error) => error,
    }
}

/// Whether a weight gradient sums over the same values as the bias gradient before it.
fn goes_with(bias: &Step, weight: &Step) -> bool {
    let is_gradient = match &weight.op {
        Op::Product(product) => product.direction == Direction::WeightGradient,
        Op::Convolution(convolution) => convolution.direction == Direction::WeightGradient,
        _ => false,
    };
    is_gradient
        && bias.at == weight.at
        && bias.write == weight.write
        && weight.reads.get(1) == bias.reads.first()
}

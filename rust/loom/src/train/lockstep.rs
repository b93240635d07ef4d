//! Shards that go through the network together, because layers have something of all of them: they stop at the same steps,
//! where what they have is put together, also over processes.

use super::cut::Cut;
use super::exchange::{Exchange, agree};
use super::split;
use super::states::take_on_states;
use super::trainer::Trainer;
use super::units::{Reader, Unit, put_numbers};
use crate::network::Network;
use crate::ops::whole_batch::Shared;
use crate::ops::{Op, StepValues, WholeBatch};
use crate::program::{Access, Phase, Program, Run, Step, Value};
use crate::simd::Real;
use crate::state::{Carried, State};
use crate::tensor::Buffer;
use crate::{Error, Result};
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

/// The steps of a program at which shards wait for each other.
pub(super) fn meetings(program: &Program) -> Vec<usize> {
    let meets = |step: &Step| step.phase <= Phase::Exchange && matches!(step.op, Op::WholeBatch(_));
    program.steps().iter().enumerate().filter(|(_, step)| meets(step)).map(|(number, _)| number).collect()
}

/// A shard on its way.
struct Slot {
    shard: usize,
    /// Its rows among those of the step.
    place: Range<usize>,
    run: Run,
    carried: Option<Carried>,
    gradients: Vec<Buffer>,
}

/// Shards with their gradients, and what else they have come to.
pub(super) type Made<T> = (Vec<(usize, Vec<Buffer>)>, Vec<Unit<T>>);

/// What one part has of a [`WholeBatch`].
struct Told<T> {
    shard: usize,
    rows: usize,
    first: Vec<T>,
    second: Vec<T>,
}

impl Trainer {
    /// Computes the shards of this range side by side.
    ///
    /// # Errors
    /// Outside what all processes know of; inside what this one alone has met, once nobody waits for it any more.
    pub(super) fn in_lockstep<T: Real>(
        &mut self,
        network: &mut Network,
        cut: &Cut<'_>,
        own: Range<usize>,
        values: &StepValues,
        states: Option<&[State]>,
        exchange: &mut dyn Exchange,
    ) -> Result<Result<Made<T>>> {
        let program = self.run.program().clone();
        let meetings = meetings(&program);
        let filled = self.slots::<T>(network, cut, own);
        let (mut slots, mut failed) = match filled {
            Ok(slots) => (slots, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let all = program.steps().len();
        let first_backward =
            meetings.partition_point(|meeting| program.steps()[*meeting].phase <= Phase::Loss);
        let mut units: Vec<Unit<T>> = Vec::new();
        for (phases, meetings) in [
            (Phase::Forward..=Phase::Loss, &meetings[..first_backward]),
            (Phase::Backward..=Phase::Exchange, &meetings[first_backward..]),
        ] {
            let mut from = 0;
            for &meeting in meetings {
                let outcome = match failed.take() {
                    Some(error) => Err(error),
                    None => self.run_slots(network, &mut slots, (&phases, from..meeting), values),
                };
                let step = &program.steps()[meeting];
                let told = outcome.and_then(|()| told::<T>(&mut slots, step));
                put_together::<T>(&mut slots, step, &agree(exchange, told)?)?;
                from = meeting + 1;
            }
            let outcome = match failed.take() {
                Some(error) => Err(error),
                None => self.run_slots(network, &mut slots, (&phases, from..all), values),
            };
            let outcome = outcome.and_then(|()| {
                if phases.contains(&Phase::Loss) {
                    for slot in &mut slots {
                        std::mem::swap(&mut self.run, &mut slot.run);
                        let unit = self.forward_unit::<T>(slot.shard);
                        std::mem::swap(&mut self.run, &mut slot.run);
                        units.push(unit?);
                    }
                }
                Ok(())
            });
            failed = outcome.err();
        }
        if let Some(error) = failed {
            self.take_back(network, slots);
            return Ok(Err(error));
        }
        let made = self.finish_slots(network, &mut slots, units, values, states);
        let gradients = match slots.len() {
            1 => network.registry.fetch_gradients().map(|()| vec![network.registry.gradients.clone()]),
            _ => Ok(slots.iter_mut().map(|slot| std::mem::take(&mut slot.gradients)).collect()),
        };
        let shards: Vec<usize> = slots.iter().map(|slot| slot.shard).collect();
        self.take_back(network, slots);
        Ok(made.and_then(|units| Ok((shards.into_iter().zip(gradients?).collect(), units))))
    }

    /// A run for each shard that has rows, filled with them.
    fn slots<T: Real>(
        &mut self,
        network: &mut Network,
        cut: &Cut<'_>,
        own: Range<usize>,
    ) -> Result<Vec<Slot>> {
        let own: Vec<usize> = own.filter(|shard| !cut.place(*shard).is_empty()).collect();
        let program = self.run.program().clone();
        self.beside.retain(|run| Arc::ptr_eq(run.program(), &program));
        let mut slots = Vec::with_capacity(own.len());
        for &shard in &own {
            let run = match self.beside.pop() {
                Some(run) => run,
                None => network.device().run(program.clone())?,
            };
            let place = cut.place(shard);
            let gradients = match own.len() {
                1 => Vec::new(),
                _ => network
                    .registry
                    .gradients
                    .iter()
                    .map(|it| Buffer::zeroed(it.len_bytes()))
                    .collect::<Result<_>>()?,
            };
            let carried = self.shard_carries::<T>(network, place.clone())?;
            slots.push(Slot { shard, place: place.clone(), run, carried, gradients });
            let Some(slot) = slots.last_mut() else { continue };
            std::mem::swap(&mut self.run, &mut slot.run);
            let filled = cut.fill::<T>(self, place);
            std::mem::swap(&mut self.run, &mut slot.run);
            filled?;
        }
        Ok(slots)
    }

    /// Runs a part of the program in each.
    fn run_slots(
        &mut self,
        network: &mut Network,
        slots: &mut [Slot],
        (phases, part): (&RangeInclusive<Phase>, Range<usize>),
        values: &StepValues,
    ) -> Result<()> {
        let backward = phases.contains(&Phase::Backward);
        let several = slots.len() > 1 && backward;
        for slot in slots {
            let values = StepValues { row_offset: slot.place.start as u64, ..values.clone() };
            if several {
                std::mem::swap(&mut network.registry.gradients, &mut slot.gradients);
                network.registry.gradients_zeroed = false;
                network.registry.forget_device_gradients();
            }
            if backward && network.registry.splits_gradients {
                split::make_room(&mut network.registry, slot.run.program(), &part)?;
            }
            std::mem::swap(&mut network.registry.carried, &mut slot.carried);
            let access = Access::Exclusive(&mut network.registry);
            let mut outcome = slot.run.execute_part(access, phases.clone(), &values, part.clone());
            std::mem::swap(&mut network.registry.carried, &mut slot.carried);
            if several {
                outcome = outcome.and_then(|()| network.registry.fetch_gradients());
                std::mem::swap(&mut network.registry.gradients, &mut slot.gradients);
                network.registry.forget_device_gradients();
            }
            outcome?;
        }
        Ok(())
    }

    /// Has layers take on what each shard has made of what they keep and carry, and notes it.
    fn finish_slots<T: Real>(
        &mut self,
        network: &mut Network,
        slots: &mut [Slot],
        mut units: Vec<Unit<T>>,
        values: &StepValues,
        states: Option<&[State]>,
    ) -> Result<Vec<Unit<T>>> {
        for (slot, unit) in slots.iter_mut().zip(&mut units) {
            std::mem::swap(&mut network.registry.carried, &mut slot.carried);
            let taken = take_on_states(network, &mut slot.run, values)
                .and_then(|fault| fault.map_or(Ok(()), |fault| Err(fault.error(values.step))))
                .and_then(|()| self.note_kept(network, unit));
            std::mem::swap(&mut network.registry.carried, &mut slot.carried);
            if let Some(states) = states {
                network.registry.set_states(states.to_vec());
            }
            taken?;
        }
        Ok(units)
    }

    /// Keeps the runs for the next step; the last one is what is looked at.
    fn take_back(&mut self, network: &mut Network, slots: Vec<Slot>) {
        for slot in slots {
            self.beside.push(std::mem::replace(&mut self.run, slot.run));
            if let Some(carried) = slot.carried {
                network.registry.carried = Some(carried);
            }
        }
    }
}

/// What these shards have of what is to be put together.
fn told<T: Real>(slots: &mut [Slot], step: &Step) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for slot in slots {
        slot.run.fetch(&step.reads)?;
        for number in [slot.shard as u64, slot.run.rows as u64] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        step.reads.iter().for_each(|value| put_numbers(&mut bytes, slot.run.read::<T>(*value)));
    }
    Ok(bytes)
}

/// Writes what all shards have together into those that are here.
fn put_together<T: Real>(slots: &mut [Slot], step: &Step, all: &[Vec<u8>]) -> Result<()> {
    let Op::WholeBatch(op) = &step.op else {
        return Err(Error::Internal("shards have met at a step that is of one alone".into()));
    };
    let mut parts: Vec<Told<T>> = Vec::new();
    for told in all {
        let mut from = Reader(told);
        while !from.0.is_empty() {
            let (shard, rows) = (from.whole()? as usize, from.whole()? as usize);
            let (first, second) = (from.numbers()?.into_owned(), from.numbers()?.into_owned());
            if first.len() != op.channels || second.len() != op.channels {
                return Err(super::summing::unlike());
            }
            parts.push(Told { shard, rows, first, second });
        }
    }
    parts.sort_by_key(|part| part.shard);
    let rows: usize = parts.iter().map(|part| part.rows).sum();
    let results = match op.of {
        Shared::Moments { inner } => moments(&parts, op.channels, (rows, inner))?,
        Shared::Sums => sums(&parts, op.channels),
    };
    for slot in slots {
        let share = match op.of {
            Shared::Moments { .. } => 1.0,
            Shared::Sums => slot.run.rows as f64 / rows as f64,
        };
        for (value, result) in step.writes.iter().zip(&results) {
            write::<T>(&mut slot.run, *value, result, share);
        }
    }
    Ok(())
}

fn write<T: Real>(run: &mut Run, value: Value, numbers: &[f64], share: f64) {
    for (to, number) in run.write::<T>(value).iter_mut().zip(numbers) {
        *to = T::from_f64(number * share);
    }
}

/// Mean, biased and unbiased variance over all parts, in the parts' order (Chan, Golub and LeVeque 1979).
fn moments<T: Real>(
    parts: &[Told<T>],
    channels: usize,
    (rows, inner): (usize, usize),
) -> Result<Vec<Vec<f64>>> {
    let count = (rows * inner) as f64;
    let unbiasing = WholeBatch::unbiasing(rows * inner)?;
    let mut results = vec![Vec::new(); 3];
    for channel in 0..channels {
        let weight = |part: &Told<T>| (part.rows * inner) as f64 / count;
        let mean: f64 = parts.iter().map(|part| weight(part) * part.first[channel].to_f64()).sum();
        let spread = |part: &Told<T>| {
            let distance = part.first[channel].to_f64() - mean;
            weight(part) * (part.second[channel].to_f64() + distance * distance)
        };
        let variance: f64 = parts.iter().map(spread).sum();
        for (result, number) in results.iter_mut().zip([mean, variance, variance * unbiasing]) {
            result.push(number);
        }
    }
    Ok(results)
}

/// Two sums over all parts, in the parts' order.
fn sums<T: Real>(parts: &[Told<T>], channels: usize) -> Vec<Vec<f64>> {
    let of = |numbers: fn(&Told<T>) -> &[T]| {
        (0..channels).map(|channel| parts.iter().map(|part| numbers(part)[channel].to_f64()).sum()).collect()
    };
    vec![of(|part| &part.first), of(|part| &part.second)]
}

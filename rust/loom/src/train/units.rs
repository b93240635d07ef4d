//! What the shards of a step have come to, their gradients aside, as processes tell each other.

use super::metrics::{Truth, counted_axis};
use super::summing::{Parts, numbers};
use super::trainer::{Newest, OwnedTargets, Trainer};
use crate::network::Network;
use crate::simd::{Cpu, Real};
use crate::state::Carried;
use crate::tensor::{Buffer, Tensor};
use crate::{Error, Result};
use std::borrow::Cow;

/// What a shard has come to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Unit<T> {
    pub(super) shard: usize,
    pub(super) rows: usize,
    /// The sum of its rows' losses.
    pub(super) loss: f64,
    /// What layers keep after it.
    pub(super) states: Vec<T>,
    /// What layers carry on to the next batch of its rows.
    pub(super) carried: Vec<T>,
    /// For metrics: outputs, and targets as indices or numbers.
    pub(super) output: Vec<T>,
    pub(super) labels: Vec<i32>,
    pub(super) targets: Vec<T>,
    /// Extents of outputs and targets, where somebody looks at them.
    pub(super) extents: [Vec<u64>; 2],
    /// How much rows count in each of several outputs, where somebody looks.
    pub(super) weights: Vec<T>,
}

pub(super) fn put_numbers<T: bytemuck::Pod>(bytes: &mut Vec<u8>, numbers: &[T]) {
    bytes.extend_from_slice(&(numbers.len() as u64).to_le_bytes());
    bytes.extend_from_slice(bytemuck::cast_slice(numbers));
}

/// Reads what [`put_numbers`] has written.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(something_else)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn whole(&mut self) -> Result<u64> {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(self.take(8)?);
        Ok(u64::from_le_bytes(bytes))
    }

    pub(super) fn numbers<T: bytemuck::Pod>(&mut self) -> Result<Cow<'a, [T]>> {
        let count = self.whole()? as usize;
        let size = count.checked_mul(size_of::<T>()).ok_or_else(something_else)?;
        self.take(size).map(numbers)
    }
}

fn something_else() -> Error {
    Error::State("another process of the training has sent something else".into())
}

impl<T: Real> Unit<T> {
    fn put(&self, bytes: &mut Vec<u8>) {
        for number in [self.shard as u64, self.rows as u64, self.loss.to_bits()] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        put_numbers(bytes, &self.states);
        put_numbers(bytes, &self.carried);
        put_numbers(bytes, &self.output);
        put_numbers(bytes, &self.labels);
        put_numbers(bytes, &self.targets);
        self.extents.iter().for_each(|extents| put_numbers(bytes, extents));
        put_numbers(bytes, &self.weights);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            shard: from.whole()? as usize,
            rows: from.whole()? as usize,
            loss: f64::from_bits(from.whole()?),
            states: from.numbers()?.into_owned(),
            carried: from.numbers()?.into_owned(),
            output: from.numbers()?.into_owned(),
            labels: from.numbers()?.into_owned(),
            targets: from.numbers()?.into_owned(),
            extents: [from.numbers()?.into_owned(), from.numbers()?.into_owned()],
            weights: from.numbers()?.into_owned(),
        })
    }

    /// Units as they travel.
    pub(super) fn told(units: &[Self]) -> Vec<u8> {
        let mut bytes = (units.len() as u64).to_le_bytes().to_vec();
        units.iter().for_each(|unit| unit.put(&mut bytes));
        bytes
    }

    /// The units that all processes have told, in the order of their shards.
    pub(super) fn of_all(told: &[Vec<u8>]) -> Result<Vec<Self>> {
        let mut units = Vec::new();
        for told in told {
            let mut from = Reader(told);
            for _ in 0..from.whole()? {
                units.push(Self::read(&mut from)?);
            }
        }
        units.sort_by_key(|unit| unit.shard);
        Ok(units)
    }

    /// Outputs and targets, where their extents are told.
    fn shown(&self) -> Result<Newest> {
        let [output, target] =
            self.extents.each_ref().map(|all| all.iter().map(|it| *it as usize).collect::<Vec<_>>());
        let targets = match self.targets.is_empty() {
            true => OwnedTargets::Classes(target, self.labels.clone()),
            false => OwnedTargets::Real(Tensor::new(target, self.targets.clone())?),
        };
        let weights = match self.weights.len().checked_div(self.rows) {
            Some(each) if each > 0 => Some(Tensor::new(vec![self.rows, each], self.weights.clone())?),
            _ => None,
        };
        Ok(Newest { output: Tensor::new(output, self.output.clone())?, targets, weights })
    }
}

impl Trainer {
    /// What the shard in the run has come to after its forward pass.
    pub(super) fn forward_unit<T: Real>(&mut self, shard: usize) -> Result<Unit<T>> {
        self.fetch_watched()?;
        let mut unit = Unit { shard, rows: self.run.rows, loss: self.summed_loss::<T>(), ..Unit::default() };
        if self.keep_outputs {
            let newest = self.newest_in::<T>()?;
            let extents = |shape: &[usize]| shape.iter().map(|extent| *extent as u64).collect();
            unit.extents[0] = extents(newest.output.shape());
            unit.extents[1] = match &newest.targets {
                OwnedTargets::Classes(shape, _) => extents(shape),
                OwnedTargets::Real(tensor) => extents(tensor.shape()),
            };
            if newest.weights.is_some()
                && let Some(weights) = self.run.program().ports().sample_weight
            {
                unit.weights = self.run.read::<T>(weights).to_vec();
            }
        } else if self.metrics.is_empty() {
            return Ok(unit);
        }
        let ports = self.run.program().ports();
        let (Some(output), Some(target)) = (ports.output, ports.target) else { return Ok(unit) };
        let truth = match self.plan.class_targets {
            true => Truth::Classes(self.run.read_indices(target)),
            false => Truth::Real(self.run.read::<T>(target)),
        };
        let counted = self.counted::<T>();
        let (output, truth) = match &counted {
            Some(counted) => (&counted.output[..], counted.truth()),
            None => (self.run.read::<T>(output), truth),
        };
        unit.output = output.to_vec();
        match truth {
            Truth::Classes(labels) => unit.labels = labels.to_vec(),
            Truth::Real(targets) => unit.targets = targets.to_vec(),
        }
        Ok(unit)
    }

    /// Adds all shards to the metrics, in their order, and shows them to whoever looks.
    pub(super) fn count_units<T: Real>(&mut self, units: &[Unit<T>]) -> Result<()> {
        for unit in units {
            let truth = match self.plan.class_targets {
                true => Truth::Classes(&unit.labels),
                false => Truth::Real(&unit.targets),
            };
            let axis = counted_axis(&self.op, self.class_axis);
            for metric in &mut self.metrics {
                metric.update(&unit.output, truth, axis);
            }
        }
        if self.keep_outputs {
            self.of_shards = Some(units.iter().map(Unit::shown).collect::<Result<_>>()?);
        }
        Ok(())
    }
}

/// Has layers keep the mean of what they would after each shard.
pub(super) fn set_mean_states<T: Real>(network: &mut Network, units: &[Unit<T>]) -> Result<()> {
    let cpu = Cpu::global()?;
    let count: usize = network.registry.states.iter().map(|state| state.content.as_slice::<T>().len()).sum();
    // Shards without rows keep nothing, so that the tree is over those that are there.
    let held = units.iter().enumerate().map(|(at, unit)| ((at, 1), Cow::Borrowed(&unit.states[..])));
    let mut mean = vec![T::ZERO; count];
    Parts(held.collect()).sum(cpu, units.len(), &mut mean)?;
    let factor = T::from_f64(1.0 / units.len() as f64);
    let mut rest = &mean[..];
    let mut states = network.registry.states.clone();
    for state in &mut states {
        let (own, left) = rest.split_at(state.content.as_slice::<T>().len());
        let scaled: Vec<T> = own.iter().map(|sum| *sum * factor).collect();
        state.content = Buffer::from_slice(&scaled)?;
        rest = left;
    }
    network.registry.set_states(states);
    Ok(())
}

/// What layers carry of some rows: that of all, cut.
pub(super) fn carried_rows<T: Real>(
    whole: &Carried,
    contents: &[Buffer],
    rows: std::ops::Range<usize>,
) -> Result<Vec<Buffer>> {
    let lengths = whole.places().iter().map(|place| place.spec.shape.len());
    let cut = |(content, len): (&Buffer, usize)| {
        Buffer::from_slice(&content.as_slice::<T>()[rows.start * len..rows.end * len])
    };
    contents.iter().zip(lengths).map(cut).collect()
}

/// What layers carry of all rows, from that of all shards.
pub(super) fn carried_of_all<T: Real>(whole: &Carried, units: &[Unit<T>]) -> Result<Vec<Buffer>> {
    let mut rests: Vec<&[T]> = units.iter().map(|unit| &unit.carried[..]).collect();
    let mut made = Vec::new();
    for place in whole.places() {
        let mut all: Vec<T> = Vec::with_capacity(place.spec.shape.len() * whole.rows());
        for (rest, unit) in rests.iter_mut().zip(units) {
            let (own, left) =
                rest.split_at_checked(place.spec.shape.len() * unit.rows).ok_or_else(something_else)?;
            all.extend_from_slice(own);
            *rest = left;
        }
        made.push(Buffer::from_slice(&all)?);
    }
    Ok(made)
}

//! Steps that several processes share, with the same bits whatever their number.
//!
//! A step's rows are cut into a fixed number of shards. Each shard's gradient is one unit, computed as if the shard were
//! alone, and units are added up in one fixed tree, whoever has computed them. So a training is a matter of the number
//! of shards, and not of how many processes there are.

use super::landing::Fate;
use super::metrics::Truth;
use super::states::take_on_states;
use super::step::{Ended, StepReport, left_out, step_values};
use super::trainer::Trainer;
use super::{Examples, Rows};
use crate::network::Network;
use crate::precision::in_precision;
use crate::program::{Access, Phase};
use crate::simd::Real;
use crate::state::State;
use crate::tensor::{Buffer, Precision};
use crate::{Error, Result};
use std::ops::Range;

/// What carries bytes between the processes of one training. Every process makes the same calls in the same order.
pub trait Exchange {
    /// This process's number, from 0.
    fn rank(&self) -> usize;

    /// How many there are.
    fn ranks(&self) -> usize;

    /// Hands each process a part, in the order of their numbers; returns what each has handed this one.
    ///
    /// # Errors
    /// [`Error::State`] where a process has ended or does not answer.
    fn to_each(&mut self, parts: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>>;

    /// Hands all processes the same; returns what each has handed all.
    ///
    /// # Errors
    /// As [`to_each`](Self::to_each).
    fn to_all(&mut self, part: Vec<u8>) -> Result<Vec<Vec<u8>>>;

    /// What this process would have all do once the step is done, in bits that whoever runs the steps gives a meaning:
    /// they travel with the step, at no cost.
    fn wish(&self) -> u8 {
        0
    }

    /// Tells what any process wishes, the same in all of them. A step that is left out brings nothing.
    fn hear(&mut self, _wishes: u8) {}
}

/// A single process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Exchange for Alone {
    fn rank(&self) -> usize {
        0
    }

    fn ranks(&self) -> usize {
        1
    }

    fn to_each(&mut self, parts: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        Ok(parts)
    }

    fn to_all(&mut self, part: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        Ok(vec![part])
    }
}

/// What a shard has come to, its gradient aside.
#[derive(Clone, Debug, Default, PartialEq)]
struct Unit<T> {
    shard: usize,
    rows: usize,
    /// The sum of its rows' losses.
    loss: f64,
    /// What layers keep after it.
    states: Vec<T>,
    /// For metrics: outputs, and targets as indices or numbers.
    output: Vec<T>,
    labels: Vec<i32>,
    targets: Vec<T>,
}

/// The part of `count` things that number `index` of `parts` has.
fn share(count: usize, parts: usize, index: usize) -> Range<usize> {
    count * index / parts..count * (index + 1) / parts
}

/// The sum of what is there, in a tree over the places alone: each half by itself, then the two.
fn add_up<T: Real>(parts: &[Option<&[T]>], sum: &mut [T]) {
    fn tree<T: Real>(parts: &[Option<&[T]>], at: usize) -> Option<T> {
        match parts {
            [] => None,
            [one] => one.map(|values| values[at]),
            _ => {
                let (left, right) = parts.split_at(parts.len() / 2);
                match (tree(left, at), tree(right, at)) {
                    (Some(left), Some(right)) => Some(left + right),
                    (left, right) => left.or(right),
                }
            }
        }
    }
    for (at, sum) in sum.iter_mut().enumerate() {
        *sum = tree(parts, at).unwrap_or(T::ZERO);
    }
}

fn put_numbers<T: bytemuck::Pod>(bytes: &mut Vec<u8>, numbers: &[T]) {
    bytes.extend_from_slice(&(numbers.len() as u64).to_le_bytes());
    bytes.extend_from_slice(bytemuck::cast_slice(numbers));
}

/// Reads what [`put_numbers`] has written.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take(&mut self, count: usize) -> Result<&[u8]> {
        let broken = || Error::State("another process of the training has sent something else".into());
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(broken)?;
        self.0 = rest;
        Ok(taken)
    }

    fn whole(&mut self) -> Result<u64> {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(self.take(8)?);
        Ok(u64::from_le_bytes(bytes))
    }

    fn numbers<T: bytemuck::Pod>(&mut self) -> Result<Vec<T>> {
        let count = self.whole()? as usize;
        let size = count
            .checked_mul(size_of::<T>())
            .ok_or_else(|| Error::State("another process of the training has sent something else".into()))?;
        Ok(bytemuck::pod_collect_to_vec(self.take(size)?))
    }
}

impl<T: Real> Unit<T> {
    fn put(&self, bytes: &mut Vec<u8>) {
        for number in [self.shard as u64, self.rows as u64, self.loss.to_bits()] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        put_numbers(bytes, &self.states);
        put_numbers(bytes, &self.output);
        put_numbers(bytes, &self.labels);
        put_numbers(bytes, &self.targets);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            shard: from.whole()? as usize,
            rows: from.whole()? as usize,
            loss: f64::from_bits(from.whole()?),
            states: from.numbers()?,
            output: from.numbers()?,
            labels: from.numbers()?,
            targets: from.numbers()?,
        })
    }
}

/// Tells all processes whether this one could do its part, with `part` for them; fails in all where one could not.
fn agree(exchange: &mut dyn Exchange, part: Result<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
    let wish = exchange.wish();
    let told = match &part {
        Ok(bytes) => [&[0u8, wish], &bytes[..]].concat(),
        Err(error) => [&[1u8, wish], error.to_string().as_bytes()].concat(),
    };
    let all = exchange.to_all(told)?;
    part?;
    exchange.hear(all.iter().filter_map(|told| told.get(1)).fold(0, |wishes, wish| wishes | wish));
    let failed = all.iter().enumerate().find(|(_, told)| told.len() < 2 || told[0] != 0);
    if let Some((rank, told)) = failed {
        let message = String::from_utf8_lossy(told.get(2..).unwrap_or_default());
        return Err(Error::State(format!("rank {rank} could not go on: {message}")));
    }
    Ok(all.into_iter().map(|mut told| told.split_off(2)).collect())
}

impl Trainer {
    /// One update from these rows, cut into `shards`, of which each process computes its share: the same bits for any
    /// number of processes.
    ///
    /// # Errors
    /// As [`step`](Self::step), in every process; [`Error::Value`] for more processes than shards, and for what no
    /// shards are defined of: stateful layers, learning by targets, measures, a GPU.
    pub fn step_sharded(
        &mut self,
        network: &mut Network,
        examples: &Examples<'_>,
        rows: &[u32],
        shards: usize,
        exchange: &mut dyn Exchange,
    ) -> Result<StepReport> {
        in_precision!(network.precision(), T =>
            self.sharded_in::<T>(network, examples, rows, shards, exchange))
    }

    fn check_shards(&self, network: &Network, shards: usize, ranks: usize) -> Result<()> {
        let refused = |what: &str| Err(Error::Value(format!("a training in shards {what}")));
        if shards < ranks || shards == 0 {
            return refused(&format!("takes at most one process a shard: {ranks} processes for {shards}"));
        }
        if !network.device().is_host() {
            return refused("computes on processors; move the network to \"cpu\"");
        }
        if network.carries {
            return refused("cannot have stateful layers, whose sequences go on from batch to batch");
        }
        if self.config.tween.is_some() || self.config.watch.is_some() {
            return refused("is one by backpropagation without measures");
        }
        Ok(())
    }

    fn sharded_in<T: Real>(
        &mut self,
        network: &mut Network,
        examples: &Examples<'_>,
        rows: &[u32],
        shards: usize,
        exchange: &mut dyn Exchange,
    ) -> Result<StepReport> {
        let (rank, ranks) = (exchange.rank(), exchange.ranks());
        self.check_shards(network, shards, ranks)?;
        network.passes.note_training();
        let mut values = step_values(&self.config, network, 0, self.total_steps);
        self.config.check_accumulation()?;
        let shard = |number: usize| &rows[share(rows.len(), shards, number)];
        let largest = (0..shards).map(|number| shard(number).len()).max().unwrap_or(0);
        let weighing = self.plan.weighing.or(examples.weighing());
        self.fit(network, largest, super::plan::Plan { weighing, accumulates: true, ..self.plan })?;
        // In the order of the shards, so that it is the same number everywhere.
        let total: f64 = (0..shards).map(|number| self.divisor_of::<T>(examples, shard(number))).sum();
        if total == 0.0 {
            return Ok(left_out(network, values.rate));
        }
        values.loss_divisor = total;
        values.batch_rows = rows.len() as u64;
        self.earlier.clear();
        let mut mine: Vec<usize> =
            share(shards, ranks, rank).filter(|number| !shard(*number).is_empty()).collect();
        // A process without rows computes some all the same, which nobody counts.
        let idle = mine.is_empty();
        if idle {
            mine.extend((0..shards).find(|number| !shard(*number).is_empty()));
        }
        let before: Vec<State> = network.registry.states.clone();
        let mut gradients: Vec<Vec<T>> = Vec::with_capacity(mine.len());
        let mut made: Result<Vec<Unit<T>>> = mine
            .iter()
            .map(|number| {
                let place = share(rows.len(), shards, *number);
                values.row_offset = place.start as u64;
                let unit = self.unit::<T>(network, examples, (*number, &rows[place]), &values)?;
                let parts = network.registry.gradients.iter().flat_map(|part| part.as_slice::<T>());
                gradients.push(parts.copied().collect());
                network.registry.states.clone_from(&before);
                Ok(unit)
            })
            .collect();
        network.registry.states.clone_from(&before);
        if idle {
            made = made.map(|_| Vec::new());
            gradients.clear();
            mine.clear();
        }
        let told = made.map(|units| {
            let mut bytes = Vec::new();
            bytes.extend_from_slice(&(units.len() as u64).to_le_bytes());
            units.iter().for_each(|unit| unit.put(&mut bytes));
            bytes
        });
        let mut units: Vec<Unit<T>> = Vec::with_capacity(shards);
        for told in agree(exchange, told)? {
            let mut from = Reader(&told);
            for _ in 0..from.whole()? {
                units.push(Unit::read(&mut from)?);
            }
        }
        units.sort_by_key(|unit| unit.shard);
        let loss: f64 = units.iter().map(|unit| unit.loss).sum();
        let mut report = StepReport {
            loss: loss / total,
            weight: total,
            rows: units.iter().map(|unit| unit.rows).sum(),
            rate: values.rate,
            ..StepReport::default()
        };
        let fate = if loss.is_finite() {
            self.count_units(&units);
            self.sum_gradients(network, exchange, shards, (&mine, &gradients))?;
            self.land_sum::<T>(network, &values, &mut report)?
        } else {
            Fate::NonFinite
        };
        match &fate {
            Fate::Landed => set_mean_states(network, &units)?,
            _ => network.registry.states = before,
        }
        self.finish(network, &values, Ended { report, fate, measures: None })
    }

    /// Computes a shard; its gradient is then the network's.
    fn unit<T: Real>(
        &mut self,
        network: &mut Network,
        examples: &Examples<'_>,
        (shard, rows): (usize, &[u32]),
        values: &crate::ops::StepValues,
    ) -> Result<Unit<T>> {
        network.registry.gradients_zeroed = true;
        self.fill::<T>(examples, Rows::At(rows))?;
        let run = |trainer: &mut Self, network: &mut Network, phases| {
            trainer.run.execute(Access::Exclusive(&mut network.registry), phases, values)
        };
        run(self, network, Phase::Forward..=Phase::Loss)?;
        let mut unit = Unit { shard, rows: rows.len(), loss: self.summed_loss::<T>(), ..Unit::default() };
        run(self, network, Phase::Backward..=Phase::Exchange)?;
        if let Some(fault) = take_on_states(network, &mut self.run, values)? {
            return Err(fault.error(values.step));
        }
        unit.states =
            network.registry.states.iter().flat_map(|state| state.content.as_slice::<T>()).copied().collect();
        if self.metrics.is_empty() {
            return Ok(unit);
        }
        let ports = self.run.program().ports();
        let (Some(output), Some(target)) = (ports.output, ports.target) else { return Ok(unit) };
        let truth = match self.plan.class_targets {
            true => Truth::Classes(self.run.read_indices(target)),
            false => Truth::Real(self.run.read::<T>(target)),
        };
        let real = self.real_steps::<T>();
        let (output, truth) = match &real {
            Some(real) => (&real.output[..], real.truth()),
            None => (self.run.read::<T>(output), truth),
        };
        unit.output = output.to_vec();
        match truth {
            Truth::Classes(labels) => unit.labels = labels.to_vec(),
            Truth::Real(targets) => unit.targets = targets.to_vec(),
        }
        Ok(unit)
    }

    /// Adds all shards to the metrics, in their order.
    fn count_units<T: Real>(&mut self, units: &[Unit<T>]) {
        for unit in units {
            let truth = match self.plan.class_targets {
                true => Truth::Classes(&unit.labels),
                false => Truth::Real(&unit.targets),
            };
            for metric in &mut self.metrics {
                metric.update(&unit.output, truth, self.class_axis);
            }
        }
    }

    /// Makes the network's gradient the sum of all shards': each process adds up a slice of it, and hands that to all.
    fn sum_gradients<T: Real>(
        &mut self,
        network: &mut Network,
        exchange: &mut dyn Exchange,
        shards: usize,
        (mine, gradients): (&[usize], &[Vec<T>]),
    ) -> Result<()> {
        let ranks = exchange.ranks();
        let count: usize = network.registry.gradients.iter().map(|part| part.as_slice::<T>().len()).sum();
        let for_rank = |rank: usize| {
            let mut bytes = Vec::new();
            bytes.extend_from_slice(&(mine.len() as u64).to_le_bytes());
            for (shard, gradient) in mine.iter().zip(gradients) {
                bytes.extend_from_slice(&(*shard as u64).to_le_bytes());
                put_numbers(&mut bytes, &gradient[share(count, ranks, rank)]);
            }
            bytes
        };
        let came = exchange.to_each((0..ranks).map(for_rank).collect())?;
        let mut held: Vec<Option<Vec<T>>> = vec![None; shards];
        for part in &came {
            let mut from = Reader(part);
            for _ in 0..from.whole()? {
                let shard = from.whole()? as usize;
                let numbers = from.numbers()?;
                if let Some(held) = held.get_mut(shard) {
                    *held = Some(numbers);
                }
            }
        }
        let mut slice = vec![T::ZERO; share(count, ranks, exchange.rank()).len()];
        let fits = held.iter().flatten().all(|part| part.len() == slice.len());
        let parts: Vec<Option<&[T]>> = held.iter().map(Option::as_deref).collect();
        if fits {
            add_up(&parts, &mut slice);
        }
        let told = match fits {
            true => Ok(bytemuck::cast_slice(&slice).to_vec()),
            false => Err(Error::State("processes have networks of different sizes".into())),
        };
        let whole: Vec<T> = agree(exchange, told)?
            .iter()
            .flat_map(|part| bytemuck::pod_collect_to_vec::<u8, T>(part))
            .collect();
        let mut rest = &whole[..];
        for part in &mut network.registry.gradients {
            let part = part.as_mut_slice::<T>();
            let Some((own, left)) = rest.split_at_checked(part.len()) else {
                return Err(Error::State("processes have networks of different sizes".into()));
            };
            part.copy_from_slice(own);
            rest = left;
        }
        Ok(())
    }

    /// What a single process does once its gradient is whole.
    fn land_sum<T: Real>(
        &mut self,
        network: &mut Network,
        values: &crate::ops::StepValues,
        report: &mut StepReport,
    ) -> Result<Fate> {
        network.registry.gradients_zeroed = false;
        let values = crate::ops::StepValues { gradients_zeroed: false, ..values.clone() };
        let access = Access::Exclusive(&mut network.registry);
        self.run.execute(access, Phase::Verdict..=Phase::Verdict, &values)?;
        if let Some(port) = self.run.program().ports().gradient_norm {
            let norm = self.run.read::<T>(port)[0].to_f64();
            report.gradient_norm = Some(norm);
            if !norm.is_finite() {
                return Ok(Fate::NonFinite);
            }
        }
        self.settle(network, &values)
    }
}

/// Has layers keep the mean of what they would after each shard.
fn set_mean_states<T: Real>(network: &mut Network, units: &[Unit<T>]) -> Result<()> {
    let parts: Vec<Option<&[T]>> = units.iter().map(|unit| Some(&unit.states[..])).collect();
    let count: usize = network.registry.states.iter().map(|state| state.content.as_slice::<T>().len()).sum();
    if units.iter().any(|unit| unit.states.len() != count) {
        return Err(Error::State("processes have networks of different sizes".into()));
    }
    let mut mean = vec![T::ZERO; count];
    add_up(&parts, &mut mean);
    let factor = T::from_f64(1.0 / units.len() as f64);
    let mut rest = &mean[..];
    for state in &mut network.registry.states {
        let held = state.content.as_slice::<T>().len();
        let (own, left) = rest.split_at(held);
        let scaled: Vec<T> = own.iter().map(|sum| *sum * factor).collect();
        state.content = Buffer::from_slice(&scaled)?;
        rest = left;
    }
    debug_assert!(matches!(T::PRECISION, Precision::Float32 | Precision::Float64));
    Ok(())
}

//! Steps that several processes share, with the same bits whatever their number.
//!
//! A step's rows are cut into a fixed number of shards. Each shard's gradient is one unit, computed as if the shard were
//! alone, and units are added up in one fixed tree, whoever has computed them. So a training is a matter of the number
//! of shards, and not of how many processes there are.

use super::exchange::{Exchange, agree};
use super::landing::Fate;
use super::metrics::Truth;
use super::split;
use super::states::take_on_states;
use super::step::{Ended, StepReport, left_out, step_values};
use super::summing::{Node, Parts, cover, numbers, share, spread, sum_of};
use super::trainer::Trainer;
use super::{Examples, Rows};
use crate::network::Network;
use crate::ops::StepValues;
use crate::precision::in_precision;
use crate::program::{Access, Phase};
use crate::simd::{Cpu, Real};
use crate::tensor::Buffer;
use crate::{Error, Result};
use std::borrow::Cow;
use std::ops::Range;

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

fn put_numbers<T: bytemuck::Pod>(bytes: &mut Vec<u8>, numbers: &[T]) {
    bytes.extend_from_slice(&(numbers.len() as u64).to_le_bytes());
    bytes.extend_from_slice(bytemuck::cast_slice(numbers));
}

/// Reads what [`put_numbers`] has written.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
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

    fn numbers<T: bytemuck::Pod>(&mut self) -> Result<Cow<'a, [T]>> {
        let count = self.whole()? as usize;
        let size = count
            .checked_mul(size_of::<T>())
            .ok_or_else(|| Error::State("another process of the training has sent something else".into()))?;
        self.take(size).map(numbers)
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
            states: from.numbers()?.into_owned(),
            output: from.numbers()?.into_owned(),
            labels: from.numbers()?.into_owned(),
            targets: from.numbers()?.into_owned(),
        })
    }
}

impl Trainer {
    /// One update from these rows, cut into `shards`, of which each process computes its share: the same bits for any
    /// number of processes.
    ///
    /// # Errors
    /// As [`step`](Self::step), in every process; [`Error::Value`] for more processes than shards, and for what no
    /// shards are defined of: stateful layers, learning by targets, measures.
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
        if exchange.splits_moments() {
            if !network.device().is_host() {
                return Err(Error::Value(
                    "moments are split between processors; set split_moments=False".into(),
                ));
            }
            network.split_moments(rank, ranks);
        }
        network.passes.note_training();
        network.keep_back()?;
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
        let commits = self.run.program().commits_states();
        let before = commits.then(|| network.registry.states_here()).transpose()?;
        let made = self.own_shards::<T>(
            network,
            examples,
            (rows, share(shards, ranks, rank)),
            shards,
            values.clone(),
        );
        if let Some(before) = &before {
            network.registry.set_states(before.clone());
        }
        let (mine, told) = match made {
            Ok((mine, units)) => {
                let mut bytes = Vec::new();
                bytes.extend_from_slice(&(units.len() as u64).to_le_bytes());
                units.iter().for_each(|unit| unit.put(&mut bytes));
                (mine, Ok(bytes))
            }
            Err(error) => (Vec::new(), Err(error)),
        };
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
            self.sum_gradients(network, exchange, shards, mine)?;
            self.land_sum::<T>(network, &values, &mut report, exchange)?
        } else {
            Fate::NonFinite
        };
        match (&fate, before) {
            (Fate::Landed, Some(_)) => set_mean_states(network, &units)?,
            (_, Some(before)) => network.registry.set_states(before),
            (_, None) => {}
        }
        self.finish(network, &values, Ended { report, fate, measures: None })
    }

    /// Computes the shards of this range: their gradients, added up as far as they can be, and what else they have come
    /// to. Where they have no rows, another is computed all the same, which nobody counts.
    #[expect(clippy::type_complexity, reason = "two lists, each of which is taken apart at once")]
    fn own_shards<T: Real>(
        &mut self,
        network: &mut Network,
        examples: &Examples<'_>,
        (rows, own): (&[u32], Range<usize>),
        shards: usize,
        mut values: StepValues,
    ) -> Result<(Vec<(Node, Vec<T>)>, Vec<Unit<T>>)> {
        let cpu = Cpu::global()?;
        let place = |shard: usize| share(rows.len(), shards, shard);
        let idle = own.clone().all(|shard| place(shard).is_empty());
        let before = self.run.program().commits_states().then(|| network.registry.states.clone());
        let (mut units, mut mine) = (Vec::new(), Vec::new());
        let mut compute = |shard: usize| {
            let place = place(shard);
            if place.is_empty() {
                return Ok(None);
            }
            values.row_offset = place.start as u64;
            units.push(self.unit::<T>(network, examples, (shard, &rows[place]), &values)?);
            network.registry.fetch_gradients()?;
            let count = network.registry.gradients.iter().map(|part| part.as_slice::<T>().len()).sum();
            let mut gradient = Vec::with_capacity(count);
            network
                .registry
                .gradients
                .iter()
                .for_each(|part| gradient.extend_from_slice(part.as_slice::<T>()));
            if let Some(before) = &before {
                network.registry.set_states(before.clone());
            }
            Ok(Some(gradient))
        };
        if idle {
            (0..shards).find_map(|shard| compute(shard).transpose()).transpose()?;
            return Ok((mine, Vec::new()));
        }
        for node in cover((0, shards), &own) {
            mine.extend(sum_of(cpu, node, &mut compute)?.map(|sum| (node, sum)));
        }
        Ok((mine, units))
    }

    /// Computes a shard; its gradient is then the network's.
    fn unit<T: Real>(
        &mut self,
        network: &mut Network,
        examples: &Examples<'_>,
        (shard, rows): (usize, &[u32]),
        values: &StepValues,
    ) -> Result<Unit<T>> {
        network.registry.gradients_zeroed = true;
        self.fill::<T>(examples, Rows::At(rows))?;
        let run = |trainer: &mut Self, network: &mut Network, phases| {
            trainer.run.execute(Access::Exclusive(&mut network.registry), phases, values)
        };
        run(self, network, Phase::Forward..=Phase::Loss)?;
        self.fetch_watched()?;
        let mut unit = Unit { shard, rows: rows.len(), loss: self.summed_loss::<T>(), ..Unit::default() };
        run(self, network, Phase::Backward..=Phase::Exchange)?;
        if let Some(fault) = take_on_states(network, &mut self.run, values)? {
            return Err(fault.error(values.step));
        }
        if self.run.program().commits_states() {
            let states = network.registry.states.iter().flat_map(|state| state.content.as_slice::<T>());
            unit.states = states.copied().collect();
        }
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
        mine: Vec<(Node, Vec<T>)>,
    ) -> Result<()> {
        let cpu = Cpu::global()?;
        let (rank, ranks) = (exchange.rank(), exchange.ranks());
        let count: usize = network.registry.gradients.iter().map(|part| part.as_slice::<T>().len()).sum();
        let for_rank = |rank: usize| {
            let place = share(count, ranks, rank);
            let mut bytes = Vec::with_capacity(8 + mine.len() * (24 + place.len() * size_of::<T>()));
            bytes.extend_from_slice(&(mine.len() as u64).to_le_bytes());
            for ((first, count), sum) in &mine {
                for number in [*first as u64, *count as u64] {
                    bytes.extend_from_slice(&number.to_le_bytes());
                }
                put_numbers(&mut bytes, &sum[place.clone()]);
            }
            bytes
        };
        let parts: Vec<Vec<u8>> = (0..ranks).map(for_rank).collect();
        drop(mine);
        let came = exchange.to_each(parts)?;
        let add_up = || {
            let mut held = Parts::default();
            for part in &came {
                let mut from = Reader(part);
                for _ in 0..from.whole()? {
                    let node = (from.whole()? as usize, from.whole()? as usize);
                    held.0.push((node, from.numbers()?));
                }
            }
            let mut slice = vec![T::ZERO; share(count, ranks, rank).len()];
            held.sum(cpu, shards, &mut slice)?;
            // With room for what is told beside it.
            let mut bytes = Vec::with_capacity(slice.len() * size_of::<T>() + 2);
            bytes.extend_from_slice(bytemuck::cast_slice(&slice));
            Ok(bytes)
        };
        let told = add_up();
        drop(came);
        spread::<T>(&agree(exchange, told)?, &mut network.registry.gradients)?;
        network.registry.forget_device_gradients();
        Ok(())
    }

    /// What a single process does once its gradient is whole.
    fn land_sum<T: Real>(
        &mut self,
        network: &mut Network,
        values: &StepValues,
        report: &mut StepReport,
        exchange: &mut dyn Exchange,
    ) -> Result<Fate> {
        network.registry.gradients_zeroed = false;
        let values = StepValues { gradients_zeroed: false, ..values.clone() };
        let access = Access::Exclusive(&mut network.registry);
        self.run.execute(access, Phase::Verdict..=Phase::Verdict, &values)?;
        if let Some(port) = self.run.program().ports().gradient_norm {
            self.run.fetch(&[port])?;
            let norm = self.run.read::<T>(port)[0].to_f64();
            report.gradient_norm = Some(norm);
            if !norm.is_finite() {
                return Ok(Fate::NonFinite);
            }
        }
        match network.registry.owned {
            Some(_) => split::land(network, &mut self.run, &values, exchange),
            None => self.settle(network, &values),
        }
    }
}

/// Has layers keep the mean of what they would after each shard.
fn set_mean_states<T: Real>(network: &mut Network, units: &[Unit<T>]) -> Result<()> {
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

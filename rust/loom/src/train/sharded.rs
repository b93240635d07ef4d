//! Steps that several processes share, with the same bits whatever their number.
//!
//! A step's rows are cut into a fixed number of shards. Each shard's gradient is one unit, computed as if the shard were
//! alone, and units are added up in one fixed tree, whoever has computed them. So a training is a matter of the number
//! of shards, and not of how many processes there are.

use super::buckets::{Bucket, Route, Sums, buckets, exchange_all};
use super::coding::Coding;
use super::cut::{Cut, StepRows};
use super::exchange::{Exchange, agree};
use super::fault::describe_at;
use super::joint::exchange_joint;
use super::landing::Fate;
use super::lockstep::meetings;
use super::own::{Last, Own};
use super::prepare::check_examples;
use super::shard_gradients::{Shards, add_before, add_lefts, bucket_gradient, sum_of, take_flat, take_sums};
use super::shard_passes::{OneByOne, Together, nodes};
use super::spare::Spare;
use super::split;
use super::states::take_on_states;
use super::step::{Ended, StepReport, counts_nothing, step_values};
use super::summing::{halves, numbers, share};
use super::times::{StepTimes, Watch, noted};
use super::trainer::Trainer;
use super::units::{Unit, carried_of_all, carried_rows, set_mean_states};
use crate::network::Network;
use crate::ops::{Op, StepValues};
use crate::precision::in_precision;
use crate::program::{Access, Phase, Program};
use crate::simd::{Cpu, Real};
use crate::state::{Carried, Fetch, State};
use crate::{Error, Result};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

impl Trainer {
    /// One update from these rows, cut into `shards`, of which each process computes its share: the same bits for any
    /// number of processes.
    ///
    /// # Errors
    /// As [`step`](Self::step), in every process; [`Error::Value`] for more processes than shards, and for what no
    /// shards are defined of: learning by targets, measures.
    pub fn step_sharded(
        &mut self,
        network: &mut Network,
        rows: &StepRows<'_>,
        shards: usize,
        exchange: &mut dyn Exchange,
    ) -> Result<StepReport> {
        in_precision!(network.precision(), T => {
            let outcome = self.sharded_in::<T>(network, rows, shards, exchange);
            if let Some((whole, _)) = self.whole_carried.take() {
                network.registry.carried = Some(whole);
            }
            if outcome.is_err() {
                network.mend();
            }
            outcome
        })
    }

    fn check_shards(&self, network: &Network, shards: usize, exchange: &dyn Exchange) -> Result<()> {
        let refused = |what: &str| Err(Error::Value(format!("a training in shards {what}")));
        let ranks = exchange.ranks();
        if shards < ranks || shards == 0 {
            return refused(&format!("takes at most one process a shard: {ranks} processes for {shards}"));
        }
        if self.config.tween.is_some() || self.config.watch.is_some() {
            return refused("is one by backpropagation without measures");
        }
        if exchange.splits_moments() && !network.device().is_host() {
            return refused("splits moments between processors; set split_moments=False");
        }
        if exchange.splits_gradients() && exchange.coding().is_some() {
            return refused(
                "codes gradients that are whole; set split_gradients=False, or exchange=\"float32\"",
            );
        }
        Ok(())
    }

    /// Cuts a step into shards, and makes the program fit them; with what the summed losses of all rows are to be divided by,
    /// in the order of the shards, so that it is the same number everywhere.
    fn cut<'a, T: Real>(
        &mut self,
        network: &mut Network,
        step: &StepRows<'a>,
        (shards, own): (usize, Range<usize>),
        exchange: &mut dyn Exchange,
    ) -> Result<(Cut<'a>, f64)> {
        let weighing = self.known_weighing(network).or(step.examples.weighing());
        let wanted = |trainer: &Self| super::plan::Plan { weighing, accumulates: true, ..trainer.plan };
        let Some(parts) = step.parts else {
            let mut starts: Vec<usize> =
                (0..shards).map(|shard| share(step.rows.len(), shards, shard).start).collect();
            starts.push(step.rows.len());
            let cut = Cut { step: *step, starts, first: 0 };
            self.fit(network, cut.largest(), wanted(self))?;
            let divisor = |shard| Ok(self.divisor_of::<T>(step.examples, cut.of(cut.place(shard))?));
            let total = (0..shards).map(divisor).sum::<Result<f64>>()?;
            return Ok((cut, total));
        };
        // What is wrong with the rows of one process, all have to know.
        let here = (|| -> Result<Vec<u8>> {
            check_examples(network, &self.config, step.examples)?;
            if parts.len() != own.len() || parts.iter().sum::<usize>() != step.rows.len() {
                return Err(Error::Value(format!("{} shards have {} rows", own.len(), step.rows.len())));
            }
            self.fit(network, parts.iter().copied().max().unwrap_or(0), wanted(self))?;
            let (mut bytes, mut rest) = (Vec::new(), step.rows);
            for rows in parts {
                let (shard, others) = rest.split_at_checked(*rows).unwrap_or((rest, &[]));
                rest = others;
                bytes.extend_from_slice(&(*rows as u64).to_le_bytes());
                bytes.extend_from_slice(&self.divisor_of::<T>(step.examples, shard).to_le_bytes());
            }
            Ok(bytes)
        })();
        let (mut starts, mut total) = (vec![0], 0.0);
        for told in agree(exchange, here)? {
            for pair in told.as_chunks::<16>().0 {
                let (rows, divisor) = pair.split_at(8);
                let number =
                    |bytes: &[u8]| bytes.iter().rev().fold(0u64, |all, byte| (all << 8) | u64::from(*byte));
                starts.push(starts.last().copied().unwrap_or(0) + number(rows) as usize);
                total += f64::from_bits(number(divisor));
            }
        }
        if starts.len() != shards + 1 {
            return Err(super::summing::unlike());
        }
        let cut = Cut { step: *step, first: starts[own.start], starts };
        self.fit(network, cut.largest(), wanted(self))?;
        Ok((cut, total))
    }

    fn sharded_in<T: Real>(
        &mut self,
        network: &mut Network,
        step: &StepRows<'_>,
        shards: usize,
        exchange: &mut dyn Exchange,
    ) -> Result<StepReport> {
        let (rank, ranks) = (exchange.rank(), exchange.ranks());
        self.check_shards(network, shards, exchange)?;
        if exchange.splits_moments() {
            network.split_moments(rank, ranks);
        }
        network.registry.splits_gradients = exchange.splits_gradients() && network.registry.owned.is_some();
        network.passes.note_training();
        network.keep_back()?;
        let mut values = step_values(&self.config, network, 0, self.total_steps);
        self.config.check_accumulation()?;
        let own = share(shards, ranks, rank);
        let (cut, total) = self.cut::<T>(network, step, (shards, own.clone()), exchange)?;
        check_statistics(network, self.run.program(), &cut)?;
        if total == 0.0 {
            return Ok(counts_nothing(network, values.rate));
        }
        values.loss_divisor = total;
        values.batch_rows = cut.total() as u64;
        self.earlier.clear();
        self.of_shards = None;
        self.take_carried(network, cut.total())?;
        let before = self.run.program().commits_states();
        let before = before.then(|| network.registry.states_here()).transpose()?;
        network.registry.gradients_zeroed = true;
        let buckets = buckets(self.run.program(), &network.registry);
        let mut coding = self.coding.take();
        if let Some(format) = exchange.coding() {
            let coding = coding.get_or_insert_with(|| Coding::new(format));
            coding.begin(values.loss_scale);
        }
        let block = coding.as_ref().map_or(1, |coding| coding.format().block());
        let route = Route::new(
            &buckets,
            &network.registry,
            ranks,
            (shards, network.registry.splits_gradients, block),
        );
        let meets = !meetings(self.run.program()).is_empty();
        let together = meets
            .then(|| {
                let states = before.as_deref();
                self.in_lockstep::<T>(network, &cut, own.clone(), &values, states, exchange)
            })
            .transpose()?;
        let by_shard = coding.is_some();
        let states = before.as_deref();
        let made = |trainer: &mut Self, network: &mut Network| match together {
            Some(made) => summed_of::<T>(made, &buckets, (&own, shards), by_shard, &mut trainer.spare),
            None => trainer.own_shards::<T>(network, &cut, own, &values, states, (&buckets, by_shard)),
        };
        let (mut watch, started) = (Watch::default(), Instant::now());
        let (mut forward, mut backward) = (0.0, 0.0);
        let exchanged = if ranks == 1 && !by_shard && !network.registry.splits_gradients {
            // Nobody else has a part of the sum: it is made where the gradient lies.
            let own = noted(&mut forward, || made(self, network));
            own.and_then(|own| noted(&mut backward, || self.sum_up::<T>(network, &buckets, own, states)))
                .map(|units| (None, Ok(units)))
        } else if exchange.shares_memory() && self.run.is_remote() && !by_shard {
            let exchanged = exchange_joint::<T, _>(exchange, (shards, &buckets), &mut watch, |send| {
                let own = noted(&mut forward, || made(self, network))?;
                noted(&mut backward, || self.send_joint::<T>(network, &buckets, own, states, send))
            });
            exchanged.and_then(|units| {
                network.registry.device_gradients()?.note_gradients();
                Ok((None, units))
            })
        } else {
            let coding = coding.as_mut();
            let exchanged = exchange_all::<T, _>(exchange, &route, (coding, &mut watch), |send| {
                let own = noted(&mut forward, || made(self, network))?;
                noted(&mut backward, || self.send::<T>(network, &buckets, own, states, send))
            });
            exchanged.map(|(summed, units)| (Some(summed), units))
        };
        let mut times = StepTimes { forward, backward, ..watch.0 };
        times.waiting = (started.elapsed().as_secs_f64() - forward - backward).max(0.0);
        self.coding = coding;
        if let Some(before) = &before {
            network.registry.set_states(before.clone());
        }
        let (summed, units) = exchanged?;
        let units = Unit::<T>::of_all(&agree(exchange, units.map(|units| Unit::told(&units)))?)?;
        let loss: f64 = units.iter().map(|unit| unit.loss).sum();
        let mut report = StepReport {
            loss: loss / total,
            weight: total,
            rows: units.iter().map(|unit| unit.rows).sum(),
            rate: values.rate,
            ..StepReport::default()
        };
        let fate = if loss.is_finite() {
            self.count_units(&units)?;
            if let Some(summed) = summed {
                noted(&mut times.sending, || take_sums::<T>(network, &buckets, &summed))?;
            }
            noted(&mut times.updating, || self.land_sum::<T>(network, &values, &mut report, exchange))?
        } else {
            Fate::NonFinite
        };
        match (&fate, before) {
            (Fate::Landed, Some(_)) => set_mean_states(network, &units)?,
            (_, Some(before)) => network.registry.set_states(before),
            (_, None) => {}
        }
        if let (Fate::Landed, Some((mut whole, _))) = (&fate, self.whole_carried.take()) {
            let contents = carried_of_all(&whole, &units)?;
            whole.restore(contents);
            network.registry.carried = Some(whole);
        }
        // The sum was this step's: a manual loop that comes next begins with none.
        network.registry.gradients_zeroed = true;
        let report = self.finish(network, &values, Ended { report, fate, measures: None })?;
        Ok(StepReport { times: Some(times), ..report })
    }

    /// Lays aside what layers carry of all rows of a step, while its shards go through the network.
    fn take_carried(&mut self, network: &mut Network, rows: usize) -> Result<()> {
        self.whole_carried = None;
        if !network.carries || self.plan.apart {
            return Ok(());
        }
        self.prepare_carried(network, [rows].into_iter())?;
        if let Some(whole) = network.registry.carried.take() {
            match whole.contents() {
                Ok(contents) => self.whole_carried = Some((whole, contents)),
                Err(error) => {
                    network.registry.carried = Some(whole);
                    return Err(error);
                }
            }
        }
        // A process without rows has room for it all the same.
        self.run.rows = self.run.rows.max(1);
        if self.whole_carried.is_some() {
            let own = Carried::new(
                network.carried_in_training(),
                self.run.rows,
                network.precision(),
                network.device().accelerator().as_ref(),
            )?;
            network.registry.carried = Some(own);
        }
        Ok(())
    }

    /// What layers carry of a shard, where they carry anything.
    pub(super) fn shard_carries<T: Real>(
        &self,
        network: &Network,
        place: Range<usize>,
    ) -> Result<Option<Carried>> {
        let Some((whole, contents)) = &self.whole_carried else { return Ok(None) };
        let mut own = Carried::new(
            network.carried_in_training(),
            place.len(),
            network.precision(),
            network.device().accelerator().as_ref(),
        )?;
        own.restore(carried_rows::<T>(whole, contents, place)?);
        Ok(Some(own))
    }

    /// Notes what layers keep and carry once a shard has gone through them.
    pub(super) fn note_kept<T: Real>(&self, network: &mut Network, unit: &mut Unit<T>) -> Result<()> {
        if !self.run.program().commits_states() {
            return Ok(());
        }
        let states = network.registry.states_here()?;
        unit.states = states.iter().flat_map(|state| state.content.as_slice::<T>()).copied().collect();
        if let (Some(_), Some(own)) = (&self.whole_carried, &network.registry.carried) {
            let contents = own.contents()?;
            unit.carried = contents.iter().flat_map(|content| content.as_slice::<T>()).copied().collect();
        }
        Ok(())
    }

    /// Computes the shards of this range: their gradients, added up as far as they can be, and what else they have come
    /// to; the last of them goes forwards alone. Where they have no rows, another is computed all the same, which nobody
    /// counts.
    fn own_shards<T: Real>(
        &mut self,
        network: &mut Network,
        cut: &Cut<'_>,
        own: Range<usize>,
        values: &StepValues,
        states: Option<&[State]>,
        (buckets, by_shard): (&[Bucket], bool),
    ) -> Result<Own<T>> {
        let cpu = Cpu::global()?;
        let shards = cut.shards();
        let place = |shard: usize| cut.place(shard);
        let mut found = Own { sums: Vec::new(), last: None, units: Vec::new() };
        if own.clone().all(|shard| place(shard).is_empty()) {
            let other = (0..shards).find(|shard| !place(*shard).is_empty());
            if let Some(other) = other.filter(|_| cut.step.parts.is_none()) {
                self.forward::<T>(network, cut, (other, place(other)), values)?;
                self.backward(network, buckets, values)?;
            }
            return Ok(found);
        }
        let (units, values_of_all) = (&mut found.units, values);
        let (trainer, network) = (&mut *self, &mut *network);
        let mut one_by_one =
            OneByOne { cpu, trainer, network, cut, values: values_of_all, states, buckets, units };
        // Where they are made, sums cost a device next to nothing; on their way to the host they would take longer than all else.
        let on_device = one_by_one.trainer.run.is_remote() && !by_shard;
        if on_device {
            one_by_one.trainer.forget_waiting();
        }
        let mut nodes = nodes(shards, &own, by_shard);
        let open = match place(own.end - 1).is_empty() {
            // The last shards have no rows.
            true => None,
            false => nodes.pop(),
        };
        for node in nodes {
            let sum = match on_device {
                true if one_by_one.sum_on_device(node)? => {
                    one_by_one.network.registry.fetch_gradients()?;
                    Some(one_by_one.copy())
                }
                true => None,
                false => sum_of(cpu, node, &mut one_by_one)?,
            };
            found.sums.extend(sum.map(|sum| (node, sum)));
        }
        let Some(node) = open else { return Ok(found) };
        let (mut left, mut lefts, mut aside) = (node, Vec::new(), 0);
        while left.1 > 1 {
            let [first, second] = halves(left);
            if !on_device {
                lefts.extend(sum_of(cpu, first, &mut one_by_one)?);
            } else if one_by_one.sum_on_device(first)? {
                one_by_one.lay_aside()?;
                aside += 1;
            }
            left = second;
        }
        let shard = own.end - 1;
        let (unit, values) = self.forward::<T>(network, cut, (shard, place(shard)), values)?;
        found.units.push(unit);
        lefts.reverse();
        found.last = Some(Last { node, lefts, aside, values });
        Ok(found)
    }

    /// Takes a shard through the network.
    pub(super) fn forward<T: Real>(
        &mut self,
        network: &mut Network,
        cut: &Cut<'_>,
        (shard, place): (usize, Range<usize>),
        values: &StepValues,
    ) -> Result<(Unit<T>, StepValues)> {
        network.registry.gradients_zeroed = true;
        let values = StepValues { row_offset: place.start as u64, ..values.clone() };
        if let Some(carried) = self.shard_carries::<T>(network, place.clone())? {
            network.registry.carried = Some(carried);
        }
        cut.fill::<T>(self, place)?;
        self.run.execute(Access::Exclusive(&mut network.registry), Phase::Forward..=Phase::Loss, &values)?;
        Ok((self.forward_unit::<T>(shard)?, values))
    }

    /// Takes a shard back through it, in the same parts on a device whether it is the last one or not: kernels may go by
    /// what is computed together.
    pub(super) fn backward(
        &mut self,
        network: &mut Network,
        buckets: &[Bucket],
        values: &StepValues,
    ) -> Result<()> {
        for bucket in buckets {
            self.backward_part(network, bucket, values)?;
        }
        Ok(())
    }

    pub(super) fn backward_part(
        &mut self,
        network: &mut Network,
        bucket: &Bucket,
        values: &StepValues,
    ) -> Result<()> {
        if network.registry.splits_gradients {
            split::make_room(&mut network.registry, self.run.program(), &bucket.steps)?;
        }
        let access = Access::Exclusive(&mut network.registry);
        self.run.execute_part(access, Phase::Backward..=Phase::Exchange, values, bucket.steps.clone())
    }

    /// Has layers take on what a shard has made of what they keep and carry, notes it, and goes back to what was before.
    pub(super) fn keep<T: Real>(
        &mut self,
        network: &mut Network,
        unit: &mut Unit<T>,
        values: &StepValues,
        states: Option<&[State]>,
    ) -> Result<()> {
        if let Some(fault) = take_on_states(network, &mut self.run, values)? {
            return Err(fault.error(values.step));
        }
        self.note_kept(network, unit)?;
        if let Some(states) = states {
            network.registry.set_states(states.to_vec());
        }
        Ok(())
    }

    /// Hands over the gradients of all buckets, those of the last shard while it goes backwards.
    fn send<T: Real>(
        &mut self,
        network: &mut Network,
        buckets: &[Bucket],
        own: Own<T>,
        states: Option<&[State]>,
        send: &mut dyn FnMut(Sums<T>),
    ) -> Result<Vec<Unit<T>>> {
        let cpu = Cpu::global()?;
        let Own { sums, last, mut units } = own;
        let whole = |bucket: &Bucket| -> Sums<T> {
            sums.iter().map(|(node, sum)| (*node, sum[bucket.place.clone()].to_vec())).collect()
        };
        // A device makes all of them without a pause; they come back one after the other.
        let mut coming: VecDeque<Option<Box<dyn Fetch>>> = VecDeque::new();
        if let Some(last) = last.as_ref().filter(|_| self.run.is_remote()) {
            self.backward(network, buckets, &last.values)?;
            self.add_aside(network, buckets, last.aside)?;
            for bucket in buckets {
                coming.push_back(network.registry.begin_fetch(&bucket.stores)?);
            }
        }
        for bucket in buckets {
            let mut parts = whole(bucket);
            if let Some(last) = &last {
                let mut gradient = match coming.pop_front() {
                    Some(Some(fetch)) => numbers(fetch.land()?.bytes()).into_owned(),
                    Some(None) => bucket_gradient::<T>(network, bucket),
                    None => {
                        self.backward_part(network, bucket, &last.values)?;
                        bucket_gradient::<T>(network, bucket)
                    }
                };
                add_lefts(cpu, &mut gradient, &last.lefts, bucket.place.start);
                parts.push((last.node, gradient));
                split::let_go(&mut network.registry, &bucket.stores);
            }
            send(parts);
        }
        if let (Some(last), Some(unit)) = (&last, units.last_mut()) {
            self.keep(network, unit, &last.values, states)?;
        }
        let lefts = last.into_iter().flat_map(|last| last.lefts);
        sums.into_iter().map(|(_, sum)| sum).chain(lefts).for_each(|sum| self.spare.give(sum));
        Ok(units)
    }

    /// What the only process of a training does with its shards: the network's gradient becomes their sum.
    fn sum_up<T: Real>(
        &mut self,
        network: &mut Network,
        buckets: &[Bucket],
        own: Own<T>,
        states: Option<&[State]>,
    ) -> Result<Vec<Unit<T>>> {
        let cpu = Cpu::global()?;
        let Own { sums, last, mut units } = own;
        if let Some(last) = last {
            self.backward(network, buckets, &last.values)?;
            self.add_aside(network, buckets, last.aside)?;
            if !last.lefts.is_empty() {
                add_before(cpu, network, buckets, &last.lefts);
            }
            if let Some(unit) = units.last_mut() {
                self.keep(network, unit, &last.values, states)?;
            }
            last.lefts.into_iter().for_each(|left| self.spare.give(left));
        }
        for (_, sum) in sums {
            take_flat(cpu, network, buckets, &sum);
            self.spare.give(sum);
        }
        Ok(units)
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
        match network.registry.splits_gradients {
            true => split::judge::<T>(network, &mut self.run, &values, exchange)?,
            false => {
                let access = Access::Exclusive(&mut network.registry);
                self.run.execute(access, Phase::Verdict..=Phase::Verdict, &values)?;
            }
        }
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

/// Adds up what shards have come to that have gone through the network together.
fn summed_of<T: Real>(
    made: Result<super::lockstep::Made<T>>,
    buckets: &[Bucket],
    (own, shards): (&Range<usize>, usize),
    by_shard: bool,
    spare: &mut Spare,
) -> Result<Own<T>> {
    let (gradients, units) = made?;
    let cpu = Cpu::global()?;
    let mut together = Together { cpu, gradients: &gradients, buckets, spare, newest: &[] };
    let mut sums = Vec::new();
    for node in nodes(shards, own, by_shard) {
        sums.extend(sum_of(cpu, node, &mut together)?.map(|sum| (node, sum)));
    }
    Ok(Own { sums, last: None, units })
}

/// Refuses shards that are too small for layers that take statistics of each by itself; alike in every process.
fn check_statistics(network: &Network, program: &Program, cut: &Cut<'_>) -> Result<()> {
    let of_shards = program.steps().iter().find_map(|step| match &step.op {
        Op::ChannelMoments(moments) if !moments.part && moments.inner == 1 => Some(step.at.as_ref()),
        _ => None,
    });
    let (Some(at), shards) = (of_shards, cut.shards()) else { return Ok(()) };
    let Some(shard) = (0..shards).find(|shard| cut.place(*shard).len() == 1) else { return Ok(()) };
    Err(Error::Value(format!(
        "{}: batch normalisation needs more than one value a channel in training, and shard {shard} of {shards} has \
         a single row, with one value a channel: train with larger batches or fewer shards, leave out the last \
         incomplete batch, or use BatchNorm(synchronized=True), whose statistics are those of all shards together",
        describe_at(network, at)
    )))
}

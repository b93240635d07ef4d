//! The order in which epochs pass the rows of a data set, step by step or in frames.

use super::frames::MOST_OUTPUT_BYTES;
use super::landing::{Fate, repeats};
use super::step::{StepReport, counts_nothing, step_values};
use super::trainer::Trainer;
use super::{Examples, Exchange, OnNonFinite, Rows, StepRows, TrainingConfig};
use crate::network::Network;
use crate::ops::StepValues;
use crate::program::{Access, FrameStep, Outcomes, Phase};
use crate::{Result, random};
use std::time::{Duration, Instant};

/// Closes the epoch in the network's state; returns its mean loss.
pub fn end_epoch(network: &mut Network) -> f64 {
    let state = &mut network.optimizer_state;
    let loss = state.loss_sum / state.loss_weight;
    state.epoch += 1;
    state.batch = 0;
    state.loss_sum = 0.0;
    state.loss_weight = 0.0;
    loss
}

/// The order in which an epoch passes the rows of a data set, and how they fall into steps.
///
/// Where it is shuffled, stateful layers begin new sequences in every batch; otherwise they go on from batch to
/// batch, and from epoch to epoch, until [`Network::reset_states`].
#[derive(Clone, Debug)]
pub struct Epoch {
    order: Vec<u32>,
    shuffled: bool,
    batch_size: usize,
    accumulate: usize,
}

impl Epoch {
    /// For a data set of this many rows.
    pub fn new(config: &TrainingConfig, rows: usize) -> Self {
        let order = (0..rows as u32).collect();
        Self { order, shuffled: config.shuffle, batch_size: config.batch_size, accumulate: config.accumulate }
    }

    /// Rows of one step.
    fn step_rows(&self) -> usize {
        self.batch_size.saturating_mul(self.accumulate)
    }

    /// Steps of one epoch.
    pub fn steps(&self) -> u64 {
        self.order.len().div_ceil(self.step_rows()) as u64
    }

    /// Steps of a whole training.
    pub fn total_steps(&self, config: &TrainingConfig) -> u64 {
        self.steps().saturating_mul(config.epochs)
    }

    /// Draws the order of epoch `number`.
    pub fn begin(&mut self, config: &TrainingConfig, number: u64) {
        if self.shuffled {
            random::permutation(config.seed, number, &mut self.order);
        }
    }

    /// Whether the epoch the network is in has no step left.
    pub fn is_done(&self, network: &Network) -> bool {
        network.optimizer_state.batch >= self.steps()
    }

    /// Whether rows come in another order in every epoch.
    pub(super) fn is_shuffled(&self) -> bool {
        self.shuffled
    }

    /// Whether a step may be made of several batches.
    pub(super) fn accumulates(&self) -> bool {
        self.accumulate > 1
    }

    /// The rows of the next step of the epoch the network is in.
    pub(super) fn next_rows(&self, network: &Network) -> &[u32] {
        self.rows_of(network, 1)
    }

    /// The rows of the next `steps` steps of the epoch the network is in.
    pub(super) fn rows_of(&self, network: &Network, steps: u64) -> &[u32] {
        let rows = self.order.len();
        let start = rows.min((network.optimizer_state.batch as usize).saturating_mul(self.step_rows()));
        &self.order[start..rows.min(start.saturating_add(self.step_rows().saturating_mul(steps as usize)))]
    }

    /// The next step of the epoch the network is in; `None` at its end.
    ///
    /// # Errors
    /// See [`Trainer::step`].
    pub fn step(
        &self,
        trainer: &mut Trainer,
        network: &mut Network,
        examples: &Examples<'_>,
    ) -> Result<Option<StepReport>> {
        if self.is_done(network) {
            return Ok(None);
        }
        let rows = self.next_rows(network);
        trainer.shuffled = self.shuffled;
        let report = if rows.len() <= self.batch_size {
            trainer.step(network, &[(examples, Rows::At(rows))])?
        } else {
            let batches: Vec<_> =
                rows.chunks(self.batch_size).map(|rows| (examples, Rows::At(rows))).collect();
            trainer.step(network, &batches)?
        };
        count_step(network, &report);
        Ok(Some(report))
    }

    /// The next step of the epoch the network is in, as [`Trainer::step_sharded`] makes it; `None` at its end.
    ///
    /// # Errors
    /// See there.
    pub fn step_sharded(
        &self,
        trainer: &mut Trainer,
        network: &mut Network,
        examples: &Examples<'_>,
        shards: usize,
        exchange: &mut dyn Exchange,
    ) -> Result<Option<StepReport>> {
        if self.is_done(network) {
            return Ok(None);
        }
        trainer.shuffled = self.shuffled;
        let rows = StepRows::all(examples, self.next_rows(network));
        let report = trainer.step_sharded(network, &rows, shards, exchange)?;
        count_step(network, &report);
        Ok(Some(report))
    }

    /// The next steps of the epoch the network is in: until it ends, `most` are done, or `limit` has passed.
    ///
    /// On a GPU they go there together, in frames of about a twentieth of a second, and the
    /// examples are copied there once; see [`Trainer::forget_examples`].
    ///
    /// # Errors
    /// See [`Trainer::step`]; the steps before the one at fault are done, and the epoch counts them.
    pub fn advance(
        &self,
        trainer: &mut Trainer,
        network: &mut Network,
        examples: &Examples<'_>,
        most: u64,
        limit: Duration,
    ) -> Result<Vec<StepReport>> {
        let started = Instant::now();
        let mut reports = Vec::new();
        while (reports.len() as u64) < most && !self.is_done(network) {
            let left = most - reports.len() as u64;
            if self.frame(trainer, network, examples, left, &mut reports)? {
                if started.elapsed() >= limit {
                    break;
                }
                continue;
            }
            reports.extend(self.step(trainer, network, examples)?);
            if started.elapsed() >= limit {
                break;
            }
        }
        Ok(reports)
    }

    /// Runs the next frame of the epoch, where the network is on a device that takes frames and holds the examples.
    pub(super) fn frame(
        &self,
        trainer: &mut Trainer,
        network: &mut Network,
        examples: &Examples<'_>,
        most: u64,
        reports: &mut Vec<StepReport>,
    ) -> Result<bool> {
        if network.device().frames().is_none() || self.accumulates() || trainer.is_watched() {
            return Ok(false);
        }
        let first = self.next_rows(network);
        trainer.shuffled = self.is_shuffled();
        trainer.fit_plan(network, &[(examples, Rows::At(first))])?;
        if repeats(trainer.run.program())
            || !trainer.frames.make_resident(network.device(), examples, trainer.plan.class_targets)?
        {
            return Ok(false);
        }
        let output = network.output_shape().len();
        let kept = (!trainer.metrics.is_empty()).then_some(trainer.plan.capacity * output);
        let mut count = most.min(trainer.frames.steps());
        if network.registry.stores().iter().any(|store| store.encodes_on_host()) {
            // Weights go by way of the host after each step.
            count = 1;
        }
        if trainer.run.program().computes_on_host() {
            // A step that the host refuses leaves those before it as they are.
            count = 1;
        }
        if let Some(kept) = kept {
            count = count.min((MOST_OUTPUT_BYTES / (kept * 4).max(1)).max(1) as u64);
        }
        let rows = self.rows_of(network, count);
        let batch_size = first.len();
        let mut steps = Vec::with_capacity(count as usize);
        for (number, batch) in rows.chunks(batch_size).enumerate() {
            let total = trainer.divisor_of::<f32>(examples, batch);
            if total == 0.0 {
                break;
            }
            let values = StepValues {
                loss_divisor: total,
                batch_rows: batch.len() as u64,
                ..step_values(&trainer.config, network, number as u64, trainer.total_steps)
            };
            steps.push(FrameStep { values, rows: batch.len(), first_row: number * batch_size });
        }
        if steps.is_empty() {
            let rate = step_values(&trainer.config, network, 0, trainer.total_steps).rate;
            let report = counts_nothing(network, rate);
            count_step(network, &report);
            reports.push(report);
            return Ok(true);
        }
        let started = Instant::now();
        let Outcomes { steps: outcomes, outputs, measures } =
            trainer.run_frame(network, &steps, Some(rows), kept)?;
        let figures = measures.len() / steps.len();
        trainer.frames.note(steps.len(), started.elapsed().as_secs_f64());
        for (number, (step, outcome)) in steps.iter().zip(&outcomes).enumerate() {
            let batch = &rows[step.first_row..step.first_row + step.rows];
            let ended = trainer.ended(network, step, outcome, &measures[number * figures..][..figures]);
            if let Some(kept) = kept.filter(|_| ended.was_predicted()) {
                let output = &outputs[number * kept..][..step.rows * output];
                trainer.count_metrics(examples, batch, output);
            }
            if ended.fate == Fate::NonFinite && !outcome.overflowed {
                trainer.reproduce(network, examples, batch, &step.values)?;
            }
            let report = trainer.finish(network, &step.values, ended)?;
            // The host follows the device's scale by the same rule.
            debug_assert!(
                report.exploded || network.loss_scale().is_none_or(|now| now.scale == outcome.scale)
            );
            count_step(network, &report);
            reports.push(report);
        }
        Ok(true)
    }
}

impl Trainer {
    /// Brings back the values of a step that was left out: later steps of its frame have
    /// written over them, but no weight has moved since.
    fn reproduce(
        &mut self,
        network: &mut Network,
        examples: &Examples<'_>,
        batch: &[u32],
        values: &StepValues,
    ) -> Result<()> {
        if self.config.on_nonfinite != OnNonFinite::Raise {
            return Ok(());
        }
        self.fill::<f32>(examples, Rows::At(batch))?;
        let access = Access::Exclusive(&mut network.registry);
        self.run.execute(access, Phase::Forward..=Phase::Exchange, values)
    }
}

/// Adds a step to the running epoch in the network's state.
pub fn count_step(network: &mut Network, report: &StepReport) {
    let state = &mut network.optimizer_state;
    state.batch += 1;
    if !report.skipped {
        state.loss_sum += report.loss * report.weight;
        state.loss_weight += report.weight;
    }
}

//! One step of training: an engine runs it, and what it has come to there is counted and reported here.

use super::landing::{Fate, count_explosion, count_update, foreseen_fault, land, repeats, settle};
use super::states::take_on_states;
use super::times::StepTimes;
use super::trainer::{LEAST_PAUSE, Trainer};
use super::{Examples, OnNonFinite, Rows, TrainingConfig, diagnose, watch};
use crate::network::Network;
use crate::ops::StepValues;
use crate::precision::in_precision;
use crate::program::{Access, FrameStep, Outcome, Outcomes, Phase};
use crate::simd::Real;
use crate::{Error, Result};
use std::ops::RangeInclusive;
use std::time::Instant;

/// Copying takes at most one part in this many of the time.
const COPYING_SHARE: u32 = 20;

/// What one step did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepReport {
    /// The loss over the step's rows; NaN where they were left out because they were not finite, and 0 where none
    /// counts.
    pub loss: f64,
    /// What the summed losses were divided by: the weight of this loss in a mean.
    pub weight: f64,
    /// How many rows there were.
    pub rows: usize,
    /// The learning rate.
    pub rate: f64,
    /// The global gradient norm before clipping, where it was computed.
    pub gradient_norm: Option<f64>,
    /// Whether the step was left out because it was not finite, or exploded.
    pub skipped: bool,
    /// Whether it exploded, and the step before was taken back.
    pub exploded: bool,
    /// Where its time went, where it was cut into shards.
    pub times: Option<StepTimes>,
}

impl Default for StepReport {
    /// Of a step that has done nothing yet.
    fn default() -> Self {
        Self {
            loss: f64::NAN,
            weight: 0.0,
            rows: 0,
            rate: 0.0,
            gradient_norm: None,
            skipped: false,
            exploded: false,
            times: None,
        }
    }
}

/// What a step has come to on its engine.
#[derive(Debug)]
pub(super) struct Ended {
    /// What it reports unless it is left out.
    pub(super) report: StepReport,
    pub(super) fate: Fate,
    /// Header and figures of the measures, where it was judged by them.
    pub(super) measures: Option<Vec<f64>>,
}

impl Ended {
    /// Whether its outputs count in metrics: what is taken back was predicted all the same.
    pub(super) fn was_predicted(&self) -> bool {
        self.fate == Fate::Exploded || self.report.loss.is_finite()
    }
}

impl Trainer {
    /// One update from these batches, whose gradients add up; each goes through the network by itself.
    ///
    /// # Errors
    /// [`Error::Shape`] and [`Error::Value`] for batches that do not fit; [`Error::NonFinite`],
    /// naming the first layer concerned, unless such steps are skipped. The weights are then as before.
    pub fn step(
        &mut self,
        network: &mut Network,
        batches: &[(&Examples<'_>, Rows<'_>)],
    ) -> Result<StepReport> {
        let outcome = in_precision!(network.precision(), T => self.step_in::<T>(network, batches));
        outcome.map_err(|error| {
            network.mend();
            network.with_loss(error)
        })
    }

    /// Brings the newest weights back from a device if it is time to, so that not all is lost with it: at most one
    /// part in twenty of the time goes into that, and no more than a second of training can be lost on
    /// devices that answer at once.
    ///
    /// # Errors
    /// [`Error::Device`] where the device was lost.
    pub fn keep_up(&mut self, network: &mut Network) -> Result<()> {
        let started = Instant::now();
        if started >= self.next_copy && !network.is_synchronized() {
            network.synchronize()?;
            self.next_copy = Instant::now() + LEAST_PAUSE.max(started.elapsed() * COPYING_SHARE);
        }
        Ok(())
    }

    fn step_in<T: Real>(
        &mut self,
        network: &mut Network,
        batches: &[(&Examples<'_>, Rows<'_>)],
    ) -> Result<StepReport> {
        network.passes.note_training();
        network.keep_back()?;
        let mut values = step_values(&self.config, network, 0, self.total_steps);
        if batches.len() > 1 {
            self.config.check_accumulation()?;
        }
        self.fit_plan(network, batches)?;
        // A single batch is filled once; several are filled again after their weights are summed.
        let mut total = 0.0;
        for &(examples, rows) in batches {
            total += self.fill::<T>(examples, rows)?;
        }
        if total == 0.0 {
            return Ok(counts_nothing(network, values.rate));
        }
        values.loss_divisor = total;
        values.batch_rows = batches.iter().map(|(_, rows)| rows.len() as u64).sum();
        self.prepare_carried(network, batches.iter().map(|(_, rows)| rows.len()))?;
        self.earlier.clear();
        self.of_shards = None;
        let as_frame =
            batches.len() == 1 && self.run.engine().frames().is_some() && !repeats(self.run.program());
        let ended = match as_frame {
            true => self.run_as_frame(network, &values)?,
            false => self.run_batches::<T>(network, batches, &mut values)?,
        };
        self.finish(network, &values, ended)
    }

    /// Runs a step batch by batch. Where it does not land, everything is then as before.
    fn run_batches<T: Real>(
        &mut self,
        network: &mut Network,
        batches: &[(&Examples<'_>, Rows<'_>)],
        values: &mut StepValues,
    ) -> Result<Ended> {
        network.registry.gradients_zeroed = true;
        // What layers keep follows every batch; a bad one takes all of the step back.
        let commits = batches.len() > 1 && self.run.program().commits_states();
        if commits {
            network.synchronize()?;
        }
        let before = commits.then(|| network.registry.copy_states()).transpose()?;
        let mut report =
            StepReport { loss: 0.0, weight: values.loss_divisor, rate: values.rate, ..StepReport::default() };
        let fate = match self.run_and_land::<T>(network, batches, values, &mut report) {
            Ok(fate) => fate,
            Err(error) => {
                network.registry.restore_states(before);
                return Err(error);
            }
        };
        match fate {
            Fate::Landed => {}
            // That it exploded, and the rate that follows from it, are noted for the steps to come.
            Fate::Exploded => {
                network.synchronize()?;
                let layers = watch::kept_by_layers(network);
                network.registry.restore_states(before.map(|before| before.of_layers(layers)));
            }
            Fate::NonFinite | Fate::Refused(_) => network.registry.restore_states(before),
        }
        let judges = self.run.program().ports().judges;
        let measures = judges.then(|| watch::kept_measures(network)).transpose()?;
        Ok(Ended { report, fate, measures })
    }

    /// Adds up the gradients of all batches, and lands the update by them; what is known of the step goes into
    /// its report, and `values` are then of the newest batch.
    fn run_and_land<T: Real>(
        &mut self,
        network: &mut Network,
        batches: &[(&Examples<'_>, Rows<'_>)],
        values: &mut StepValues,
        report: &mut StepReport,
    ) -> Result<Fate> {
        let commits = self.run.program().commits_states();
        for (number, &(examples, rows)) in batches.iter().enumerate() {
            let is_last = number + 1 == batches.len();
            if batches.len() > 1 {
                self.fill::<T>(examples, rows)?;
            }
            self.execute(network, Phase::Forward..=Phase::Loss, values)?;
            self.fetch_watched()?;
            let loss = self.summed_loss::<T>();
            if !loss.is_finite() && !self.recovers() {
                report.loss = f64::NAN;
                return Ok(Fate::NonFinite);
            }
            report.loss += loss / values.loss_divisor;
            report.rows += rows.len();
            self.update_metrics::<T>();
            if self.keep_outputs && !is_last {
                let newest = self.newest_in::<T>()?;
                self.earlier.push(newest);
            }
            self.execute(network, Phase::Backward..=Phase::Exchange, values)?;
            if commits
                && !is_last
                && let Some(fault) = take_on_states(network, &mut self.run, values)?
            {
                return Ok(Fate::Refused(fault));
            }
            values.gradients_zeroed = false;
            // Passes that come after the verdict are over the last batch once more.
            if !is_last {
                values.row_offset += rows.len() as u64;
            }
        }
        self.execute(network, Phase::Verdict..=Phase::Verdict, values)?;
        if let Some(port) = self.run.program().ports().gradient_norm {
            self.run.fetch(&[port])?;
            let norm = self.run.read::<T>(port)[0].to_f64();
            report.gradient_norm = Some(norm);
            if !norm.is_finite() && !self.recovers() {
                return Ok(Fate::NonFinite);
            }
        }
        self.settle(network, values)
    }

    fn execute(
        &mut self,
        network: &mut Network,
        phases: RangeInclusive<Phase>,
        values: &StepValues,
    ) -> Result<()> {
        self.run.execute(Access::Exclusive(&mut network.registry), phases, values)
    }

    /// Lands a step whose gradients are there, or takes back the one before.
    pub(super) fn settle(&mut self, network: &mut Network, values: &StepValues) -> Result<Fate> {
        let rule = self.config.watched().and_then(|watch| watch.explosion).filter(|_| self.recovers());
        settle(network, &mut self.run, values, rule, |network, run| land(network, run, values))
    }

    /// Runs a step over the batch that is in the run as a frame.
    fn run_as_frame(&mut self, network: &mut Network, values: &StepValues) -> Result<Ended> {
        let step = FrameStep { values: values.clone(), rows: self.run.rows, first_row: 0 };
        let outcomes = self.run_frame(network, std::slice::from_ref(&step), None, None)?;
        if self.is_watched() || !self.metrics.is_empty() {
            self.fetch_watched()?;
        }
        let ended = self.ended(network, &step, &outcomes.steps[0], &outcomes.measures);
        if ended.was_predicted() {
            self.update_metrics::<f32>();
        }
        Ok(ended)
    }

    /// What a step of a frame has come to; an explosion is counted.
    pub(super) fn ended(
        &self,
        network: &mut Network,
        step: &FrameStep,
        outcome: &Outcome,
        measures: &[f32],
    ) -> Ended {
        let program = self.run.program();
        let weight = step.values.loss_divisor;
        let report = StepReport {
            loss: f64::from(outcome.loss) / weight,
            weight,
            rows: step.rows,
            rate: step.values.rate,
            gradient_norm: program.ports().gradient_norm.map(|_| f64::from(outcome.norm)),
            ..StepReport::default()
        };
        let foreseen = outcome.refused.and_then(|what| foreseen_fault(network, program, f64::from(what)));
        let fate = match foreseen {
            _ if outcome.exploded => {
                count_explosion(network, outcome.taken_back);
                Fate::Exploded
            }
            Some(fault) => Fate::Refused(fault),
            None if outcome.left_out => Fate::NonFinite,
            None => Fate::Landed,
        };
        let judges = program.ports().judges;
        Ended { report, fate, measures: judges.then(|| measures.iter().map(|x| f64::from(*x)).collect()) }
    }

    /// Counts a step by what it has come to, and reports it.
    pub(super) fn finish(
        &self,
        network: &mut Network,
        values: &StepValues,
        ended: Ended,
    ) -> Result<StepReport> {
        let report = self.conclude(network, values, ended.report, ended.fate)?;
        let counts = !report.skipped || report.exploded;
        if let (Some(watch), Some(measures), true) = (self.config.watched(), ended.measures, counts) {
            network.measures.note(watch, report.loss, &measures, report.exploded);
        }
        Ok(report)
    }

    /// [`finish`](Self::finish), the measures aside. A step is left out in any case while the loss scale may
    /// be the reason.
    pub(super) fn conclude(
        &self,
        network: &mut Network,
        values: &StepValues,
        report: StepReport,
        fate: Fate,
    ) -> Result<StepReport> {
        match &fate {
            Fate::Landed => {
                self.count_landed(network);
                return Ok(report);
            }
            Fate::Exploded => return Ok(StepReport { skipped: true, exploded: true, ..report }),
            Fate::NonFinite | Fate::Refused(_) => network.registry.gradients_zeroed = true,
        }
        if fate == Fate::NonFinite && network.loss_scale().is_some_and(|now| now.may_be_too_large()) {
            network.optimizer_state.loss_scale.note_skipped_step();
            // It is the scaled gradients that were too large: the loss is what it is.
            return Ok(StepReport { loss: report.loss, rows: report.rows, ..left_out(network, report.rate) });
        }
        // A loss that is not finite comes before any norm.
        let gradient_norm = report.gradient_norm.filter(|_| report.loss.is_finite());
        if self.config.on_nonfinite == OnNonFinite::Raise {
            return Err(match fate {
                Fate::Refused(fault) => fault.error(values.step),
                _ => diagnose::explain(network, &self.run, gradient_norm, values),
            });
        }
        Ok(StepReport { gradient_norm, rows: report.rows, ..left_out(network, report.rate) })
    }

    /// Makes room for what layers carry through batches of so many rows, unless each brings sequences of
    /// its own.
    pub(super) fn prepare_carried(
        &self,
        network: &mut Network,
        batches: impl Iterator<Item = usize>,
    ) -> Result<()> {
        if self.plan.apart { Ok(()) } else { network.prepare_carried(batches) }
    }

    /// Counts a step that has landed. What layers carry is then of its batch, or nothing where that brought
    /// sequences of its own.
    pub(super) fn count_landed(&self, network: &mut Network) {
        match self.plan.apart {
            true => network.registry.carried = None,
            false => network.registry.begin_carrying(),
        }
        count_update(network);
    }

    /// Whether somebody looks at every step's values.
    pub(super) fn is_watched(&self) -> bool {
        self.keep_outputs || self.looking.pin_layers
    }

    /// Runs a frame; returns what its steps have come to, and each step's output if asked.
    pub(super) fn run_frame(
        &mut self,
        network: &mut Network,
        steps: &[FrameStep],
        order: Option<&[u32]>,
        kept: Option<usize>,
    ) -> Result<Outcomes> {
        self.prepare_carried(network, steps.iter().map(|step| step.rows))?;
        let halts = self.config.on_nonfinite == OnNonFinite::Raise;
        let resident = match (&self.frames.resident, order) {
            (Some(Some(resident)), Some(order)) => Some((&**resident, order)),
            _ => None,
        };
        let engine = self.run.engine().clone();
        let Some(frames) = engine.frames() else {
            return Err(Error::Internal("an engine without frames was given one".into()));
        };
        network.passes.note_training();
        network.keep_back()?;
        network.registry.gradients_zeroed = true;
        let outcome = frames.train(&mut self.run, &mut network.registry, steps, resident, kept, halts);
        outcome.map_err(|error| network.with_loss(error))
    }
}

/// What step number `ahead` from the network's next one on brings along, the divisor of its loss aside.
pub(super) fn step_values(
    config: &TrainingConfig,
    network: &Network,
    ahead: u64,
    total_steps: u64,
) -> StepValues {
    let state = &network.optimizer_state;
    let step = state.step + ahead;
    StepValues {
        seed: config.seed,
        step,
        optimizer_step: state.updates + 1 + ahead,
        rate: config.schedule.rate(config.learning_rate, step, total_steps),
        max_norm: config.largest_norm().unwrap_or(f64::INFINITY),
        clip_value: config.clip_value.unwrap_or(f64::INFINITY),
        loss_scale: state.loss_scale.scale,
        good_steps: state.loss_scale.good_steps,
        gradients_zeroed: true,
        ..StepValues::default()
    }
}

/// The report of a step in which every weight is zero: there is nothing to learn from, and no mean.
pub(super) fn counts_nothing(network: &mut Network, rate: f64) -> StepReport {
    StepReport { loss: 0.0, ..left_out(network, rate) }
}

/// The report of a step that moved nothing. The step counts, so that the next one draws anew;
/// the optimizer's counter stays.
pub(super) fn left_out(network: &mut Network, rate: f64) -> StepReport {
    network.optimizer_state.count_step();
    StepReport { rate, skipped: true, ..StepReport::default() }
}

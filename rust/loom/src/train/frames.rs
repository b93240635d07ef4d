//! Several steps at a time: one command frame on a GPU, one after another on the CPU.

use super::backprop::{Trainer, left_out, note_explosion, step_values};
use super::data::{Targets, gather};
use super::landing::{Fault, repeats};
use super::metrics::Truth;
use super::{Epoch, Examples, OnNonFinite, Rows, StepReport, count_step};
use crate::network::Network;
use crate::ops::StepValues;
use crate::ops::loss::divisor;
use crate::program::{Access, FrameStep, Outcome, Outcomes, Phase, Resident};
use crate::tensor::{Elements, TensorView};
use crate::{Error, Result};
use std::borrow::Cow;
use std::time::{Duration, Instant};

impl Epoch {
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
}

/// About how long a frame takes: drivers watch over the device, and people press Ctrl-C.
const FRAME_SECONDS: f64 = 0.05;
/// The most steps in one frame.
const MOST_STEPS: u64 = 4096;
/// The most bytes of outputs that a frame keeps for metrics.
const MOST_OUTPUT_BYTES: usize = 64 << 20;

/// What a trainer knows of the frames it has run.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// The examples on the device; `None` inside once they were found not to fit.
    resident: Option<Option<Box<dyn Resident>>>,
    /// How long a step takes, once that is known.
    step_seconds: Option<f64>,
    /// Frames run; the first also compiles the kernels.
    run: u64,
}

impl Frames {
    fn steps(&self) -> u64 {
        match self.step_seconds {
            Some(seconds) => ((FRAME_SECONDS / seconds) as u64).clamp(1, MOST_STEPS),
            None => [1, 8][self.run.min(1) as usize],
        }
    }
}

impl Trainer {
    /// Reads the examples anew before the next step: they have changed, or are others. A device that holds none
    /// always does.
    pub fn forget_examples(&mut self) {
        self.frames.resident = None;
    }

    /// Copies the examples to the device unless they are there; whether they fit.
    fn make_resident(&mut self, network: &Network, examples: &Examples<'_>) -> Result<bool> {
        if let Some(known) = &self.frames.resident
            && known.as_ref().is_none_or(|resident| resident.rows() == examples.rows())
        {
            return Ok(known.is_some());
        }
        let input = single(&examples.input);
        let target: Cow<'_, [u8]> = match &examples.target {
            Targets::Classes { labels, .. } if self.plan.class_targets => {
                Cow::Borrowed(bytemuck::cast_slice(labels))
            }
            Targets::Classes { labels, .. } => {
                let numbers: Vec<f32> = labels.iter().map(|label| *label as f32).collect();
                Cow::Owned(bytemuck::cast_slice(&numbers).to_vec())
            }
            Targets::Real(view) => single(view),
        };
        let weight = examples.weight.as_ref().map(single);
        let arrays: Vec<&[u8]> =
            [Some(&input), Some(&target), weight.as_ref()].into_iter().flatten().map(|a| &**a).collect();
        self.frames.resident = Some(match network.device().frames() {
            Some(frames) => frames.resident(examples.rows(), &arrays)?,
            None => None,
        });
        Ok(matches!(&self.frames.resident, Some(Some(_))))
    }

    /// One step over the batch that is in the run.
    pub(super) fn step_in_frame(
        &mut self,
        network: &mut Network,
        values: StepValues,
        total: f64,
    ) -> Result<StepReport> {
        let rows = self.run.rows;
        let steps = [FrameStep { values: values.clone(), rows, first_row: 0 }];
        let Outcomes { steps: outcomes, measures, .. } = self.run_frame(network, &steps, None, None)?;
        let outcome = outcomes[0];
        if self.is_watched() || !self.metrics.is_empty() {
            self.fetch_watched()?;
        }
        let mut report = self.report(&outcome, &values, total, rows);
        let judged = self.note_judged(network, &mut report, &outcome, &measures);
        if judged || report.loss.is_finite() {
            // What is taken back was predicted all the same.
            self.update_metrics::<f32>();
        }
        if judged {
            return Ok(report);
        }
        if let Some(fault) = self.refusal(network, &outcome) {
            return self.refused(network, report, &values, &fault);
        }
        if outcome.left_out {
            return self.non_finite_at(network, report, &values);
        }
        self.count_landed(network);
        Ok(report)
    }

    /// What kept a step from landing, where a look ahead at its updates has found something.
    fn refusal(&self, network: &Network, outcome: &Outcome) -> Option<Fault> {
        network.foreseen_fault(self.run.program(), f64::from(outcome.refused?))
    }

    fn report(&self, outcome: &Outcome, values: &StepValues, total: f64, rows: usize) -> StepReport {
        let has_norm = self.run.program().ports().gradient_norm.is_some();
        StepReport {
            loss: f64::from(outcome.loss) / total,
            weight: total,
            rows,
            rate: values.rate,
            gradient_norm: has_norm.then_some(f64::from(outcome.norm)),
            skipped: false,
            exploded: false,
        }
    }

    /// Takes note of a step's measures, where it was judged by them; counts it and says so where it
    /// exploded.
    fn note_judged(
        &self,
        network: &mut Network,
        report: &mut StepReport,
        outcome: &Outcome,
        measures: &[f32],
    ) -> bool {
        let judges = self.run.program().ports().judges;
        let Some(watch) = self.config.watched().filter(|_| judges) else { return false };
        if outcome.exploded {
            note_explosion(network, report, outcome.taken_back);
        }
        let kept: Vec<f64> = measures.iter().map(|x| f64::from(*x)).collect();
        network.measures.note(watch, report.loss, &kept, report.exploded);
        outcome.exploded
    }

    /// Leaves a step out, or says where it went wrong: by the loss if that is where.
    fn non_finite_at(
        &mut self,
        network: &mut Network,
        report: StepReport,
        values: &StepValues,
    ) -> Result<StepReport> {
        let norm = report.gradient_norm.filter(|_| report.loss.is_finite());
        self.non_finite::<f32>(network, StepReport { gradient_norm: norm, ..report }, values)
    }

    /// Runs a frame; returns what its steps have come to, and each step's output if asked.
    fn run_frame(
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
        network.note_training_pass();
        network.registry.gradients_zeroed = true;
        frames.train(&mut self.run, &mut network.registry, steps, resident, kept, halts)
    }
}

/// An array in single precision.
fn single<'a>(view: &TensorView<'a>) -> Cow<'a, [u8]> {
    match view.elements() {
        Elements::Float32(elements) => Cow::Borrowed(bytemuck::cast_slice(elements)),
        Elements::Float64(elements) => {
            let converted: Vec<f32> = elements.iter().map(|x| *x as f32).collect();
            Cow::Owned(bytemuck::cast_slice(&converted).to_vec())
        }
    }
}

impl Epoch {
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
        if repeats(trainer.run.program()) || !trainer.make_resident(network, examples)? {
            return Ok(false);
        }
        let output = network.output_shape().len();
        let kept = (!trainer.metrics.is_empty()).then_some(trainer.plan.capacity * output);
        let mut count = most.min(trainer.frames.steps());
        if network.registry.stores().iter().any(|store| store.encodes_on_host()) {
            // Weights go by way of the host after each step.
            count = 1;
        }
        if let Some(kept) = kept {
            count = count.min((MOST_OUTPUT_BYTES / (kept * 4).max(1)).max(1) as u64);
        }
        let rows = self.rows_of(network, count);
        let batch_size = first.len();
        let mut steps = Vec::with_capacity(count as usize);
        let mut totals = Vec::with_capacity(count as usize);
        for (number, batch) in rows.chunks(batch_size).enumerate() {
            let total = trainer.divisor_of(examples, batch);
            if total == 0.0 {
                break;
            }
            let values = StepValues {
                loss_divisor: total,
                batch_rows: batch.len() as u64,
                ..step_values(&trainer.config, network, number as u64, trainer.total_steps)
            };
            steps.push(FrameStep { values, rows: batch.len(), first_row: number * batch_size });
            totals.push(total);
        }
        if steps.is_empty() {
            // Every weight of the batch is zero: there is nothing to learn from, and no mean.
            let rate = step_values(&trainer.config, network, 0, trainer.total_steps).rate;
            let report = left_out(network, rate);
            count_step(network, &report);
            reports.push(report);
            return Ok(true);
        }
        let started = Instant::now();
        let Outcomes { steps: outcomes, outputs, measures } =
            trainer.run_frame(network, &steps, Some(rows), kept)?;
        let figures = measures.len() / steps.len();
        let seconds = started.elapsed().as_secs_f64() / steps.len() as f64;
        if trainer.frames.run > 0 {
            trainer.frames.step_seconds = Some(seconds.max(1e-7));
        }
        trainer.frames.run += 1;
        for (number, ((step, outcome), total)) in steps.iter().zip(&outcomes).zip(&totals).enumerate() {
            let batch = &rows[step.first_row..step.first_row + step.rows];
            let mut report = trainer.report(outcome, &step.values, *total, step.rows);
            let measures = &measures[number * figures..(number + 1) * figures];
            let judged = trainer.note_judged(network, &mut report, outcome, measures);
            // What is taken back was predicted all the same.
            if let Some(kept) = kept.filter(|_| judged || report.loss.is_finite()) {
                let output = &outputs[number * kept..][..step.rows * output];
                trainer.count_metrics(examples, batch, output);
            }
            if judged {
                count_step(network, &report);
                reports.push(report);
                continue;
            }
            if let Some(fault) = trainer.refusal(network, outcome) {
                report = trainer.refused(network, report, &step.values, &fault)?;
            } else if outcome.overflowed {
                report = trainer.non_finite_at(network, report, &step.values)?;
            } else if outcome.left_out {
                trainer.reproduce(network, examples, batch, &step.values)?;
                report = trainer.non_finite_at(network, report, &step.values)?;
            } else {
                trainer.count_landed(network);
            }
            // The host follows the device's scale by the same rule.
            debug_assert!(network.loss_scale().is_none_or(|now| now.scale == outcome.scale));
            count_step(network, &report);
            reports.push(report);
        }
        Ok(true)
    }
}

impl Trainer {
    /// Whether somebody looks at every step's values.
    fn is_watched(&self) -> bool {
        self.keep_outputs || self.pin_layers
    }

    /// What the summed losses of a batch are to be divided by.
    fn divisor_of(&self, examples: &Examples<'_>, batch: &[u32]) -> f64 {
        let weights: Vec<f32> = match &examples.weight {
            Some(weight) => {
                let mut weights = vec![0.0; batch.len()];
                gather(weight, Some(Rows::At(batch)), &mut weights);
                weights
            }
            None => Vec::new(),
        };
        let labels = match self.op.class_weight {
            Some(_) => self.labels_of(examples, batch),
            None => Vec::new(),
        };
        divisor(&self.op, batch.len(), &labels, &weights)
    }

    fn labels_of(&self, examples: &Examples<'_>, batch: &[u32]) -> Vec<i32> {
        if !self.plan.class_targets {
            return Vec::new();
        }
        let mut labels = vec![0; batch.len() * self.op.outer * self.op.inner];
        examples.target.copy_labels(Rows::At(batch), &mut labels);
        labels
    }

    /// Adds a step of a frame to the metrics.
    fn count_metrics(&mut self, examples: &Examples<'_>, batch: &[u32], output: &[f32]) {
        let labels = self.labels_of(examples, batch);
        let mut numbers = Vec::new();
        let truth = if self.plan.class_targets {
            Truth::Classes(&labels)
        } else {
            numbers.resize(output.len(), 0.0f32);
            examples.target.copy_real(Some(Rows::At(batch)), &mut numbers);
            Truth::Real(&numbers)
        };
        for metric in &mut self.metrics {
            metric.update(output, truth, self.axis);
        }
    }

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

//! Epochs over a data set: order, validation, callbacks, results.

use super::epoch::{Epoch, end_epoch};
use super::evaluate::{Evaluation, evaluate};
use super::metrics::MetricState;
use super::prepare::check_examples;
use super::{Examples, StepReport, Trainer, TrainerOptions, TrainingConfig};
use crate::network::Network;
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// What training did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrainingResult {
    /// The mean loss of the last epoch.
    pub final_loss: f64,
    /// The smallest mean loss of any epoch.
    pub best_loss: f64,
    /// Seconds from start to end.
    pub total_time: f64,
    /// The sample-weighted mean loss of every epoch.
    pub loss_history: Vec<f64>,
    /// Seconds of every epoch, validation included.
    pub epoch_times: Vec<f64>,
    /// Rows learned from in a second, over the whole training.
    pub throughput: f64,
    /// Each metric by epoch; those of validation start with `val_`.
    pub metrics: BTreeMap<String, Vec<f64>>,
    /// Seconds of every step, where `track_perf` asks for them.
    pub step_times: Vec<f64>,
    /// Steps left out because they were not finite.
    pub skipped_steps: u64,
}

/// What is known at the end of an epoch.
#[derive(Clone, Debug, PartialEq)]
pub struct EpochReport {
    /// Number of the epoch, from 0.
    pub epoch: u64,
    /// Its sample-weighted mean loss.
    pub loss: f64,
    /// Each metric over the training data as it was learned from.
    pub metrics: Vec<(&'static str, f64)>,
    /// The validation, where there was one.
    pub validation: Option<Evaluation>,
    /// Seconds.
    pub duration: f64,
}

/// Hooks into training; each may stop it by returning [`ControlFlow::Break`], and the
/// network keeps what it has learned.
pub trait Callback {
    /// Whether [`on_step_end`](Callback::on_step_end) looks at the network, which then stands still after
    /// every step; otherwise the hook may be told of several steps at once, once they are done.
    fn watches_steps(&self) -> bool {
        true
    }

    /// After every step.
    fn on_step_end(&mut self, network: &Network, report: &StepReport) -> ControlFlow<()> {
        let _ = (network, report);
        ControlFlow::Continue(())
    }

    /// After every epoch, validation included.
    fn on_epoch_end(&mut self, network: &Network, report: &EpochReport) -> ControlFlow<()> {
        let _ = (network, report);
        ControlFlow::Continue(())
    }
}

/// No hooks.
impl Callback for () {
    fn watches_steps(&self) -> bool {
        false
    }
}

/// How long steps run before hooks are told of them, where nobody watches each.
const SLICE: Duration = Duration::from_millis(50);

/// Trains without validation data or hooks of one's own.
///
/// # Errors
/// See [`train_with`].
pub fn train(
    network: &mut Network,
    examples: &Examples<'_>,
    config: &TrainingConfig,
) -> Result<TrainingResult> {
    train_with(network, examples, None, config, false, &mut ())
}

/// Trains by backpropagation: `validation` is evaluated every `validation_every` epochs; with
/// `resume`, training goes on where the network's last one stopped, in the middle of an epoch if
/// need be, and gives bit for bit what an uninterrupted one gives.
///
/// # Errors
/// [`Error::Value`], [`Error::Shape`] and [`Error::NonFinite`] for settings or data that do not fit,
/// before anything has changed; [`Error::NonFinite`] when a step goes wrong, with the weights as
/// they were before that step.
pub fn train_with(
    network: &mut Network,
    examples: &Examples<'_>,
    validation: Option<&Examples<'_>>,
    config: &TrainingConfig,
    resume: bool,
    callback: &mut dyn Callback,
) -> Result<TrainingResult> {
    config.validate()?;
    network.build()?;
    check_examples(network, config, examples)?;
    let (examples, held_out) = split(examples, config.validation_split)?;
    let validation = match (validation, &held_out) {
        (Some(given), _) => Some(given),
        (None, held_out) => held_out.as_ref(),
    };
    if let Some(validation) = validation {
        check_examples(network, config, validation)?;
    }
    let epoch = Epoch::new(config, examples.rows());
    let options = TrainerOptions { total_steps: epoch.total_steps(config), resume, ..Default::default() };
    let mut trainer = Trainer::with_options(network, config, &examples, options)?;
    let mut result = TrainingResult { best_loss: f64::INFINITY, ..TrainingResult::default() };
    let started = Instant::now();
    let mut rows = 0u64;
    while network.optimizer_state.epoch < config.epochs {
        let epoch_started = Instant::now();
        let number = network.optimizer_state.epoch;
        let mut order = epoch.clone();
        order.begin(config, number);
        let mut flow = ControlFlow::Continue(());
        // The time of every single step can only be taken between steps.
        let on_cpu = network.device().is_host();
        let single = callback.watches_steps() || (config.track_perf && on_cpu);
        let most = if single { 1 } else { u64::MAX };
        while flow.is_continue() && !order.is_done(network) {
            let steps_started = Instant::now();
            let reports = order.advance(&mut trainer, network, &examples, most, SLICE)?;
            trainer.keep_up(network)?;
            if config.track_perf {
                let each = steps_started.elapsed().as_secs_f64() / reports.len().max(1) as f64;
                result.step_times.extend(reports.iter().map(|_| each));
            }
            for report in &reports {
                rows += report.rows as u64;
                result.skipped_steps += u64::from(report.skipped);
                if callback.on_step_end(network, report).is_break() {
                    flow = ControlFlow::Break(());
                }
            }
        }
        if flow.is_break() {
            break;
        }
        let loss = end_epoch(network);
        let validated = match validation {
            Some(validation) if (number + 1).is_multiple_of(config.validation_every) => {
                Some(evaluate(network, validation, config)?)
            }
            _ => None,
        };
        let report = EpochReport {
            epoch: number,
            loss,
            metrics: trainer.metrics.iter().map(|metric| (metric.metric().name(), metric.value())).collect(),
            validation: validated,
            duration: epoch_started.elapsed().as_secs_f64(),
        };
        trainer.metrics.iter_mut().for_each(MetricState::reset);
        result.record(&report);
        if callback.on_epoch_end(network, &report).is_break() {
            break;
        }
    }
    result.total_time = started.elapsed().as_secs_f64();
    result.throughput = rows as f64 / result.total_time.max(Duration::from_nanos(1).as_secs_f64());
    Ok(result)
}

impl TrainingResult {
    fn record(&mut self, report: &EpochReport) {
        self.final_loss = report.loss;
        self.best_loss = self.best_loss.min(report.loss);
        self.loss_history.push(report.loss);
        self.epoch_times.push(report.duration);
        for (name, value) in &report.metrics {
            self.metrics.entry((*name).to_string()).or_default().push(*value);
        }
        if let Some(validation) = &report.validation {
            self.metrics.entry("val_loss".into()).or_default().push(validation.loss);
            for (name, value) in &validation.metrics {
                self.metrics.entry(format!("val_{name}")).or_default().push(*value);
            }
        }
    }
}

/// Cuts the last fraction of the rows off.
fn split<'a>(examples: &Examples<'a>, fraction: f64) -> Result<(Examples<'a>, Option<Examples<'a>>)> {
    let rows = examples.rows();
    let held_out = (rows as f64 * fraction) as usize;
    if held_out == 0 {
        return Ok((examples.clone(), None));
    }
    if held_out == rows {
        return Err(Error::Value(format!(
            "validation_split {fraction} leaves none of {rows} rows to train on"
        )));
    }
    let cut = rows - held_out;
    Ok((examples.slice_rows(0..cut), Some(examples.slice_rows(cut..rows))))
}

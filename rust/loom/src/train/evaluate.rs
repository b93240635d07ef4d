//! Loss and metrics without learning.

use super::data::gather;
use super::metrics::{ClassAxis, MetricState, Truth};
use super::prepare::{check_examples, class_axis};
use super::step_program::lower_loss;
use super::{Examples, Rows, TrainingConfig};
use crate::network::{Lowered, Mode, Network};
use crate::ops::loss::divisor;
use crate::ops::{Loss, StepValues};
use crate::precision::in_precision;
use crate::program::{Access, Builder, Phase, Run, Value};
use crate::simd::Real;
use crate::{Error, Result};
use std::sync::Arc;

/// What an evaluation found.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// The mean loss, weighted as in training.
    pub loss: f64,
    /// Each metric of the config, by name.
    pub metrics: Vec<(&'static str, f64)>,
    /// How many rows were seen.
    pub rows: usize,
}

/// Gathers loss and metrics over batches.
#[derive(Debug)]
pub struct Evaluator {
    config: TrainingConfig,
    run: Option<(Run, Loss, bool, bool)>,
    class_axis: ClassAxis,
    metrics: Vec<MetricState>,
    loss: f64,
    weight: f64,
    rows: usize,
}

impl Evaluator {
    /// Nothing seen yet; the config's loss, metrics and class weights are used.
    ///
    /// # Errors
    /// [`Error::State`] for a network that is not built.
    pub fn new(network: &Network, config: &TrainingConfig) -> Result<Self> {
        network.check_built()?;
        Ok(Self {
            config: config.clone(),
            run: None,
            class_axis: class_axis(network.output_shape(), &config.loss),
            metrics: config.metrics.iter().copied().map(MetricState::new).collect(),
            loss: 0.0,
            weight: 0.0,
            rows: 0,
        })
    }

    /// Takes in all rows of these examples, `batch_size` at a time.
    ///
    /// # Errors
    /// [`Error::Shape`], [`Error::Value`] and [`Error::NonFinite`] for examples that do not fit.
    pub fn update(&mut self, network: &Network, examples: &Examples<'_>, batch_size: usize) -> Result<()> {
        check_examples(network, &self.config, examples)?;
        in_precision!(network.precision(), T => self.update_in::<T>(network, examples, batch_size))
    }

    fn update_in<T: Real>(
        &mut self,
        network: &Network,
        examples: &Examples<'_>,
        batch_size: usize,
    ) -> Result<()> {
        let rows = examples.rows();
        let mut start = 0;
        while start < rows {
            let end = rows.min(start.saturating_add(batch_size.max(1)));
            self.batch::<T>(network, &examples.slice_rows(start..end))?;
            start = end;
        }
        Ok(())
    }

    fn batch<T: Real>(&mut self, network: &Network, examples: &Examples<'_>) -> Result<()> {
        network.passes.note();
        let rows = examples.rows();
        let classes = examples.target.are_classes_for(&self.config.loss, network.output_shape())?;
        let weighted = examples.weight.is_some();
        let reusable = self.run.take().filter(|(run, _, as_classes, with_weight)| {
            run.program().capacity() >= rows
                && *as_classes == classes
                && *with_weight == weighted
                && run.is_on(&network.device)
        });
        let (mut run, op, ..) = match reusable {
            Some(run) => run,
            None => self.compile(network, rows, classes, weighted)?,
        };
        run.rows = rows;
        let ports = run.program().ports().clone();
        let (Some(input), Some(output), Some(target)) = (ports.input, ports.output, ports.target) else {
            return Err(Error::Internal("an evaluation program lacks its ports".into()));
        };
        let all = Some(Rows::First(rows));
        gather(&examples.input, all, run.write::<T>(input));
        if classes {
            examples.target.copy_labels(Rows::First(rows), run.write_indices(target));
        } else {
            examples.target.copy_real(all, run.write::<T>(target));
        }
        if let (Some(port), Some(weight)) = (ports.sample_weight, &examples.weight) {
            gather(weight, all, run.write::<T>(port));
        }
        let values = StepValues { seed: self.config.seed, ..StepValues::default() };
        let access = Access::Shared(&network.registry);
        run.execute(access, Phase::Forward..=Phase::Loss, &values)?;
        let fetched: Vec<Value> = ports.row_losses.into_iter().chain([output]).collect();
        run.fetch(&fetched)?;
        let labels: &[i32] = if classes { run.read_indices(target) } else { &[] };
        let weights: &[T] = ports.sample_weight.map_or(&[], |port| run.read(port));
        self.weight += divisor(&op, rows, labels, weights);
        self.loss += ports
            .row_losses
            .map_or(0.0, |port| run.read::<T>(port).iter().map(|loss| loss.to_f64()).sum::<f64>());
        self.rows += rows;
        let truth = if classes { Truth::Classes(labels) } else { Truth::Real(run.read::<T>(target)) };
        for metric in &mut self.metrics {
            metric.update(run.read::<T>(output), truth, self.class_axis);
        }
        self.run = Some((run, op, classes, weighted));
        Ok(())
    }

    fn compile(
        &self,
        network: &Network,
        rows: usize,
        classes: bool,
        weighted: bool,
    ) -> Result<(Run, Loss, bool, bool)> {
        let mut b = Builder::new(network.precision());
        let lowered = Lowered::forward(
            network,
            &mut b,
            Mode { training: false, pin_layers: false, ..Mode::default() },
        )?;
        let (op, _) = lower_loss(network, &mut b, &lowered, &self.config, classes, weighted, false)?;
        let run = network.device.run(Arc::new(b.finish(rows, &network.rewrites)?))?;
        Ok((run, op, classes, weighted))
    }

    /// What was found so far.
    ///
    /// # Errors
    /// [`Error::Value`] where nothing was seen.
    pub fn finish(&self) -> Result<Evaluation> {
        if self.rows == 0 {
            return Err(Error::Value("there is nothing to evaluate: the data has no rows".into()));
        }
        Ok(Evaluation {
            loss: self.loss / self.weight,
            metrics: self.metrics.iter().map(|metric| (metric.metric().name(), metric.value())).collect(),
            rows: self.rows,
        })
    }
}

/// The mean loss and the config's metrics over examples, dropout off.
///
/// # Errors
/// [`Error::Shape`], [`Error::Value`] and [`Error::NonFinite`] for examples that do not fit.
pub fn evaluate(network: &Network, examples: &Examples<'_>, config: &TrainingConfig) -> Result<Evaluation> {
    let mut evaluator = Evaluator::new(network, config)?;
    let batch_size = config.validation_batch_size.unwrap_or(config.batch_size);
    evaluator.update(network, examples, batch_size)?;
    evaluator.finish()
}

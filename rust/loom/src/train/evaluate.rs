//! Loss and metrics without learning.

use super::data::gather;
use super::metrics::{ClassAxis, Counted, MetricState, Truth, counted_axis};
use super::outputs::TargetRow;
use super::prepare::{check_examples, class_axis};
use super::step_program::lower_loss;
use super::weighing::Weighing;
use super::{Examples, Rows, TrainingConfig};
use crate::network::{ExtentsKey, Lowered, Mode, Network};
use crate::ops::loss::divisor;
use crate::ops::{Loss, StepValues};
use crate::precision::in_precision;
use crate::program::{Access, Builder, Phase, Run, Value};
use crate::simd::Real;
use crate::{Error, Result, interrupt};
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
    /// Programs, the one used last at the end.
    compiled: Vec<Compiled>,
    class_axis: ClassAxis,
    metrics: Vec<MetricState>,
    loss: f64,
    weight: f64,
    rows: usize,
}

/// The most programs that wait for extents of the input to come again.
const MOST_COMPILED: usize = 8;

/// What an evaluation's program depends on, beside the config.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Form {
    classes: bool,
    /// Whether class indices stand among the numbers of named outputs' targets.
    labelled: bool,
    weighing: Weighing,
    extents: ExtentsKey,
    revision: u64,
}

/// A program that evaluates.
#[derive(Debug)]
struct Compiled {
    form: Form,
    op: Loss,
    run: Run,
}

/// What rows have come to.
struct Found<'a, T> {
    output: &'a [T],
    losses: &'a [T],
    labels: &'a [i32],
    truth: &'a [T],
    weights: &'a [T],
}

/// The same of the parts of a batch, one after another.
#[derive(Default)]
struct Parts<T> {
    output: Vec<T>,
    losses: Vec<T>,
    labels: Vec<i32>,
    truth: Vec<T>,
    weights: Vec<T>,
}

impl<T: Real> Parts<T> {
    fn add(&mut self, found: &Found<'_, T>) {
        self.output.extend_from_slice(found.output);
        self.losses.extend_from_slice(found.losses);
        self.labels.extend_from_slice(found.labels);
        self.truth.extend_from_slice(found.truth);
        self.weights.extend_from_slice(found.weights);
    }

    fn found(&self) -> Found<'_, T> {
        Found {
            output: &self.output,
            losses: &self.losses,
            labels: &self.labels,
            truth: &self.truth,
            weights: &self.weights,
        }
    }
}

impl Evaluator {
    /// Nothing seen yet; the config's loss, metrics and class weights are used.
    ///
    /// # Errors
    /// [`Error::State`] for a network that is not built, [`Error::Value`] for a metric that cannot be of its outputs.
    pub fn new(network: &Network, config: &TrainingConfig) -> Result<Self> {
        network.check_built()?;
        Ok(Self {
            config: config.clone(),
            compiled: Vec::new(),
            class_axis: class_axis(network.output_shape(), config)?,
            metrics: config.metrics.iter().copied().map(MetricState::new).collect(),
            loss: 0.0,
            weight: 0.0,
            rows: 0,
        })
    }

    /// Takes in all rows of these examples, `batch_size` at a time.
    ///
    /// # Errors
    /// [`Error::Shape`], [`Error::Value`] and [`Error::NonFinite`] for examples that do not fit; [`Error::State`] for
    /// a network that is not built any more.
    pub fn update(&mut self, network: &Network, examples: &Examples<'_>, batch_size: usize) -> Result<()> {
        network.check_built()?;
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
        // Extents that are not fixed are those of these examples.
        self.class_axis = class_axis(network.output_shape(), &self.config)?;
        let mut start = 0;
        while start < rows {
            let end = rows.min(start.saturating_add(batch_size.max(1)));
            self.batch::<T>(network, &examples.slice_rows(start..end))?;
            start = end;
        }
        Ok(())
    }

    /// Takes in a batch, in parts where a device has no room for all of it at once.
    fn batch<T: Real>(&mut self, network: &Network, examples: &Examples<'_>) -> Result<()> {
        network.passes.note();
        let rows = examples.rows();
        let (mut start, mut most) = (0, rows);
        // What the parts have come to is counted together, as that of the whole batch would be.
        let mut parts = Parts::<T>::default();
        while start < rows {
            let end = rows.min(start + most);
            let part = examples.slice_rows(start..end);
            let compiled = match interrupt::welcoming(|| self.run_rows::<T>(network, &part)) {
                Ok(compiled) => compiled,
                Err(error) => {
                    most = network.fewer_rows(error, end - start)?;
                    continue;
                }
            };
            let Compiled { form: Form { classes, .. }, op, run } = &compiled;
            let classes = *classes;
            let ports = run.program().ports();
            let read = |port: Option<Value>| port.map_or(&[][..], |port| run.read::<T>(port));
            let labels = ports.target.filter(|_| classes).map_or(&[][..], |port| run.read_indices(port));
            let found = Found {
                output: read(ports.output),
                losses: read(ports.row_losses),
                labels,
                truth: read(ports.target.filter(|_| !classes)),
                weights: read(ports.sample_weight),
            };
            if end - start == rows {
                self.count(op, classes, rows, &found);
            } else {
                parts.add(&found);
                if end == rows {
                    self.count(op, classes, rows, &parts.found());
                }
            }
            if self.compiled.len() >= MOST_COMPILED {
                self.compiled.remove(0);
            }
            self.compiled.push(compiled);
            start = end;
        }
        Ok(())
    }

    fn count<T: Real>(&mut self, op: &Loss, classes: bool, rows: usize, found: &Found<'_, T>) {
        self.weight += divisor(op, rows, found.labels, found.weights);
        self.loss += found.losses.iter().map(|loss| loss.to_f64()).sum::<f64>();
        self.rows += rows;
        let truth = if classes { Truth::Classes(found.labels) } else { Truth::Real(found.truth) };
        if self.metrics.is_empty() {
            return;
        }
        let counted = Counted::of(op, found.output, truth, found.weights);
        for metric in &mut self.metrics {
            match &counted {
                Some(counted) => {
                    metric.update(&counted.output, counted.truth(), counted_axis(op, self.class_axis));
                }
                None => metric.update(found.output, truth, self.class_axis),
            }
        }
    }

    /// Runs rows through the network and the loss.
    fn run_rows<T: Real>(&mut self, network: &Network, examples: &Examples<'_>) -> Result<Compiled> {
        let rows = examples.rows();
        let classes = examples.target.are_classes_for(&self.config.loss, network.output_shape())?;
        let row = TargetRow::of(network, &self.config, &examples.target)?;
        let labelled = row.is_some_and(|row| row.labelled);
        let revision = network.revision;
        let (weighing, extents) = (examples.weighing(), network.extents_key());
        let form = Form { classes, labelled, weighing, extents, revision };
        self.compiled
            .retain(|compiled| compiled.form.revision == revision && compiled.run.is_on(&network.device));
        let fits = |compiled: &Compiled| compiled.form == form && compiled.run.program().capacity() >= rows;
        let Compiled { mut run, op, .. } = match self.compiled.iter().position(fits) {
            Some(place) => self.compiled.remove(place),
            None => self.compile(network, rows, form)?,
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
        let fetched: Vec<Value> = ports.row_losses.into_iter().chain([output]).collect();
        run.execute_and_fetch(access, Phase::Forward..=Phase::Loss, &values, &fetched)?;
        Ok(Compiled { form, op, run })
    }

    fn compile(&self, network: &Network, rows: usize, form: Form) -> Result<Compiled> {
        let mut b = Builder::new(network.precision());
        b.prepares = true;
        let lowered = Lowered::forward(
            network,
            &mut b,
            Mode { training: false, pin_layers: false, ..Mode::default() },
        )?;
        let classes = form.classes || form.labelled;
        let (op, _) = lower_loss(network, &mut b, &lowered, &self.config, classes, form.weighing, false)?;
        let run = network.device.run(Arc::new(b.finish(rows, &network.rewrites)?))?;
        Ok(Compiled { form, op, run })
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

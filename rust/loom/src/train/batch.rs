//! A trainer's batches: what goes into a run, and what is looked at afterwards.

use super::data::gather;
use super::metrics::{Counted, Truth, counted_axis};
use super::trainer::Trainer;
use super::{Examples, Rows, Targets};
use crate::ops::loss::divisor;
use crate::program::{Ports, Value};
use crate::simd::Real;
use crate::tensor::{Shape, TensorView};
use crate::{Error, Result};

/// The values a batch is copied to.
struct BatchPorts {
    input: Value,
    target: Value,
    sample_weight: Option<Value>,
}

impl BatchPorts {
    fn of(ports: &Ports) -> Result<Self> {
        match (ports.input, ports.target) {
            (Some(input), Some(target)) => Ok(Self { input, target, sample_weight: ports.sample_weight }),
            _ => Err(Error::Internal("a training program lacks its ports".into())),
        }
    }
}

impl Trainer {
    /// Copies a batch into the run; returns what its summed losses are to be divided by.
    pub(super) fn fill<T: Real>(&mut self, examples: &Examples<'_>, rows: Rows<'_>) -> Result<f64> {
        let ports = BatchPorts::of(self.run.program().ports())?;
        self.check_fit(examples, rows)?;
        self.fill_input::<T>(&examples.input, rows)?;
        if self.plan.class_targets {
            examples.target.copy_labels(rows, self.run.write_indices(ports.target));
        } else {
            examples.target.copy_real(Some(rows), self.run.write::<T>(ports.target));
        }
        if let Some(port) = ports.sample_weight {
            match &examples.weight {
                Some(weight) => gather(weight, Some(rows), self.run.write::<T>(port)),
                None => self.run.write::<T>(port).fill(T::ONE),
            }
        }
        let labels: &[i32] = if self.plan.class_targets { self.run.read_indices(ports.target) } else { &[] };
        let weights: &[T] = match ports.sample_weight {
            Some(port) => self.run.read(port),
            None => &[],
        };
        Ok(divisor(&self.op, rows.len(), labels, weights))
    }

    /// Refuses targets and weights that are not as many as the loss compares, and rows that are not there: whoever
    /// makes steps by hand may give other examples than the trainer was made for.
    fn check_fit(&self, examples: &Examples<'_>, rows: Rows<'_>) -> Result<()> {
        let there = examples.input.rows();
        if rows.most() > there {
            let asked = rows.most() - 1;
            return Err(Error::Index(format!("row {asked} is asked for, and there are {there}")));
        }
        let shape = examples.target.shape();
        let row: usize = shape.iter().skip(1).product();
        let classes = matches!(examples.target, Targets::Classes { .. });
        // Losses of one's own may have other extents than what they compare.
        let program = self.run.program();
        let port = BatchPorts::of(program.ports())?.target;
        let wanted: usize = program.value(port).shape.iter().product();
        if shape.first() != Some(&there) || row != wanted || (self.plan.class_targets && !classes) {
            return Err(Error::Shape(format!(
                "targets have shape {}; the trainer was made for {wanted} {} for each of the {there} rows",
                Shape::from(shape),
                if self.plan.class_targets { "class indices" } else { "numbers" }
            )));
        }
        // Where there is a weight for each of several outputs, none counts in the loss of all.
        let of_rows = BatchPorts::of(program.ports())?.sample_weight;
        let weights: usize =
            of_rows.map_or(1, |port| program.value(port).shape.iter().product::<usize>().max(1));
        match &examples.weight {
            Some(weight) if weight.elements().len() != there * weights => Err(Error::Shape(format!(
                "there are {there} rows of {weights} weights each, but {} sample weights",
                weight.elements().len()
            ))),
            _ => Ok(()),
        }
    }

    /// Copies a batch's inputs into the run.
    pub(super) fn fill_input<T: Real>(&mut self, input: &TensorView<'_>, rows: Rows<'_>) -> Result<()> {
        let ports = BatchPorts::of(self.run.program().ports())?;
        self.run.rows = rows.len();
        if rows.is_empty() {
            return Err(Error::Value("a batch is empty: it has no rows".into()));
        }
        gather(input, Some(rows), self.run.write::<T>(ports.input));
        Ok(())
    }

    pub(super) fn summed_loss<T: Real>(&self) -> f64 {
        match self.run.program().ports().row_losses {
            Some(port) => self.run.read::<T>(port).iter().map(|loss| loss.to_f64()).sum(),
            None => 0.0,
        }
    }

    pub(super) fn update_metrics<T: Real>(&mut self) {
        if self.metrics.is_empty() {
            return;
        }
        let ports = self.run.program().ports();
        let (Some(output), Some(target)) = (ports.output, ports.target) else { return };
        if let Some(counted) = self.counted::<T>() {
            let axis = counted_axis(&self.op, self.class_axis);
            for metric in &mut self.metrics {
                metric.update(&counted.output, counted.truth(), axis);
            }
            return;
        }
        let output = self.run.read::<T>(output);
        let truth = if self.plan.class_targets {
            Truth::Classes(self.run.read_indices(target))
        } else {
            Truth::Real(self.run.read::<T>(target))
        };
        for metric in &mut self.metrics {
            metric.update(output, truth, self.class_axis);
        }
    }

    /// What the newest batch has come to without what has no weight; `None` where all of it counts, and where outputs
    /// have names, each of which may leave out other rows.
    pub(super) fn counted<T: Real>(&self) -> Option<Counted<T>> {
        let ports = self.run.program().ports();
        let (weights, output, target) = (ports.sample_weight?, ports.output?, ports.target?);
        if !self.config.outputs.is_empty() {
            return None;
        }
        let truth = match self.plan.class_targets {
            true => Truth::Classes(self.run.read_indices(target)),
            false => Truth::Real(self.run.read::<T>(target)),
        };
        Counted::of(&self.op, self.run.read::<T>(output), truth, self.run.read::<T>(weights))
    }

    /// Makes readable what is looked at after a batch's forward pass: its losses, its output where
    /// metrics or the caller want it, and every layer's where they are pinned.
    pub(super) fn fetch_watched(&mut self) -> Result<()> {
        if !self.run.is_remote() {
            return Ok(());
        }
        let ports = self.run.program().ports();
        let wanted = self.keep_outputs || self.looking.pin_layers || !self.metrics.is_empty();
        let output = ports.output.filter(|_| wanted);
        let watched: Vec<Value> =
            ports.row_losses.into_iter().chain(output).chain(ports.looked_at()).collect();
        self.run.fetch(&watched)
    }

    /// What the summed losses of a batch are to be divided by.
    pub(super) fn divisor_of<T: Real>(&self, examples: &Examples<'_>, batch: &[u32]) -> f64 {
        let weights: Vec<T> = match examples.weight.as_ref().filter(|_| self.op.weights() > 0) {
            Some(weight) => {
                let mut weights = vec![T::ZERO; batch.len() * self.op.weights()];
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
    pub(super) fn count_metrics(&mut self, examples: &Examples<'_>, batch: &[u32], output: &[f32]) {
        let labels = self.labels_of(examples, batch);
        let mut numbers = Vec::new();
        let truth = if self.plan.class_targets {
            Truth::Classes(&labels)
        } else {
            numbers.resize(output.len(), 0.0f32);
            examples.target.copy_real(Some(Rows::At(batch)), &mut numbers);
            Truth::Real(&numbers)
        };
        if let Some(weight) = examples.weight.as_ref().filter(|_| self.op.weighted) {
            let mut weights = vec![0.0f32; batch.len() * self.op.weights()];
            gather(weight, Some(Rows::At(batch)), &mut weights);
            if let Some(counted) = Counted::of(&self.op, output, truth, &weights) {
                let axis = counted_axis(&self.op, self.class_axis);
                for metric in &mut self.metrics {
                    metric.update(&counted.output, counted.truth(), axis);
                }
                return;
            }
        }
        for metric in &mut self.metrics {
            metric.update(output, truth, self.class_axis);
        }
    }
}

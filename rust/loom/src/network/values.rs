//! What layers read and made, in the newest pass or in inference.

use super::Network;
use super::mode::{LayerValue, Mode};
use super::placed::Coordinates;
use crate::precision::in_precision;
use crate::program::{InnerLayer, LayerPath, LayerValues, Ports, Run, Value};
use crate::simd::Real;
use crate::tensor::{Tensor, TensorView};
use crate::{Error, Result, extents};

/// A layer's output in figures, over all rows and elements.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerStatistics {
    /// The layer.
    pub path: LayerPath,
    /// For a layer inside another, its name there, such as `layers.0`.
    pub name: String,
    /// Its kind.
    pub kind: &'static str,
    /// Extents of one row of the output.
    pub shape: Vec<usize>,
    /// How many rows there were.
    pub rows: usize,
    /// The mean of all elements.
    pub mean: f64,
    /// Their standard deviation.
    pub standard_deviation: f64,
    /// The smallest element.
    pub min: f64,
    /// The largest element.
    pub max: f64,
    /// The L2 norm of all elements.
    pub norm: f64,
    /// The share of elements that are exactly zero.
    pub zeros: f64,
    /// How many elements are infinite or NaN.
    pub non_finite: usize,
}

impl Network {
    /// What a layer read or made in the newest pass through the network, which
    /// [`forward`](Network::forward) or [`forward_inference`](Network::forward_inference) must have made; the
    /// batch axis first.
    ///
    /// # Errors
    /// [`Error::State`] without such a pass, or where another call has passed rows since;
    /// [`Error::Index`] for a layer that is not there.
    pub fn layer_value(&self, cell: Coordinates, layer: usize, which: LayerValue) -> Result<Tensor> {
        self.value_at(&self.layer(cell, layer)?.path, which)
    }

    /// [`layer_value`](Network::layer_value) of any layer, those inside others as well, which
    /// [`inner_layers`](Network::inner_layers) names; and the gradient of what it read, once
    /// [`backward`](Network::backward) has gone through a pass of
    /// [`forward_keeping_gradients`](Network::forward_keeping_gradients).
    ///
    /// On a GPU what is inside, and gradients, are there once [`fetch_value`](Network::fetch_value) has brought them.
    ///
    /// # Errors
    /// [`Error::State`] without such a pass, or where another call has passed rows since; [`Error::Index`] for a
    /// layer that is not there.
    pub fn value_at(&self, path: &LayerPath, which: LayerValue) -> Result<Tensor> {
        let (value, scale) = self.shown_value(path, which)?;
        let run = self.passes.shown()?;
        in_precision!(self.precision, T => {
            let mut elements = extents::copied(run.read::<T>(value))?;
            if scale != 1.0 {
                elements.iter_mut().for_each(|g| *g *= T::from_f64(1.0 / scale));
            }
            tensor_of(run, value, elements)
        })
    }

    /// Makes readable what [`value_at`](Network::value_at) is to show.
    ///
    /// # Errors
    /// As `value_at`, and [`Error::Device`] where a device fails.
    pub fn fetch_value(&mut self, path: &LayerPath, which: LayerValue) -> Result<()> {
        let (value, _) = self.shown_value(path, which)?;
        match &mut self.passes.newest {
            Some(history) => history.run.fetch(&[value]),
            None => Ok(()),
        }
    }

    /// What is shown, and what it was scaled by while it was computed.
    fn shown_value(&self, path: &LayerPath, which: LayerValue) -> Result<(Value, f64)> {
        let ports = self.passes.shown()?.program().ports();
        let values = values_of(ports, path)?;
        match which {
            LayerValue::Input => Ok((values.input, 1.0)),
            LayerValue::Preactivation => Ok((values.preactivation.unwrap_or(values.output), 1.0)),
            LayerValue::Output => Ok((values.output, 1.0)),
            LayerValue::InputGradient => {
                let scale = self.passes.input_gradient_scale()?;
                let none =
                    || Error::State(format!("layer {path} reads whole numbers, so nothing has a gradient"));
                Ok((values.input_gradient.ok_or_else(none)?, scale))
            }
            LayerValue::AttentionWeights => {
                Err(Error::State("attention weights are not kept; ask layer_values for them".into()))
            }
        }
    }

    /// Each layer's output in figures, in the newest pass through the network, as
    /// [`layer_value`](Network::layer_value) shows it.
    ///
    /// # Errors
    /// [`Error::State`] without such a pass.
    pub fn layer_statistics(&self) -> Result<Vec<LayerStatistics>> {
        Ok(self.statistics_of(self.passes.shown()?))
    }

    /// [`layer_statistics`](Network::layer_statistics) with those of layers inside others behind theirs.
    ///
    /// # Errors
    /// As `layer_statistics`, and [`Error::Device`] where a device fails.
    pub fn layer_statistics_inside(&mut self) -> Result<Vec<LayerStatistics>> {
        self.passes.shown()?;
        if let Some(history) = &mut self.passes.newest {
            let inner = &history.run.program().ports().inner;
            let shown: Vec<Value> = inner.iter().flat_map(|layer| layer.values.figured()).collect();
            history.run.fetch(&shown)?;
        }
        Ok(self.statistics_inside(self.passes.shown()?))
    }

    /// Each layer's output in figures, in inference over these rows; and the output itself.
    ///
    /// # Errors
    /// As [`predict`](Network::predict).
    pub fn predict_observed(
        &self,
        input: TensorView<'_>,
        batch_size: usize,
        mut observe: impl FnMut(Vec<LayerStatistics>),
    ) -> Result<Tensor> {
        let mode = Mode { pin_layers: true, ..Mode::default() };
        let show = |run: &Run| observe(self.statistics_of(run));
        in_precision!(self.precision, T => self.predict_rows::<T>(input, batch_size, mode, show))
    }

    /// [`predict_observed`](Network::predict_observed) with those of layers inside others behind theirs.
    ///
    /// # Errors
    /// As `predict_observed`.
    pub fn predict_observed_inside(
        &self,
        input: TensorView<'_>,
        batch_size: usize,
        mut observe: impl FnMut(Vec<LayerStatistics>),
    ) -> Result<Tensor> {
        let mode = Mode { pin_layers: true, looks_inside: true, ..Mode::default() };
        let show = |run: &Run| observe(self.statistics_inside(run));
        in_precision!(self.precision, T => self.predict_rows::<T>(input, batch_size, mode, show))
    }

    /// Each layer's output in figures, from a run that pins them.
    pub fn statistics_of(&self, run: &Run) -> Vec<LayerStatistics> {
        let layers = self.layers().zip(&run.program().ports().layers);
        layers
            .map(|(placed, (_, values))| self.statistics_at(run, &placed.path, placed.layer.kind(), values))
            .collect()
    }

    /// [`statistics_of`](Network::statistics_of) with those of layers inside others behind theirs, from a run that
    /// looks inside.
    pub fn statistics_inside(&self, run: &Run) -> Vec<LayerStatistics> {
        let inner = &run.program().ports().inner;
        let mut all = Vec::with_capacity(inner.len());
        for whole in self.statistics_of(run) {
            let inside = |layer: &&InnerLayer| layer.path.indices().starts_with(whole.path.indices());
            let found: Vec<LayerStatistics> = inner
                .iter()
                .filter(inside)
                .map(|layer| LayerStatistics {
                    name: layer.name.clone(),
                    ..self.statistics_at(run, &layer.path, layer.kind, &layer.values)
                })
                .collect();
            all.push(whole);
            all.extend(found);
        }
        all
    }

    fn statistics_at(
        &self,
        run: &Run,
        path: &LayerPath,
        kind: &'static str,
        values: &LayerValues,
    ) -> LayerStatistics {
        in_precision!(self.precision, T => statistics::<T>(run, path, kind, values))
    }
}

/// What a layer, which may be inside another, has read and made.
pub(super) fn values_of<'a>(ports: &'a Ports, path: &LayerPath) -> Result<&'a LayerValues> {
    let layers = ports.layers.iter().map(|(path, values)| (path, values));
    let mut all = layers.chain(ports.inner.iter().map(|layer| (&layer.path, &layer.values)));
    let found = all.find(|(at, _)| *at == path).map(|(_, values)| values);
    found.ok_or_else(|| Error::Index(format!("there is no layer {path}")))
}

fn tensor_of<T: Real>(run: &Run, value: Value, elements: Vec<T>) -> Result<Tensor> {
    let mut shape = vec![run.rows];
    shape.extend_from_slice(&run.program().value(value).shape);
    Tensor::new(shape, elements)
}

fn statistics<T: Real>(
    run: &Run,
    path: &LayerPath,
    kind: &'static str,
    values: &LayerValues,
) -> LayerStatistics {
    let output = values.output;
    let elements = run.read::<T>(output);
    let kept: Vec<T>;
    let elements = match values.real.map(|real| run.read::<T>(real)) {
        Some(real) if !real.is_empty() => {
            let steps = elements.chunks((elements.len() / real.len()).max(1)).zip(real);
            kept = steps.filter(|(_, real)| **real != T::ZERO).flat_map(|(step, _)| step).copied().collect();
            &kept[..]
        }
        _ => elements,
    };
    let count = elements.len().max(1) as f64;
    let (mut sum, mut squares, mut zeros, mut non_finite) = (0.0, 0.0, 0usize, 0usize);
    let (mut min, mut max) = (f64::INFINITY, f64::NEG_INFINITY);
    for x in elements {
        let x = x.to_f64();
        sum += x;
        squares += x * x;
        min = min.min(x);
        max = max.max(x);
        zeros += usize::from(x == 0.0);
        non_finite += usize::from(!x.is_finite());
    }
    let mean = sum / count;
    // A second pass, so that a large mean does not swallow the spread.
    let spread: f64 = elements.iter().map(|x| (x.to_f64() - mean) * (x.to_f64() - mean)).sum();
    LayerStatistics {
        path: path.clone(),
        name: String::new(),
        kind,
        shape: run.program().value(output).shape.to_vec(),
        rows: run.rows,
        mean,
        standard_deviation: (spread / count).sqrt(),
        min,
        max,
        norm: squares.sqrt(),
        zeros: zeros as f64 / count,
        non_finite,
    }
}

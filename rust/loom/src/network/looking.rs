//! Looking into layers in inference, those inside others as well, without a trace: what they read and make for
//! given rows, and the gradient of the network's input.

use super::Network;
use super::mode::{LayerValue, Mode};
use super::placed::{Coordinates, at_layer};
use super::programs::ProgramKey;
use super::rows::check_rows;
use super::values::values_of;
use crate::ops::{Attention, Direction, Op};
use crate::precision::in_precision;
use crate::program::{Builder, InnerLayer, Kind, LayerPath, ParameterRef, Place, Ports, Run, Step, Value};
use crate::simd::Real;
use crate::tensor::{Precision, Shape, Tensor, TensorView, check_finite};
use crate::{Error, Result, extents};

/// A layer inside another.
#[derive(Clone, Debug)]
pub struct InnerLayerInfo {
    /// Where it stands.
    pub path: LayerPath,
    /// What the names of its parameters start with in the layer of the cell: `layers.0`.
    pub name: String,
    /// Its kind and settings.
    pub config: serde_json::Value,
    /// Extents of one row of what it reads.
    pub input_shape: Shape,
    /// Extents of one row of what it makes.
    pub output_shape: Shape,
}

impl InnerLayerInfo {
    /// 2 for a layer inside one of a cell, 3 for one inside that, and so on.
    pub fn depth(&self) -> usize {
        let numbers = self.name.split('.').filter(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
        // The number behind "branches" is that of a branch.
        let branches = self.name.split('.').filter(|part| *part == "branches");
        1 + numbers.count() - branches.count()
    }
}

impl Network {
    /// The layers inside a layer, at any depth, each before those inside it; known once built. Those that a
    /// composite layer has put in by itself, such as a projection, are among them.
    ///
    /// # Errors
    /// [`Error::Index`] for a layer that is not there, [`Error::State`] for a network that is not built.
    pub fn inner_layers(&self, cell: Coordinates, layer: usize) -> Result<Vec<InnerLayerInfo>> {
        self.check_built()?;
        let placed = self.layer(cell, layer)?;
        let mut b = Builder::new(self.precision);
        b.looks_inside = true;
        let shapes = placed.input_shapes();
        let inputs: Vec<Value> =
            shapes.into_iter().map(|shape| b.input("input", shape, Kind::Real)).collect();
        let context = self.context(placed, Mode::default());
        placed.layer.forward(&mut b, &context, &inputs).map_err(|error| at_layer(placed, error))?;
        let told = |InnerLayer { path, name, config, values, .. }: InnerLayer| InnerLayerInfo {
            path,
            name,
            config,
            input_shape: b.shape(values.input).clone(),
            output_shape: b.shape(values.output).clone(),
        };
        Ok(b.ports.inner.iter().cloned().map(told).collect())
    }

    /// What layers read, make or attend to in inference over these rows, at most `batch_size` at a time: an array
    /// of all rows for each that is asked for. The empty path is the network as a whole.
    ///
    /// It moves nothing, draws nothing, and what [`value_at`](Network::value_at) shows stays what it was.
    ///
    /// # Errors
    /// As [`predict_batched`](Network::predict_batched), [`Error::Index`] for a layer that is not there, and
    /// [`Error::Value`] for attention weights of a layer that is no attention, or gradients.
    pub fn layer_values(
        &self,
        input: TensorView<'_>,
        batch_size: usize,
        asked: &[(LayerPath, LayerValue)],
    ) -> Result<Vec<Tensor>> {
        self.check_inference(&input, batch_size)?;
        in_precision!(self.precision, T => self.layer_values_in::<T>(&input, batch_size, asked))
    }

    fn layer_values_in<T: Real>(
        &self,
        input: &TensorView<'_>,
        batch_size: usize,
        asked: &[(LayerPath, LayerValue)],
    ) -> Result<Vec<Tensor>> {
        if asked.is_empty() {
            return Ok(Vec::new());
        }
        let mode = Mode { pin_layers: true, looks_inside: true, ..Mode::default() };
        let key =
            ProgramKey { asked: asked.to_vec(), ..ProgramKey::forward(mode, batch_size.min(input.rows())) };
        let mut made: Vec<(Vec<usize>, Vec<T>)> = vec![(Vec::new(), Vec::new()); asked.len()];
        self.for_each_batch::<T>(
            input,
            &key,
            |_, _| (),
            |ports| ports.asked.concat(),
            |run| {
                let values = run.program().ports().asked.clone();
                for (((path, which), values), (shape, elements)) in asked.iter().zip(&values).zip(&mut made) {
                    let attention = match which {
                        LayerValue::AttentionWeights => attention_of(run.program().steps(), path),
                        _ => None,
                    };
                    match attention {
                        Some((op, reads)) => {
                            *shape = vec![op.heads, op.queries, op.keys];
                            let table = self.table_of::<T>(run, op, reads)?;
                            weights_of(run, op, values, &table, elements);
                        }
                        None => {
                            *shape = run.program().value(values[0]).shape.to_vec();
                            elements.extend_from_slice(run.read::<T>(values[0]));
                        }
                    }
                }
                Ok(())
            },
        )?;
        let whole = |(shape, elements): (Vec<usize>, Vec<T>)| {
            Tensor::new([&[input.rows()], &shape[..]].concat(), elements)
        };
        made.into_iter().map(whole).collect()
    }

    /// The gradient of the network's input in inference, for that of its output: zeros where the network reads
    /// whole numbers. Gradients of parameters, and whatever else there is to look at, stay as they are.
    ///
    /// # Errors
    /// As [`predict_batched`](Network::predict_batched), [`Error::Shape`] and [`Error::NonFinite`] for a gradient
    /// that does not fit.
    pub fn input_gradient(
        &self,
        input: TensorView<'_>,
        gradient: TensorView<'_>,
        batch_size: usize,
    ) -> Result<Tensor> {
        self.check_inference(&input, batch_size)?;
        check_rows(&gradient, self.output_shape(), "gradient")?;
        check_finite(&gradient, "gradient")?;
        if gradient.rows() != input.rows() {
            return Err(Error::Shape(format!(
                "gradient has {} rows, the input has {}",
                gradient.rows(),
                input.rows()
            )));
        }
        in_precision!(self.precision, T => self.input_gradient_in::<T>(&input, &gradient, batch_size))
    }

    fn input_gradient_in<T: Real>(
        &self,
        input: &TensorView<'_>,
        gradient: &TensorView<'_>,
        batch_size: usize,
    ) -> Result<Tensor> {
        // What is rounded to half precision on its way back must not vanish there.
        let scale = T::from_f64(if self.precision == Precision::Mixed && !self.device.is_host() {
            SCALE
        } else {
            1.0
        });
        let mode = Mode { keeps: true, input_gradient_only: true, ..Mode::default() };
        let key = ProgramKey { backward: true, ..ProgramKey::forward(mode, batch_size.min(input.rows())) };
        let shape = [&[input.rows()], &self.row_shape()[..]].concat();
        let mut made: Vec<T> = Vec::new();
        let prepare = |run: &mut Run, rows| {
            if let Some(port) = run.program().ports().output_gradient {
                let scaled = run.write::<T>(port);
                gradient.slice_rows(rows).copy_to(scaled);
                scaled.iter_mut().for_each(|g| *g *= scale);
            }
        };
        let wanted = |ports: &Ports| ports.input_gradient.into_iter().collect();
        self.for_each_batch::<T>(input, &key, prepare, wanted, |run| {
            if let Some(port) = run.program().ports().input_gradient {
                made.extend(run.read::<T>(port).iter().map(|g| *g / scale));
            }
            Ok(())
        })?;
        if made.is_empty() {
            made = extents::zeros(extents::product(&shape))?;
        }
        Tensor::new(shape, made)
    }

    /// The table of what attention adds to scores, where it has one.
    fn table_of<T: Real>(&self, run: &Run, op: &Attention, reads: &[Value]) -> Result<Vec<T>> {
        let Some(table) = reads.last().filter(|_| op.has_table()) else { return Ok(Vec::new()) };
        match run.program().value(*table).place {
            Place::Master(ParameterRef { store, parameter: Some(index) }) => {
                let table = self.registry.store(store)?.get(index)?.to_f64();
                Ok(table.into_iter().map(T::from_f64).collect())
            }
            _ => Ok(run.read::<T>(*table).to_vec()),
        }
    }

    /// Keeps what is asked for until the run ends, and drops what it does not need.
    pub(super) fn keep_asked(&self, b: &mut Builder, asked: &[(LayerPath, LayerValue)]) -> Result<()> {
        let kept: Vec<Vec<Value>> =
            asked.iter().map(|(path, which)| values_asked(b, path, *which)).collect::<Result<_>>()?;
        kept.iter().flatten().for_each(|value| b.pin(*value));
        b.ports.layers.clear();
        b.ports.inner.clear();
        b.ports.output = None;
        b.ports.asked = kept;
        b.prune();
        Ok(())
    }
}

/// Gradients of mixed networks on a GPU are computed this many times as large.
const SCALE: f64 = 1024.0;

/// The values that what is asked for is made of.
fn values_asked(b: &Builder, path: &LayerPath, which: LayerValue) -> Result<Vec<Value>> {
    if path.indices().is_empty() {
        return Ok(b.ports.output.into_iter().collect());
    }
    let values = values_of(&b.ports, path)?;
    match which {
        LayerValue::Input => Ok(vec![values.input]),
        LayerValue::Preactivation => Ok(vec![values.preactivation.unwrap_or(values.output)]),
        LayerValue::Output => Ok(vec![values.output]),
        LayerValue::InputGradient => Err(Error::Value("inference makes no gradients of layers".into())),
        LayerValue::AttentionWeights => {
            let none =
                || Error::Value(format!("layer {path} is no attention, so it has no weights of that kind"));
            let (_, reads) = attention_of(b.steps(), path).ok_or_else(none)?;
            // Queries, keys, and behind the values padding and table of the bias, where there are such; a table that is
            // no value of a run is a parameter.
            let kept = |(place, value): &(usize, &Value)| {
                *place != 2 && !matches!(b.info(**value).place, Place::Master(_))
            };
            Ok(reads.iter().enumerate().filter(kept).map(|(_, value)| *value).collect())
        }
    }
}

/// The operation of a layer of attention, and what it reads.
fn attention_of<'a>(steps: &'a [Step], path: &LayerPath) -> Option<(&'a Attention, &'a [Value])> {
    steps.iter().filter(|step| step.at.as_ref() == Some(path)).find_map(|step| match &step.op {
        Op::Attention(op) if op.direction == Direction::Forward => Some((op, &step.reads[..])),
        _ => None,
    })
}

/// Adds the attention weights of every row of a run; `table` is that of its bias.
fn weights_of<T: Real>(run: &Run, op: &Attention, values: &[Value], table: &[T], elements: &mut Vec<T>) {
    let of = |value: Value, row: usize| {
        let each = run.program().value(value).shape.len();
        &run.read::<T>(value)[row * each..][..each]
    };
    for row in 0..run.rows {
        let padding: Vec<bool> = match values.get(2).filter(|_| op.padding) {
            Some(mask) => of(*mask, row).iter().map(|real| *real != T::ZERO).collect(),
            None => Vec::new(),
        };
        elements.extend(op.weights(of(values[0], row), of(values[1], row), &padding, table));
    }
}

//! Looking into a network: parameters, gradients, what layers read and made, numeric types.

use super::{Coordinates, Network, PlacedLayer, at_layer};
use crate::dtype::Packing;
use crate::program::{LayerPath, LayerValues, Run, Value};
use crate::simd::Real;
use crate::state::CarriedPlace;
use crate::tensor::{Precision, Tensor, TensorView};
use crate::weights::WeightStore;
use crate::{Error, Result, error, extents};
use std::borrow::Cow;

/// A layer's output in figures, over all rows and elements.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerStatistics {
    /// The layer.
    pub path: LayerPath,
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

/// Which of a layer's values to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerValue {
    /// What it read.
    Input,
    /// Before its activation; the output where it has none.
    Preactivation,
    /// What it handed on.
    Output,
}

/// A packed parameter.
#[derive(Clone, Debug)]
pub struct PackedParameter {
    /// How it is packed.
    pub packing: Packing,
    /// Its codes.
    pub bytes: Vec<u8>,
    /// Its scales: for each group the scale, then the bits of its zero point where it has one.
    pub scales: Vec<f32>,
}

/// Where something that a layer holds beside its parameters is: its number.
enum Held {
    Kept(usize),
    Carried(usize),
}

impl Network {
    /// The numeric type that a layer's weights are read in; `None` for a layer without parameters.
    ///
    /// Its weights are the parameters that take on the layer's type: not biases, gains and positions, which stay
    /// as they are unless they are named; of a layer that has nothing else, these. Where weights have
    /// several types it is the layer's own, if any has it, and otherwise that of the first.
    ///
    /// # Errors
    /// [`Error::Index`] for a layer that is not there.
    pub fn layer_dtype(&self, cell: Coordinates, layer: usize) -> Result<Option<String>> {
        let placed = self.layer(cell, layer)?;
        let Some(store) = placed.store.map(|store| &self.registry.stores[store]) else { return Ok(None) };
        let own = placed.numerics.layer.dtype.unwrap_or(self.precision.dtype()).to_string();
        let held: Vec<String> =
            self.weights_of(store).into_iter().map(|index| self.held_in(store, index)).collect();
        Ok(if held.contains(&own) { Some(own) } else { held.into_iter().next() })
    }

    /// The type that the forward pass reads a parameter in.
    pub(super) fn held_in(&self, store: &WeightStore, parameter: usize) -> String {
        store.dtype_of(parameter).unwrap_or(self.precision.dtype()).to_string()
    }

    /// The numbers of the parameters that take on a layer's type; of all, where none does.
    pub(super) fn weights_of(&self, store: &WeightStore) -> Vec<usize> {
        let all = 0..store.parameters().len();
        let weights: Vec<usize> = all.clone().filter(|index| store.parameters()[*index].morphable).collect();
        if weights.is_empty() { all.collect() } else { weights }
    }

    /// Frees the full-precision masters of packed weights, to deploy a network that is trained.
    ///
    /// Inference goes on as it was; training, other numeric types and reading or setting the
    /// full-precision weights are refused from here on. Gradients and optimizer moments go too.
    ///
    /// # Errors
    /// [`Error::State`] naming a layer whose weights are not packed; the network is then as before.
    pub fn drop_masters(&mut self) -> Result<()> {
        self.build()?;
        self.synchronize()?;
        self.refresh_versions()?;
        // Tried on every store before any of them drops, so that a refusal changes nothing.
        for placed in self.layers() {
            if let Some(store) = placed.store {
                self.registry.stores[store].check_droppable().map_err(|error| at_layer(placed, error))?;
            }
        }
        for store in &mut self.registry.stores {
            store.drop_master()?;
        }
        self.registry.clear_gradients();
        self.registry.clear_moments();
        self.invalidate();
        Ok(())
    }

    /// Makes masters again of the packed weights of the layers that `choose` picks, whose masters were dropped:
    /// they can be trained and changed again. What is computed stays the same until they are.
    ///
    /// # Errors
    /// [`Error::State`] where no master of those layers was dropped.
    pub fn unpack_where(&mut self, choose: impl Fn(&PlacedLayer) -> bool) -> Result<()> {
        self.build()?;
        let chosen = self.owners().filter(|placed| choose(placed)).filter_map(|placed| placed.store);
        let dropped = chosen.filter(|store| self.registry.stores[*store].is_dropped());
        let dropped: Vec<usize> = dropped.collect();
        if dropped.is_empty() {
            return Err(Error::State(
                "every full-precision master that is asked for is there, so there is nothing to unpack; only \
                 what drop_master has freed is made again"
                    .into(),
            ));
        }
        for store in dropped {
            self.registry.stores[store].unpack()?;
        }
        self.registry.clear_gradients();
        self.registry.clear_moments();
        self.invalidate();
        Ok(())
    }

    /// Bytes of the weights that the forward pass reads.
    pub fn weight_bytes(&self) -> usize {
        self.registry.stores.iter().map(|store| store.active_bytes()).sum()
    }

    /// The names of a layer's parameters; known once the network is built.
    ///
    /// # Errors
    /// [`Error::Index`] for a layer that is not there.
    pub fn parameter_names(&self, cell: Coordinates, layer: usize) -> Result<Vec<String>> {
        let placed = self.layer(cell, layer)?;
        Ok(match placed.store {
            // Those of another layer are named there.
            Some(store) if !placed.is_tied() => {
                self.registry.stores[store].parameters().iter().map(|info| info.name.to_string()).collect()
            }
            _ => Vec::new(),
        })
    }

    /// Store and index of a parameter.
    pub(crate) fn find_parameter(
        &self,
        cell: Coordinates,
        layer: usize,
        name: &str,
    ) -> Result<(usize, usize)> {
        let placed = self.layer(cell, layer)?;
        let store = placed.store.ok_or_else(|| {
            at_layer(placed, Error::Value(format!("the layer has no parameters, so none named \"{name}\"")))
        })?;
        let parameters = self.registry.stores[store].parameters();
        let index = parameters.iter().position(|info| info.name == name).ok_or_else(|| {
            let names: Vec<&str> = parameters.iter().map(|info| &*info.name).collect();
            at_layer(placed, error::unknown("parameter", name, names.iter().copied()))
        })?;
        Ok((store, index))
    }

    /// A parameter's master in the outside layout, such as (units, features) for a dense weight.
    ///
    /// # Errors
    /// [`Error::Index`] and [`Error::Value`] for a layer or name that is not there,
    /// [`Error::State`] where the master was dropped.
    pub fn parameter(&self, cell: Coordinates, layer: usize, name: &str) -> Result<Tensor> {
        let (store, index) = self.find_parameter(cell, layer, name)?;
        self.registry.store(store)?.get(index)
    }

    /// A parameter as the forward pass reads it, decoded where it is packed, in the outside layout.
    ///
    /// # Errors
    /// As [`parameter`](Network::parameter).
    pub fn active_parameter(&self, cell: Coordinates, layer: usize, name: &str) -> Result<Tensor> {
        let (store, index) = self.find_parameter(cell, layer, name)?;
        self.registry.store(store)?.decoded(index)
    }

    /// A layer's weights as they are held, once the network is built; `None` for a layer without.
    ///
    /// # Errors
    /// [`Error::Index`] for a layer that is not there, [`Error::Device`] where a GPU was lost.
    pub fn weights(&self, cell: Coordinates, layer: usize) -> Result<Option<Cow<'_, WeightStore>>> {
        let store = self.layer(cell, layer)?.store;
        store.map(|store| self.registry.store(store)).transpose()
    }

    /// A parameter's codes and scales as the forward pass reads them; `None` where it reads the master.
    ///
    /// # Errors
    /// As [`parameter`](Network::parameter), and [`Error::Value`] for a master that the type cannot hold.
    pub fn packed_parameter(
        &mut self,
        cell: Coordinates,
        layer: usize,
        name: &str,
    ) -> Result<Option<PackedParameter>> {
        self.build()?;
        self.synchronize()?;
        self.refresh_versions()?;
        let (store, index) = self.find_parameter(cell, layer, name)?;
        let store = self.registry.store(store)?;
        let Some(dtype) = store.dtype_of(index) else { return Ok(None) };
        let (packing, bytes, scales) = store.version(dtype, index)?;
        Ok(Some(PackedParameter {
            packing,
            bytes: extents::copied(bytes)?,
            scales: extents::copied(scales)?,
        }))
    }

    /// The names of what a layer keeps beside its parameters, such as running statistics, and of what it
    /// carries from batch to batch of training, once it carries anything; known once the network is built.
    ///
    /// # Errors
    /// [`Error::Index`] for a layer that is not there.
    pub fn state_names(&self, cell: Coordinates, layer: usize) -> Result<Vec<String>> {
        let placed = self.layer(cell, layer)?;
        let kept = placed.states.clone().map(|number| self.registry.states[number].spec.name.to_string());
        let places = self.registry.begun().into_iter().flat_map(|carried| carried.places());
        let carried =
            places.filter(|place| place.path == placed.path).map(|place| place.spec.name.to_string());
        Ok(kept.chain(carried).collect())
    }

    /// The names of what a layer carries from batch to batch of training, whether it carries anything yet or
    /// not; known once the network is built.
    ///
    /// # Errors
    /// [`Error::Index`] for a layer that is not there.
    pub fn carried_names(&self, cell: Coordinates, layer: usize) -> Result<Vec<String>> {
        let path = &self.layer(cell, layer)?.path;
        let places = self.carried_in_training().into_iter().filter(|place| place.path == *path);
        Ok(places.map(|place| place.spec.name.to_string()).collect())
    }

    fn find_state(&self, cell: Coordinates, layer: usize, name: &str) -> Result<Held> {
        let placed = self.layer(cell, layer)?;
        let mut kept = placed.states.clone();
        if let Some(number) = kept.find(|number| self.registry.states[*number].spec.name == name) {
            return Ok(Held::Kept(number));
        }
        let places = self.carried_in_training();
        let own = |place: &CarriedPlace| place.path == placed.path;
        if let Some(number) = places.iter().position(|place| own(place) && place.spec.name == name) {
            return Ok(Held::Carried(number));
        }
        let kept = placed.states.clone().map(|number| &*self.registry.states[number].spec.name);
        let carried = places.iter().filter(|place| own(place)).map(|place| &*place.spec.name);
        let names: Vec<&str> = kept.chain(carried).collect();
        Err(at_layer(placed, error::unknown("state", name, names.iter().copied())))
    }

    /// What a layer keeps under this name, or carries: (rows, ...).
    ///
    /// # Errors
    /// [`Error::Index`] and [`Error::Value`] for a layer or name that is not there, [`Error::State`] where
    /// nothing is carried yet.
    pub fn state(&mut self, cell: Coordinates, layer: usize, name: &str) -> Result<Tensor> {
        self.build()?;
        match self.find_state(cell, layer, name)? {
            Held::Kept(number) => {
                self.synchronize()?;
                self.registry.states[number].tensor(self.precision)
            }
            Held::Carried(number) => match self.registry.begun() {
                Some(carried) => carried.tensor(number),
                None => Err(at_layer(
                    self.layer(cell, layer)?,
                    Error::State(format!(
                        "\"{name}\" carries nothing: no batch has passed since it was reset; set it, or train first"
                    )),
                )),
            },
        }
    }

    /// Sets what a layer keeps under this name, or carries: (rows, ...), of as many rows as other layers
    /// carry. Where none carries anything, the others are then carried from their start.
    ///
    /// # Errors
    /// [`Error::Shape`] and [`Error::NonFinite`] for values that do not fit, [`Error::State`] where other
    /// rows are carried, and as [`state`](Network::state).
    pub fn set_state(
        &mut self,
        cell: Coordinates,
        layer: usize,
        name: &str,
        values: TensorView<'_>,
    ) -> Result<()> {
        self.build()?;
        let held = self.find_state(cell, layer, name)?;
        let context = super::describe_path(self.layer(cell, layer)?);
        let in_place = |error| error::in_context(&context, error);
        match held {
            Held::Kept(number) => {
                self.synchronize()?;
                self.registry.states[number].set(&values).map_err(in_place)?;
                self.registry.forget_device_states();
            }
            Held::Carried(number) => {
                if values.shape().is_empty() || values.rows() == 0 {
                    return Err(in_place(Error::Shape(format!("\"{name}\" needs at least one row"))));
                }
                self.prepare_carried([values.rows()]).map_err(in_place)?;
                let Some(carried) = &mut self.registry.carried else { return Ok(()) };
                carried.set(number, &values).map_err(in_place)?;
                carried.begun = true;
            }
        }
        self.note_moved_states();
        Ok(())
    }

    /// Sets a parameter's master from the outside layout; packed versions follow.
    ///
    /// # Errors
    /// [`Error::Shape`] and [`Error::NonFinite`] for values that do not fit, and as
    /// [`parameter`](Network::parameter). The network is then as before.
    pub fn set_parameter(
        &mut self,
        cell: Coordinates,
        layer: usize,
        name: &str,
        values: TensorView<'_>,
    ) -> Result<()> {
        self.build()?;
        self.synchronize()?;
        let (store, index) = self.find_parameter(cell, layer, name)?;
        let placed = self.layer(cell, layer)?;
        let before = self.registry.stores[store].get(index)?;
        let context = super::describe_path(placed);
        let in_place = |error| error::in_context(&context, error);
        self.registry.stores[store].set(index, &values).map_err(in_place)?;
        if let Err(error) = self.refresh_versions() {
            // A value that the packed type cannot hold: put the old one back.
            self.registry.stores[store].set(index, &before.view()).map_err(in_place)?;
            self.refresh_versions()?;
            return Err(error);
        }
        Ok(())
    }

    /// A parameter's gradient in the outside layout; zeros before any backward pass.
    ///
    /// # Errors
    /// As [`parameter`](Network::parameter).
    pub fn gradient(&self, cell: Coordinates, layer: usize, name: &str) -> Result<Tensor> {
        let (store, index) = self.find_parameter(cell, layer, name)?;
        let info = &self.registry.stores[store].parameters()[index];
        let zeroed = self.registry.gradients_zeroed || self.registry.gradients.is_empty();
        match self.precision {
            Precision::Float32 | Precision::Mixed => {
                let flat = if zeroed {
                    extents::zeros(info.len())?
                } else {
                    self.gradient_part::<f32>(store, index)?
                };
                Tensor::new(info.layout.outside_shape(), info.layout.to_outside(&flat)?)
            }
            Precision::Float64 => {
                let flat = if zeroed {
                    extents::zeros(info.len())?
                } else {
                    self.gradient_part::<f64>(store, index)?
                };
                Tensor::new(info.layout.outside_shape(), info.layout.to_outside(&flat)?)
            }
        }
    }

    fn gradient_part<T: Real>(&self, store: usize, index: usize) -> Result<Vec<T>> {
        let info = &self.registry.stores[store].parameters()[index];
        let flat = self.registry.gradient(store)?;
        extents::copied(&flat.as_slice::<T>()[info.offset..info.offset + info.len()])
    }

    /// What a layer read or made in the newest pass through the network, which
    /// [`forward`](Network::forward) or [`forward_inference`](Network::forward_inference) must have made; the
    /// batch axis first.
    ///
    /// # Errors
    /// [`Error::State`] without such a pass, or where another call has passed rows since;
    /// [`Error::Index`] for a layer that is not there.
    pub fn layer_value(&self, cell: Coordinates, layer: usize, which: LayerValue) -> Result<Tensor> {
        let placed = self.layer(cell, layer)?;
        let run = self.shown()?;
        let values = run.program().ports().layers.iter().find(|(path, _)| *path == placed.path);
        let (_, values) =
            values.ok_or_else(|| Error::Internal("a layer is missing from the history".into()))?;
        let value = match which {
            LayerValue::Input => values.input,
            LayerValue::Preactivation => values.preactivation.unwrap_or(values.output),
            LayerValue::Output => values.output,
        };
        match self.precision {
            Precision::Float32 | Precision::Mixed => tensor_of::<f32>(run, value),
            Precision::Float64 => tensor_of::<f64>(run, value),
        }
    }

    /// Each layer's output in figures, in the newest pass through the network, as
    /// [`layer_value`](Network::layer_value) shows it.
    ///
    /// # Errors
    /// [`Error::State`] without such a pass.
    pub fn layer_statistics(&self) -> Result<Vec<LayerStatistics>> {
        Ok(self.statistics_of(self.shown()?))
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
        match self.precision {
            Precision::Float32 | Precision::Mixed => {
                self.predict_observed_in::<f32>(input, batch_size, &mut observe)
            }
            Precision::Float64 => self.predict_observed_in::<f64>(input, batch_size, &mut observe),
        }
    }

    fn predict_observed_in<T: Real>(
        &self,
        input: TensorView<'_>,
        batch_size: usize,
        observe: &mut dyn FnMut(Vec<LayerStatistics>),
    ) -> Result<Tensor> {
        let mut shape = vec![input.rows()];
        shape.extend_from_slice(self.output_shape());
        let each = self.output_shape().len();
        let mut elements: Vec<T> = extents::room(extents::elements("the output", input.rows(), each)?)?;
        self.for_each_output::<T>(input, batch_size, true, |run| {
            if let Some(output) = run.program().ports().output {
                elements.extend_from_slice(run.read::<T>(output));
            }
            observe(self.statistics_of(run));
            Ok(())
        })?;
        Tensor::new(shape, elements)
    }

    /// Each layer's output in figures, from a run that pins them.
    pub fn statistics_of(&self, run: &Run) -> Vec<LayerStatistics> {
        let layers = &run.program().ports().layers;
        self.layers()
            .zip(layers)
            .map(|(placed, (_, values))| match self.precision {
                Precision::Float32 | Precision::Mixed => statistics::<f32>(placed, run, values),
                Precision::Float64 => statistics::<f64>(placed, run, values),
            })
            .collect()
    }
}

fn tensor_of<T: Real>(run: &Run, value: Value) -> Result<Tensor> {
    let mut shape = vec![run.rows];
    shape.extend_from_slice(&run.program().value(value).shape);
    Tensor::new(shape, extents::copied(run.read::<T>(value))?)
}

fn statistics<T: Real>(placed: &PlacedLayer, run: &Run, values: &LayerValues) -> LayerStatistics {
    let elements = run.read::<T>(values.output);
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
        path: placed.path.clone(),
        kind: placed.layer.kind(),
        shape: run.program().value(values.output).shape.to_vec(),
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

//! Products of low rank beside the weights of a network: adapters, by whose training the weights stay as they are.

use super::Network;
use super::adapter::{Adapter, PARTS, PlacedAdapter};
use super::build::fits;
use super::placed::{Coordinates, PlacedLayer, at_layer, describe_path};
use crate::layers::{BoundAdapter, BoundParameter, ParameterSpec};
use crate::precision::in_precision;
use crate::program::ParameterRef;
use crate::simd::Real;
use crate::tensor::Tensor;
use crate::weights::WeightStore;
use crate::{Error, Result, error};
use std::borrow::Cow;

impl PlacedLayer {
    /// The adapters of the layer, in the order in which they came.
    pub fn adapters(&self) -> impl Iterator<Item = &Adapter> {
        self.adapters.iter().map(|adapter| &adapter.settings)
    }

    /// The stores of its adapters.
    pub(crate) fn adapter_stores(&self) -> impl Iterator<Item = usize> {
        self.adapters.iter().filter_map(|adapter| adapter.store)
    }

    /// All stores that are its own, but for one that it shares with the layer it is tied to.
    pub(crate) fn all_stores(&self) -> impl Iterator<Item = usize> {
        self.store.filter(|_| !self.is_tied()).into_iter().chain(self.adapter_stores())
    }

    /// Those that an optimizer moves.
    pub(crate) fn trained_stores(&self) -> impl Iterator<Item = usize> {
        let own = self.store.filter(|_| self.trainable && !self.is_tied());
        let adapters = self.adapters.iter().filter(|adapter| adapter.is_trained());
        own.into_iter().chain(adapters.filter_map(|adapter| adapter.store))
    }

    /// The parameters of each of its adapters, for these of the layer itself.
    pub(crate) fn adapter_specs(&self, layer: &[ParameterSpec]) -> Result<Vec<Vec<ParameterSpec>>> {
        let specs: Result<_> = self.adapters.iter().map(|adapter| adapter.settings.specs(layer)).collect();
        specs.map_err(|error| at_layer(self, error))
    }

    /// Refuses an adapter that gives outputs lengths which another one in use gives them, too: each takes those of what the
    /// layer has, and not of what the other makes of it.
    fn check_decomposed_once(&self, adapter: &Adapter) -> Result<()> {
        let Some((other, weight)) = self.other_decomposed(adapter).filter(|_| adapter.is_decomposing())
        else {
            return Ok(());
        };
        let error = format!(
            "adapter \"{other}\" gives the outputs of \"{weight}\" their lengths, so that \"{}\" cannot at the same \
             time: use one of them, or merge \"{other}\" first",
            adapter.name
        );
        Err(at_layer(self, Error::Value(error)))
    }

    /// The name of another adapter in use that gives outputs lengths, and of the weight that this one stands beside, too.
    fn other_decomposed(&self, adapter: &Adapter) -> Option<(&str, &str)> {
        let others = self.adapters().filter(|other| other.name != adapter.name && other.is_decomposing());
        others
            .flat_map(|other| other.parameters.iter().map(|weight| (&*other.name, &**weight)))
            .find(|(_, weight)| adapter.parameters.iter().any(|own| own == weight))
    }

    /// Whether the stores of its adapters are there and fit.
    pub(super) fn has_whole_adapters(&self, stores: &[WeightStore], layer: &[ParameterSpec]) -> bool {
        let Ok(specs) = self.adapter_specs(layer) else { return false };
        self.adapters.iter().zip(specs).all(|(adapter, specs)| {
            adapter.store.and_then(|store| stores.get(store)).is_some_and(|store| fits(store, &specs))
        })
    }
}

impl Network {
    /// Puts an adapter beside weights of a layer. The layer's own weights move on in training unless it is
    /// [kept from it](Network::set_trainable). The optimizer starts anew.
    ///
    /// ```
    /// use loom::{Network, layers::Dense, network::Adapter};
    ///
    /// let mut network = Network::sequential([4])?;
    /// network.add([0, 0, 0], Dense::new(8))?;
    /// network.set_trainable([0, 0, 0], 0, false)?;
    /// let adapter = Adapter {
    ///     name: "default".into(), rank: 2, alpha: 4.0, dropout: 0.0, rank_stabilized: false,
    ///     decomposed: false, parameters: vec!["weight".into()], active: true, trainable: true,
    /// };
    /// network.add_adapter([0, 0, 0], 0, adapter)?;
    /// assert_eq!(network.parameter([0, 0, 0], 0, "weight.default.lora_a")?.shape(), [2, 4]);
    /// # Ok::<(), loom::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Index`] and [`Error::Value`] for a layer or weight that is not there or takes none, a name that
    /// the layer has already, or settings out of range; whatever [`build`](Network::build) refuses. The network is
    /// then as before.
    pub fn add_adapter(&mut self, cell: Coordinates, layer: usize, adapter: Adapter) -> Result<()> {
        self.build()?;
        let placed = self.layer(cell, layer)?;
        adapter.validate().map_err(|error| at_layer(placed, error))?;
        placed.check_owns("put an adapter")?;
        if placed.adapters().any(|known| known.name == adapter.name) {
            let error = format!("the layer has an adapter \"{}\" already", adapter.name);
            return Err(at_layer(placed, Error::Value(error)));
        }
        let specs = placed.layer.parameters(&placed.input_shapes());
        adapter.specs(&specs).map_err(|error| at_layer(placed, error))?;
        placed.check_decomposed_once(&adapter)?;
        self.layer_mut(cell, layer)?.adapters.push(PlacedAdapter::new(adapter));
        self.rebuilt()
    }

    /// The weights of a layer beside which an adapter can stand, once the network is built.
    ///
    /// # Errors
    /// [`Error::Index`] for a layer that is not there.
    pub fn adaptable(&self, cell: Coordinates, layer: usize) -> Result<Vec<String>> {
        let placed = self.layer(cell, layer)?;
        let inputs = placed.input_shapes();
        if inputs.is_empty() || placed.is_tied() {
            return Ok(Vec::new());
        }
        let specs = placed.layer.parameters(&inputs).into_iter().filter(|spec| spec.adaptable);
        Ok(specs.map(|spec| spec.name.into_owned()).collect())
    }

    /// Takes an adapter away from a layer.
    ///
    /// # Errors
    /// [`Error::Index`] and [`Error::Value`] for a layer or an adapter that is not there.
    pub fn remove_adapter(&mut self, cell: Coordinates, layer: usize, name: &str) -> Result<()> {
        self.build()?;
        let place = self.find_adapter(cell, layer, name)?;
        let placed = self.layer_mut(cell, layer)?;
        let gone = placed.adapters.remove(place).settings;
        let is_of = |name: &str| {
            gone.parameters
                .iter()
                .any(|weight| gone.parts().iter().any(|part| gone.part(weight, part) == name))
        };
        placed.frozen.retain(|name| !is_of(name));
        self.rebuilt()
    }

    /// Has a layer compute with an adapter or not, and lets an optimizer move it or not.
    ///
    /// # Errors
    /// As [`remove_adapter`](Network::remove_adapter).
    pub fn set_adapter(
        &mut self,
        cell: Coordinates,
        layer: usize,
        name: &str,
        (active, trainable): (bool, bool),
    ) -> Result<()> {
        let place = self.find_adapter(cell, layer, name)?;
        let placed = self.layer(cell, layer)?;
        placed.check_decomposed_once(&Adapter { active, ..placed.adapters[place].settings.clone() })?;
        let settings = &mut self.layer_mut(cell, layer)?.adapters[place].settings;
        if (settings.active, settings.trainable) != (active, trainable) {
            let computes_otherwise = settings.active != active;
            (settings.active, settings.trainable) = (active, trainable);
            self.registry.epochs_passed += u64::from(computes_otherwise);
            self.invalidate();
        }
        Ok(())
    }

    /// Adds what an adapter adds to the weights of a layer, and takes it away. Packed weights are decoded, changed
    /// and packed again; where their master was dropped, one is made, which stays until it is dropped again.
    ///
    /// # Errors
    /// As [`remove_adapter`](Network::remove_adapter); [`Error::NonFinite`] for sums that are beyond the range of the
    /// weights' type. The network is then as before.
    pub fn merge_adapter(&mut self, cell: Coordinates, layer: usize, name: &str) -> Result<()> {
        self.build()?;
        self.synchronize()?;
        let place = self.find_adapter(cell, layer, name)?;
        let placed = self.layer(cell, layer)?;
        let settings = placed.adapters[place].settings.clone();
        if let Some((other, weight)) = placed.other_decomposed(&settings) {
            let error = format!(
                "adapter \"{other}\" gives the outputs of \"{weight}\" their lengths by what the weight is now: merge it \
                 first, or do not use it meanwhile"
            );
            return Err(at_layer(placed, Error::Value(error)));
        }
        let Some(owner) = placed.store else {
            return Err(Error::Internal("an adapter stands beside no weights".into()));
        };
        let held = self.registry.held(owner)?;
        let mut merged = Vec::with_capacity(settings.parameters.len());
        for weight in &settings.parameters {
            let own = match held.is_dropped() {
                true => held.decoded(self.find_parameter(cell, layer, weight)?.1)?,
                false => self.parameter(cell, layer, weight)?,
            };
            let part = |which: usize| self.parameter(cell, layer, &settings.part(weight, PARTS[which]));
            let factors = [part(0)?, part(1)?];
            let magnitude = settings.decomposed.then(|| part(2)).transpose()?;
            let sum =
                in_precision!(self.precision, T => sum_of::<T>(&own, &factors, settings.scale(), magnitude)?);
            merged.push((weight, sum));
        }
        if held.is_dropped() && !held.is_lent() {
            self.unpack_where(|placed| placed.store == Some(owner) && !placed.is_tied())?;
        }
        let mut before = Vec::with_capacity(merged.len());
        for (weight, sum) in merged {
            before.push((weight, self.parameter(cell, layer, weight)?));
            if let Err(error) = self.set_parameter(cell, layer, weight, sum.view()) {
                before.pop();
                for (weight, values) in before {
                    self.set_parameter(cell, layer, weight, values.view())?;
                }
                return Err(error);
            }
        }
        self.remove_adapter(cell, layer, name)
    }

    /// Whether any layer has an adapter.
    pub fn has_adapters(&self) -> bool {
        self.layers().any(|placed| !placed.adapters.is_empty())
    }

    /// Refuses to do something with a network that has adapters.
    pub(crate) fn check_no_adapters(&self, what: &str) -> Result<()> {
        match self.layers().find(|placed| !placed.adapters.is_empty()) {
            None => Ok(()),
            Some(placed) => Err(Error::State(format!(
                "{what} knows no adapters, and {} has one; merge or remove it first",
                describe_path(placed)
            ))),
        }
    }

    fn find_adapter(&self, cell: Coordinates, layer: usize, name: &str) -> Result<usize> {
        let placed = self.layer(cell, layer)?;
        let found = placed.adapters.iter().position(|adapter| adapter.settings.name == name);
        found.ok_or_else(|| {
            let known: Vec<&str> = placed.adapters().map(|adapter| &*adapter.name).collect();
            match known.is_empty() {
                true => {
                    at_layer(placed, Error::Value(format!("the layer has no adapter \"{name}\", nor any")))
                }
                false => at_layer(placed, error::unknown("adapter", name, known)),
            }
        })
    }

    /// Builds anew, after a change of which adapters there are.
    fn rebuilt(&mut self) -> Result<()> {
        self.built = false;
        self.build()
    }

    /// The adapters of a layer that it computes with, as it finds them while lowering.
    pub(super) fn bound_adapters(&self, placed: &PlacedLayer) -> Vec<BoundAdapter> {
        let mut bound = Vec::new();
        for adapter in placed.adapters.iter().filter(|adapter| adapter.settings.active) {
            let Some(store) = adapter.store else { continue };
            let parameters = self.registry.stores[store].parameters();
            for (number, weight) in adapter.settings.parameters.iter().enumerate() {
                let parts = adapter.settings.parts().len();
                let part = |which: usize| {
                    let index = number * parts + which;
                    let info = &parameters[index];
                    BoundParameter {
                        name: info.name.clone(),
                        reference: ParameterRef { store, parameter: Some(index) },
                        shape: info.layout.storage_shape(),
                        active: None,
                        reads_packed: false,
                        quantized: false,
                        by_rows: false,
                        trained: adapter.settings.trainable,
                        made: None,
                    }
                };
                bound.push(BoundAdapter {
                    weight: Cow::Owned(weight.clone()),
                    down: part(0),
                    up: part(1),
                    magnitude: adapter.settings.decomposed.then(|| part(2)),
                    scale: adapter.settings.scale(),
                    dropout: adapter.settings.dropout,
                    number: bound.len(),
                });
            }
        }
        bound
    }
}

/// `W + scale B A`, summed in double precision, its rows with these lengths where there are such.
fn sum_of<T: Real>(
    own: &Tensor,
    [down, up]: &[Tensor; 2],
    scale: f64,
    magnitude: Option<Tensor>,
) -> Result<Tensor> {
    let (rank, inputs) = (down.shape()[0], down.shape()[1]);
    let shape = own.shape().to_vec();
    let (own, down, up) = (doubles(own), doubles(down), doubles(up));
    let magnitude = magnitude.as_ref().map(doubles);
    let mut sums: Vec<T> = Vec::with_capacity(own.len());
    let mut row = vec![0.0; inputs];
    for (number, (own, up)) in own.chunks_exact(inputs).zip(up.chunks_exact(rank)).enumerate() {
        row.fill(0.0);
        for (share, down) in up.iter().zip(down.chunks_exact(inputs)) {
            row.iter_mut().zip(down).for_each(|(sum, a)| *sum += share * a);
        }
        row.iter_mut().zip(own).for_each(|(sum, own)| *sum = own + scale * *sum);
        if let Some(magnitude) = &magnitude {
            let length = row.iter().fold(0.0, |squares, x| squares + x * x).sqrt();
            let factor = if length > 0.0 { magnitude[number] / length } else { 0.0 };
            row.iter_mut().for_each(|x| *x *= factor);
        }
        sums.extend(row.iter().map(|x| T::from_f64(*x)));
    }
    Tensor::new(shape, sums)
}

fn doubles(tensor: &Tensor) -> Vec<f64> {
    match tensor {
        Tensor::Float32(_, elements) => elements.iter().map(|x| f64::from(*x)).collect(),
        Tensor::Float64(_, elements) => elements.clone(),
    }
}

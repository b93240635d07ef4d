//! Numeric types: chosen for layers and parameters, and masters dropped and made again.

use super::Network;
use super::numerics::{Chosen, LayerNumerics, Numerics, check_activations};
use super::placed::{Coordinates, PlacedLayer, at_layer};
use crate::dtype::{DType, Recipe};
use crate::matrix::IntegerWeight;
use crate::program::LayerPath;
use crate::tensor::Precision;
use crate::weights::{Layout, ParameterInfo, Staged, WeightStore};
use crate::{Error, Result};

/// What layers are asked to compute from.
#[derive(Clone, Copy, Debug)]
pub struct Morph<'a> {
    /// The type of weights; the network's own precision for the masters.
    pub dtype: DType,
    /// What is chosen beside it.
    pub numerics: Numerics,
    /// The parameters of these names alone, whether or not they take on the type of their layer; those that do
    /// where there are none, which forgets what was chosen by name.
    pub parameters: Option<&'a [&'a str]>,
}

impl Morph<'_> {
    /// Weights in this type, packed as it has them.
    pub fn new(dtype: DType) -> Self {
        Self { dtype, numerics: Numerics::default(), parameters: None }
    }

    /// The same by a recipe, by which every later version is made, such as after each step of a training.
    pub fn by(self, recipe: impl Into<Recipe>) -> Self {
        Self { numerics: Numerics { recipe: recipe.into(), ..self.numerics }, ..self }
    }
}

/// Refuses weights whose operations leave activations in float.
fn quantizes(info: &ParameterInfo) -> Result<()> {
    if !info.morphable {
        return Err(Error::Value(format!(
            "\"{}\" is no weight of a product, so there are no activations to quantise for it",
            info.name
        )));
    }
    if matches!(info.layout, Layout::Grouped(_)) {
        return Err(Error::Value(format!(
            "\"{}\" is of experts, whose products take activations in float; choose the other layers or parameters \
             for activations=\"int8\"",
            info.name
        )));
    }
    if matches!(info.layout, Layout::InputMajor(_)) {
        IntegerWeight::check_depth(info.layout.storage_matrix().0)?;
    }
    Ok(())
}

/// Whether a layer, or one within it, is a transposed convolution.
fn transposes(config: &serde_json::Value) -> bool {
    match config {
        serde_json::Value::Object(entries) => entries.iter().any(|(key, value)| {
            let is_kind =
                key == "type" && value.as_str().is_some_and(|kind| kind.starts_with("conv_transpose"));
            is_kind || transposes(value)
        }),
        serde_json::Value::Array(entries) => entries.iter().any(transposes),
        _ => false,
    }
}

impl Network {
    /// Computes from weights packed as `dtype` in every layer that has weights which can be; from the
    /// masters again for the network's own precision.
    ///
    /// # Errors
    /// As [`morph_layers`](Network::morph_layers).
    pub fn morph(&mut self, dtype: DType) -> Result<()> {
        self.morph_layers(Morph::new(dtype), |_| true)
    }

    /// [`morph`](Network::morph) for the layers that `choose` picks.
    ///
    /// # Errors
    /// As `morph`.
    pub fn morph_where(&mut self, dtype: DType, choose: impl Fn(&PlacedLayer) -> bool) -> Result<()> {
        self.morph_layers(Morph::new(dtype), choose)
    }

    /// Has the layers that `choose` picks compute from what is asked for.
    ///
    /// Weights of products are read packed. Others, such as biases, gains and positions, are decoded whenever
    /// they are read: what is held, and kept in files, are their codes.
    ///
    /// # Errors
    /// [`Error::DType`] for a type of weights or of activations that cannot be used or a recipe that it cannot have,
    /// [`Error::Value`] naming the layer and parameter for weights that the type cannot hold, a layer without
    /// products to quantise, or a name that a picked layer does not have, [`Error::State`] where a master was
    /// dropped. The network is then as before.
    pub fn morph_layers(&mut self, request: Morph<'_>, choose: impl Fn(&PlacedLayer) -> bool) -> Result<()> {
        let Morph { dtype, numerics, parameters } = request;
        numerics.recipe.checked(dtype)?;
        let active = (dtype != self.precision.dtype()).then_some(dtype);
        check_activations(active, numerics.activations, self.precision)?;
        let numerics = if active.is_some() { numerics } else { Numerics::default() };
        let chosen = Chosen { dtype: active, numerics };
        self.build()?;
        self.synchronize()?;
        let changed = self.changed_by(chosen, parameters, &choose)?;
        self.thaw_where(|placed| changed.contains(&placed.path))?;
        self.key_draws();
        // Everything is encoded before any layer changes over, so that a refusal changes nothing.
        let mut staged: Vec<(usize, usize, LayerNumerics, Staged)> = Vec::new();
        for (number, placed) in self.layers().enumerate().filter(|(_, placed)| !placed.is_tied()) {
            let Some(store) = placed.store.filter(|_| choose(placed)) else { continue };
            let made = self.stage(placed, store, chosen, parameters);
            let (numerics, versions) = made.map_err(|error| at_layer(placed, error))?;
            staged.push((number, store, numerics, versions));
        }
        for (number, store, numerics, versions) in staged {
            self.registry.stores[store].adopt(versions);
            if let Some(placed) = self.cells.iter_mut().flatten().nth(number) {
                placed.numerics = numerics;
            }
        }
        // Whoever goes on from what was computed before, goes on from other weights.
        self.registry.epochs_passed += 1;
        self.invalidate();
        Ok(())
    }

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
            weights_of(store).into_iter().map(|index| held_in(store, index, self.precision)).collect();
        Ok(if held.contains(&own) { Some(own) } else { held.into_iter().next() })
    }

    /// Frees the full-precision masters of packed weights, to deploy a network that is trained.
    ///
    /// Inference goes on as it was; training, other numeric types and reading or setting the
    /// full-precision weights are refused from here on. Gradients and optimizer moments go too.
    ///
    /// # Errors
    /// [`Error::State`] naming a layer whose weights are not packed; the network is then as before.
    pub fn drop_masters(&mut self) -> Result<()> {
        self.drop_masters_where(|_| true)
    }

    /// [`drop_masters`](Network::drop_masters) of the layers that `choose` picks.
    ///
    /// # Errors
    /// As `drop_masters`.
    pub fn drop_masters_where(&mut self, choose: impl Fn(&PlacedLayer) -> bool) -> Result<()> {
        self.build()?;
        self.synchronize()?;
        self.refresh_versions()?;
        // Tried on every store before any of them drops, so that a refusal changes nothing.
        let mut stores = Vec::new();
        for placed in self.layers().filter(|placed| choose(placed)) {
            if let Some(store) = placed.store {
                self.registry.stores[store].check_droppable().map_err(|error| at_layer(placed, error))?;
                stores.push(store);
            }
        }
        for store in stores {
            self.registry.stores[store].drop_master()?;
        }
        self.registry.clear_gradients();
        self.restart_optimizer();
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
        self.thaw_where(&choose)?;
        for store in dropped {
            if self.registry.stores[store].is_dropped() {
                self.registry.stores[store].unpack()?;
            }
        }
        self.registry.clear_gradients();
        self.restart_optimizer();
        self.invalidate();
        Ok(())
    }

    /// Bytes of the weights that the forward pass reads.
    pub fn weight_bytes(&self) -> usize {
        self.registry.stores.iter().map(|store| store.active_bytes()).sum()
    }

    /// Where layers whose weights are lent would read other ones, if this was chosen for them: those that only take on
    /// other activations go on reading what is lent.
    fn changed_by(
        &self,
        chosen: Chosen,
        parameters: Option<&[&str]>,
        choose: impl Fn(&PlacedLayer) -> bool,
    ) -> Result<Vec<LayerPath>> {
        let mut changed = Vec::new();
        for placed in self.layers().filter(|placed| !placed.is_tied() && choose(placed)) {
            let Some(store) = placed.store.map(|store| &self.registry.stores[store]) else { continue };
            let numerics = placed.numerics.with(chosen, parameters, store);
            let choices = numerics.map_err(|error| at_layer(placed, error))?.choices(store);
            for (index, choice) in choices.into_iter().enumerate() {
                let choice = choice.map(|(dtype, recipe)| Ok((dtype, recipe.checked(dtype)?))).transpose();
                if store.choice(index) != choice.map_err(|error| at_layer(placed, error))? {
                    changed.push(placed.path.clone());
                    break;
                }
            }
        }
        Ok(changed)
    }

    /// What a layer computes from once this is chosen for it or for some of its parameters.
    fn stage(
        &self,
        placed: &PlacedLayer,
        store: usize,
        chosen: Chosen,
        parameters: Option<&[&str]>,
    ) -> Result<(LayerNumerics, Staged)> {
        let store = &self.registry.stores[store];
        let numerics = placed.numerics.with(chosen, parameters, store)?;
        if chosen.numerics.activations.is_some() {
            let named = |info: &&ParameterInfo| match parameters {
                Some(names) => names.iter().any(|name| *name == info.name),
                None => info.morphable,
            };
            if transposes(&placed.layer.config()) {
                return Err(Error::Value(
                    "a transposed convolution sums over channels that have scales of their own, so its \
                     activations stay in float; choose the other layers for activations=\"int8\""
                        .into(),
                ));
            }
            store.parameters().iter().filter(named).try_for_each(quantizes)?;
        }
        let versions = store.stage(&numerics.choices(store))?;
        Ok((numerics, versions))
    }
}

/// The type that the forward pass of a network of this precision reads a parameter in.
pub(super) fn held_in(store: &WeightStore, parameter: usize, precision: Precision) -> String {
    store.dtype_of(parameter).unwrap_or(precision.dtype()).to_string()
}

/// The numbers of the parameters that take on a layer's type; of all, where none does.
pub(super) fn weights_of(store: &WeightStore) -> Vec<usize> {
    let all = 0..store.parameters().len();
    let weights: Vec<usize> = all.clone().filter(|index| store.parameters()[*index].morphable).collect();
    if weights.is_empty() { all.collect() } else { weights }
}

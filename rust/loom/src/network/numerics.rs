//! What layers compute from: packed weights, and whether activations are quantised too.

use super::{Network, PlacedLayer, at_layer};
use crate::dtype::{DType, Recipe};
use crate::matrix::IntegerWeight;
use crate::tensor::Precision;
use crate::weights::{Choice, Layout, ParameterInfo, Staged, WeightStore};
use crate::{Error, Result, error};

/// What can be chosen beside the numeric type of weights.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Numerics {
    /// How weights are packed.
    pub recipe: Recipe,
    /// The type that inference quantises rows of activations to before products with packed weights, which
    /// are then summed in integers: int8, or `None` to leave them in float.
    ///
    /// A row is what one output of a product reads; all of a sample for a convolution, and a sample's state
    /// before each step for a recurrence. Training leaves activations in float.
    pub activations: Option<DType>,
}

/// A numeric type with all that is chosen beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Chosen {
    /// The type that is computed from; `None` for the masters.
    pub(crate) dtype: Option<DType>,
    /// As they were asked for; the usual ones for the masters.
    pub(crate) numerics: Numerics,
}

impl Chosen {
    fn choice(&self) -> Choice {
        self.dtype.map(|dtype| (dtype, self.numerics.recipe))
    }
}

/// What a layer computes from.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LayerNumerics {
    /// What holds for the parameters that take on the layer's type.
    pub(crate) layer: Chosen,
    /// What holds for parameters by their names, instead.
    pub(crate) parameters: Vec<(String, Chosen)>,
}

impl LayerNumerics {
    /// What holds for a parameter.
    pub(crate) fn of(&self, info: &ParameterInfo) -> Chosen {
        self.named(&info.name, info.morphable)
    }

    /// What holds for a parameter of this name that takes on the layer's type, or does not.
    pub(crate) fn named(&self, name: &str, morphable: bool) -> Chosen {
        match self.parameters.iter().find(|(known, _)| known == name) {
            Some((_, chosen)) => *chosen,
            None if morphable => self.layer,
            None => Chosen::default(),
        }
    }

    /// What the store of the layer is to pack.
    pub(crate) fn choices(&self, store: &WeightStore) -> Vec<Choice> {
        store.parameters().iter().map(|info| self.of(info).choice()).collect()
    }

    /// Whether anything is packed.
    pub(crate) fn is_packed(&self) -> bool {
        self.layer.dtype.is_some() || self.parameters.iter().any(|(_, chosen)| chosen.dtype.is_some())
    }

    /// The same with another choice for the whole layer, or for parameters of these names.
    fn with(&self, chosen: Chosen, parameters: Option<&[&str]>, store: &WeightStore) -> Result<Self> {
        let Some(names) = parameters else { return Ok(Self { layer: chosen, parameters: Vec::new() }) };
        let mut changed = self.clone();
        for name in names {
            let info = find(store, name)?;
            changed.parameters.retain(|(known, _)| known != name);
            // What holds anyway is not said twice.
            if changed.of(info) != chosen {
                changed.parameters.push((name.to_string(), chosen));
            }
        }
        Ok(changed)
    }
}

fn find<'a>(store: &'a WeightStore, name: &str) -> Result<&'a ParameterInfo> {
    let parameters = store.parameters();
    parameters
        .iter()
        .find(|info| info.name == name)
        .ok_or_else(|| error::unknown("parameter", name, parameters.iter().map(|info| &*info.name)))
}

/// Refuses activations in a type that products with weights of this one do not take.
pub(super) fn check_activations(
    weights: Option<DType>,
    activations: Option<DType>,
    precision: Precision,
) -> Result<()> {
    match (activations, weights) {
        (None, _) => Ok(()),
        (Some(DType::Int8), _) if precision == Precision::Float64 => Err(Error::DType(
            "activations=\"int8\" computes in float32; leave the activations of a float64 network in float"
                .into(),
        )),
        (Some(DType::Int8), Some(weights)) => IntegerWeight::check_type(weights),
        (Some(DType::Int8), None) => Err(Error::DType(format!(
            "activations=\"int8\" needs packed weights; morph to one of {}",
            IntegerWeight::TYPES.map(DType::name).join(", ")
        ))),
        (Some(other), _) => {
            Err(Error::DType(format!("activations can be quantised to int8 only, not to {other}")))
        }
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
    /// [`morph`](Network::morph) for the layers that `choose` picks, with all that can be chosen beside the
    /// type.
    ///
    /// # Errors
    /// As [`morph_with`](Network::morph_with), [`Error::DType`] for a type of weights or of activations that
    /// quantised products do not take, [`Error::Value`] naming a layer that has none.
    pub fn morph_as(
        &mut self,
        dtype: DType,
        numerics: Numerics,
        choose: impl Fn(&PlacedLayer) -> bool,
    ) -> Result<()> {
        self.morph_parameters(dtype, numerics, None, choose)
    }

    /// [`morph_as`](Network::morph_as) for the parameters of these names alone, whether or not they take on the
    /// type of their layer; for those that do where there are none, which forgets what was chosen by name.
    ///
    /// Weights of products are read packed. Others, such as biases, gains and positions, are decoded whenever
    /// they are read: what is held, and kept in files, are their codes.
    ///
    /// # Errors
    /// As `morph_as`, and [`Error::Value`] for a name that a picked layer does not have.
    pub fn morph_parameters(
        &mut self,
        dtype: DType,
        numerics: Numerics,
        parameters: Option<&[&str]>,
        choose: impl Fn(&PlacedLayer) -> bool,
    ) -> Result<()> {
        let Numerics { recipe, activations } = numerics;
        recipe.checked(dtype)?;
        let active = (dtype != self.precision.dtype()).then_some(dtype);
        check_activations(active, activations, self.precision)?;
        let numerics = if active.is_some() { numerics } else { Numerics::default() };
        let chosen = Chosen { dtype: active, numerics };
        self.build()?;
        self.synchronize()?;
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
        self.invalidate();
        Ok(())
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

//! What layers compute from: packed weights, and whether activations are quantised too.

use crate::dtype::{DType, Recipe};
use crate::matrix::IntegerWeight;
use crate::tensor::Precision;
use crate::weights::{Choice, ParameterInfo, WeightStore};
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
    pub(super) fn with(
        &self,
        chosen: Chosen,
        parameters: Option<&[&str]>,
        store: &WeightStore,
    ) -> Result<Self> {
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

//! What layers compute from: packed weights, and whether activations are quantised too.

use super::{Network, PlacedLayer, at_layer};
use crate::cpu::product::IntegerWeight;
use crate::dtype::{DType, Recipe};
use crate::tensor::Precision;
use crate::weights::{Layout, WeightStore};
use crate::{Error, Result};

/// What can be chosen beside the numeric type of weights.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Numerics {
    /// How weights are packed.
    pub recipe: Recipe,
    /// The type that inference quantises rows of activations to before products with packed weights, which
    /// are then summed in integers: int8, or `None` to leave them in float.
    ///
    /// Training leaves activations in float, as do products of a recurrence with its own state, and
    /// everything but products.
    pub activations: Option<DType>,
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
fn quantizes(store: &WeightStore) -> Result<()> {
    for info in store.parameters().iter().filter(|info| info.morphable) {
        let extents = info.layout.outside_shape();
        if extents.len() > 2 {
            return Err(Error::Value(format!(
                "\"{}\" is the kernel of a convolution, whose activations stay in float; choose the other \
                 layers for activations=\"int8\"",
                info.name
            )));
        }
        if matches!(info.layout, Layout::InputMajor(_)) {
            IntegerWeight::check_depth(info.layout.storage_matrix().0)?;
        }
    }
    Ok(())
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
        let Numerics { recipe, activations } = numerics;
        recipe.checked(dtype)?;
        let active = (dtype != self.precision.dtype()).then_some(dtype);
        check_activations(active, activations, self.precision)?;
        self.build()?;
        self.synchronize()?;
        self.key_draws();
        let chosen: Vec<(usize, usize)> = self
            .layers()
            .enumerate()
            .filter(|(_, placed)| !placed.is_tied() && choose(placed))
            .filter_map(|(number, placed)| Some((number, placed.store?)))
            .collect();
        if activations.is_some() {
            for &(number, store) in &chosen {
                let refused = quantizes(&self.registry.stores[store]).err();
                if let (Some(error), Some(placed)) = (refused, self.layers().nth(number)) {
                    return Err(at_layer(placed, error));
                }
            }
        }
        // Every store is encoded before any layer changes over, so that a refusal changes nothing.
        if let Some(dtype) = active {
            for &(number, store) in &chosen {
                if let Err(error) = self.registry.stores[store].encode_by(dtype, recipe) {
                    self.restore_recipes(&chosen)?;
                    let placed = self.layers().nth(number);
                    return Err(
                        placed.map_or(Error::Internal("a layer was lost".into()), |p| at_layer(p, error))
                    );
                }
            }
        }
        for (number, store) in chosen {
            self.registry.stores[store].activate(active)?;
            if let Some(placed) = self.cells.iter_mut().flatten().nth(number) {
                placed.dtype = active;
                placed.activations = activations;
                placed.recipe = if active.is_some() { recipe } else { Recipe::default() };
            }
        }
        self.invalidate();
        Ok(())
    }

    /// Makes the versions of these layers' types anew where they were made by another recipe.
    fn restore_recipes(&mut self, chosen: &[(usize, usize)]) -> Result<()> {
        for &(number, store) in chosen {
            let settings = self.layers().nth(number).map(|placed| (placed.dtype, placed.recipe));
            if let Some((Some(dtype), recipe)) = settings {
                self.registry.stores[store].encode_by(dtype, recipe)?;
            }
        }
        Ok(())
    }
}

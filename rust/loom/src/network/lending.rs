//! Weights that a file lends to layers, and masters that are made of them once they are needed.

use super::Network;
use super::numerics::{Chosen, LayerNumerics, Numerics};
use super::placed::{Coordinates, PlacedLayer, at_layer};
use crate::weights::LentParameter;
use crate::{Error, Result, error};

impl Network {
    /// Has a layer compute from weights that somebody else holds, such as a mapped file, in the place of those
    /// parameters of its own. Nothing is read before a forward pass reads it, and nothing is checked but how many
    /// bytes there are.
    ///
    /// A layer that is trained or changed makes
    /// itself masters first, of what was lent, and computes from those. Copies share what is lent.
    ///
    /// # Errors
    /// [`Error::Index`] and [`Error::Value`] for a layer or parameter that is not there or is no weight of products,
    /// [`Error::DType`] for a recipe that the type cannot have, [`Error::Serialization`] for another number of bytes.
    pub fn lend(&mut self, cell: Coordinates, layer: usize, parts: &[LentParameter]) -> Result<()> {
        self.build()?;
        self.synchronize()?;
        self.thaw_where(|placed| placed.path.indices() == [&cell[..], &[layer]].concat())?;
        let placed = &self.layer(cell, layer)?.clone();
        let Some(store) = placed.store.filter(|_| !placed.is_tied()) else {
            return Err(at_layer(placed, Error::Value("the layer has no parameters of its own".into())));
        };
        let weights = &mut self.registry.stores[store];
        let mut numerics = placed.numerics.clone();
        let mut lent = Vec::new();
        for part in parts {
            let known = weights.parameters();
            let Some(index) = known.iter().position(|info| info.name == part.name) else {
                let names = known.iter().map(|info| &*info.name);
                return Err(at_layer(placed, error::unknown("parameter", &part.name, names)));
            };
            if !known[index].morphable {
                let error = format!("\"{}\" is no weight of a product or a table", part.name);
                return Err(at_layer(placed, Error::Value(error)));
            }
            let chosen = Chosen {
                dtype: Some(part.dtype),
                numerics: Numerics { recipe: part.recipe, activations: None },
            };
            numerics = numerics.with(chosen, Some(&[part.name.as_str()]), weights)?;
            lent.push((index, part));
        }
        weights.lend(&lent).map_err(|error| at_layer(placed, error))?;
        self.layer_mut(cell, layer)?.numerics = numerics;
        self.invalidate();
        Ok(())
    }

    /// Whether weights of a layer are lent.
    pub(crate) fn has_lent(&self) -> bool {
        self.registry.stores.iter().any(|store| store.is_lent())
    }

    /// Makes the masters of what is lent to the layers that `choose` picks, and has them compute from those.
    ///
    /// # Errors
    /// [`Error::Memory`] where there is no memory for them.
    pub(crate) fn thaw_where(&mut self, choose: impl Fn(&PlacedLayer) -> bool) -> Result<()> {
        let mut thawed = false;
        for placed in self.cells.iter_mut().flatten().filter(|placed| !placed.is_tied() && choose(placed)) {
            let Some(store) = placed.store.map(|store| &mut self.registry.stores[store]) else { continue };
            if !store.is_lent() {
                continue;
            }
            store.thaw().map_err(|error| at_layer(placed, error))?;
            placed.numerics = LayerNumerics::default();
            thawed = true;
        }
        if thawed {
            self.registry.clear_gradients();
            self.restart_optimizer();
            self.invalidate();
        }
        Ok(())
    }

    /// [`thaw_where`](Network::thaw_where) for the layers that an optimizer will move.
    pub(crate) fn thaw_trained(&mut self) -> Result<()> {
        self.thaw_where(|placed| placed.trainable)
    }
}

//! What learning by targets leaves in a network, to look at and to set: velocities and feedback maps.

use crate::network::{Coordinates, Network, at_layer};
use crate::precision::in_precision;
use crate::simd::Real;
use crate::state::Registry;
use crate::tensor::{Tensor, TensorView};
use crate::{Error, Result, error};

impl Network {
    /// An optimizer's moment of a parameter, such as "velocity", in the outside layout; zeros before any
    /// update.
    ///
    /// # Errors
    /// [`Error::Index`] and [`Error::Value`] for a layer, parameter or moment that is not there.
    pub fn moment(&mut self, cell: Coordinates, layer: usize, name: &str, slot: &str) -> Result<Tensor> {
        self.synchronize()?;
        let (store, index) = self.find_parameter(cell, layer, name)?;
        let slots = self.optimizer_state.optimizer.slots();
        let number = slots
            .iter()
            .position(|known| *known == slot)
            .ok_or_else(|| error::unknown("moment", slot, slots.iter().copied()))?;
        in_precision!(self.precision, T => moment_of::<T>(&self.registry, [store, index], number))
    }

    /// The names of the parameters of a layer's feedback map; none where it has no map that learns.
    ///
    /// # Errors
    /// [`Error::Index`] for a layer that is not there.
    pub fn feedback_names(&self, cell: Coordinates, layer: usize) -> Result<Vec<String>> {
        let Some(store) = feedback_store(self, cell, layer)? else { return Ok(Vec::new()) };
        let parameters = self.registry.stores[store].parameters();
        Ok(parameters.iter().map(|info| info.name.to_string()).collect())
    }

    /// A parameter of a layer's feedback map, in the outside layout.
    ///
    /// # Errors
    /// [`Error::Index`] and [`Error::Value`] for a layer or name that is not there.
    pub fn feedback_parameter(&mut self, cell: Coordinates, layer: usize, name: &str) -> Result<Tensor> {
        self.synchronize()?;
        let (store, index) = find_feedback(self, cell, layer, name)?;
        self.registry.stores[store].get(index)
    }

    /// Sets a parameter of a layer's feedback map.
    ///
    /// # Errors
    /// [`Error::Shape`] and [`Error::NonFinite`] for values that do not fit, and as
    /// [`feedback_parameter`](Network::feedback_parameter).
    pub fn set_feedback_parameter(
        &mut self,
        cell: Coordinates,
        layer: usize,
        name: &str,
        values: TensorView<'_>,
    ) -> Result<()> {
        self.synchronize()?;
        let (store, index) = find_feedback(self, cell, layer, name)?;
        let outcome = self.registry.stores[store].set(index, &values);
        outcome.map_err(|error| match self.layer(cell, layer) {
            Ok(placed) => at_layer(placed, error),
            Err(error) => error,
        })
    }
}

fn moment_of<T: Real>(registry: &Registry, [store, index]: [usize; 2], slot: usize) -> Result<Tensor> {
    let info = &registry.stores[store].parameters()[index];
    let moment = registry.moments.get(store).and_then(|moments| moments.get(slot));
    let part = info.offset..info.offset + info.len();
    let flat = moment.map_or(vec![T::ZERO; info.len()], |moment| moment.as_slice::<T>()[part].to_vec());
    Tensor::new(info.layout.outside_shape(), info.layout.to_outside(&flat)?)
}

fn feedback_store(network: &Network, cell: Coordinates, layer: usize) -> Result<Option<usize>> {
    let path = &network.layer(cell, layer)?.path;
    let number = network.layers().position(|placed| placed.path == *path);
    Ok(number.and_then(|number| network.feedback.of(number)).map(|map| map.store))
}

fn find_feedback(network: &Network, cell: Coordinates, layer: usize, name: &str) -> Result<(usize, usize)> {
    let store = feedback_store(network, cell, layer)?.ok_or_else(|| match network.layer(cell, layer) {
        Ok(placed) => at_layer(placed, Error::State("the layer has no feedback map that learns".into())),
        Err(error) => error,
    })?;
    let parameters = network.registry.stores[store].parameters();
    let index = parameters
        .iter()
        .position(|info| info.name == name)
        .ok_or_else(|| error::unknown("parameter", name, parameters.iter().map(|info| &*info.name)))?;
    Ok((store, index))
}

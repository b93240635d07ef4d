//! Parameters and their gradients, looked at and set.

use super::Network;
use super::placed::{Coordinates, at_layer, describe_path};
use crate::dtype::Packing;
use crate::precision::in_precision;
use crate::simd::Real;
use crate::state::Registry;
use crate::tensor::{Shape, Tensor, TensorView};
use crate::weights::WeightStore;
use crate::{Error, Result, error, extents};
use std::borrow::Cow;

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

impl Network {
    /// The names of a layer's parameters; known once the network is built.
    ///
    /// # Errors
    /// [`Error::Index`] for a layer that is not there.
    pub fn parameter_names(&self, cell: Coordinates, layer: usize) -> Result<Vec<String>> {
        let placed = self.layer(cell, layer)?;
        // Those of another layer are named there.
        let names = placed.all_stores().flat_map(|store| self.registry.stores[store].parameters());
        Ok(names.map(|info| info.name.to_string()).collect())
    }

    /// Store and index of a parameter.
    pub(crate) fn find_parameter(
        &self,
        cell: Coordinates,
        layer: usize,
        name: &str,
    ) -> Result<(usize, usize)> {
        let placed = self.layer(cell, layer)?;
        let stores: Vec<usize> = placed.store.into_iter().chain(placed.adapter_stores()).collect();
        let named = |store: usize| self.registry.stores[store].parameters().iter();
        let found = stores
            .iter()
            .find_map(|store| named(*store).position(|info| info.name == name).map(|index| (*store, index)));
        found.ok_or_else(|| match stores.is_empty() {
            true => at_layer(
                placed,
                Error::Value(format!("the layer has no parameters, so none named \"{name}\"")),
            ),
            false => {
                let names = stores.iter().flat_map(|store| named(*store)).map(|info| &*info.name);
                at_layer(placed, error::unknown("parameter", name, names))
            }
        })
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

    /// Extents of a parameter in the outside layout, without a look at its numbers.
    ///
    /// # Errors
    /// [`Error::Index`] and [`Error::Value`] for a layer or name that is not there.
    pub fn parameter_shape(&self, cell: Coordinates, layer: usize, name: &str) -> Result<Shape> {
        let (store, index) = self.find_parameter(cell, layer, name)?;
        Ok(Shape::new(self.registry.stores[store].parameters()[index].layout.outside_shape()))
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
        // Before there is memory for what a setting says, which may be anything.
        let context = describe_path(self.layer(cell, layer)?);
        let in_place = |error| error::in_context(&context, error);
        self.registry.stores[store].check_shape(index, values.shape()).map_err(in_place)?;
        self.registry.stores[store].fill_bare()?;
        // A device knows no change of what is left of a master.
        if !(self.registry.stores[store].keeps(index) && self.device.is_host()) {
            self.thaw_where(|placed| placed.store == Some(store))?;
        }
        let before = self.registry.stores[store].get(index)?;
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
        in_precision!(self.precision, T => gradient_of::<T>(&self.registry, store, index))
    }
}

fn gradient_of<T: Real>(registry: &Registry, store: usize, index: usize) -> Result<Tensor> {
    let info = &registry.stores[store].parameters()[index];
    let flat = if registry.gradients_zeroed || registry.gradients.is_empty() {
        extents::zeros(info.len())?
    } else {
        extents::copied(&registry.gradient(store)?.as_slice::<T>()[info.offset..info.offset + info.len()])?
    };
    Tensor::new(info.layout.outside_shape(), info.layout.to_outside(&flat)?)
}

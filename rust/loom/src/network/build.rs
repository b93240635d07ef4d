//! Shape inference and initial weights.

use super::{Network, at_layer};
use crate::cpu::Cpu;
use crate::layers::ParameterSpec;
use crate::random::{Stream, Use};
use crate::tensor::{Precision, Shape};
use crate::weights::WeightStore;
use crate::{Error, Result};

impl Network {
    /// Infers every shape and makes initial weights for layers that have none yet.
    ///
    /// Building twice changes nothing. Layers whose parameters still fit keep them,
    /// so a network may grow after training.
    ///
    /// # Errors
    /// [`Error::Shape`] listing every layer whose input does not fit, with its cell, what it
    /// expected and what it got; [`Error::Value`] where there is no layer at all.
    pub fn build(&mut self) -> Result<()> {
        if self.built {
            return Ok(());
        }
        let shapes = self.infer_shapes()?;
        self.synchronize()?;
        let mut stores = Vec::new();
        let mut kept = Vec::new();
        let mut assigned = Vec::new();
        for (placed, (input, _)) in self.layers().zip(&shapes) {
            let specs = placed.layer.parameters(std::slice::from_ref(input));
            if specs.is_empty() {
                assigned.push(None);
                continue;
            }
            let existing = placed.store.filter(|store| fits(&self.registry.stores[*store], &specs));
            assigned.push(Some(stores.len()));
            kept.push(existing);
            stores.push(match existing {
                Some(_) => None,
                None => {
                    Some(self.initial_store(placed.path.hash32(), &specs).map_err(|e| at_layer(placed, e))?)
                }
            });
        }
        let mut old: Vec<Option<WeightStore>> = self.registry.stores.drain(..).map(Some).collect();
        self.registry.stores = stores
            .into_iter()
            .zip(kept)
            .map(|(fresh, existing)| fresh.or_else(|| old[existing?].take()))
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| Error::Internal("a weight store was lost while building".into()))?;
        self.registry.clear_gradients();
        self.registry.clear_moments();
        // Stores may have changed places: copies on a device are of the old ones.
        self.registry.place_on(&self.device);
        for ((placed, (input, output)), store) in self.cells.iter_mut().flatten().zip(shapes).zip(assigned) {
            placed.store = store;
            placed.input_shape = Some(input);
            placed.output_shape = Some(output);
        }
        self.built = true;
        self.invalidate();
        self.refresh_versions()
    }

    /// Input and output extents of every layer, in order.
    fn infer_shapes(&self) -> Result<Vec<(Shape, Shape)>> {
        let mut shape = self.input_shape.clone();
        let mut shapes = Vec::new();
        for placed in self.layers() {
            let output = placed
                .layer
                .output_shape(std::slice::from_ref(&shape))
                .map_err(|error| at_layer(placed, error))?;
            shapes.push((std::mem::replace(&mut shape, output.clone()), output));
        }
        if shapes.is_empty() {
            return Err(Error::Value("the network has no layer; add one to a cell first".into()));
        }
        Ok(shapes)
    }

    fn initial_store(&self, path: u32, specs: &[ParameterSpec]) -> Result<WeightStore> {
        let layouts: Vec<_> =
            specs.iter().map(|spec| (spec.name, spec.layout.clone(), spec.morphable)).collect();
        let mut store = match self.precision {
            Precision::Float32 => WeightStore::new::<f32>(&layouts),
            Precision::Float64 => WeightStore::new::<f64>(&layouts),
        }?;
        for (index, spec) in specs.iter().enumerate() {
            let (rows, columns) = spec.layout.storage_matrix();
            let stream = Stream::new(self.seed, index as u64, path, Use::Initialize);
            let mut values = vec![0.0; rows * columns];
            spec.initializer.fill(&stream, spec.fan_in, spec.fan_out, rows, columns, &mut values)?;
            store.set_storage(index, &values)?;
        }
        Ok(store)
    }

    /// Encodes anew every version that its master has left behind.
    pub(crate) fn refresh_versions(&mut self) -> Result<()> {
        for placed in self.cells.iter().flatten() {
            if let (Some(store), Some(_)) = (placed.store, placed.dtype) {
                self.registry.stores[store]
                    .refresh(Cpu::global()?)
                    .map_err(|error| at_layer(placed, error))?;
            }
        }
        Ok(())
    }
}

/// Whether a store has just these parameters.
fn fits(store: &WeightStore, specs: &[ParameterSpec]) -> bool {
    store.parameters().len() == specs.len()
        && store
            .parameters()
            .iter()
            .zip(specs)
            .all(|(have, want)| have.name == want.name && have.layout == want.layout)
}

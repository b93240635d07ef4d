//! Everything of a network that persists from step to step.

use crate::tensor::Buffer;
use crate::weights::WeightStore;

/// Masters and versions, gradients and optimizer moments: one entry a layer with parameters.
#[derive(Debug, Default)]
pub struct Registry {
    /// Trained, morphed and saved.
    pub(crate) stores: Vec<WeightStore>,
    /// The flat gradient of each store; empty until something is trained.
    pub(crate) gradients: Vec<Buffer>,
    /// The optimizer's moments of each store; saved on request.
    pub(crate) moments: Vec<Vec<Buffer>>,
    /// Whether all gradients are to be replaced by the next contribution.
    pub(crate) gradients_zeroed: bool,
}

impl Registry {
    /// The weight stores, in the order their layers are passed.
    pub fn stores(&self) -> &[WeightStore] {
        &self.stores
    }

    /// A number that grows with every change of a master.
    pub(crate) fn epoch(&self) -> u64 {
        self.stores.iter().map(WeightStore::epoch).sum()
    }

    /// Makes room for gradients, where there is none yet.
    pub(crate) fn prepare_gradients(&mut self, element: usize) {
        let sizes: Vec<usize> = self.stores.iter().map(|store| store.len() * element).collect();
        let fits = self.gradients.len() == sizes.len()
            && self.gradients.iter().zip(&sizes).all(|(buffer, size)| buffer.len_bytes() == *size);
        if !fits {
            self.gradients = sizes.iter().map(|size| Buffer::zeroed(*size)).collect();
            self.gradients_zeroed = true;
        }
    }

    /// Makes room for `slots` moments a store, zeroed; those that fit already keep their content.
    pub(crate) fn prepare_moments(&mut self, slots: usize, element: usize) {
        let sizes: Vec<usize> = self.stores.iter().map(|store| store.len() * element).collect();
        let fits = self.moments.len() == sizes.len()
            && self.moments.iter().zip(&sizes).all(|(moments, size)| {
                moments.len() == slots && moments.iter().all(|moment| moment.len_bytes() == *size)
            });
        if !fits {
            self.clear_moments();
            self.moments =
                sizes.iter().map(|size| (0..slots).map(|_| Buffer::zeroed(*size)).collect()).collect();
        }
    }

    /// Forgets all moments.
    pub(crate) fn clear_moments(&mut self) {
        self.moments.clear();
    }
}

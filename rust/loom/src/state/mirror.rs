//! Copies of what persists, on a device with memory of its own.

use super::Registry;
use crate::Result;
use crate::weights::WeightStore;
use std::any::Any;
use std::fmt::Debug;

/// What an engine keeps of a network's registry in memory of its own, and may be newer there.
///
/// Each side knows how new its content is by the stores' epochs: an older copy is remade before
/// use, so neither side can read stale weights.
pub trait Mirror: Any + Debug + Send {
    /// The host has changed its gradients, or dropped them.
    fn forget_gradients(&mut self);

    /// The host has changed its moments, or dropped them.
    fn forget_moments(&mut self);

    /// The host has changed what layers keep.
    fn forget_states(&mut self);

    /// Whether anything here is newer than what the host has.
    fn is_ahead(&self) -> bool;

    /// Whether masters here are newer than the host's.
    fn masters_ahead(&self) -> bool;

    /// Whether gradients here are newer than the host's.
    fn gradients_ahead(&self) -> bool;

    /// A copy of a store with the master that is here.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) where the device was lost.
    fn current(&self, index: usize, store: &WeightStore) -> Result<WeightStore>;

    /// Reads a store's gradient back.
    ///
    /// # Errors
    /// As [`current`](Self::current).
    fn current_gradient(&self, index: usize, bytes: &mut [u8]) -> Result<()>;

    /// Reads back something kept beside the parameters, where this has the newer one.
    ///
    /// # Errors
    /// As [`current`](Self::current).
    fn current_state(&self, number: usize, elements: usize, bytes: &mut [u8]) -> Result<()>;

    /// Brings everything that is newer here back to the host.
    ///
    /// # Errors
    /// As [`current`](Self::current); the host then has what was last read back.
    fn synchronize(&mut self, registry: &mut Registry) -> Result<()>;
}

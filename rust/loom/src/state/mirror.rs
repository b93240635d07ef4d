//! What an engine with memory of its own keeps of a network there.

use super::registry::Registry;
use crate::Result;
use crate::shader::Allocation;
use crate::tensor::Buffer;
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
    /// [`Error::Device`] where the device was lost.
    fn current(&self, index: usize, store: &WeightStore) -> Result<WeightStore>;

    /// Reads a store's gradient back.
    ///
    /// # Errors
    /// As [`current`](Self::current).
    fn current_gradient(&self, index: usize, bytes: &mut [u8]) -> Result<()>;

    /// Reads all gradients back at once, where they are newer here.
    ///
    /// # Errors
    /// As [`current`](Self::current).
    fn fetch_gradients(&mut self, gradients: &mut [Buffer]) -> Result<()>;

    /// Begins to read these stores' gradients back, each of so many elements, one behind the other, as they are once all that was asked of the
    /// device so far has ended; `None` where the host has the newest.
    ///
    /// # Errors
    /// As [`current`](Self::current).
    fn begin_fetch(&self, stores: &[(usize, usize)]) -> Result<Option<Box<dyn Fetch>>>;

    /// Room for gradients to wait in on this device, for who adds up several; it goes with who asked for it.
    fn waiting_gradients(&self) -> Box<dyn WaitingGradients>;

    /// The newest gradients of those of these stores, each of so many elements, that have any here.
    ///
    /// # Errors
    /// [`Error::Internal`] where the host has the newest.
    fn gradients_of(&self, stores: &[(usize, usize)]) -> Result<Vec<DeviceGradient>>;

    /// Takes note that gradients were changed here.
    fn note_gradients(&mut self);

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

/// A gradient on a device.
#[derive(Clone, Debug)]
pub struct DeviceGradient {
    /// The store that it is of.
    pub store: usize,
    /// How many numbers it has.
    pub elements: usize,
    /// Where they are.
    pub memory: Allocation,
}

/// Gradients that wait on a device for others, to be added to them.
pub trait WaitingGradients: Debug + Send + Sync {
    /// Copies gradients to where they wait, on top of what waits already.
    ///
    /// # Errors
    /// [`Error::Device`] where the device was lost or has no memory for them.
    fn lay_aside(&mut self, gradients: Vec<DeviceGradient>) -> Result<()>;

    /// Makes these gradients what the newest that wait come to with them.
    ///
    /// # Errors
    /// As [`lay_aside`](Self::lay_aside); [`Error::Internal`] where none wait, or those of other weights.
    fn add_to(&mut self, gradients: Vec<DeviceGradient>) -> Result<()>;

    /// Lets go of what waits, after a step that has failed, say.
    fn forget(&mut self);
}

/// What is on its way from a device.
pub trait Fetch: Debug {
    /// Waits for it, and hands its bytes over.
    ///
    /// # Errors
    /// [`Error::Device`] where the device was lost.
    fn finish(self: Box<Self>, take: &mut dyn FnMut(&[u8])) -> Result<()>;
}

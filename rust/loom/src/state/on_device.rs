//! What lies on a device, and what comes from there.

use crate::Result;
use crate::shader::Allocation;
use std::fmt::Debug;

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
    /// [`Error::Device`](crate::Error::Device) where the device was lost or has no memory for them.
    fn lay_aside(&mut self, gradients: Vec<DeviceGradient>) -> Result<()>;

    /// Makes these gradients what the newest that wait come to with them.
    ///
    /// # Errors
    /// As [`lay_aside`](Self::lay_aside); [`Error::Internal`](crate::Error::Internal) where none wait, or those of
    /// other weights.
    fn add_to(&mut self, gradients: Vec<DeviceGradient>) -> Result<()>;

    /// Lets go of what waits, after a step that has failed, say.
    fn forget(&mut self);
}

/// What is on its way from a device.
pub trait Fetch: Debug {
    /// Waits for it, and hands its bytes over.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) where the device was lost.
    fn finish(self: Box<Self>, take: &mut dyn FnMut(&[u8])) -> Result<()>;
}

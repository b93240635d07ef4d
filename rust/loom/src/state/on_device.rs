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

    /// Makes these gradients, some of those that wait, what they come to with them: the newest that wait where
    /// `below` is 0, those that have waited before them where it is 1.
    ///
    /// # Errors
    /// As [`lay_aside`](Self::lay_aside); [`Error::Internal`](crate::Error::Internal) where none wait, or those of
    /// other weights.
    fn add_to(&mut self, gradients: &[DeviceGradient], below: usize) -> Result<()>;

    /// Lets go of the newest so many that wait, once they have been added.
    fn release(&mut self, count: usize);

    /// Lets go of what waits, after a step that has failed, say.
    fn forget(&mut self);
}

/// What is on its way from a device.
pub trait Fetch: Debug + Send {
    /// Waits for it.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) where the device was lost.
    fn land(self: Box<Self>) -> Result<Box<dyn Landed>>;
}

/// What has come from a device, in memory that the next takes once nobody reads it any more.
pub trait Landed: Debug + Send + Sync {
    /// Its bytes.
    fn bytes(&self) -> &[u8];
}

/// The bytes that one thread at a time writes of what goes to a device.
pub const PIECE_BYTES: usize = 1 << 17;

/// What is to go to a device, in memory that it is copied from.
pub trait Outbound: Debug + Send + Sync {
    /// Writes bytes from a place on. Several threads may, each in pieces of [`PIECE_BYTES`] of its own.
    fn put(&self, at: usize, bytes: &[u8]);

    /// Has the device take all of it, once all that was asked of it so far has ended.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) where the device was lost.
    fn send(self: Box<Self>) -> Result<()>;
}

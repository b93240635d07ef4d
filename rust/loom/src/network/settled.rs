//! A network whose weights and states are where they are read, for whoever stores or copies them beside others that read.

use super::Network;
use crate::{Error, Result};

/// A network that is built and has nothing newer on a GPU than on the host.
#[derive(Clone, Copy, Debug)]
pub struct Settled<'a>(pub(crate) &'a Network);

impl Network {
    /// The network, where it is built and nothing is newer on a GPU: [`build`](Network::build) and
    /// [`synchronize`](Network::synchronize) make it so.
    ///
    /// # Errors
    /// [`Error::State`] where it is not.
    pub fn settled(&self) -> Result<Settled<'_>> {
        match self.is_built() && self.is_synchronized() {
            true => Ok(Settled(self)),
            false => Err(Error::State("the network is not built, or its weights are newer on a GPU".into())),
        }
    }

    /// The same, made so first.
    pub(crate) fn settle(&mut self) -> Result<Settled<'_>> {
        self.build()?;
        self.synchronize()?;
        Ok(Settled(self))
    }
}

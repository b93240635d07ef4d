//! A state of learning by targets, in a file with its network.

use super::SaveOptions;
use crate::Result;
use crate::network::{KeptStep, Network};
use crate::train::TweenState;
use std::path::Path;

impl TweenState {
    /// Saves the network with all that learning goes on from, and what the newest step's layers made:
    /// whoever makes a state of the loaded network with `resume` finds it there, and goes on bit for bit.
    ///
    /// A step that was begun is begun anew from there.
    ///
    /// # Errors
    /// As [`Network::save`].
    pub fn save(&mut self, network: &mut Network, path: impl AsRef<Path>) -> Result<()> {
        network.kept_step = self.kept_step()?;
        let outcome = network.save(path, SaveOptions::resumable());
        network.kept_step = KeptStep::default();
        outcome
    }
}

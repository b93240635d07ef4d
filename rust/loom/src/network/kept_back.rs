//! What a network goes back to where the device that has its newest weights is lost.
//!
//! Weights that learn on a device are there alone until somebody looks at them. What was brought back then is all
//! that is left after a loss: weights, moments and what layers keep are of one step, so the counters of that step, and
//! what layers carried then, are kept beside them, and the network goes back to all of it or to nothing.

use super::measures::Measures;
use crate::state::{CarriedCopy, OptimizerState};

/// What belongs to what the host has.
#[derive(Debug)]
pub(crate) struct KeptBack {
    pub(super) state: OptimizerState,
    pub(super) measures: Measures,
    /// What layers carried from batch to batch, which is on the device alone.
    pub(super) carried: Option<CarriedCopy>,
}

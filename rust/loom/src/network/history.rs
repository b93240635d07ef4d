//! The newest pass with history.

use super::predict::ProgramKey;
use crate::ops::StepValues;
use crate::program::Run;

/// The newest pass of [`forward`](Network::forward) or [`forward_inference`](Network::forward_inference): kept
/// for `backward`, and to be looked at.
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) key: ProgramKey,
    pub(crate) run: Run,
    /// What it brought along: on the way back draws are made once more.
    pub(crate) values: StepValues,
    /// Its number among all passes through the network.
    pub(crate) pass: u64,
    /// Whether what layers keep, such as running statistics, may have moved since.
    pub(crate) states_moved: bool,
}

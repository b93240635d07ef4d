//! What a training keeps in the registry beside weights: where measures are, bounds of masters, copies.

use super::place::Place;
use crate::ops::measure::MeasureMemory;
use crate::ops::update::Reach;
use crate::tensor::Buffer;

/// The numbers, among what the registry keeps, of a watched training's memory.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WatchPlaces {
    /// Where everything is in the memory of the measures.
    pub(crate) memory: MeasureMemory,
    /// The memory of the measures.
    pub(crate) measures: usize,
    /// For each store, the copies of its master and of its moments but velocities; none where it is not
    /// copied.
    pub(crate) copies: Vec<Vec<usize>>,
}

/// What is known of a store without looking at it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownReach {
    /// The master's epoch that it is of.
    pub(crate) epoch: u64,
    pub(crate) reach: Reach,
}

/// Copies of what layers keep and carry, to put back; memory that is kept from step to step.
#[derive(Debug, Default)]
pub(crate) struct StateCopies {
    pub(crate) held: Vec<(Place, Buffer)>,
    pub(crate) used: usize,
}

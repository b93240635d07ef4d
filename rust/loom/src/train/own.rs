//! What one process has of a step that several share.

use super::buckets::Sums;
use super::units::Unit;
use crate::ops::StepValues;

/// What this process has of a step: sums of its shards' gradients, all but those of the last shard, which is yet to go
/// backwards; and what the shards have come to.
pub(super) struct Own<T> {
    pub(super) sums: Sums<T>,
    pub(super) last: Option<Last<T>>,
    pub(super) units: Vec<Unit<T>>,
}

/// A shard that has gone forwards.
pub(super) struct Last<T> {
    /// The part of the tree that it completes, and the sums that are added to its gradient, the last one first.
    pub(super) node: (usize, usize),
    pub(super) lefts: Vec<Vec<T>>,
    /// How many of these sums wait on a device instead.
    pub(super) aside: usize,
    pub(super) values: StepValues,
}

//! What threads of one process bring of a bucket, to be added up by one of them.

use super::summing::Node;
use crate::Result;
use crate::state::{Landed, Outbound};

/// What one thread brings.
#[derive(Debug)]
pub struct Joint {
    /// Sums over parts of the tree.
    pub(super) sums: Vec<(Node, Box<dyn Landed>)>,
    /// Where the sum over all is to be.
    pub(super) into: Box<dyn Outbound>,
}

/// What is done with what all have brought.
pub type Work<'a> = dyn Fn(&[Joint]) -> Result<()> + 'a;

//! What is added to scores by how far a key is from a query.

use crate::{Result, extents};
use std::fmt;
use std::sync::Arc;

/// What is added to the score of a query and a key, before it is capped, by the distance of their places.
#[derive(Clone, Debug, PartialEq)]
pub enum PositionBias {
    /// Minus the distance times a slope, one for each head (Press et al. 2022).
    Slopes(Arc<[f64]>),
    /// A number of a table that is an operand (Raffel et al. 2020).
    Buckets(Arc<Buckets>),
}

/// Which row of a table (buckets, heads) each distance takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buckets {
    /// Rows of the table.
    pub count: usize,
    /// Places that queries and keys may stand at.
    places: usize,
    /// A row for each `key - query`, from `-(places - 1)` on.
    rows: Vec<u32>,
}

impl Buckets {
    /// The rows of a table of `count`, where `row` gives that of each `key - query` of so many places.
    ///
    /// # Errors
    /// [`Error::Memory`](crate::Error::Memory) where there is no memory for them.
    pub fn new(count: usize, places: usize, row: impl Fn(isize) -> usize) -> Result<Self> {
        let mut rows: Vec<u32> = extents::zeros(places.saturating_mul(2).saturating_sub(1))?;
        for (distance, place) in (1 - places as isize..).zip(&mut rows) {
            *place = row(distance) as u32;
        }
        Ok(Self { count, places, rows })
    }

    /// The rows of all distances, and where that of distance 0 is.
    pub(super) fn rows(&self) -> (&[u32], usize) {
        (&self.rows, self.places - 1)
    }
}

impl PositionBias {
    /// The rows that distances take of a table, where there is one.
    pub(super) fn buckets(&self) -> Option<&Buckets> {
        match self {
            Self::Slopes(_) => None,
            Self::Buckets(buckets) => Some(buckets),
        }
    }
}

impl fmt::Display for PositionBias {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slopes(_) => write!(f, "slopes"),
            Self::Buckets(buckets) => write!(f, "buckets {}", buckets.count),
        }
    }
}

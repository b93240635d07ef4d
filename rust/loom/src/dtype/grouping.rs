//! Which elements of a parameter share a scale.

use crate::{Error, Result};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::str::FromStr;

/// Which elements share a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Granularity {
    /// There is no scale.
    Unscaled,
    /// The whole parameter.
    Tensor,
    /// The weights of one output.
    Channel,
    /// So many inputs of one output that follow each other; the last may be fewer.
    Block(usize),
}

impl fmt::Display for Granularity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Granularity::Unscaled => f.write_str("none"),
            Granularity::Tensor => f.write_str("tensor"),
            Granularity::Channel => f.write_str("channel"),
            Granularity::Block(elements) => write!(f, "block({elements})"),
        }
    }
}

impl FromStr for Granularity {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let elements = || text.strip_prefix("block(")?.strip_suffix(')')?.trim().parse().ok();
        match text {
            "tensor" => Ok(Granularity::Tensor),
            "channel" => Ok(Granularity::Channel),
            "none" => Ok(Granularity::Unscaled),
            _ => elements().filter(|elements| *elements > 0).map(Granularity::Block).ok_or_else(|| {
                Error::Value(format!(
                    "unknown granularity \"{text}\"; use \"channel\", \"tensor\", or \"block(n)\" for a scale \
                     for each n inputs of an output"
                ))
            }),
        }
    }
}

impl Serialize for Granularity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Granularity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// A row-major matrix whose columns are the output channels, and which of its elements share a scale.
#[derive(Clone, Copy)]
pub(super) struct Extents {
    pub granularity: Granularity,
    pub rows: usize,
    pub channels: usize,
}

impl Extents {
    /// Rows and columns of the matrix that groups of so many rows of a column cut.
    pub fn groups_grid(&self) -> (usize, usize, usize) {
        let elements = self.rows * self.channels;
        match self.granularity {
            // One long column.
            Granularity::Tensor => (elements, 1, elements.max(1)),
            Granularity::Block(rows) => (self.rows, self.channels, rows.clamp(1, self.rows.max(1))),
            Granularity::Channel | Granularity::Unscaled => (self.rows, self.channels, self.rows.max(1)),
        }
    }
}

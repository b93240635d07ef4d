//! Inputs and outputs that have names, as files keep them.

use super::Coordinates;
use crate::tensor::Shape;
use serde::{Deserialize, Serialize};

/// An input with a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedInput {
    /// What it is called.
    pub name: String,
    /// Extents of one sample.
    pub shape: Shape,
    /// The cell it enters; the first input enters the first cell unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<Coordinates>,
    /// What its elements, which are whole numbers, must be below; they are real numbers where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub categories: Option<usize>,
}

/// What a cell hands on, as an output with a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedOutput {
    /// What it is called.
    pub name: String,
    /// The cell it comes from.
    pub cell: Coordinates,
}

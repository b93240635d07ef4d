//! Inputs and outputs that have names, as files keep them.

use super::Coordinates;
use crate::tensor::Shape;
use serde::{Deserialize, Serialize};

/// An input with a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Described", into = "Described")]
pub struct NamedInput {
    /// What it is called.
    pub name: String,
    /// Extents of one sample; on axes that are not fixed, those of the newest call.
    pub shape: Shape,
    /// The axes that have no fixed extent, in order.
    pub open: Vec<usize>,
    /// The cell it enters; the first input enters the first cell unless told otherwise.
    pub cell: Option<Coordinates>,
    /// What its elements, which are whole numbers, must be below; they are real numbers where none is given.
    pub categories: Option<usize>,
}

/// An input as files tell of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Described {
    name: String,
    /// `None` where an extent is not fixed.
    shape: Vec<Option<usize>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cell: Option<Coordinates>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    categories: Option<usize>,
}

impl From<Described> for NamedInput {
    fn from(Described { name, shape, cell, categories }: Described) -> Self {
        let open = shape.iter().enumerate().filter_map(|(axis, extent)| extent.is_none().then_some(axis));
        let open = open.collect();
        let shape = Shape::new(shape.into_iter().map(|extent| extent.unwrap_or(1)).collect::<Vec<_>>());
        Self { name, shape, open, cell, categories }
    }
}

impl From<NamedInput> for Described {
    fn from(input: NamedInput) -> Self {
        let shape = input.told_extents();
        Self { name: input.name, shape, cell: input.cell, categories: input.categories }
    }
}

impl NamedInput {
    /// Its extents, `None` where they are not fixed.
    pub fn told_extents(&self) -> Vec<Option<usize>> {
        let told = |(axis, extent): (usize, &usize)| (!self.open.contains(&axis)).then_some(*extent);
        self.shape.iter().enumerate().map(told).collect()
    }

    /// Whether its first axis, time, has no fixed extent, and the others have one.
    pub(super) fn is_of_time(&self) -> bool {
        self.open[..] == [0]
    }
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

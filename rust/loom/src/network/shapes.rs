//! Extents all over a network, and which of its input's are not fixed.

use crate::tensor::Shape;

/// The most axes of an input that has some of no fixed extent.
pub(super) const MOST_AXES: usize = 4;

/// Extents of what a layer reads and makes.
pub(crate) struct LayerShapes {
    pub(crate) inputs: Vec<Shape>,
    pub(crate) output: Shape,
}

/// Extents all over a network.
pub(crate) struct NetworkShapes {
    /// In the order data flows.
    pub(crate) layers: Vec<LayerShapes>,
    /// Of what each cell hands on.
    pub(crate) cells: Vec<Shape>,
}

/// The extents that programs are for.
pub(crate) type ExtentsKey = [usize; MOST_AXES];

/// The axes of an input that have no fixed extent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Variable {
    pub(super) axes: Vec<usize>,
    /// Whether rows hold several sequences, and begin with the number of each step's.
    pub(super) packed: bool,
    /// Why rows of one call must have the same length; known once built.
    pub(super) equal: Option<String>,
}

//! Extents all over a network, and which of its input's are not fixed.

use crate::tensor::Shape;

/// The most axes of an input that has some of no fixed extent; of inputs with names the most axes that have none, in
/// all of them together.
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

/// Extents of what enters: of a row of all inputs, and of each input that has a name.
#[derive(Clone)]
pub(crate) struct InputShapes {
    pub(crate) row: Shape,
    pub(crate) named: Vec<Shape>,
}

/// The extents that programs are for.
pub(crate) type ExtentsKey = [usize; MOST_AXES];

/// Whose steps flow where; lengths are counted from 0 on, in the order of the first input that each is of.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StepFlow {
    /// The length of each input, of the one without a name where none has one; `None` where it is fixed.
    pub(crate) inputs: Vec<Option<usize>>,
    /// The length of what arrives in each cell, behind what enters there and all links; `None` for what has no steps.
    pub(crate) arriving: Vec<Option<usize>>,
    /// The length of what each cell hands on.
    pub(crate) leaving: Vec<Option<usize>>,
    /// How many lengths there are.
    pub(crate) count: usize,
}

/// The axes of an input without a name that have no fixed extent, and what becomes of time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Variable {
    pub(super) axes: Vec<usize>,
    /// Whether rows hold several sequences, and begin with the number of each step's.
    pub(super) packed: bool,
    /// Why rows of one call must have the same length; known once built.
    pub(super) equal: Option<String>,
    /// Whose steps flow where, if rows of one call may have different lengths; known once built.
    pub(super) flow: StepFlow,
}

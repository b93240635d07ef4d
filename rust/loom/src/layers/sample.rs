//! What a layer is tried on.

use super::Layer;
use crate::tensor::Shape;
use std::sync::Arc;

/// A layer with the shape of an input that fits it.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The layer.
    pub layer: Arc<dyn Layer>,
    /// Extents of one row of its input.
    pub input: Shape,
    /// Extents of one row of its second input, where it takes one.
    pub context: Option<Shape>,
    /// Whether it runs inside a mask over its time axis.
    pub masked: bool,
    /// How far results on a GPU may be from the CPU's, as a fraction of the largest magnitude.
    pub tolerance: f64,
}

/// The samples of a layer that there is for one, two and three axes: all of them for images, and for the others, which
/// take the same way, the first ones.
pub(super) fn by_axes<const N: usize>(mut all: Vec<Sample>, first: usize) -> Vec<Sample> {
    if N != 2 {
        all.truncate(first);
    }
    all
}

impl Sample {
    /// A layer on inputs of this shape.
    pub fn new(layer: impl Layer + 'static, input: impl Into<Shape>) -> Self {
        Self { layer: Arc::new(layer), input: input.into(), context: None, masked: false, tolerance: 5e-5 }
    }

    /// With a second input of this shape.
    pub fn context(self, shape: impl Into<Shape>) -> Self {
        Self { context: Some(shape.into()), ..self }
    }

    /// Inside a mask: some steps are padding.
    pub fn masked(self) -> Self {
        Self { masked: true, ..self }
    }

    /// With another tolerance between devices, for a stated reason.
    pub fn tolerance(self, tolerance: f64) -> Self {
        Self { tolerance, ..self }
    }
}

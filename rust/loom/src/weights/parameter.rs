//! What a store knows of one parameter.

use super::layout::Layout;
use crate::dtype::{DType, Packing};
use std::borrow::Cow;

/// One parameter's place in the flat master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterInfo {
    /// Its name in the layer.
    pub name: Cow<'static, str>,
    /// How it is stored and seen.
    pub layout: Layout,
    /// Whether it takes on the layer's numeric type, and is read packed; others are packed where they are
    /// asked for by name, and decoded before they are read.
    pub morphable: bool,
    /// Where it starts in the flat master, in elements.
    pub offset: usize,
}

impl ParameterInfo {
    /// How many elements it has.
    pub fn len(&self) -> usize {
        let (rows, columns) = self.layout.storage_matrix();
        rows * columns
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many output channels it has: columns as stored.
    pub fn channels(&self) -> usize {
        self.layout.storage_matrix().1
    }

    /// How it is packed in a type, with the type's own granularity.
    ///
    /// What is no weight of products and has one row, such as a bias, is packed as if it were what one output
    /// reads: its elements share scales as the inputs of an output do.
    pub fn packing(&self, dtype: DType) -> Packing {
        match (self.layout.storage_matrix(), self.morphable) {
            ((1, elements), false) => Packing::new(dtype, elements, 1),
            ((rows, channels), _) => Packing::new(dtype, rows, channels),
        }
    }
}

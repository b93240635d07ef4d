//! What stands in a network's file beside the network.

use super::tensors::{Entry, real_element};
use crate::tensor::{Buffer, Precision};

/// One entry of the metadata, with tensors of the network's precision.
pub(crate) struct Extra {
    pub(super) key: &'static str,
    metadata: String,
    tensors: Vec<(String, Vec<usize>, Buffer)>,
}

impl Extra {
    /// Without tensors yet.
    pub(crate) fn new(key: &'static str, metadata: String) -> Self {
        Self { key, metadata, tensors: Vec::new() }
    }

    /// The entry of the metadata.
    pub(crate) fn metadata(&self) -> &str {
        &self.metadata
    }

    /// Adds a tensor.
    pub(crate) fn add(&mut self, name: String, shape: Vec<usize>, content: Buffer) {
        self.tensors.push((name, shape, content));
    }

    /// The tensors, on their way into a file.
    pub(super) fn entries(&self, precision: Precision) -> impl Iterator<Item = (String, Entry<'_>)> {
        self.tensors.iter().map(move |(name, shape, content)| {
            (name.clone(), Entry::bytes(real_element(precision), shape.clone(), content.bytes()))
        })
    }
}

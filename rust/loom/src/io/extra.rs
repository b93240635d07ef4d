//! What stands in a network's file beside the network.

use super::tensors::{Entry, real_dtype, unreadable};
use crate::tensor::{Buffer, Precision};
use crate::{Error, Result};
use safetensors::{Dtype, SafeTensors};

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
    pub(super) fn entries(self, dtype: Dtype) -> impl Iterator<Item = (String, Entry)> {
        self.tensors.into_iter().map(move |(name, shape, content)| {
            (name, Entry { dtype, shape, bytes: content.bytes().to_vec() })
        })
    }

    /// What a file's bytes hold under this key; `None` where there is nothing.
    ///
    /// # Errors
    /// [`Error::Serialization`] for bytes that are damaged.
    pub(crate) fn read<'a>(bytes: &'a [u8], key: &str) -> Result<Option<Found<'a>>> {
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(unreadable)?;
        let tensors = SafeTensors::deserialize(bytes).map_err(unreadable)?;
        let metadata = header.metadata().as_ref().and_then(|metadata| metadata.get(key).cloned());
        Ok(metadata.map(|metadata| Found { metadata, tensors }))
    }
}

/// What a file holds.
pub(crate) struct Found<'a> {
    metadata: String,
    tensors: SafeTensors<'a>,
}

impl<'a> Found<'a> {
    /// The entry of the metadata.
    pub(crate) fn metadata(&self) -> &str {
        &self.metadata
    }

    /// A tensor's bytes, which are to be so many.
    ///
    /// # Errors
    /// [`Error::Serialization`] where it is not there, or of another type or size.
    pub(crate) fn tensor(&self, name: &str, precision: Precision, bytes: usize) -> Result<&'a [u8]> {
        let saved = self.tensors.tensor(name).map_err(unreadable)?;
        if saved.dtype() != real_dtype(precision) || saved.data().len() != bytes {
            return Err(Error::Serialization(format!("\"{name}\" does not fit the network in the file")));
        }
        Ok(saved.data())
    }
}

//! What a header says, of whatever format, and what is checked of it.

use super::element::ElementType;
use super::value::Value;
use crate::{Error, Result};
use std::fmt;
use std::ops::Range;

/// What a file of tensors is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A JSON header and bytes, by Hugging Face.
    Safetensors,
    /// Metadata and packed tensors, by llama.cpp.
    Gguf,
}

impl Format {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Format::Safetensors => "safetensors",
            Format::Gguf => "gguf",
        }
    }
}

/// What is known of a tensor without looking at its elements.
#[derive(Clone, Debug)]
pub struct TensorInfo {
    /// What the file calls it.
    pub name: String,
    /// Its extents, the axis whose elements lie side by side last.
    pub shape: Vec<usize>,
    /// What its elements are.
    pub element: ElementType,
    /// Which part of the file its bytes are in, and where.
    pub(super) storage: usize,
    pub(in crate::io) range: Range<usize>,
    /// What their checksum is to be, where the file says it.
    pub(in crate::io) checksum: Option<u32>,
}

impl TensorInfo {
    /// How many bytes it takes in the file.
    pub fn bytes(&self) -> usize {
        self.range.len()
    }

    /// The error of bytes that were not saved so.
    pub(in crate::io) fn changed(&self) -> Error {
        damaged(format_args!(
            "the file is damaged: the bytes of \"{}\" are not those that were saved",
            self.name
        ))
    }
}

/// What a header says.
pub(in crate::io) struct Contents {
    pub(super) format: Format,
    pub(in crate::io) metadata: Vec<(String, Value)>,
    pub(in crate::io) tensors: Vec<TensorInfo>,
}

/// Checks that tensors are as long as their extents say, lie within the file, and apart from each other; without
/// gaps where `dense`. Returns where the last one ends.
pub(super) fn check_extents(tensors: &[TensorInfo], start: usize, len: usize, dense: bool) -> Result<usize> {
    let mut order: Vec<&TensorInfo> = tensors.iter().collect();
    order.sort_unstable_by_key(|tensor| (tensor.range.start, tensor.range.end));
    let mut end = start;
    for TensorInfo { name, shape, element, range, .. } in order {
        let bytes = range.end.checked_sub(range.start);
        if bytes.is_none() || bytes != element.bytes(shape) {
            return Err(damaged(format_args!(
                "\"{name}\" of extents {shape:?} and type {} has other bytes than those: {range:?}",
                element.name()
            )));
        }
        if range.end > len {
            return Err(damaged(format_args!("\"{name}\" lies beyond the end of the file")));
        }
        if range.start < end {
            return Err(damaged(format_args!("\"{name}\" overlaps another tensor")));
        }
        if dense && range.start != end {
            return Err(damaged(format_args!("bytes before \"{name}\" belong to no tensor")));
        }
        end = range.end;
    }
    Ok(end)
}

/// The error of a file that is not what it should be.
pub(in crate::io) fn damaged(message: impl fmt::Display) -> Error {
    Error::Serialization(message.to_string())
}

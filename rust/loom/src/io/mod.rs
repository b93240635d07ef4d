//! Files: checkpoints in safetensors; tensors by other programs.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)]

mod atomic;
mod calibrated;
mod checkpoint;
mod content;
mod extra;
mod fitting;
mod leftovers;
#[allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "it turns rows round that are known to be there, and parses nothing"
)]
mod lending;
mod source;
mod tensor_file;
mod tensors;
mod tween;
mod watched;

pub use checkpoint::{FORMAT, LoadOptions, SaveOptions};
pub use lending::FileRows;
pub use tensor_file::{
    ElementType, Format, NumberType, TensorFile, TensorInfo, TensorSpec, Value, Values, decode, encode,
    write_gguf, write_safetensors,
};

pub(crate) use checkpoint::{bytes_with, from_source, write_with};
pub(crate) use extra::Extra;
pub(crate) use source::Source;

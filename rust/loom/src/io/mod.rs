//! Files: checkpoints in safetensors; tensors by other programs.

mod atomic;
mod calibrated;
mod checkpoint;
mod content;
mod extra;
mod lending;
mod tensor_file;
mod tensors;
mod tween;
mod watched;

pub use checkpoint::{FORMAT, SaveOptions};
pub use lending::FileRows;
pub use tensor_file::{
    ElementType, Format, NumberType, TensorFile, TensorInfo, TensorSpec, Value, Values, decode, encode,
    write_gguf, write_safetensors,
};

pub(crate) use atomic::write;
pub(crate) use checkpoint::bytes_with;
pub(crate) use extra::Extra;

//! Files: checkpoints in safetensors.

mod atomic;
mod calibrated;
mod checkpoint;
mod content;
mod extra;
mod tensors;
mod tween;
mod watched;

pub use checkpoint::{FORMAT, SaveOptions};

pub(crate) use atomic::write;
pub(crate) use checkpoint::bytes_with;
pub(crate) use extra::Extra;

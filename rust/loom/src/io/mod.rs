//! Files: checkpoints in safetensors.

mod atomic;
mod calibrated;
mod checkpoint;
mod content;
mod extra;
mod tween;
mod watched;

pub use checkpoint::{FORMAT, SaveOptions};

pub(crate) use atomic::write;
pub(crate) use extra::Extra;

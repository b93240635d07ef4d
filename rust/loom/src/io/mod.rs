//! Files: checkpoints in safetensors.

mod atomic;
mod checkpoint;
mod watched;

pub use checkpoint::{FORMAT, SaveOptions};

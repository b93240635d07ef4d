//! Files: checkpoints in safetensors.

mod atomic;
mod checkpoint;

pub use checkpoint::{FORMAT, SaveOptions};

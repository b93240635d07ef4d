//! A neural-network engine: a 3-D grid of cells that hold layers, weights in
//! one full-precision master and any number of packed low-bit versions, the
//! same bits on every CPU.

mod error;
mod tensor;

pub mod cpu;
pub mod dtype;
pub mod layers;
pub mod network;
pub mod ops;
pub mod program;
pub mod random;
pub mod train;

pub use error::{Error, Result};
pub use tensor::{Buffer, Precision, Shape};

//! Running programs on the CPU: instruction sets, vectors, threads and kernels.

mod isa;
mod real;
pub mod simd;

pub use isa::{Isa, Level};
pub use real::Real;
pub use simd::{Elementwise, Kernel, LANES, Vector};

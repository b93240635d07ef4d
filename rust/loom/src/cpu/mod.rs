//! Running programs on the CPU: instruction sets, vectors, threads, and the step loop.

mod args;
mod context;
mod execute;
mod float_control;
mod isa;
pub mod math;
mod pool;
pub mod product;
mod real;
pub mod simd;

pub use args::{Args, MAX_READS, MAX_WRITES, StepValues, View};
pub use context::Cpu;
pub(crate) use execute::resolve;
pub use execute::{Access, Part, PartOwner, execute};
pub use float_control::FloatControl;
pub use isa::{Isa, Level};
pub use math::Math;
pub use pool::{MAX_THREADS, Pool, THREADS_VARIABLE};
pub use real::Real;
pub use simd::{Elementwise, Kernel, LANES, Vector};

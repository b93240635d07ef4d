//! Functions of one element: the activations and their derivatives.

mod activation;
mod arithmetic;
mod cpu;
mod gpu;
mod op;
mod table;
#[cfg(test)]
mod tests;
#[cfg_attr(not(feature = "gpu"), allow(dead_code, reason = "only devices read its text"))]
pub(in crate::ops) mod wgsl;

pub use arithmetic::Arithmetic;
pub use cpu::{apply, apply_in_place, backward, derive_in_place, forward};
pub use op::Pointwise;
pub use table::{Activation, Function, FunctionVisitor, Saved};
pub use wgsl::PRELUDE as WGSL_PRELUDE;

//! Optimizers as plain data: what they are stands with what they compute.

pub use crate::ops::update::Optimizer;

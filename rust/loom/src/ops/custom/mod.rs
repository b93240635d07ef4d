//! The one open operation: code that a user of the crate brings.

#[cfg(feature = "gpu")]
mod gpu;

use super::Operation;
use crate::cpu::{Args, Real};
use crate::tensor::Precision;
use crate::{Error, Result};
use std::fmt;
use std::sync::Arc;

/// CPU code for an operation that loom does not have.
///
/// Most new layers need no operation of their own; compose existing ones first.
pub trait CustomOperation: fmt::Debug + Send + Sync {
    /// A name for dumps and messages.
    fn name(&self) -> &str;

    /// Computes in `f32`.
    fn run_f32(&self, args: &mut Args<'_>) -> Result<()>;

    /// Computes in `f64`, for networks built in that precision and for gradient checks.
    fn run_f64(&self, args: &mut Args<'_>) -> Result<()> {
        let _ = args;
        Err(Error::DType(format!(
            "operation \"{}\" has no float64 form; use a float32 network or implement run_f64",
            self.name()
        )))
    }
}

/// A [`CustomOperation`] in a program.
#[derive(Clone, Debug)]
pub struct Custom(pub Arc<dyn CustomOperation>);

impl Operation for Custom {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        match T::PRECISION {
            Precision::Float32 => self.0.run_f32(args),
            Precision::Float64 => self.0.run_f64(args),
        }
    }
}

impl fmt::Display for Custom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "custom.{}", self.0.name())
    }
}

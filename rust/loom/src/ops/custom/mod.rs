//! The one open operation: code that a user of the crate brings.

mod gpu;

use super::Operation;
use crate::ops::Args;
use crate::simd::Real;
use crate::tensor::Precision;
use crate::{Error, Result};
use std::fmt;
use std::sync::Arc;

/// What a [`CustomOperation`]'s GPU kernel is to be made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomExtents {
    /// Rows of the batch.
    pub rows: usize,
    /// Whether results are added to what is there instead of replacing it.
    pub accumulate: bool,
    /// A number for the layer the step belongs to, for keying random draws.
    pub path: u32,
    /// Elements of each operand.
    pub reads: Vec<usize>,
    /// Elements of each result.
    pub writes: Vec<usize>,
}

/// A [`CustomOperation`]'s GPU kernel.
///
/// `source` is WGSL with an entry point `main`. Operands, then results, are bound in order from
/// `@group(0) @binding(0)` on: `var<storage, read>` an operand, `var<storage, read_write>` a result, each
/// an array of `f32`, or `i32` for indices. Its constants are declared as
///
/// ```wgsl
/// struct Constants {
///     step: u32,
///     // those of `constants`
/// }
/// var<immediate> constants: Constants;
/// ```
///
/// It may use what stands before every kernel: `steps[constants.step]` holds the values of the step (seed,
/// step, rate, ...), and `group_index(workgroup_id, num_workgroups)` is the workgroup's number, past
/// `groups` for some where there are very many. Indices out of range stay within the operand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomWgsl {
    /// The text.
    pub source: String,
    /// Constants beside the step's number, 31 at most.
    pub constants: Vec<u32>,
    /// How many workgroups run.
    pub groups: usize,
}

/// Code for an operation that loom does not have.
///
/// Most new layers need no operation of their own; compose existing ones first.
pub trait CustomOperation: fmt::Debug + Send + Sync {
    /// A name for dumps and messages.
    fn name(&self) -> &str;

    /// Computes in `f32`.
    fn run_f32(&self, args: &mut Args<'_>) -> Result<()>;

    /// The same for a GPU; without it, networks that use the operation run on the CPU only.
    fn wgsl(&self, extents: &CustomExtents) -> Option<CustomWgsl> {
        let _ = extents;
        None
    }

    /// Whether a GPU's frame is cut for it where it has no [`wgsl`](Self::wgsl): its operands are read back, the
    /// host computes by [`run_f32`](Self::run_f32), and the results go there. It then knows nothing of the step's
    /// [values](Args::values), and each step of training is a frame of its own.
    fn on_host(&self) -> bool {
        false
    }

    /// Told before a frame is cut for it.
    ///
    /// # Errors
    /// Whatever speaks against that; the program then does not run on that device.
    fn cuts(&self) -> Result<()> {
        Ok(())
    }

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
            Precision::Float32 | Precision::Mixed => self.0.run_f32(args),
            Precision::Float64 => self.0.run_f64(args),
        }
    }
}

impl fmt::Display for Custom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "custom.{}", self.0.name())
    }
}

//! Numbers an operation brings along, computed once when a layer is lowered.

use crate::simd::Real;
use crate::tensor::Precision;
use crate::{Result, extents};

/// A table of numbers in both precisions.
#[derive(Debug)]
pub struct Constants {
    float64: Vec<f64>,
    float32: Vec<f32>,
}

impl Constants {
    /// These numbers.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) and [`Error::Memory`](crate::Error::Memory) for more of them than
    /// there may be, or than there is memory for.
    pub fn new(what: &str, extents: [usize; 2], numbers: impl Iterator<Item = f64>) -> Result<Self> {
        extents::check(what, &extents)?;
        let count = extents::product(&extents);
        let (mut float32, mut float64) = (extents::room(count)?, extents::room(count)?);
        for number in numbers {
            float32.push(number as f32);
            float64.push(number);
        }
        Ok(Self { float32, float64 })
    }

    /// All of them, in the precision of `T`.
    pub fn of<T: Real>(&self) -> &[T] {
        match T::PRECISION {
            Precision::Float32 | Precision::Mixed => bytemuck::cast_slice(&self.float32),
            Precision::Float64 => bytemuck::cast_slice(&self.float64),
        }
    }

    /// The bits of all of them in single precision.
    pub fn words(&self) -> &[u32] {
        bytemuck::cast_slice(&self.float32)
    }
}

//! Numbers an operation brings along, computed once when a layer is lowered.

use crate::cpu::Real;
use crate::tensor::Precision;

/// A table of numbers in both precisions.
#[derive(Debug)]
pub struct Constants {
    float64: Vec<f64>,
    float32: Vec<f32>,
}

impl Constants {
    /// These numbers.
    pub fn new(numbers: Vec<f64>) -> Self {
        Self { float32: numbers.iter().map(|x| *x as f32).collect(), float64: numbers }
    }

    /// All of them, in the precision of `T`.
    pub fn of<T: Real>(&self) -> &[T] {
        match T::PRECISION {
            Precision::Float32 | Precision::Mixed => bytemuck::cast_slice(&self.float32),
            Precision::Float64 => bytemuck::cast_slice(&self.float64),
        }
    }

    /// The bits of all of them in single precision.
    #[cfg(feature = "gpu")]
    pub fn words(&self) -> &[u32] {
        bytemuck::cast_slice(&self.float32)
    }
}

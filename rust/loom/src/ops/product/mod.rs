//! Matrix products of a dense layer: rows of the batch against one weight.

mod cpu;
mod cpu_pairs;
mod gpu;
pub(super) mod gpu_quantized;
mod together;

pub use crate::shader::product::Operands;
pub(super) use cpu::{with_decoded, with_right};
pub use gpu::limits;
pub(super) use gpu::record;

pub use together::{LeftSide, Products};

use super::{Direction, pointwise::Activation};
use std::fmt;

/// `y = activation(x W + bias)` and its gradients, W stored (inputs, outputs).
///
/// With M = rows x `multiplier`:
/// - forward reads x (M, inputs), W, and bias (outputs,) if there is one, and
///   writes y (M, outputs);
/// - input gradient reads dy (M, outputs), W, and what the activation before it has saved (M, inputs)
///   if there is a `derivative`, and writes dx (M, inputs);
/// - weight gradient reads x (M, inputs) and dy (M, outputs), and writes dW (inputs, outputs).
///
/// W may be a packed version in the first two.
#[derive(Clone, Debug)]
pub struct Product {
    /// Which of the three.
    pub direction: Direction,
    /// Product rows for each row of the batch: 1, or the length of a sequence.
    pub multiplier: usize,
    /// Features of x.
    pub inputs: usize,
    /// Features of y.
    pub outputs: usize,
    /// Whether a bias is read and added; set by fusion.
    pub bias: bool,
    /// Applied to the result of the forward direction; set by fusion.
    pub activation: Option<Activation>,
    /// Whose derivative the input gradient is multiplied by; set by fusion.
    pub derivative: Option<Activation>,
    /// Whether both operands of the product are rounded to 16 bits: to bfloat16 on the CPU, to binary16
    /// on a GPU. Sums, bias and activation are as without.
    pub mixed: bool,
    /// Whether rows of x are quantised to int8 and multiplied with the codes of W, which is packed in
    /// symmetric integers, as [`integer_product`](crate::matrix::integer_product) says; for the forward
    /// direction, and for the input gradient of a W in blocks along its rows (as a head uses the table of an
    /// embedding, dy being quantised), in single precision. Rounding for `mixed` is then left out.
    pub quantized: bool,
}

impl Product {
    /// The unfused product in this direction.
    pub fn new(direction: Direction, multiplier: usize, inputs: usize, outputs: usize) -> Self {
        Self {
            direction,
            multiplier,
            inputs,
            outputs,
            bias: false,
            activation: None,
            derivative: None,
            mixed: false,
            quantized: false,
        }
    }
}

impl fmt::Display for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "product.{} {}x{}", self.direction, self.inputs, self.outputs)?;
        if self.multiplier != 1 {
            write!(f, " x{}", self.multiplier)?;
        }
        if self.mixed {
            write!(f, " mixed")?;
        }
        if self.quantized {
            write!(f, " int8")?;
        }
        if self.bias {
            write!(f, " +bias")?;
        }
        if let Some(activation) = &self.activation {
            write!(f, " {activation}")?;
        }
        if let Some(activation) = &self.derivative {
            write!(f, " *{activation}'")?;
        }
        Ok(())
    }
}

//! Two-dimensional convolution (cross-correlation, as the field has it) in NCHW layout.

use super::{Direction, Operation, pointwise::Activation};
use crate::Result;
use crate::cpu::{Args, Real};
use std::fmt;

/// Extents of a sliding window over images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry2D {
    /// Height and width of the input.
    pub input: [usize; 2],
    /// Height and width of the output.
    pub output: [usize; 2],
    /// Height and width of the window.
    pub kernel: [usize; 2],
    /// Steps of the window.
    pub stride: [usize; 2],
    /// Border before the first row and column; past the last as the output's extents need.
    pub padding: [usize; 2],
    /// Distance between the window's elements.
    pub dilation: [usize; 2],
}

/// `y = activation(conv(x, W) + bias)` and its gradients.
///
/// W is stored ((in / groups) x kernel height x kernel width, out), output
/// channels last; group g owns a contiguous run of out / groups of them. Per
/// row, x is (in, H, W) and y is (out, H', W').
/// - forward reads x, W and bias (out,) if there is one, writes y;
/// - input gradient reads dy and W, writes dx;
/// - weight gradient reads x and dy, writes dW.
///
/// W may be a packed version in the first two. Every y sums (in, kernel row,
/// kernel column) in order with fused multiply-add, padding counting as zeros.
#[derive(Clone, Debug)]
pub struct Convolution {
    /// Which of the three.
    pub direction: Direction,
    /// Extents of the window.
    pub geometry: Geometry2D,
    /// Input channels.
    pub inputs: usize,
    /// Output channels.
    pub outputs: usize,
    /// Groups that channels are split into.
    pub groups: usize,
    /// Whether a bias is read and added; set by fusion.
    pub bias: bool,
    /// Applied to the result; set by fusion.
    pub activation: Option<Activation>,
}

impl fmt::Display for Convolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let g = &self.geometry;
        write!(
            f,
            "convolution.{} {}->{} kernel {:?} stride {:?} padding {:?} dilation {:?} groups {}",
            self.direction, self.inputs, self.outputs, g.kernel, g.stride, g.padding, g.dilation, self.groups
        )?;
        if self.bias {
            write!(f, " +bias")?;
        }
        if let Some(activation) = &self.activation {
            write!(f, " {activation}")?;
        }
        Ok(())
    }
}

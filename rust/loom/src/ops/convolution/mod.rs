//! Convolution (cross-correlation, as the field has it) of images in NCHW layout, and of volumes in NCDHW.

mod correlate;
mod cpu;
mod gpu;
mod quantized;
#[cfg(test)]
mod reference;
mod scratch;
mod sweep;
#[cfg(test)]
mod tests;
mod tiles;
mod weights;
mod window;

use super::geometry::{Geometry, extents_text};
use super::{Direction, pointwise::Activation};
use crate::{Error, Result, extents};
use std::fmt;

/// `y = activation(conv(x, W) + bias)` and its gradients.
///
/// W is stored ((in / groups) x kernel depth x kernel height x kernel width, out),
/// output channels last; group g owns a contiguous run of out / groups of them.
/// Per row, x is (in, D, H, W) and y is (out, D', H', W'); images have a depth of 1.
/// - forward reads x, W and bias (out,) if there is one, writes y;
/// - input gradient reads dy and W, writes dx; it is what a transposed convolution
///   computes, and so may have a bias (in,) and an activation, too;
/// - weight gradient reads x and dy, writes dW.
///
/// W may be a packed version in the first two.
///
/// Every element is a sum in a fixed order with fused multiply-add, starting
/// from zero, whatever the batch, the threads and the instruction set:
/// - y over (in, kernel plane, kernel row, kernel column), the border counting as zeros; then
///   the bias is added, then the activation applied;
/// - dx over (out, kernel plane, kernel row, kernel column), of these the ones that
///   join the pixel to a whole output position; one outside the output counts as zero;
/// - dW over (image, output plane, output row, output column), the border counting as zeros,
///   in chunks of images that depend on the shapes and the number of images
///   alone: the first goes on from the old dW where gradients accumulate, the
///   others are added to it in order.
#[derive(Clone, Debug)]
pub struct Convolution {
    /// Which of the three.
    pub direction: Direction,
    /// Extents of the window.
    pub geometry: Geometry,
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
    /// Whether both operands are rounded to 16 bits: to bfloat16 on the CPU, to binary16 on a GPU. Sums,
    /// bias and activation are as without.
    pub mixed: bool,
    /// Whether each image of x is quantised to int8, with one scale, and multiplied with the codes of W, which is
    /// packed in symmetric integers; for the forward direction in single precision. The sums are those of
    /// [`integer_product`](crate::matrix::integer_product) over a window's elements, in the order of W's
    /// rows. Rounding for `mixed` is then left out.
    pub quantized: bool,
}

impl fmt::Display for Convolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let g = &self.geometry;
        write!(
            f,
            "convolution.{} {}->{} kernel {} stride {} padding {} dilation {} groups {}",
            self.direction,
            self.inputs,
            self.outputs,
            extents_text(g, &g.kernel),
            extents_text(g, &g.stride),
            extents_text(g, &g.padding),
            extents_text(g, &g.dilation),
            self.groups
        )?;
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
        Ok(())
    }
}

impl Convolution {
    /// Elements of the weight.
    fn weights(&self) -> usize {
        self.inputs / self.groups.max(1) * self.geometry.taps() * self.outputs
    }

    /// Refuses what kernels cannot compute, before they use the extents unchecked.
    fn check(&self, rows: usize, image: usize, weights: usize, output: usize) -> Result<()> {
        let Geometry { input, output: result, kernel, stride, dilation, .. } = self.geometry;
        let extents = [input, result, kernel, stride, dilation, [self.inputs, self.outputs, self.groups]];
        let divides = self.groups > 0
            && self.inputs.is_multiple_of(self.groups)
            && self.outputs.is_multiple_of(self.groups);
        if !divides || extents.as_flattened().contains(&0) {
            return Err(Error::Shape(format!(
                "{self}: extents must be positive and groups divide the channels"
            )));
        }
        let [depth, height, width] = self.geometry.bordered().unwrap_or([usize::MAX; 3]);
        extents::check(
            format_args!("{self}: an input with its border"),
            &[self.inputs, depth, height, width],
        )?;
        let expected = [
            rows * self.inputs * self.geometry.volumes().0,
            self.weights(),
            rows * self.outputs * self.geometry.volumes().1,
        ];
        if expected != [image, weights, output] {
            return Err(Error::Internal(format!(
                "{self}: images, weights and results of {image}, {weights} and {output} elements for \
                 {rows} rows, expected {expected:?}"
            )));
        }
        Ok(())
    }
}

//! How a convolution and a transposed one lower: each goes forwards as the other goes backwards.

use super::activation::{activate, activate_backward};
use super::one_input::Backward;
use super::{Context, Forward};
use crate::Result;
use crate::ops::pointwise::Activation;
use crate::ops::{BiasAdd, BiasGradient, Convolution, Direction, Geometry};
use crate::program::{Builder, Value};
use crate::tensor::Shape;

/// A layer that convolves an input of a certain shape, or undoes that.
pub(super) struct Lowering {
    /// Of the convolution; for a transposed layer of the one that makes its input of its output.
    pub geometry: Geometry,
    pub transposed: bool,
    /// Channels that the convolution reads and makes.
    pub channels: [usize; 2],
    pub groups: usize,
    /// Extents of what the layer makes.
    pub output: Shape,
    pub bias: bool,
    pub activation: Activation,
}

impl Lowering {
    /// The operation that computes the layer, or one of its gradients.
    fn op(&self, direction: Direction) -> Convolution {
        let direction = match direction {
            Direction::Forward if self.transposed => Direction::InputGradient,
            Direction::InputGradient if self.transposed => Direction::Forward,
            _ => direction,
        };
        let Self { geometry, channels: [inputs, outputs], groups, .. } = *self;
        let (bias, activation, mixed, quantized) = (false, None, false, false);
        Convolution { direction, geometry, inputs, outputs, groups, bias, activation, mixed, quantized }
    }

    /// `outer`, `channels` and `inner` of a bias for what the layer makes.
    fn channels(&self) -> (usize, usize, usize) {
        (1, self.output[0], self.output[1..].iter().product())
    }

    pub fn forward(self, b: &mut Builder, cx: &Context, x: Value) -> Result<Forward> {
        let weight = cx.read(b, "weight")?;
        let mut z = b.apply(self.op(Direction::Forward), &[x, weight], "z", self.output.clone());
        if self.bias {
            let bias = cx.read(b, "bias")?;
            let (outer, channels, inner) = self.channels();
            z = b.apply(BiasAdd { outer, channels, inner }, &[z, bias], "z", self.output);
        }
        Ok(activate(b, self.activation, z))
    }

    pub fn backward(self, b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>> {
        let Backward { cx, x, want, .. } = *back;
        let dz = activate_backward(b, self.activation, back.forward, back.gradient);
        if want.parameters {
            if self.bias {
                let (outer, channels, inner) = self.channels();
                cx.contribute(b, "bias", BiasGradient { outer, channels, inner }, &[dz])?;
            }
            let reads = if self.transposed { [dz, x] } else { [x, dz] };
            cx.contribute(b, "weight", self.op(Direction::WeightGradient), &reads)?;
        }
        if !want.inputs {
            return Ok(None);
        }
        let weight = cx.read(b, "weight")?;
        let shape = b.shape(x).clone();
        Ok(Some(b.apply(self.op(Direction::InputGradient), &[dz, weight], "dx", shape)))
    }
}

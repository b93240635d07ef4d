//! Group normalisation.

use super::{affine, backward_rows, forward_rows};
use crate::Result;
use crate::layers::kind_registry::Configured;
use crate::layers::one_input::{Backward, OneInput, one_input};
use crate::layers::settings::{kind_and_config, settings};
use crate::layers::{Context, Forward, Layer, ParameterSpec, Sample, shape_error, single};
use crate::ops::{Direction, Normalize};
use crate::program::{Builder, Value};
use crate::tensor::Shape;

settings! {
    /// Normalises groups of channels of each row, with all their places, to mean 0 and variance 1, then
    /// multiplies and shifts each channel (Wu and He 2018): (channels, ...) to the same. With one group it is a
    /// layer normalisation of the row, with as many groups as channels an instance normalisation.
    ///
    /// The outside sees weight, which is the gain, and bias as (channels,).
    #[derive(Clone, Debug, PartialEq)]
    pub struct GroupNorm "group_norm" {
        /// How many groups; divides the channels.
        groups: usize [least 1],
    } optional {
        /// Added to the variance; above zero.
        epsilon: f64 [above 0.0] = 1e-5,
        /// Whether a trained gain, `weight`, multiplies every channel.
        gain: bool = true,
        /// Whether a trained bias is added to every channel.
        bias: bool = true,
    }
}

impl GroupNorm {
    /// With gain and bias.
    pub fn new(groups: usize) -> Self {
        Self::with_defaults(groups)
    }

    fn op(&self, shape: &Shape) -> Normalize {
        let channels = shape.first().copied().unwrap_or(1);
        Normalize {
            direction: Direction::Forward,
            outer: 1,
            channels,
            inner: shape.len() / channels,
            groups: self.groups,
            centred: true,
            epsilon: self.epsilon,
            gain: self.gain,
            bias: self.bias,
        }
    }
}

impl Configured for GroupNorm {
    fn samples() -> Vec<Sample> {
        vec![
            Sample::new(Self::new(1), [2]),
            Sample::new(Self::new(3), [12]),
            Sample::new(Self { bias: false, ..Self::new(2) }, [4, 7]),
            Sample::new(Self { gain: false, epsilon: 1e-3, ..Self::new(3) }, [3, 5, 3]),
            Sample::new(Self::new(2), [6, 2, 3, 2]),
        ]
    }
}

impl Layer for GroupNorm {
    kind_and_config!();

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        let input = single(self.kind(), inputs)?;
        let channels = input.first().copied().unwrap_or(0);
        if input.is_empty() || channels % self.groups != 0 {
            let expected = format!("(channels, ...) with a multiple of {} channels", self.groups);
            return Err(shape_error("GroupNorm", &expected, input));
        }
        Ok(input.clone())
    }

    fn parameters(&self, inputs: &[Shape]) -> Vec<ParameterSpec> {
        affine(&Shape::from(inputs[0].first().copied().unwrap_or(1)), self.gain, self.bias)
    }

    one_input!();
}

impl OneInput for GroupNorm {
    fn lower(&self, b: &mut Builder, cx: &Context, x: Value) -> Result<Forward> {
        let op = self.op(b.shape(x));
        forward_rows(b, cx, op, x)
    }

    fn lower_backward(&self, b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>> {
        backward_rows(b, self.op(b.shape(back.x)), back)
    }
}

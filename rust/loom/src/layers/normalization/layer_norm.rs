//! Layer normalisation.

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
    /// `(x - mean) / sqrt(variance + epsilon) * weight + bias` over the last axes of each row (Ba, Kiros and
    /// Hinton 2016), the variance being the biased one.
    ///
    /// The outside sees weight and bias with the extents of the normalised axes, as PyTorch does.
    #[derive(Clone, Debug, PartialEq)]
    pub struct LayerNorm "layer_norm" {} optional {
        /// How many axes, counted from the last, are normalised together.
        axes: usize [least 1] = 1,
        /// Added to the variance; above zero.
        epsilon: f64 [above 0.0] = 1e-5,
        /// Whether a trained gain, `weight`, multiplies every element.
        gain: bool = true,
        /// Whether a trained bias is added to every element.
        bias: bool = true,
    }
}

impl Default for LayerNorm {
    fn default() -> Self {
        Self::with_defaults()
    }
}

impl Configured for LayerNorm {
    fn samples() -> Vec<Sample> {
        let default = Self::default;
        vec![
            Sample::new(default(), [1]),
            Sample::new(default(), [19]),
            Sample::new(Self { bias: false, epsilon: 1e-3, ..default() }, [5, 33]),
            Sample::new(Self { axes: 2, ..default() }, [2, 3, 5]),
            Sample::new(Self { gain: false, bias: false, ..default() }, [40, 6]),
        ]
    }
}

impl LayerNorm {
    fn op(&self, shape: &Shape) -> Normalize {
        let channels = shape.iter().rev().take(self.axes).product();
        Normalize {
            direction: Direction::Forward,
            outer: shape.len() / channels,
            channels,
            inner: 1,
            groups: 1,
            centred: true,
            epsilon: self.epsilon,
            gain: self.gain,
            bias: self.bias,
        }
    }
}

impl Layer for LayerNorm {
    kind_and_config!();

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        let input = single(self.kind(), inputs)?;
        if input.rank() < self.axes || input.is_empty() {
            return Err(shape_error("LayerNorm", &format!("at least {} axes", self.axes), input));
        }
        Ok(input.clone())
    }

    fn parameters(&self, inputs: &[Shape]) -> Vec<ParameterSpec> {
        let axes = &inputs[0][inputs[0].rank() - self.axes..];
        affine(&Shape::new(axes.to_vec()), self.gain, self.bias)
    }

    fn is_stepwise(&self) -> bool {
        self.axes == 1
    }

    one_input!();
}

impl OneInput for LayerNorm {
    fn lower(&self, b: &mut Builder, cx: &Context, x: Value) -> Result<Forward> {
        let op = self.op(b.shape(x));
        forward_rows(b, cx, op, x)
    }

    fn lower_backward(&self, b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>> {
        backward_rows(b, self.op(b.shape(back.x)), back)
    }
}

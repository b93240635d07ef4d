//! Layer normalisation.

use super::{affine, backward_rows, check_epsilon, epsilon, forward_rows};
use crate::layers::dense::yes;
use crate::layers::one_input::{Backward, OneInput, one_input};
use crate::layers::registry::{Configured, config_of};
use crate::layers::{Context, Forward, Layer, ParameterSpec, Sample, shape_error, single};
use crate::ops::{Direction, Normalize};
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// `(x - mean) / sqrt(variance + epsilon) * weight + bias` over the last axes of each row (Ba, Kiros and
/// Hinton 2016), the variance being the biased one.
///
/// The outside sees weight and bias with the extents of the normalised axes, as PyTorch does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerNorm {
    /// How many axes, counted from the last, are normalised together.
    #[serde(default = "one")]
    pub axes: usize,
    /// Added to the variance; above zero.
    #[serde(default = "epsilon")]
    pub epsilon: f64,
    /// Whether a trained gain, `weight`, multiplies every element.
    #[serde(default = "yes")]
    pub gain: bool,
    /// Whether a trained bias is added to every element.
    #[serde(default = "yes")]
    pub bias: bool,
}

fn one() -> usize {
    1
}

impl Default for LayerNorm {
    fn default() -> Self {
        Self { axes: 1, epsilon: epsilon(), gain: true, bias: true }
    }
}

impl Configured for LayerNorm {
    fn validate(&self) -> Result<()> {
        if self.axes == 0 {
            return Err(Error::Value("axes must be at least 1".into()));
        }
        check_epsilon(self.epsilon)
    }

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
    fn kind(&self) -> &'static str {
        "layer_norm"
    }

    fn config(&self) -> serde_json::Value {
        config_of(self.kind(), self)
    }

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

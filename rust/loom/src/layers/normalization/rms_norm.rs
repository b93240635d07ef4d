//! Root-mean-square normalisation.

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
    /// `x / sqrt(mean(x^2) + epsilon) * weight` over the last axis (Zhang and Sennrich 2019).
    ///
    /// The outside sees the weight, which is the gain, as (features,). Epsilon is 1e-6 unless given, as in most
    /// published models; PyTorch's layer takes the type's own epsilon where none is given.
    #[derive(Clone, Debug, PartialEq)]
    pub struct RMSNorm "rms_norm" {} optional {
        /// Added to the mean square; above zero.
        epsilon: f64 [above 0.0] = 1e-6,
        /// Whether a trained gain, `weight`, multiplies every feature.
        gain: bool = true,
    }
}

impl Default for RMSNorm {
    fn default() -> Self {
        Self::with_defaults()
    }
}

impl Configured for RMSNorm {
    fn samples() -> Vec<Sample> {
        vec![
            Sample::new(Self { epsilon: 0.1, ..Self::default() }, [1]),
            Sample::new(Self::default(), [3, 19]),
            Sample::new(Self { gain: false, epsilon: 1e-3 }, [2, 3, 7]),
            Sample::new(Self::default(), [30, 33]),
        ]
    }
}

impl RMSNorm {
    fn op(&self, shape: &Shape) -> Normalize {
        let channels = shape.last().copied().unwrap_or(1);
        Normalize {
            direction: Direction::Forward,
            outer: shape.len() / channels,
            channels,
            inner: 1,
            groups: 1,
            centred: false,
            epsilon: self.epsilon,
            gain: self.gain,
            bias: false,
        }
    }
}

impl Layer for RMSNorm {
    kind_and_config!();

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        let input = single(self.kind(), inputs)?;
        if input.rank() == 0 || input.is_empty() {
            return Err(shape_error("RMSNorm", "at least one feature", input));
        }
        Ok(input.clone())
    }

    fn parameters(&self, inputs: &[Shape]) -> Vec<ParameterSpec> {
        affine(&Shape::from(inputs[0].last().copied().unwrap_or(1)), self.gain, false)
    }

    fn is_stepwise(&self) -> bool {
        true
    }

    one_input!();
}

impl OneInput for RMSNorm {
    fn lower(&self, b: &mut Builder, cx: &Context, x: Value) -> Result<Forward> {
        let op = self.op(b.shape(x));
        forward_rows(b, cx, op, x)
    }

    fn lower_backward(&self, b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>> {
        backward_rows(b, self.op(b.shape(back.x)), back)
    }
}

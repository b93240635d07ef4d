//! Instance normalisation.

use super::{GroupNorm, affine};
use crate::Result;
use crate::layers::kind_registry::Configured;
use crate::layers::one_input::{Backward, OneInput, one_input};
use crate::layers::settings::{kind_and_config, settings};
use crate::layers::{Context, Forward, Layer, ParameterSpec, Sample, shape_error, single};
use crate::program::{Builder, Value};
use crate::tensor::Shape;

settings! {
    /// Normalises each channel of each row over its places to mean 0 and variance 1, then multiplies and shifts it
    /// (Ulyanov, Vedaldi and Lempitsky 2016): (channels, ...) to the same. A group normalisation of one channel a
    /// group.
    ///
    /// The outside sees weight, which is the gain, and bias as (channels,).
    #[derive(Clone, Debug, PartialEq)]
    pub struct InstanceNorm "instance_norm" {} optional {
        /// Added to the variance; above zero.
        epsilon: f64 [above 0.0] = 1e-5,
        /// Whether a trained gain, `weight`, multiplies every channel.
        gain: bool = true,
        /// Whether a trained bias is added to every channel.
        bias: bool = true,
    }
}

impl Default for InstanceNorm {
    fn default() -> Self {
        Self::with_defaults()
    }
}

impl InstanceNorm {
    /// The same as groups of one channel.
    fn grouped(&self, shape: &Shape) -> GroupNorm {
        let groups = shape.first().copied().unwrap_or(1);
        GroupNorm { groups, epsilon: self.epsilon, gain: self.gain, bias: self.bias }
    }
}

impl Configured for InstanceNorm {
    fn samples() -> Vec<Sample> {
        vec![
            Sample::new(Self::default(), [3, 7]),
            Sample::new(Self { bias: false, epsilon: 1e-3, ..Self::default() }, [2, 3, 5]),
            Sample::new(Self { gain: false, ..Self::default() }, [1, 2, 3, 3]),
        ]
    }
}

impl Layer for InstanceNorm {
    kind_and_config!();

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        let input = single(self.kind(), inputs)?;
        let channels = input.first().copied().unwrap_or(0);
        // Of one place alone nothing but zeros would be left.
        if input.is_empty() || input.len() <= channels {
            return Err(shape_error(
                "InstanceNorm",
                "(channels, ...) with two or more places a channel",
                input,
            ));
        }
        Ok(input.clone())
    }

    fn parameters(&self, inputs: &[Shape]) -> Vec<ParameterSpec> {
        affine(&Shape::from(inputs[0].first().copied().unwrap_or(1)), self.gain, self.bias)
    }

    one_input!();
}

impl OneInput for InstanceNorm {
    fn lower(&self, b: &mut Builder, cx: &Context, x: Value) -> Result<Forward> {
        self.grouped(b.shape(x)).lower(b, cx, x)
    }

    fn lower_backward(&self, b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>> {
        self.grouped(b.shape(back.x)).lower_backward(b, back)
    }
}

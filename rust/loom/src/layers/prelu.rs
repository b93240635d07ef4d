//! The rectifier whose slopes below 0 are learned.

use super::kind_registry::Configured;
use super::one_input::{Backward, OneInput, one_input};
use super::settings::{kind_and_config, settings};
use super::{Context, Forward, Layer, ParameterSpec, Sample, shape_error, single};
use crate::Result;
use crate::ops::{BiasGradient, Direction, Prelu};
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::weights::{Initializer, Layout};

settings! {
    /// `max(0, x) + weight min(0, x)` with learned slopes (He et al. 2015); the shape stays.
    ///
    /// The outside sees the `weight`, the slopes, as (1,) or (channels,), as PyTorch's `nn.PReLU` has it. Slopes
    /// are neither biases nor gains of a norm: weight decay draws them towards 0.
    #[derive(Clone, Debug, PartialEq)]
    pub struct PReLU "prelu" {} optional {
        /// Whether every channel, the first axis, has a slope of its own; otherwise all share one.
        per_channel: bool = false,
        /// What slopes start at.
        initial: f64 = 0.25,
    }
}

impl Default for PReLU {
    fn default() -> Self {
        Self::with_defaults()
    }
}

impl PReLU {
    /// Slopes of a row of this shape, and the elements of each.
    fn extents(&self, shape: &Shape) -> (usize, usize) {
        let channels = if self.per_channel { shape.first().copied().unwrap_or(1) } else { 1 };
        (channels, shape.len() / channels.max(1))
    }
}

impl Configured for PReLU {
    fn samples() -> Vec<Sample> {
        let per_channel = |initial| Self { per_channel: true, initial };
        vec![
            Sample::new(Self::default(), [3, 5]),
            Sample::new(Self { initial: -0.5, ..Self::default() }, [1]),
            Sample::new(per_channel(0.25), [19]),
            Sample::new(per_channel(0.1), [3, 7]),
            Sample::new(per_channel(1.5), [4, 2, 3]),
        ]
    }
}

impl Layer for PReLU {
    kind_and_config!();

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        let input = single(self.kind(), inputs)?;
        if self.per_channel && (input.rank() == 0 || input.is_empty()) {
            return Err(shape_error("PReLU", "(features,) or (channels, ...)", input));
        }
        Ok(input.clone())
    }

    fn parameters(&self, inputs: &[Shape]) -> Vec<ParameterSpec> {
        vec![ParameterSpec {
            name: "weight".into(),
            layout: Layout::plain([self.extents(&inputs[0]).0]),
            initializer: Initializer::Constant { value: self.initial },
            fan_in: 1,
            fan_out: 1,
            morphable: false,
            decay_exempt: false,
            adaptable: false,
        }]
    }

    fn is_stepwise(&self) -> bool {
        // Where steps are channels, each has a slope by its place in the whole sequence.
        !self.per_channel
    }

    one_input!();
}

impl OneInput for PReLU {
    fn lower(&self, b: &mut Builder, cx: &Context, x: Value) -> Result<Forward> {
        let slopes = cx.read(b, "weight")?;
        let shape = b.shape(x).clone();
        let (channels, inner) = self.extents(&shape);
        let op = Prelu { direction: Direction::Forward, channels, inner };
        Ok(Forward::new(b.apply(op, &[x, slopes], "y", shape)))
    }

    fn lower_backward(&self, b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>> {
        let Backward { cx, x, gradient, want, .. } = *back;
        let shape = b.shape(x).clone();
        let (channels, inner) = self.extents(&shape);
        let op = |direction| Prelu { direction, channels, inner };
        if want.parameters {
            let parts = b.apply(op(Direction::WeightGradient), &[x, gradient], "dslope", shape.clone());
            cx.contribute(b, "weight", BiasGradient { outer: 1, channels, inner }, &[parts])?;
        }
        if !want.inputs {
            return Ok(None);
        }
        let slopes = cx.read(b, "weight")?;
        Ok(Some(b.apply(op(Direction::InputGradient), &[x, slopes, gradient], "dx", shape)))
    }
}

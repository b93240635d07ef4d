//! Vectors of unit length.

use super::{backward_rows, forward_rows};
use crate::Result;
use crate::layers::kind_registry::Configured;
use crate::layers::one_input::{Backward, OneInput, one_input};
use crate::layers::settings::{kind_and_config, settings};
use crate::layers::{Context, Forward, Layer, Sample, shape_error, single};
use crate::ops::{Direction, Normalize, Scale};
use crate::program::{Builder, Value};
use crate::tensor::Shape;

settings! {
    /// `x / sqrt(sum(x^2) + epsilon)` over the last axis: vectors of unit length.
    #[derive(Clone, Debug, PartialEq)]
    pub struct L2Norm "l2_norm" {} optional {
        /// Added to the sum of squares; above zero.
        epsilon: f64 [above 0.0] = 1e-12,
    }
}

impl Default for L2Norm {
    fn default() -> Self {
        Self::with_defaults()
    }
}

impl Configured for L2Norm {
    fn samples() -> Vec<Sample> {
        vec![
            Sample::new(Self { epsilon: 0.1 }, [1]),
            Sample::new(Self::default(), [19]),
            Sample::new(Self { epsilon: 1e-3 }, [2, 3, 7]),
        ]
    }
}

impl L2Norm {
    /// The root-mean-square norm, and what its result is multiplied by: `1 / sqrt(features)`.
    fn ops(&self, shape: &Shape) -> (Normalize, Scale) {
        let channels = shape.last().copied().unwrap_or(1);
        let norm = Normalize {
            direction: Direction::Forward,
            outer: shape.len() / channels,
            channels,
            inner: 1,
            groups: 1,
            centred: false,
            epsilon: self.epsilon / channels as f64,
            gain: false,
            bias: false,
        };
        (norm, Scale { factor: 1.0 / (channels as f64).sqrt() })
    }
}

impl Layer for L2Norm {
    kind_and_config!();

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        let input = single(self.kind(), inputs)?;
        if input.rank() == 0 || input.is_empty() {
            return Err(shape_error("L2Norm", "at least one feature", input));
        }
        Ok(input.clone())
    }

    fn is_stepwise(&self) -> bool {
        true
    }

    one_input!();
}

impl OneInput for L2Norm {
    fn lower(&self, b: &mut Builder, cx: &Context, x: Value) -> Result<Forward> {
        let shape = b.shape(x).clone();
        let (norm, scale) = self.ops(&shape);
        let normed = forward_rows(b, cx, norm, x)?;
        Ok(Forward { output: b.apply(scale, &[normed.output], "y", shape), ..normed })
    }

    fn lower_backward(&self, b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>> {
        let shape = b.shape(back.x).clone();
        let (norm, scale) = self.ops(&shape);
        let gradient = b.apply(scale, &[back.gradient], "dnorm", shape);
        let Backward { cx, x, forward, want, .. } = *back;
        backward_rows(b, norm, &Backward { cx, x, forward, gradient, want })
    }
}

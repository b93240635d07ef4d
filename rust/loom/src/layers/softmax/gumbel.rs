//! Softmax of noisy logits.

use crate::layers::registry::Configured;
use crate::layers::settings::{kind_and_config, settings};
use crate::layers::{Context, Forward, Layer, Sample, Want, shape_error, single};
use crate::ops::{Direction, GumbelNoise};
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::{Result, ops};

settings! {
    /// `softmax((x + g) / temperature)` over the last axis, g being Gumbel noise in training and nothing
    /// otherwise: draws from the softmax that gradients pass through (Jang, Gu and Poole 2017; Maddison, Mnih and
    /// Teh 2017). The lower the temperature, the closer to one-hot.
    ///
    /// The noise is a function of (seed, committed step, layer, row, element), so runs repeat.
    #[derive(Clone, Debug, PartialEq)]
    pub struct GumbelSoftmax "gumbel_softmax" {} optional {
        /// Divides the noisy logits; above zero.
        temperature: f64 [above 0.0] = 1.0,
    }
}

impl Default for GumbelSoftmax {
    fn default() -> Self {
        Self::with_defaults()
    }
}

impl Configured for GumbelSoftmax {
    fn samples() -> Vec<Sample> {
        vec![
            Sample::new(Self::default(), [1]),
            Sample::new(Self { temperature: 0.5 }, [3, 7]),
            Sample::new(Self { temperature: 2.0 }, [33]),
        ]
    }
}

impl GumbelSoftmax {
    fn op(&self, shape: &Shape, direction: Direction) -> ops::Softmax {
        let classes = shape.last().copied().unwrap_or(1);
        let outer = shape.len() / classes;
        ops::Softmax { direction, outer, classes, inner: 1, temperature: self.temperature }
    }
}

impl Layer for GumbelSoftmax {
    kind_and_config!();

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        let input = single(self.kind(), inputs)?;
        if input.rank() == 0 || input.is_empty() {
            return Err(shape_error("GumbelSoftmax", "at least one class", input));
        }
        Ok(input.clone())
    }

    fn is_stepwise(&self) -> bool {
        true
    }

    fn forward(&self, b: &mut Builder, cx: &Context, inputs: &[Value]) -> Result<Forward> {
        let mut x = *single(self.kind(), inputs)?;
        let shape = b.shape(x).clone();
        if cx.training {
            x = b.apply(GumbelNoise { features: shape.len() }, &[x], "noisy", shape.clone());
        }
        let y = b.apply(self.op(&shape, Direction::Forward), &[x], "y", shape);
        Ok(Forward::saving(y, vec![y]))
    }

    fn backward(
        &self,
        b: &mut Builder,
        _cx: &Context,
        _inputs: &[Value],
        forward: &Forward,
        gradient: Value,
        want: Want,
    ) -> Result<Vec<Option<Value>>> {
        if !want.inputs {
            return Ok(vec![None]);
        }
        let shape = b.shape(gradient).clone();
        let op = self.op(&shape, Direction::InputGradient);
        Ok(vec![Some(b.apply(op, &[forward.saved[0], gradient], "dx", shape))])
    }
}

//! Softmax of noisy logits.

use super::{Distribution, of_classes};
use crate::layers::kind_registry::Configured;
use crate::layers::one_input::one_input;
use crate::layers::settings::{kind_and_config, settings};
use crate::layers::{Context, Layer, Sample};
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

impl Layer for GumbelSoftmax {
    kind_and_config!();

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        of_classes(self.kind(), "GumbelSoftmax", inputs)
    }

    fn is_stepwise(&self) -> bool {
        true
    }

    one_input!();
}

impl Distribution for GumbelSoftmax {
    type Op = ops::Softmax;

    fn op(&self, shape: &Shape, direction: Direction) -> ops::Softmax {
        let classes = shape.last().copied().unwrap_or(1);
        let outer = shape.len() / classes;
        ops::Softmax { direction, outer, classes, inner: 1, temperature: self.temperature }
    }

    fn logits(&self, b: &mut Builder, cx: &Context, x: Value) -> Value {
        if !cx.training {
            return x;
        }
        let shape = b.shape(x).clone();
        b.apply(GumbelNoise { features: shape.len() }, &[x], "noisy", shape)
    }
}

//! Softmax of noisy logits.

use super::{Distribution, of_classes};
use crate::layers::one_input::one_input;
use crate::layers::registry::{Configured, config_of};
use crate::layers::{Context, Layer, Sample};
use crate::ops::{Direction, GumbelNoise};
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::{Error, Result, ops};
use serde::{Deserialize, Serialize};

/// `softmax((x + g) / temperature)` over the last axis, g being Gumbel noise in training and nothing
/// otherwise: draws from the softmax that gradients pass through (Jang, Gu and Poole 2017; Maddison, Mnih and
/// Teh 2017). The lower the temperature, the closer to one-hot.
///
/// The noise is a function of (seed, committed step, layer, row, element), so runs repeat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GumbelSoftmax {
    /// Divides the noisy logits; above zero.
    #[serde(default = "unit")]
    pub temperature: f64,
}

fn unit() -> f64 {
    1.0
}

impl Default for GumbelSoftmax {
    fn default() -> Self {
        Self { temperature: unit() }
    }
}

impl Configured for GumbelSoftmax {
    fn validate(&self) -> Result<()> {
        if !(self.temperature.is_finite() && self.temperature > 0.0) {
            return Err(Error::Value(format!("temperature must be above 0, got {}", self.temperature)));
        }
        Ok(())
    }

    fn samples() -> Vec<Sample> {
        vec![
            Sample::new(Self::default(), [1]),
            Sample::new(Self { temperature: 0.5 }, [3, 7]),
            Sample::new(Self { temperature: 2.0 }, [33]),
        ]
    }
}

impl Layer for GumbelSoftmax {
    fn kind(&self) -> &'static str {
        "gumbel_softmax"
    }

    fn config(&self) -> serde_json::Value {
        config_of(self.kind(), self)
    }

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

//! Softmax as a layer, and its kin: over rows of a grid, nested, noisy, masked, and with zeros.

mod entmax;
mod grid;
mod gumbel;
mod masked;
mod nested;

pub use entmax::{Entmax, Sparsemax};
pub use grid::GridSoftmax;
pub use gumbel::GumbelSoftmax;
pub use masked::MaskedSoftmax;
pub use nested::{AdaptiveSoftmax, HierarchicalSoftmax, Leaves, MixtureSoftmax};

use super::registry::{Configured, config_of};
use super::{Context, Forward, Layer, Sample, Want, shape_error, single};
use crate::ops::{Direction, LossFunction};
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::{Error, Result, ops};
use serde::{Deserialize, Serialize};

/// `softmax(x / temperature)` over the class axis: the last, or the channels of an image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Softmax {
    /// Divides the logits; above zero. Large values flatten the distribution.
    #[serde(default = "unit")]
    pub temperature: f64,
}

fn unit() -> f64 {
    1.0
}

impl Default for Softmax {
    fn default() -> Self {
        Self { temperature: 1.0 }
    }
}

impl Configured for Softmax {
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
            Sample::new(Self::default(), [4, 3, 5]),
        ]
    }
}

/// (repetitions, classes, elements between two classes) of a row: classes are the
/// last axis, but the first of an image's three.
pub(crate) fn class_extents(shape: &Shape) -> (usize, usize, usize) {
    match shape[..] {
        [] => (1, 1, 1),
        [channels, height, width] => (1, channels, height * width),
        [.., classes] => (shape.len() / classes.max(1), classes, 1),
    }
}

impl Softmax {
    fn op(&self, shape: &Shape, direction: Direction) -> ops::Softmax {
        let (outer, classes, inner) = class_extents(shape);
        ops::Softmax { direction, outer, classes, inner, temperature: self.temperature }
    }
}

impl Layer for Softmax {
    fn kind(&self) -> &'static str {
        "softmax"
    }

    fn config(&self) -> serde_json::Value {
        config_of(self.kind(), self)
    }

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        let input = single(self.kind(), inputs)?;
        if input.rank() == 0 || input.is_empty() {
            return Err(shape_error("Softmax", "at least one class", input));
        }
        Ok(input.clone())
    }

    fn is_stepwise(&self) -> bool {
        true
    }

    fn forward(&self, b: &mut Builder, _cx: &Context, inputs: &[Value]) -> Result<Forward> {
        let x = *single(self.kind(), inputs)?;
        let shape = b.shape(x).clone();
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

    fn absorb_loss(&self, loss: &LossFunction) -> Option<LossFunction> {
        match loss {
            LossFunction::CrossEntropy { .. } | LossFunction::NegativeLogLikelihood => {
                Some(LossFunction::CrossEntropy { temperature: self.temperature })
            }
            _ => None,
        }
    }
}

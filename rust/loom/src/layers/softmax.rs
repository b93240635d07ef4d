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

use super::kind_registry::Configured;
use super::one_input::{Backward, OneInput, one_input};
use super::settings::{kind_and_config, settings};
use super::{Context, Forward, Layer, Sample, shape_error, single};
use crate::ops::{Direction, LossFunction, Op};
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::{Result, ops};

settings! {
    /// `softmax(x / temperature)` over the class axis: the last, or the channels of an image.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Softmax "softmax" {} optional {
        /// Divides the logits; above zero. Large values flatten the distribution.
        temperature: f64 [above 0.0] = 1.0,
    }
}

impl Default for Softmax {
    fn default() -> Self {
        Self::with_defaults()
    }
}

impl Configured for Softmax {
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

/// A layer of one operation that makes distributions, whose gradient reads what it has made.
trait Distribution {
    type Op: Into<Op>;

    /// The operation for a row of this shape.
    fn op(&self, shape: &Shape, direction: Direction) -> Self::Op;

    /// What the operation reads of the input.
    fn logits(&self, _b: &mut Builder, _cx: &Context, x: Value) -> Value {
        x
    }
}

impl<D: Distribution> OneInput for D {
    fn lower(&self, b: &mut Builder, cx: &Context, x: Value) -> Result<Forward> {
        let shape = b.shape(x).clone();
        let logits = self.logits(b, cx, x);
        let y = b.apply(self.op(&shape, Direction::Forward), &[logits], "y", shape);
        Ok(Forward::saving(y, vec![y]))
    }

    fn lower_backward(&self, b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>> {
        let shape = b.shape(back.gradient).clone();
        let op = self.op(&shape, Direction::InputGradient);
        Ok(Some(b.apply(op, &[back.forward.saved[0], back.gradient], "dx", shape)))
    }
}

/// The shape of the only input, which is to have a class.
fn of_classes(kind: &str, name: &str, inputs: &[Shape]) -> Result<Shape> {
    let input = single(kind, inputs)?;
    if input.rank() == 0 || input.is_empty() {
        return Err(shape_error(name, "at least one class", input));
    }
    Ok(input.clone())
}

impl Layer for Softmax {
    kind_and_config!();

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        of_classes(self.kind(), "Softmax", inputs)
    }

    fn is_stepwise(&self) -> bool {
        true
    }

    one_input!();

    fn absorb_loss(&self, loss: &LossFunction) -> Option<LossFunction> {
        match loss {
            LossFunction::CrossEntropy { .. } | LossFunction::NegativeLogLikelihood => {
                Some(LossFunction::CrossEntropy { temperature: self.temperature })
            }
            LossFunction::KullbackLeibler { .. } => {
                Some(LossFunction::KullbackLeibler { temperature: self.temperature })
            }
            LossFunction::Focal { gamma, .. } => {
                Some(LossFunction::Focal { temperature: self.temperature, gamma: *gamma })
            }
            _ => None,
        }
    }
}

impl Distribution for Softmax {
    type Op = ops::Softmax;

    fn op(&self, shape: &Shape, direction: Direction) -> ops::Softmax {
        let (outer, classes, inner) = class_extents(shape);
        ops::Softmax { direction, outer, classes, inner, temperature: self.temperature }
    }
}

//! Losses with their gradients, one pass over each row.

use super::Operation;
use crate::Result;
use crate::cpu::{Args, Real};
use std::fmt;

/// What is measured between an output o and a target t.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LossFunction {
    /// `-sum t log softmax(o / temperature)` over the class axis; o are logits.
    CrossEntropy {
        /// Divides the logits: that of a softmax layer which the loss has absorbed.
        temperature: f64,
    },
    /// `-sum t log max(o, 1e-12)` over the class axis; o are probabilities.
    NegativeLogLikelihood,
    /// `(o - t)^2`.
    MeanSquaredError,
    /// `|o - t|`; its gradient at 0 is 0.
    MeanAbsoluteError,
    /// `(o - t)^2 / 2` within delta of the target, `delta (|o - t| - delta / 2)` beyond.
    Huber {
        /// Where the parabola becomes a line; above zero.
        delta: f64,
    },
    /// `-(t log sigmoid(o) + (1 - t) log(1 - sigmoid(o)))`; o are logits.
    BinaryCrossEntropy,
}

/// A loss over (rows x outer, classes, inner), with its gradient.
///
/// Reads the output, the target, and one weight a row (rows,) if `weighted`.
/// Writes each row's loss, weighted and summed over the row's elements, not yet
/// divided (rows,), and, if `gradient`, the output's gradient, divided by the
/// step's `loss_divisor`.
#[derive(Clone, Debug)]
pub struct Loss {
    /// What is measured.
    pub function: LossFunction,
    /// Repetitions of the class axis for each row of the batch.
    pub outer: usize,
    /// Extent of the class axis.
    pub classes: usize,
    /// Elements between two classes.
    pub inner: usize,
    /// Whether targets are class indices (`i32`, outer x inner a row) instead of real numbers like the output.
    pub class_targets: bool,
    /// Mixes the target with the uniform distribution: `t (1 - s) + s / classes`.
    pub label_smoothing: f64,
    /// A factor for each class; those of the targets for class indices (as PyTorch has it).
    pub class_weight: Option<Vec<f64>>,
    /// Whether a weight for each row is read.
    pub weighted: bool,
    /// Whether the gradient is written.
    pub gradient: bool,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.function {
            LossFunction::CrossEntropy { .. } => "cross_entropy",
            LossFunction::NegativeLogLikelihood => "nll",
            LossFunction::MeanSquaredError => "mse",
            LossFunction::MeanAbsoluteError => "mae",
            LossFunction::Huber { .. } => "huber",
            LossFunction::BinaryCrossEntropy => "binary_cross_entropy",
        };
        write!(f, "loss.{name} {}x{}x{}", self.outer, self.classes, self.inner)
    }
}

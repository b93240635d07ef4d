//! Losses with their gradients, one pass over each row.

mod class;
mod cpu;
mod element;
mod gpu;
mod rows;
mod table;
mod targets;
#[cfg(test)]
mod tests;

pub use table::LossFunction;
pub use targets::{divisor, validate_targets};

use std::fmt;

/// A loss over (rows x outer, classes, inner), with its gradient.
///
/// Reads the output, the target, and if `weighted` one weight a row, (rows,), or with `by_place` one for each of
/// its places, which are steps of a sequence or pixels of an image, (rows, outer, inner).
/// Writes each row's loss, weighted and summed over the row's elements, not yet
/// divided (rows,), and, if `gradient`, the output's gradient, divided by the
/// step's `loss_divisor` ([`divisor`] says what that is). A divisor of 0, that of
/// weights which are all 0, makes the gradient 0.
///
/// Order of sums: the classes by the 16-lane rule, however far apart they lie; their
/// losses over `inner` by the 16-lane rule; over `outer` in order. A loss of single
/// elements sums each row's by the 16-lane rule; with `by_place` each step's, and the
/// steps in order, so that steps of no weight behind the others change no bit, and of
/// places `inner` apart each class's.
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
    /// Whether targets are class indices (`i32`, outer x inner a row) instead of real numbers
    /// like the output; only of cross-entropy, focal loss and likelihood, as are smoothing and weights of classes.
    pub class_targets: bool,
    /// Mixes the target with the uniform distribution: `t (1 - s) + s / classes`; 0 for losses of
    /// single elements.
    pub label_smoothing: f64,
    /// A factor for each class, of its part of the target (as PyTorch has it); none for losses of
    /// single elements.
    pub class_weight: Option<Vec<f64>>,
    /// Whether a weight for each row is read.
    pub weighted: bool,
    /// Whether there is one for each of its places instead, of which there are `outer` x `inner`.
    pub by_place: bool,
    /// Whether the gradient is written.
    pub gradient: bool,
    /// Whether the gradient is multiplied by the loss scale: the step's on the CPU, on a GPU that which
    /// the verdict on the step before has left.
    pub scaled: bool,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "loss.{} {}x{}x{}", self.function.name(), self.outer, self.classes, self.inner)
    }
}

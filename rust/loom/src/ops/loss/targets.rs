//! What a loss's targets must satisfy, and what the summed loss is divided by.

use super::{Loss, LossFunction};
use crate::simd::Real;
use crate::{Error, Result};

impl Loss {
    /// Whether the loss is one of distributions over classes, not of single elements.
    pub(super) fn is_over_classes(&self) -> bool {
        self.function.is_over_classes()
    }

    /// Class axes of one row: one class index each, where targets are such.
    pub(super) fn positions(&self) -> usize {
        self.outer * self.inner
    }

    /// Weights of one row.
    pub(crate) fn weights(&self) -> usize {
        match (self.weighted, self.by_place) {
            (false, _) => 0,
            (true, false) => 1,
            (true, true) => self.positions(),
        }
    }

    /// The loss of which a step is a row, where steps count by weights of their own, or places within them.
    pub(super) fn of_steps(&self) -> Option<Self> {
        let several = self.outer > 1 || self.inner == 1;
        let by_place = self.inner > 1;
        (self.weighted && self.by_place && several).then(|| Self { outer: 1, by_place, ..self.clone() })
    }

    /// Whether places that lie side by side within a step count by weights of their own.
    pub(super) fn weighs_inner(&self) -> bool {
        self.weighted && self.by_place && self.inner > 1
    }

    /// Elements of one row of the output.
    pub(super) fn elements(&self) -> usize {
        self.outer * self.classes * self.inner
    }
}

/// What the summed losses of `rows` rows are to be divided by for their mean.
///
/// A loss over classes counts class axes, as PyTorch does: with class indices and class
/// weights it adds up the weights of the indices instead. Other losses count elements.
/// Each row's count, or each place's, is multiplied by its weight where `weights` is not empty. `labels` are
/// the class indices, row after row; it is not looked at where targets are real.
pub fn divisor<T: Real>(op: &Loss, rows: usize, labels: &[i32], weights: &[T]) -> f64 {
    if let Some(of_steps) = op.of_steps() {
        return divisor(&of_steps, rows * op.outer, labels, weights);
    }
    let factor = |factors: &[f64], label: i32| {
        usize::try_from(label).ok().and_then(|class| factors.get(class)).copied().unwrap_or(0.0)
    };
    if op.weighs_inner() {
        let count = |place: usize| match &op.class_weight {
            Some(factors) if op.class_targets => factor(factors, labels.get(place).copied().unwrap_or(-1)),
            _ if op.is_over_classes() => 1.0,
            _ => op.classes as f64,
        };
        return weights.iter().enumerate().map(|(place, weight)| count(place) * weight.to_f64()).sum();
    }
    let count = |row: usize| match &op.class_weight {
        Some(factors) if op.class_targets => {
            let labels = labels.iter().skip(row * op.positions()).take(op.positions());
            labels.map(|label| factor(factors, *label)).sum()
        }
        _ if op.is_over_classes() => op.positions() as f64,
        _ => op.elements() as f64,
    };
    // There may be weights that do not count here, one for each of several outputs.
    let weights = if op.weighted { weights } else { &[] };
    (0..rows).map(|row| count(row) * weights.get(row).map_or(1.0, |weight| weight.to_f64())).sum()
}

/// Checks targets, and outputs that must be probabilities; an empty slice is not there to check.
///
/// # Errors
/// [`Error::Value`] naming the first element at fault: a class index out of range, a target
/// that is not finite or not within the range that the loss takes, a negative probability.
pub fn validate_targets<T: Real>(op: &Loss, output: &[T], targets: &[T], labels: &[i32]) -> Result<()> {
    validate_labels(op, labels)?;
    if let Some(i) = targets.iter().position(|target| !target.is_finite()) {
        return Err(Error::Value(format!(
            "{} is {}; every target must be a finite number",
            place(op, "the target", i),
            targets[i]
        )));
    }
    let range = op.function.target_range();
    if let Some(i) = targets.iter().position(|target| !range.contains(&target.to_f64())) {
        let least = range.start();
        let allowed = match *range.end() {
            f64::MAX => format!("of at least {least}"),
            most => format!("from {least} to {most}"),
        };
        return Err(Error::Value(format!(
            "{} is {}; {} takes targets {allowed}",
            place(op, "the target", i),
            targets[i],
            op.function.name()
        )));
    }
    validate_output(op, output)
}

/// Checks class indices.
pub(super) fn validate_labels(op: &Loss, labels: &[i32]) -> Result<()> {
    let known = |label: &i32| usize::try_from(*label).is_ok_and(|label| label < op.classes);
    match labels.iter().position(|label| !known(label)) {
        None => Ok(()),
        Some(i) => Err(Error::Value(format!(
            "class index {} of row {} is out of range: there are {} classes, numbered from 0 to {}; what is not to count \
             takes a weight of 0",
            labels[i],
            i / op.positions().max(1),
            op.classes,
            op.classes.saturating_sub(1)
        ))),
    }
}

/// Checks that the output of a network that ends in probabilities has no negative one.
pub(super) fn validate_output<T: Real>(op: &Loss, output: &[T]) -> Result<()> {
    if op.function != LossFunction::NegativeLogLikelihood {
        return Ok(());
    }
    match output.iter().position(|o| *o < T::ZERO) {
        None => Ok(()),
        Some(i) => Err(Error::Value(format!(
            "{} is {}, and nll takes probabilities, not their logarithms (as PyTorch's nll_loss does): \
             end the network in a softmax, or use cross_entropy on what it gives now",
            place(op, "the output", i),
            output[i]
        ))),
    }
}

/// "the target of row 3, element 4"
fn place(op: &Loss, what: &str, index: usize) -> String {
    let elements = op.elements().max(1);
    format!("{what} of row {}, element {},", index / elements, index % elements)
}

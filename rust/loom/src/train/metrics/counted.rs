//! What batches have come to, without the rows, steps and pixels that do not count.

use super::{ClassAxis, Truth};
use crate::Result;
use crate::ops::Loss;
use crate::simd::Real;
use crate::tensor::Tensor;
use crate::train::OwnedTargets;

/// Outputs and targets of what has a weight above 0, one behind the other: rows, or where places have weights of their
/// own, places.
#[derive(Clone, Debug)]
pub(in crate::train) struct Counted<T> {
    pub(in crate::train) output: Vec<T>,
    labels: Vec<i32>,
    targets: Vec<T>,
    classes: bool,
    by_place: bool,
    count: usize,
}

impl<T: Real> Counted<T> {
    /// Of what a loss has compared; `None` where that is rows, and all of them count.
    pub(in crate::train) fn of(op: &Loss, output: &[T], truth: Truth<'_, T>, weights: &[T]) -> Option<Self> {
        let by_place = op.by_place;
        let counts = |at: &usize| weights[*at].to_f64() > 0.0;
        if !op.weighted || (!by_place && (0..weights.len()).all(|row| counts(&row))) {
            return None;
        }
        let counting: Vec<usize> = (0..weights.len()).filter(counts).collect();
        let rows = weights.len().max(1);
        let of = |from: &[T]| -> Vec<T> {
            if !by_place {
                let row = from.len() / rows;
                return counting.iter().flat_map(|at| &from[at * row..][..row]).copied().collect();
            }
            let element = |at: usize, class: usize| {
                from[(at / op.inner * op.classes + class) * op.inner + at % op.inner]
            };
            counting.iter().flat_map(|at| (0..op.classes).map(move |class| element(*at, class))).collect()
        };
        let (mut labels, mut targets, mut classes) = (Vec::new(), Vec::new(), false);
        match truth {
            Truth::Real(all) => targets = of(all),
            Truth::Classes(all) => {
                let each = if by_place { 1 } else { all.len() / rows };
                labels = counting.iter().flat_map(|at| &all[at * each..][..each]).copied().collect();
                classes = true;
            }
        }
        Some(Self { output: of(output), labels, targets, classes, by_place, count: counting.len() })
    }

    pub(in crate::train) fn truth(&self) -> Truth<'_, T> {
        if self.classes { Truth::Classes(&self.labels) } else { Truth::Real(&self.targets) }
    }

    /// As arrays, of rows that have these extents: (rows, ...), or (places, classes).
    pub(in crate::train) fn owned(
        self,
        output: &[usize],
        target: &[usize],
    ) -> Result<(Tensor, OwnedTargets)> {
        let count = self.count;
        let classes = self.output.len() / count.max(1);
        let [output, target] = match self.by_place {
            true if self.classes => [vec![count, classes], vec![count]],
            true => [vec![count, classes], vec![count, classes]],
            false => [[&[count], output].concat(), [&[count], target].concat()],
        };
        let targets = match self.classes {
            true => OwnedTargets::Classes(target, self.labels),
            false => OwnedTargets::Real(Tensor::new(target, self.targets)?),
        };
        Ok((Tensor::new(output, self.output)?, targets))
    }
}

/// The class axis of what [`Counted`] leaves: places have their classes side by side.
pub(in crate::train) fn counted_axis(op: &Loss, axis: ClassAxis) -> ClassAxis {
    if op.weighted && op.by_place { ClassAxis { inner: 1, ..axis } } else { axis }
}

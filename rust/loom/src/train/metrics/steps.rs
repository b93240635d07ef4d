//! What batches of sequences have come to, without the steps that do not count.

use super::Truth;
use crate::Result;
use crate::ops::Loss;
use crate::simd::Real;
use crate::tensor::Tensor;
use crate::train::OwnedTargets;

/// Outputs and targets of the steps that have a weight, one behind the other.
#[derive(Clone, Debug)]
pub(in crate::train) struct RealSteps<T> {
    pub(in crate::train) output: Vec<T>,
    labels: Vec<i32>,
    targets: Vec<T>,
    classes: bool,
}

impl<T: Real> RealSteps<T> {
    /// Of a loss whose steps have weights of their own.
    pub(in crate::train) fn of(op: &Loss, output: &[T], truth: Truth<'_, T>, weights: &[T]) -> Self {
        let real: Vec<usize> = (0..weights.len()).filter(|step| weights[*step].to_f64() > 0.0).collect();
        let block = op.classes * op.inner;
        let of = |from: &[T]| real.iter().flat_map(|step| from[step * block..][..block].to_vec()).collect();
        let mut found = Self { output: of(output), labels: Vec::new(), targets: Vec::new(), classes: false };
        match truth {
            Truth::Real(targets) => found.targets = of(targets),
            Truth::Classes(labels) => {
                let of_step = |step: &usize| labels[step * op.inner..][..op.inner].to_vec();
                found.labels = real.iter().flat_map(of_step).collect();
                found.classes = true;
            }
        }
        found
    }

    pub(in crate::train) fn truth(&self) -> Truth<'_, T> {
        if self.classes { Truth::Classes(&self.labels) } else { Truth::Real(&self.targets) }
    }

    /// Each step as a row.
    pub(in crate::train) fn owned(self, op: &Loss) -> Result<(Tensor, OwnedTargets)> {
        let block = op.classes * op.inner;
        let count = self.output.len() / block.max(1);
        let mut shape = vec![count, op.classes];
        let mut labels = vec![count];
        if op.inner > 1 {
            shape.push(op.inner);
            labels.push(op.inner);
        }
        let targets = match self.classes {
            true => OwnedTargets::Classes(labels, self.labels),
            false => OwnedTargets::Real(Tensor::new(shape.clone(), self.targets)?),
        };
        Ok((Tensor::new(shape, self.output)?, targets))
    }
}

//! The kernel that says what steps count.

use super::{PooledSteps, StepWeights};
use crate::Result;
use crate::ops::{Args, Operation};
use crate::simd::Real;

impl Operation for StepWeights {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let (mask, weights) = (args.read::<T>(0), args.write::<T>(0));
        for (row, weights) in weights.chunks_exact_mut(self.steps).enumerate() {
            let real = |step: &usize| !self.masked || mask[row * self.steps + step] != T::ZERO;
            let mut steps = (0..self.steps).filter(real);
            weights.fill(T::ZERO);
            match self.of {
                PooledSteps::Mean => {
                    let share = T::ONE / T::from_usize(steps.clone().count().max(1));
                    steps.for_each(|step| weights[step] = share);
                }
                PooledSteps::First => steps.next().into_iter().for_each(|step| weights[step] = T::ONE),
                PooledSteps::Last => steps.next_back().into_iter().for_each(|step| weights[step] = T::ONE),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{Setting, assert_bits};

    #[test]
    fn padding_does_not_count() {
        let mask = [0.0f32, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        let of = |of, masked| Setting::new(2, &[&mask], &[8]).result(&StepWeights { of, steps: 4, masked });
        assert_bits(&of(PooledSteps::First, true), &[0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        assert_bits(&of(PooledSteps::Mean, true), &[0.0, 0.5, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0]);
        assert_bits(&of(PooledSteps::Last, true), &[0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        assert_bits(&of(PooledSteps::First, false), &[1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]);
        assert_bits(&of(PooledSteps::Mean, false), &[0.25; 8]);
        assert_bits(&of(PooledSteps::Last, false), &[0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]);
    }
}

//! Kernels that find padding, and clear it.

use super::{KeepSteps, LengthMask, StepMask};
use crate::Result;
use crate::ops::{Args, Operation};
use crate::simd::Real;

impl Operation for StepMask {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let x = args.read::<T>(0);
        let value = T::from_f64(self.value);
        for (step, mask) in x.chunks_exact(self.width).zip(args.write::<T>(0)) {
            let real = step.iter().any(|x| *x != value);
            *mask = if real { T::ONE } else { T::ZERO };
        }
        Ok(())
    }
}

impl Operation for LengthMask {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let lengths = args.read::<T>(0);
        for (length, mask) in lengths.iter().zip(args.write::<T>(0).chunks_exact_mut(self.steps)) {
            let length = length.to_f64();
            for (step, mask) in mask.iter_mut().enumerate() {
                *mask = if (step as f64) < length { T::ONE } else { T::ZERO };
            }
        }
        Ok(())
    }
}

impl Operation for KeepSteps {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let (mask, x) = (args.read::<T>(0), args.read::<T>(1));
        let y = args.write::<T>(0);
        for ((real, x), y) in mask.iter().zip(x.chunks_exact(self.width)).zip(y.chunks_exact_mut(self.width))
        {
            if *real == T::ZERO { y.fill(T::ZERO) } else { y.copy_from_slice(x) }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{Setting, assert_bits};

    #[test]
    fn a_step_of_nothing_but_the_value_is_padding() {
        let x = [0.5f32, -1.0, -1.0, -1.0, 0.0, 0.0, -1.0, 0.0];
        let op = StepMask { steps: 2, width: 2, value: -1.0 };
        assert_bits(&Setting::new(2, &[&x], &[4]).result(&op), &[1.0, 0.0, 1.0, 1.0]);
    }

    #[test]
    fn a_sequence_ends_where_its_length_says() {
        let setting = Setting::new(4, &[&[2.0f32, 0.0, 3.0, 1.0]], &[12]);
        let mask = [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0];
        assert_bits(&setting.result(&LengthMask { steps: 3 }), &mask);
    }

    #[test]
    fn padding_becomes_zeros_whatever_stands_there() {
        let x = [0.5f32, -1.0, f32::NAN, -1.0, -0.0, 3.0];
        let setting = Setting::new(1, &[&[1.0, 0.0, 1.0], &x], &[6]);
        assert_bits(&setting.result(&KeepSteps { width: 2 }), &[0.5, -1.0, 0.0, 0.0, -0.0, 3.0]);
    }
}

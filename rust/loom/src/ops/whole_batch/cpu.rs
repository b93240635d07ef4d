//! The kernel of a batch that is computed in one piece.

use super::{Shared, WholeBatch};
use crate::Result;
use crate::ops::{Args, Operation};
use crate::simd::Real;

impl Operation for WholeBatch {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let (first, second) = (args.read::<T>(0), args.read::<T>(1));
        args.write::<T>(0).copy_from_slice(first);
        args.write::<T>(1).copy_from_slice(second);
        if let Shared::Moments { inner } = self.of {
            let factor = T::from_f64(Self::unbiasing(args.rows * inner)?);
            for (unbiased, variance) in args.write::<T>(2).iter_mut().zip(second) {
                *unbiased = factor * *variance;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{Setting, cpus, numbers};

    #[test]
    fn a_batch_in_one_piece_is_the_whole() {
        let (mean, variance) = (numbers::<f32>(1, 5), numbers::<f32>(2, 5));
        let setting = Setting::new(3, &[&mean, &variance], &[5, 5, 5]);
        let results = setting.run(&WholeBatch { channels: 5, of: Shared::Moments { inner: 2 } });
        assert_eq!(results[0].real(), mean);
        assert_eq!(results[1].real(), variance);
        let unbiased: Vec<f32> = variance.iter().map(|it| it * 1.2).collect();
        assert_eq!(results[2].real(), unbiased);
        let setting = Setting::new(3, &[&mean, &variance], &[5, 5]);
        let results = setting.run(&WholeBatch { channels: 5, of: Shared::Sums });
        assert_eq!((results[0].real(), results[1].real()), (&mean[..], &variance[..]));
    }

    #[test]
    fn one_value_is_no_spread() {
        let one = [1.0f32];
        let setting = Setting::new(1, &[&one, &one], &[1, 1, 1]);
        let op = WholeBatch { channels: 1, of: Shared::Moments { inner: 1 } };
        let error = setting.run_on(&op, &cpus()[0]).unwrap_err().to_string();
        assert!(error.contains("more than one value a channel"), "{error}");
    }
}

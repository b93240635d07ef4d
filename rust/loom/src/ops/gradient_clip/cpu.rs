//! Kernels of clipping.

use super::{CHUNK, ClampGradient, ClipFactor, ScaleGradient, SquaredSum};
use crate::Result;
use crate::ops::element_loops::{PASS, lane_sums, map_inline, update};
use crate::ops::{Args, Operation};
use crate::simd::{Cpu, Kernel, Real, Vector};

/// Chunks whose sums are kept at once, on the stack.
const HELD: usize = 512;
/// Chunks of one task.
const TASK: usize = 8;

impl SquaredSum {
    /// The sums of a gradient's chunks, which may be elsewhere than the total that they join.
    pub(crate) fn chunks<T: Real>(cpu: &Cpu, gradient: &[T]) -> Vec<T> {
        let mut sums = vec![T::ZERO; gradient.len().div_ceil(CHUNK)];
        cpu.pool().for_each_chunk(&mut sums, TASK, |task, sums| {
            T::dispatch(cpu.isa(), Squares { gradient: &gradient[task * TASK * CHUNK..], sums });
        });
        sums
    }

    /// The total that these sums make with the one before.
    pub(crate) fn join<T: Real>(total: Option<T>, sums: &[T]) -> T {
        let before = total.map_or(0.0, |total| total.to_f64());
        T::from_f64(sums.iter().fold(before, |total, sum| total + sum.to_f64()))
    }
}

impl Operation for SquaredSum {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let gradient = args.read::<T>(0);
        let mut total = if self.first { 0.0 } else { args.read::<T>(1)[0].to_f64() };
        let isa = args.cpu.isa();
        let mut sums = [T::ZERO; HELD];
        for held in gradient.chunks(HELD * CHUNK) {
            let sums = &mut sums[..held.len().div_ceil(CHUNK)];
            args.cpu.pool().for_each_chunk(sums, TASK, |task, sums| {
                T::dispatch(isa, Squares { gradient: &held[task * TASK * CHUNK..], sums });
            });
            for sum in sums {
                total += sum.to_f64();
            }
        }
        args.write::<T>(0)[0] = T::from_f64(total);
        Ok(())
    }
}

/// The sums of squares of some chunks.
struct Squares<'a, T> {
    gradient: &'a [T],
    sums: &'a mut [T],
}

impl<T: Real> Kernel<T> for Squares<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        for (sum, chunk) in self.sums.iter_mut().zip(self.gradient.chunks(CHUNK)) {
            *sum = lane_sums(chunk, |g: V| g * g).reduce_sum();
        }
    }
}

impl Operation for ClipFactor {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let scale = if self.scaled { f64::from(args.values.loss_scale) } else { 1.0 };
        let norm = args.read::<T>(0)[0].to_f64().sqrt() / scale;
        let max_norm = args.values.max_norm;
        let factor = if norm > max_norm && norm.is_finite() { max_norm / norm } else { 1.0 } / scale;
        let result = args.write::<T>(0);
        result[0] = T::from_f64(norm);
        result[1] = T::from_f64(factor);
        Ok(())
    }
}

impl Operation for ScaleGradient {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let factor = args.read::<T>(0)[1];
        if factor == T::ONE {
            return Ok(());
        }
        let isa = args.cpu.isa();
        let gradient = args.write::<T>(0);
        args.cpu.pool().for_each_chunk(gradient, PASS, |_, gradient| {
            T::dispatch(isa, Scale { gradient, factor });
        });
        Ok(())
    }
}

/// Multiplies by one number.
struct Scale<'a, T> {
    gradient: &'a mut [T],
    factor: T,
}

impl<T: Real> Kernel<T> for Scale<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let factor = V::splat(self.factor);
        update(self.gradient, |g: V| g * factor);
    }
}

impl Operation for ClampGradient {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let limit = T::from_f64(args.values.clip_value);
        if limit == T::INFINITY {
            return Ok(());
        }
        let scaled = self.scaled;
        let limit = if scaled { limit * T::from_f64(f64::from(args.values.loss_scale)) } else { limit };
        let isa = args.cpu.isa();
        let gradient = args.write::<T>(0);
        args.cpu.pool().for_each_chunk(gradient, PASS, |_, gradient| {
            T::dispatch(isa, Clamp { gradient, limit, keeps_infinity: scaled });
        });
        Ok(())
    }
}

/// Clamps to plus or minus one number.
struct Clamp<'a, T> {
    gradient: &'a mut [T],
    limit: T,
    keeps_infinity: bool,
}

impl<T: Real> Kernel<T> for Clamp<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let (least, greatest) = (V::splat(-self.limit), V::splat(self.limit));
        let infinity = V::splat(T::INFINITY);
        // The gradient stands second, so that a NaN stays one.
        match self.keeps_infinity {
            false => update(self.gradient, |g: V| least.max(greatest.min(g))),
            true => map_inline!(self.gradient, |g: V| {
                V::select(g.abs().eq(infinity), g, least.max(greatest.min(g)))
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{Data, Setting, assert_bits, assert_close, lane_sum, numbers};
    use proptest::prelude::*;

    fn squared_sum<T: Real>(len: usize) {
        let gradient = numbers::<T>(5, len);
        let before = T::from_f64(0.3);
        let chunks = gradient.chunks(4096).map(|chunk| lane_sum(chunk.iter().map(|g| *g * *g)).to_f64());
        let expected = chunks.clone().fold(0.0, |total, chunk| total + chunk);
        let first = Setting::new(1, &[&gradient], &[1]).result(&SquaredSum { len, first: true });
        assert_bits(&first, &[T::from_f64(expected)]);
        let plain: f64 = gradient.iter().map(|g| g.to_f64().powi(2)).sum();
        assert_close(&first, &[plain], T::EPSILON.to_f64() * 1000.0);
        let expected = chunks.fold(before.to_f64(), |total, chunk| total + chunk);
        let next = Setting::new(1, &[&gradient, &[before]], &[1]).result(&SquaredSum { len, first: false });
        assert_bits(&next, &[T::from_f64(expected)]);
    }

    fn scale_and_clamp<T: Real>(len: usize, factor: f64, limit: f64) {
        let mut gradient = numbers::<T>(6, len);
        if len > 3 {
            gradient[len - 1] = T::NAN;
            gradient[2] = -T::INFINITY;
        }
        let mut setting = Setting::new(1, &[&[T::ONE, T::from_f64(factor)]], &[]);
        setting.values.clip_value = limit;
        setting.writes = vec![Data::Real(gradient.clone())];
        let scaled: Vec<T> = gradient.iter().map(|g| *g * T::from_f64(factor)).collect();
        assert_bits(&setting.result(&ScaleGradient { len }), &scaled);
        let (limit, low) = (T::from_f64(limit), T::from_f64(-limit));
        let clamp = |g: &T| {
            if *g > limit {
                limit
            } else if *g < low {
                low
            } else {
                *g
            }
        };
        let clamped: Vec<T> = gradient.iter().map(clamp).collect();
        assert_bits(&setting.result(&ClampGradient { len, scaled: false }), &clamped);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn squares_are_summed_in_the_documented_order(len in prop_oneof![0..100usize, 4000..13_000usize]) {
            squared_sum::<f32>(len);
            squared_sum::<f64>(len);
        }

        #[test]
        fn gradients_are_scaled_and_clamped(len in 0..100usize, factor in 0.0..1.0, limit in 0.0..2.0) {
            scale_and_clamp::<f32>(len, factor, limit);
            scale_and_clamp::<f64>(len, factor, limit);
        }
    }

    #[test]
    fn long_gradients_are_cut_into_tasks() {
        squared_sum::<f32>(HELD * CHUNK + 3 * CHUNK + 5);
        scale_and_clamp::<f32>(3 * PASS + 7, 0.5, 0.25);
    }

    #[test]
    fn the_factor_brings_a_larger_norm_down_to_the_limit() {
        let factor = |squares: f64, max_norm: f64| {
            let mut setting = Setting::new(1, &[&[squares]], &[2]);
            setting.values.max_norm = max_norm;
            let result = setting.result(&ClipFactor { scaled: false });
            (result[0], result[1])
        };
        assert_eq!(factor(16.0, 1.0), (4.0, 0.25));
        assert_eq!(factor(16.0, 4.0), (4.0, 1.0));
        assert_eq!(factor(16.0, f64::INFINITY), (4.0, 1.0));
        assert_eq!(factor(0.0, 1.0), (0.0, 1.0));
        assert_eq!(factor(f64::INFINITY, 1.0), (f64::INFINITY, 1.0));
        let (norm, factor) = factor(f64::NAN, 1.0);
        assert!(norm.is_nan() && factor == 1.0);
    }

    #[test]
    fn a_factor_of_one_and_an_infinite_limit_change_no_bit() {
        let gradient = vec![-0.0_f32, 1.0, f32::MIN_POSITIVE / 2.0, f32::INFINITY];
        let mut setting = Setting::new(1, &[&[3.0, 1.0]], &[]);
        setting.writes = vec![Data::Real(gradient.clone())];
        assert_bits(&setting.result(&ScaleGradient { len: 4 }), &gradient);
        assert_bits(&setting.result(&ClampGradient { len: 4, scaled: false }), &gradient);
    }
}

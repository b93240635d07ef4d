//! Kernels of the rectifier with learned slopes.

use super::Prelu;
use crate::Result;
use crate::ops::element_loops::{PASS, load, map2, store};
use crate::ops::{Args, Direction, Operation};
use crate::simd::{Kernel, LANES, Real, Vector};

impl Operation for Prelu {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let (isa, x, second) = (args.cpu.isa(), args.read::<T>(0), args.read::<T>(1));
        let result = args.write::<T>(0);
        let above = if self.direction == Direction::InputGradient { args.read::<T>(2) } else { x };
        // No element meets another, so tasks are cut anywhere.
        args.cpu.pool().for_each_chunk(result, PASS, |task, result| {
            let start = task * PASS;
            let part = start..start + result.len();
            let (x, above) = (&x[part.clone()], &above[part.clone()]);
            match self.direction {
                Direction::WeightGradient => T::dispatch(isa, Slopes { x, dy: &second[part], result }),
                _ => T::dispatch(isa, Rectify { x, above, slopes: second, inner: self.inner, start, result }),
            }
        });
        Ok(())
    }
}

/// `above` where x is above 0, `slope above` elsewhere, from element `start` on.
struct Rectify<'a, T> {
    x: &'a [T],
    above: &'a [T],
    slopes: &'a [T],
    inner: usize,
    start: usize,
    result: &'a mut [T],
}

impl<T: Real> Kernel<T> for Rectify<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let Self { x, above, slopes, inner, start, result } = self;
        let mut at = 0;
        while at < result.len() {
            // Elements to the end of a row of channels, or of what shares one slope.
            let (place, left) = (start + at, result.len() - at);
            let channel = place / inner % slopes.len();
            let (slopes, count) = match (slopes, inner) {
                ([_], _) => (slopes, left),
                (_, 1) => (&slopes[channel..], left.min(slopes.len() - channel)),
                _ => (&slopes[channel..=channel], left.min(inner - place % inner)),
            };
            for i in (0..count).step_by(LANES) {
                let part = at + i..at + count;
                let slope = if slopes.len() == 1 { V::splat(slopes[0]) } else { load(&slopes[i..]) };
                let (x, above) = (load::<V>(&x[part.clone()]), load::<V>(&above[part.clone()]));
                let y = V::select(x.gt(V::splat(T::ZERO)), above, slope * above);
                store(y, &mut result[part]);
            }
            at += count;
        }
    }
}

/// What each element adds to the gradient of its slope.
struct Slopes<'a, T> {
    x: &'a [T],
    dy: &'a [T],
    result: &'a mut [T],
}

impl<T: Real> Kernel<T> for Slopes<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let zero = V::splat(T::ZERO);
        map2(self.x, self.dy, self.result, |x: V, dy| V::select(x.gt(zero), zero, x * dy));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::BiasGradient;
    use crate::ops::testing::{Setting, assert_bits, assert_gradient, cpus, numbers};
    use proptest::prelude::*;

    /// (rows, channels, inner).
    type Extents = (usize, usize, usize);

    fn op(direction: Direction, (_, channels, inner): Extents) -> Prelu {
        Prelu { direction, channels, inner }
    }

    fn operands<T: Real>((rows, channels, inner): Extents) -> [Vec<T>; 3] {
        let len = rows * channels * inner;
        [numbers(1, len), numbers(2, channels), numbers(3, len)]
    }

    /// All three against the plain loops, bit for bit, on every instruction set.
    fn check<T: Real>(extents: Extents) {
        let (rows, channels, inner) = extents;
        let [x, slope, dy] = operands::<T>(extents);
        let len = x.len();
        let of = |i: usize| slope[i / inner % channels];
        let each = |f: &dyn Fn(usize) -> T| -> Vec<T> { (0..len).map(f).collect() };
        let result =
            |direction, reads: &[&[T]]| Setting::new(rows, reads, &[len]).result(&op(direction, extents));
        let y = each(&|i| if x[i] > T::ZERO { x[i] } else { of(i) * x[i] });
        assert_bits(&result(Direction::Forward, &[&x, &slope]), &y);
        let dx = each(&|i| if x[i] > T::ZERO { dy[i] } else { of(i) * dy[i] });
        assert_bits(&result(Direction::InputGradient, &[&x, &slope, &dy]), &dx);
        let parts = each(&|i| if x[i] > T::ZERO { T::ZERO } else { x[i] * dy[i] });
        assert_bits(&result(Direction::WeightGradient, &[&x, &dy]), &parts);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn values_and_gradients_are_those_of_the_plain_loops(
            rows in 1..9usize,
            channels in prop_oneof![Just(1), 2..60usize],
            inner in prop_oneof![Just(1), 2..60usize],
        ) {
            check::<f32>((rows, channels, inner));
            check::<f64>((rows, channels, inner));
        }
    }

    #[test]
    fn large_extents_are_cut_into_tasks() {
        for extents in [(300, 300, 1), (3, 40, 1000), (1, 1, 50_000), (40_000, 3, 1), (1, 2, PASS + 3)] {
            check::<f32>(extents);
        }
    }

    #[test]
    fn what_is_no_number_stays_none() {
        let (x, slope) = ([f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0], [0.5f32]);
        let forward = op(Direction::Forward, (1, 1, 4));
        let y = Setting::new(1, &[&x, &slope], &[4]).result(&forward);
        assert_bits(&y, &[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0]);
    }

    #[test]
    fn gradients_are_those_of_the_values() {
        for extents in [(3, 5, 1), (2, 3, 7), (2, 1, 11)] {
            let (rows, channels, inner) = extents;
            let [x, slope, dy] = operands::<f64>(extents);
            // Differences have no meaning across the corner.
            let x: Vec<f64> = x.iter().map(|x| if x.abs() < 0.01 { 0.5 } else { *x }).collect();
            let total = |x: &[f64], slope: &[f64]| {
                let forward = op(Direction::Forward, extents);
                let y = Setting::new(rows, &[x, slope], &[x.len()]).run_on(&forward, &cpus()[0]).unwrap();
                y[0].real().iter().zip(&dy).map(|(y, dy)| y * dy).sum::<f64>()
            };
            let result = |direction, reads: &[&[f64]]| {
                Setting::new(rows, reads, &[x.len()]).result(&op(direction, extents))
            };
            let dx = result(Direction::InputGradient, &[&x, &slope, &dy]);
            assert_gradient(&dx, &x, |x| total(x, &slope));
            let parts = result(Direction::WeightGradient, &[&x, &dy]);
            let sums = BiasGradient { outer: 1, channels, inner };
            let gradient = Setting::new(rows, &[&parts], &[channels]).result(&sums);
            assert_gradient(&gradient, &slope, |slope| total(&x, slope));
        }
    }
}

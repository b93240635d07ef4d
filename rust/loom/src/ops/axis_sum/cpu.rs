//! Kernels of the sum over an axis.

use super::AxisSum;
use crate::Result;
use crate::ops::element_loops::{PASS, load, rows_per_task, store};
use crate::ops::reduced_axis::{Apart, ReducedAxis, SideBySide};
use crate::ops::{Args, Operation};
use crate::simd::{Kernel, LANES, Real, Vector};

impl Operation for AxisSum {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let isa = args.cpu.isa();
        let Self { count, inner, .. } = *self;
        let blocks = rows_per_task(count * inner, PASS);
        let (x, result) = (args.read::<T>(0), args.write::<T>(0));
        args.cpu.pool().for_each_chunk(result, blocks * inner, |task, y| {
            let start = task * blocks * count * inner;
            let x = &x[start..start + y.len() * count];
            T::dispatch(isa, Blocks { x, y, count, inner });
        });
        Ok(())
    }
}

/// Whole blocks of (count, inner).
struct Blocks<'a, T> {
    x: &'a [T],
    y: &'a mut [T],
    count: usize,
    inner: usize,
}

impl<T: Real> Kernel<T> for Blocks<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let Self { x, y, count, inner } = self;
        for (x, y) in x.chunks_exact(count * inner).zip(y.chunks_exact_mut(inner)) {
            if inner == 1 {
                store(sum::<V>(SideBySide { classes: count }, x), y);
                continue;
            }
            for start in (0..inner).step_by(LANES) {
                let positions = LANES.min(inner - start);
                let axis = Apart { classes: count, inner, start, count: positions };
                store(sum::<V>(axis, x), &mut y[start..start + positions]);
            }
        }
    }
}

#[inline(always)]
fn sum<V: Vector>(axis: impl ReducedAxis<V>, x: &[V::Element]) -> V {
    let mut sums = axis.sums();
    for step in 0..axis.steps() {
        axis.add(&mut sums, step, load::<V>(&x[axis.part(step)]));
    }
    axis.total(sums)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{Setting, assert_bits, numbers};
    use proptest::prelude::*;

    /// Element `i` of the axis to sum `i % 16`, then one tree over the 16.
    fn plain<T: Real>(x: &[T], count: usize, inner: usize) -> Vec<T> {
        let one = |block: usize, position: usize| {
            let mut sums = [T::ZERO; LANES];
            for i in 0..count {
                sums[i % LANES] += x[(block * count + i) * inner + position];
            }
            for half in [8, 4, 2, 1] {
                for i in 0..half {
                    let other = sums[i + half];
                    sums[i] += other;
                }
            }
            sums[0]
        };
        let blocks = x.len() / (count * inner);
        (0..blocks)
            .flat_map(|block| (0..inner).map(move |position| (block, position)))
            .map(|(b, p)| one(b, p))
            .collect()
    }

    fn check<T: Real>(rows: usize, outer: usize, count: usize, inner: usize) {
        let x = numbers::<T>(5, rows * outer * count * inner);
        let setting = Setting::new(rows, &[&x], &[rows * outer * inner]);
        assert_bits(&setting.result(&AxisSum { outer, count, inner }), &plain(&x, count, inner));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn sums_follow_the_rule(
            rows in 1..5usize, outer in 1..4usize, count in 1..70usize,
            inner in prop_oneof![Just(1), 2..40usize],
        ) {
            check::<f32>(rows, outer, count, inner);
            check::<f64>(rows, outer, count, inner);
        }
    }

    #[test]
    fn large_extents_are_cut_into_tasks() {
        check::<f32>(1000, 3, 10, 1);
        check::<f32>(3, 1, 20, 1000);
        check::<f32>(2, 1, 50_000, 1);
    }
}

//! Kernels of weighted means on the CPU.

use super::{AbsoluteSums, LEAST_SUM, MeanTarget, WeightProduct};
use crate::Result;
use crate::matrix::{NoEpilogue, Output, Start, Strided, product};
use crate::ops::element_loops::{PASS, lane_sums, load, rows_per_task, store};
use crate::ops::{Args, Operation};
use crate::simd::{Kernel, LANES, Real, Vector};

impl Operation for AbsoluteSums {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let weight = args.read::<T>(0);
        let sums = args.write::<T>(0);
        let isa = args.cpu.isa();
        let rows = rows_per_task(self.outputs, PASS);
        args.cpu.pool().for_each_chunk(sums, rows, |task, sums| {
            let weight = &weight[task * rows * self.outputs..][..sums.len() * self.outputs];
            T::dispatch(isa, Magnitudes { weight, sums, columns: self.outputs });
        });
        Ok(())
    }
}

/// Some rows of [`AbsoluteSums`].
struct Magnitudes<'a, T> {
    weight: &'a [T],
    sums: &'a mut [T],
    columns: usize,
}

impl<T: Real> Kernel<T> for Magnitudes<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        for (sum, row) in self.sums.iter_mut().zip(self.weight.chunks_exact(self.columns)) {
            *sum = lane_sums::<V>(row, |x| x.abs()).reduce_sum();
        }
    }
}

impl Operation for WeightProduct {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let Self { inputs, outputs, groups, repeats, extent } = *self;
        let (a, b) = (args.read::<T>(0), args.read::<T>(1));
        let y = args.write::<T>(0);
        for block in 0..groups * repeats {
            let left = Strided::new(&a[block / repeats * extent..], extent, inputs, 1, groups * extent);
            let right = Strided::right(&b[block * extent * outputs..], extent, outputs);
            let start = if block == 0 { Start::Zero } else { Start::Continue };
            product(args.cpu, &left, &right, start, &NoEpilogue, Output::new(y, inputs, outputs));
        }
        Ok(())
    }
}

impl Operation for MeanTarget {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let (sums, weights, x) = (args.read::<T>(0), args.read::<T>(1), args.read::<T>(2));
        let mask = if self.mask { args.read::<T>(3) } else { &[] };
        let y = args.write::<T>(0);
        let isa = args.cpu.isa();
        let steps = rows_per_task(self.features, PASS);
        args.cpu.pool().for_each_chunk(y, steps * self.features, |task, y| {
            let first = task * steps;
            let x = &x[first * self.features..][..y.len()];
            T::dispatch(isa, Means { op: self, sums, weights, x, mask, y, first });
        });
        Ok(())
    }
}

impl MeanTarget {
    /// Which of the sums is that of step `step` of the batch; `None` where the step keeps what it is.
    fn sum_of<T: Real>(&self, mask: &[T], step: usize) -> Option<usize> {
        let real = |step: usize| mask.is_empty() || mask[step] != T::ZERO;
        let row = step / self.steps;
        if !real(step) {
            return None;
        }
        if !self.last {
            return Some(step);
        }
        let later = step + 1..(row + 1) * self.steps;
        (!later.into_iter().any(real)).then_some(row)
    }
}

/// Some steps of [`MeanTarget`].
struct Means<'a, T> {
    op: &'a MeanTarget,
    sums: &'a [T],
    weights: &'a [T],
    x: &'a [T],
    mask: &'a [T],
    y: &'a mut [T],
    first: usize,
}

impl<T: Real> Kernel<T> for Means<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let features = self.op.features;
        let steps = self.y.chunks_exact_mut(features).zip(self.x.chunks_exact(features));
        for (step, (y, x)) in steps.enumerate() {
            let Some(place) = self.op.sum_of(self.mask, self.first + step) else {
                y.copy_from_slice(x);
                continue;
            };
            let sums = self.sums[place * features..][..features].chunks(LANES);
            let parts = y.chunks_mut(LANES).zip(x.chunks(LANES));
            for (((y, x), sum), weight) in parts.zip(sums).zip(self.weights.chunks(LANES)) {
                let weight = load::<V>(weight);
                let mean = load::<V>(sum) / weight;
                store(V::select(weight.lt(V::constant(LEAST_SUM)), load(x), mean), y);
            }
        }
    }
}

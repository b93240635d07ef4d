//! Kernels of weights by direction and length beside a product of low rank.

use super::{OutputLengths, WithLengths};
use crate::Result;
use crate::ops::element_loops::{PASS, load, rows_per_task, store};
use crate::ops::matrix_sums::inverse;
use crate::ops::{Args, Direction, Operation};
use crate::simd::{Kernel, LANES, Real, Vector};

impl Operation for OutputLengths {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let (w, a, b) = (args.read::<T>(0), args.read::<T>(1), args.read::<T>(2));
        let (isa, lengths) = (args.cpu.isa(), args.write::<T>(0));
        let scale = T::from_f64(self.scale);
        let together = rows_per_task(self.inputs * (self.rank + 1), PASS).next_multiple_of(LANES);
        args.cpu.pool().for_each_chunk(lengths, together, |task, lengths| {
            let (start, columns, rank) = (task * together, self.outputs, self.rank);
            T::dispatch(isa, Lengths { columns, rank, start, scale, w, a, b, lengths });
        });
        Ok(())
    }
}

/// The lengths of some columns, from the column `start` on.
struct Lengths<'a, T> {
    columns: usize,
    rank: usize,
    start: usize,
    scale: T,
    w: &'a [T],
    a: &'a [T],
    b: &'a [T],
    lengths: &'a mut [T],
}

impl<T: Real> Kernel<T> for Lengths<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let Self { columns, rank, start, scale, w, a, b, lengths } = self;
        for (number, lengths) in lengths.chunks_mut(LANES).enumerate() {
            let first = start + number * LANES;
            let part = first..first + lengths.len();
            let mut squares = V::splat(T::ZERO);
            for (w, a) in w.chunks_exact(columns).zip(a.chunks_exact(rank)) {
                let mut sum: V = load(&w[part.clone()]);
                for (a, b) in a.iter().zip(b.chunks_exact(columns)) {
                    sum = V::splat(*a * scale).mul_add(load(&b[part.clone()]), sum);
                }
                squares = sum.mul_add(sum, squares);
            }
            store(squares, lengths);
            lengths.iter_mut().for_each(|length| *length = length.sqrt());
        }
    }
}

impl Operation for WithLengths {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let (x, other, lengths) = (args.read::<T>(0), args.read::<T>(1), args.read::<T>(2));
        let (isa, y) = (args.cpu.isa(), args.write::<T>(0));
        let together = rows_per_task(self.outputs, PASS) * self.outputs;
        args.cpu.pool().for_each_chunk(y, together, |task, y| {
            let part = task * together..task * together + y.len();
            let (magnitudes, dy) = match self.direction {
                Direction::WeightGradient => (None, Some(&other[part.clone()])),
                _ => (Some(other), None),
            };
            T::dispatch(isa, Scaled { x: &x[part], magnitudes, dy, lengths, y });
        });
        Ok(())
    }
}

/// Some rows by the lengths, times the magnitudes or what has as many rows.
struct Scaled<'a, T> {
    x: &'a [T],
    magnitudes: Option<&'a [T]>,
    dy: Option<&'a [T]>,
    lengths: &'a [T],
    y: &'a mut [T],
}

impl<T: Real> Kernel<T> for Scaled<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let Self { x, magnitudes, dy, lengths, y } = self;
        let columns = lengths.len();
        for first in (0..columns).step_by(LANES) {
            let part = first..columns.min(first + LANES);
            let mut factors = [T::ZERO; LANES];
            for (lane, column) in part.clone().enumerate() {
                let inverse = inverse(lengths[column]);
                factors[lane] = magnitudes.map_or(inverse, |magnitudes| magnitudes[column] * inverse);
            }
            let factors: V = load(&factors);
            for (number, y) in y.chunks_exact_mut(columns).enumerate() {
                let at = number * columns;
                let mut value: V = load(&x[at..][part.clone()]);
                if let Some(dy) = dy {
                    value = value * load(&dy[at..][part.clone()]);
                }
                store(value * factors, &mut y[part.clone()]);
            }
        }
    }
}

//! Kernels of weighted sums.

use super::{Mix, MixPart, Scale};
use crate::Result;
use crate::ops::element_loops::{PASS, lane_sums2, load, map, rows_per_task, store};
use crate::ops::{Args, Operation};
use crate::simd::{Kernel, LANES, Real, Vector};

impl Operation for Scale {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let x = args.read::<T>(0);
        let y = args.write::<T>(0);
        let isa = args.cpu.isa();
        let factor = T::from_f64(self.factor);
        args.cpu.pool().for_each_chunk(y, PASS, |task, y| {
            let x = &x[task * PASS..][..y.len()];
            T::dispatch(isa, Times { x, y, factor });
        });
        Ok(())
    }
}

struct Times<'a, T> {
    x: &'a [T],
    y: &'a mut [T],
    factor: T,
}

impl<T: Real> Kernel<T> for Times<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let factor = V::splat(self.factor);
        map::<V>(self.x, self.y, |x| x * factor);
    }
}

impl Operation for Mix {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let (a, b) = (args.read::<T>(0), args.read::<T>(1));
        let y = args.write::<T>(0);
        let isa = args.cpu.isa();
        let stacked = self.branches * self.len;
        // Elements of a row of each operand and of the result.
        let (of_a, of_b, of_y) = match self.part {
            MixPart::Forward => (self.branches, stacked, self.len),
            MixPart::BranchGradient => (self.branches, self.len, stacked),
            MixPart::WeightGradient => (stacked, self.len, self.branches),
        };
        let rows = rows_per_task(stacked, PASS);
        args.cpu.pool().for_each_chunk(y, rows * of_y, |task, y| {
            let first = task * rows;
            for (row, y) in y.chunks_exact_mut(of_y).enumerate() {
                let a = &a[(first + row) * of_a..][..of_a];
                let b = &b[(first + row) * of_b..][..of_b];
                T::dispatch(isa, Row { part: self.part, len: self.len, a, b, y });
            }
        });
        Ok(())
    }
}

/// One row of a [`Mix`].
struct Row<'a, T> {
    part: MixPart,
    len: usize,
    a: &'a [T],
    b: &'a [T],
    y: &'a mut [T],
}

impl<T: Real> Kernel<T> for Row<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let Row { part, len, a, b, y } = self;
        match part {
            MixPart::Forward => {
                for (start, y) in (0..len).step_by(LANES).zip(y.chunks_mut(LANES)) {
                    let mut sum = V::splat(T::ZERO);
                    for (weight, branch) in a.iter().zip(b.chunks_exact(len)) {
                        sum = load::<V>(&branch[start..]).mul_add(V::splat(*weight), sum);
                    }
                    store(sum, y);
                }
            }
            MixPart::BranchGradient => {
                for (weight, y) in a.iter().zip(y.chunks_exact_mut(len)) {
                    let weight = V::splat(*weight);
                    map::<V>(b, y, |g| g * weight);
                }
            }
            MixPart::WeightGradient => {
                for (branch, y) in a.chunks_exact(len).zip(y) {
                    *y = lane_sums2::<V>(branch, b, |y, g| y * g).reduce_sum();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{Setting, assert_bits, lane_sum, numbers};
    use proptest::prelude::*;

    fn check<T: Real>(rows: usize, branches: usize, len: usize) {
        let w: Vec<T> = numbers(1, rows * branches);
        let y: Vec<T> = numbers(2, rows * branches * len);
        let g: Vec<T> = numbers(3, rows * len);
        let (mut sum, mut to_y, mut to_w) = (Vec::new(), Vec::new(), Vec::new());
        for row in 0..rows {
            let w = &w[row * branches..][..branches];
            let y = &y[row * branches * len..][..branches * len];
            let g = &g[row * len..][..len];
            for j in 0..len {
                sum.push((0..branches).fold(T::ZERO, |sum, i| y[i * len + j].mul_add(w[i], sum)));
            }
            for i in 0..branches {
                to_y.extend(g.iter().map(|g| *g * w[i]));
                let products: Vec<T> = (0..len).map(|j| y[i * len + j] * g[j]).collect();
                to_w.push(lane_sum(products));
            }
        }
        let op = |part| Mix { part, branches, len };
        let run = |part, a: &[T], b: &[T], n: usize| Setting::new(rows, &[a, b], &[n]).result(&op(part));
        assert_bits(&run(MixPart::Forward, &w, &y, sum.len()), &sum);
        assert_bits(&run(MixPart::BranchGradient, &w, &g, to_y.len()), &to_y);
        assert_bits(&run(MixPart::WeightGradient, &y, &g, to_w.len()), &to_w);
        let scaled: Vec<T> = y.iter().map(|y| *y * T::from_f64(0.25)).collect();
        assert_bits(&Setting::new(rows, &[&y], &[y.len()]).result(&Scale { factor: 0.25 }), &scaled);
    }

    proptest! {
        #[test]
        fn sums_are_weighted_in_order(rows in 1..4usize, branches in 1..6usize, len in 1..50usize) {
            check::<f32>(rows, branches, len);
            check::<f64>(rows, branches, len);
        }
    }
}

//! Kernels of weights by their largest singular value.

use super::{LEAST, SpectralNorm};
use crate::Result;
use crate::ops::matrix_sums::{column_products, for_each_row, length, row_products, total};
use crate::ops::{Args, Direction, Operation};
use crate::simd::{Elementwise, Real};

impl Operation for SpectralNorm {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        match self.direction {
            Direction::Forward => self.forward::<T>(args),
            _ => self.backward::<T>(args),
        }
        Ok(())
    }
}

fn at_least<T: Real>(length: T) -> T {
    Elementwise::max(length, T::from_f64(LEAST))
}

impl SpectralNorm {
    fn forward<T: Real>(&self, args: &mut Args<'_>) {
        let (w, u) = (args.read::<T>(0), args.read::<T>(1));
        let [y, next, v, sizes] = [0, 1, 2, 3].map(|number| args.write::<T>(number));
        let cpu = args.cpu;
        row_products(cpu, self.columns, w, u, v);
        sizes[1] = length(cpu, v);
        let share = T::ONE / at_least(sizes[1]);
        v.iter_mut().for_each(|v| *v *= share);
        column_products(cpu, w, v, next);
        sizes[0] = length(cpu, next);
        let share = T::ONE / at_least(sizes[0]);
        next.iter_mut().for_each(|u| *u *= share);
        for_each_row(cpu, self.columns, y, |number, row| {
            for (y, w) in row.iter_mut().zip(&w[number * self.columns..]) {
                *y = *w * share;
            }
        });
    }

    fn backward<T: Real>(&self, args: &mut Args<'_>) {
        let [w, u, next, v, sizes, dy] = [0, 1, 2, 3, 4, 5].map(|number| args.read::<T>(number));
        let (dw, working) = (args.write::<T>(0), args.write::<T>(1));
        let (cpu, columns) = (args.cpu, self.columns);
        let (c, sums) = working.split_at_mut(self.rows);
        row_products(cpu, columns, dy, w, sums);
        let share = T::ONE / at_least(sizes[0]);
        let factor = total(cpu, sums) * share * share;
        row_products(cpu, columns, w, next, c);
        let inverse = T::ONE / at_least(sizes[1]);
        for (c, v) in c.iter_mut().zip(v) {
            *c = (*c - sizes[0] * *v) * inverse;
        }
        for_each_row(cpu, columns, dw, |number, row| {
            let dy = &dy[number * columns..];
            for (i, dw) in row.iter_mut().enumerate() {
                let turned = v[number] * next[i] + c[number] * u[i];
                *dw = dy[i] * share - turned * factor;
            }
        });
    }
}

//! Kernels of weights by direction and length.

use super::WeightNorm;
use crate::Result;
use crate::ops::matrix_sums::{column_products, for_each_row, inverse};
use crate::ops::{Args, Direction, Operation};
use crate::simd::Real;

impl Operation for WeightNorm {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let (v, gain) = (args.read::<T>(0), args.read::<T>(1));
        let (matrix, vector) = (args.write::<T>(0), args.write::<T>(1));
        let (cpu, columns) = (args.cpu, self.columns);
        if self.direction == Direction::Forward {
            column_products(cpu, v, v, vector);
            vector.iter_mut().for_each(|length| *length = length.sqrt());
            let lengths = &*vector;
            for_each_row(cpu, columns, matrix, |number, row| {
                let v = &v[number * columns..][..columns];
                for (((w, v), gain), length) in row.iter_mut().zip(v).zip(gain).zip(lengths) {
                    *w = *v * (*gain * inverse(*length));
                }
            });
            return Ok(());
        }
        let (lengths, dw) = (args.read::<T>(2), args.read::<T>(3));
        column_products(cpu, dw, v, vector);
        vector.iter_mut().zip(lengths).for_each(|(dgain, length)| *dgain *= inverse(*length));
        let dgain = &*vector;
        for_each_row(cpu, columns, matrix, |number, row| {
            let (v, dw) = (&v[number * columns..][..columns], &dw[number * columns..][..columns]);
            for (i, dv) in row.iter_mut().enumerate() {
                let inverse = inverse(lengths[i]);
                *dv = (dw[i] - v[i] * (dgain[i] * inverse)) * (gain[i] * inverse);
            }
        });
        Ok(())
    }
}

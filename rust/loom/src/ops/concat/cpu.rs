//! Kernels that copy parts of rows.

use super::{Concat, Slice};
use crate::Result;
use crate::ops::element_loops::PASS;
use crate::ops::{Args, MAX_READS, Operation};
use crate::simd::Real;

impl Operation for Concat {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let mut operands: [&[T]; MAX_READS] = [&[]; MAX_READS];
        for (i, operand) in operands[..self.parts.len()].iter_mut().enumerate() {
            *operand = args.read(i);
        }
        let y = args.write::<T>(0);
        // Whole repetitions a task.
        let chunk = PASS.div_ceil(self.total) * self.total;
        args.cpu.pool().for_each_chunk(y, chunk, |task, y| {
            let first = task * (chunk / self.total);
            for (i, y) in y.chunks_exact_mut(self.total).enumerate() {
                let mut end = 0;
                for (&(start, length), x) in self.parts.iter().zip(operands) {
                    y[end..start].fill(T::ZERO);
                    end = start + length;
                    y[start..end].copy_from_slice(&x[(first + i) * length..][..length]);
                }
                y[end..].fill(T::ZERO);
            }
        });
        Ok(())
    }
}

impl Operation for Slice {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let x = args.read::<T>(0);
        let y = args.write::<T>(0);
        let chunk = PASS.div_ceil(self.length) * self.length;
        args.cpu.pool().for_each_chunk(y, chunk, |task, y| {
            let first = task * (chunk / self.length);
            for (i, y) in y.chunks_exact_mut(self.length).enumerate() {
                y.copy_from_slice(&x[(first + i) * self.total + self.start..][..self.length]);
            }
        });
        Ok(())
    }
}

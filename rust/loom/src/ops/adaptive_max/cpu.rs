//! Kernels of the maximum of adaptive windows: comparisons alone, so one code for all instruction sets.

use super::AdaptiveMax;
use crate::ops::element_loops::{PASS, rows_per_task};
use crate::ops::{Args, Direction, Operation};
use crate::simd::Real;
use crate::{Error, Result};

impl Operation for AdaptiveMax {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let (input, output) = self.volumes();
        let pool = args.cpu.pool();
        let count = rows_per_task(input.max(output), PASS);
        let read = args.read::<T>(0);
        let written = args.write::<T>(0);
        match self.direction {
            Direction::Forward => {
                let indices = args.write::<i32>(1);
                let chunk = count * output;
                pool.for_each_chunk2((written, chunk), (indices, chunk), |task, y, indices| {
                    let volumes = read[task * count * input..].chunks_exact(input);
                    let results = y.chunks_exact_mut(output).zip(indices.chunks_exact_mut(output));
                    for (x, (y, indices)) in volumes.zip(results) {
                        self.largest(x, y, indices);
                    }
                });
            }
            Direction::InputGradient => {
                let indices = args.read::<i32>(1);
                pool.for_each_chunk(written, count * input, |task, dx| {
                    let start = task * count * output;
                    let from = read[start..].chunks_exact(output).zip(indices[start..].chunks_exact(output));
                    for (dx, (dy, indices)) in dx.chunks_exact_mut(input).zip(from) {
                        dx.fill(T::ZERO);
                        for (dy, index) in dy.iter().zip(indices) {
                            dx[*index as usize] += *dy;
                        }
                    }
                });
            }
            Direction::WeightGradient => {
                return Err(Error::Internal("pooling has no weight to take a gradient of".into()));
            }
        }
        Ok(())
    }
}

impl AdaptiveMax {
    /// The maxima of one volume and where they lie.
    fn largest<T: Real>(&self, x: &[T], y: &mut [T], indices: &mut [i32]) {
        let [_, height, width] = self.input;
        let mut results = y.iter_mut().zip(indices);
        for plane in 0..self.output[0] {
            let (front, back) = self.window(0, plane);
            for row in 0..self.output[1] {
                let (top, bottom) = self.window(1, row);
                for column in 0..self.output[2] {
                    let (left, right) = self.window(2, column);
                    let mut at = (front * height + top) * width + left;
                    let mut best = x[at];
                    for line in (front..back).flat_map(|d| (top..bottom).map(move |h| d * height + h)) {
                        let line = line * width;
                        for (i, candidate) in x[line + left..line + right].iter().enumerate() {
                            if *candidate > best || candidate.is_nan() {
                                (best, at) = (*candidate, line + left + i);
                            }
                        }
                    }
                    if let Some((y, index)) = results.next() {
                        (*y, *index) = (best, at as i32);
                    }
                }
            }
        }
    }
}

//! Runs pooling: cuts the channels into tasks, hands each to its kernel.

use super::average::{AverageBackward, AverageForward};
use super::max::{MaxBackward, MaxForward};
use super::{Pool, PoolKind};
use crate::ops::element_loops::{PASS, rows_per_task};
use crate::ops::{Args, Direction, Operation, pointwise};
use crate::simd::Real;
use crate::{Error, Result};

impl Operation for Pool {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let geometry = self.geometry;
        debug_assert!(geometry.bordered().is_some(), "{self}: places beyond what kernels count");
        let (input, output) = geometry.volumes();
        let (isa, pool) = (args.cpu.isa(), args.cpu.pool());
        let count = rows_per_task(input.max(output), PASS);
        let (input, output) = (count * input, count * output);
        let read = args.read::<T>(0);
        let written = args.write::<T>(0);
        match (self.direction, self.kind) {
            (Direction::Forward, PoolKind::Max) => {
                let indices = args.write::<i32>(1);
                pool.for_each_chunk2((written, output), (indices, output), |task, y, indices| {
                    let x = tail(read, task * input);
                    T::dispatch(isa, MaxForward { geometry, x, y, indices });
                });
            }
            (Direction::Forward, PoolKind::Average { count_padding }) => {
                pool.for_each_chunk(written, output, |task, y| {
                    let x = tail(read, task * input);
                    T::dispatch(isa, AverageForward { geometry, count_padding, x, y });
                });
            }
            (Direction::InputGradient, PoolKind::Max) => {
                let indices = args.read::<i32>(1);
                let derivative = self.derivative.map(|activation| (activation, args.read::<T>(2)));
                pool.for_each_chunk(written, input, |task, dx| {
                    let (dy, indices) = (tail(read, task * output), tail(indices, task * output));
                    T::dispatch(isa, MaxBackward { geometry, dy, indices, dx: &mut *dx });
                    // While the volumes are in the cache.
                    if let Some((activation, saved)) = derivative {
                        let saved = &tail(saved, task * input)[..dx.len()];
                        pointwise::derive_in_place(isa, activation, saved, dx);
                    }
                });
            }
            (Direction::InputGradient, PoolKind::Average { count_padding }) => {
                let derivative = self.derivative.map(|activation| (activation, args.read::<T>(1)));
                pool.for_each_chunk(written, input, |task, dx| {
                    let dy = tail(read, task * output);
                    T::dispatch(isa, AverageBackward { geometry, count_padding, dy, dx: &mut *dx });
                    // While the volumes are in the cache.
                    if let Some((activation, saved)) = derivative {
                        let saved = &tail(saved, task * input)[..dx.len()];
                        pointwise::derive_in_place(isa, activation, saved, dx);
                    }
                });
            }
            (Direction::WeightGradient, _) => {
                return Err(Error::Internal("pooling has no weight to take a gradient of".into()));
            }
        }
        Ok(())
    }
}

/// The elements from `start` on; kernels stop where their results end.
fn tail<T>(elements: &[T], start: usize) -> &[T] {
    &elements[start..]
}

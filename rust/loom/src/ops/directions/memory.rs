//! What directions are made in on the processor, and sums over it.

use crate::ops::element_loops::lane_sums;
use crate::simd::{Cpu, Kernel, Real, Vector};

/// What there is on the processor.
pub(super) struct Memory<'a, T> {
    pub(super) gradient: &'a [T],
    pub(super) master: &'a [T],
    pub(super) moments: Vec<&'a [T]>,
    pub(super) direction: &'a mut [T],
    pub(super) next: Vec<&'a mut [T]>,
    pub(super) scratch: &'a mut [T],
}

/// Elements whose squares are summed before they join a total.
const CHUNK: usize = 4096;

/// The sum of squares, each plus an addend: chunks by the 16-lane rule, their totals in order in `f64`.
pub(super) fn squares<T: Real>(cpu: &Cpu, values: &[T], addend: f64) -> f64 {
    let mut sums = vec![T::ZERO; values.len().div_ceil(CHUNK)];
    cpu.pool().for_each_chunk(&mut sums, 1, |chunk, sum| {
        let start = chunk * CHUNK;
        let values = &values[start..values.len().min(start + CHUNK)];
        sum[0] = T::dispatch(cpu.isa(), Squares { values, addend: T::from_f64(addend) });
    });
    sums.iter().map(|sum| sum.to_f64()).sum()
}

/// The sum of a chunk.
struct Squares<'a, T> {
    values: &'a [T],
    addend: T,
}

impl<T: Real> Kernel<T> for Squares<'_, T> {
    type Output = T;

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) -> T {
        let addend = V::splat(self.addend);
        lane_sums(self.values, |x: V| x * x + addend).reduce_sum()
    }
}

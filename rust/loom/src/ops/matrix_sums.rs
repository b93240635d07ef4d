//! Sums over the rows and the columns of a matrix that is a parameter, or made of one.

use crate::ops::element_loops::{PASS, lane_sums, lane_sums2, load, rows_per_task, store};
use crate::simd::{Cpu, Kernel, LANES, Real, Vector};

/// Of each column of a matrix the sum of its products with another matrix, or with one number for each row, over the
/// rows in order with fused multiply-add.
pub(super) fn column_products<T: Real>(cpu: &Cpu, a: &[T], b: &[T], sums: &mut [T]) {
    let columns = sums.len();
    let rows = a.len() / columns;
    let together = (PASS / rows.max(1)).next_multiple_of(LANES).max(LANES);
    cpu.pool().for_each_chunk(sums, together, |task, sums| {
        T::dispatch(cpu.isa(), ColumnProducts { columns, start: task * together, a, b, sums });
    });
}

/// Of each row of a matrix the sum of its products with that of another matrix, or with one vector, by the 16-lane
/// rule.
pub(super) fn row_products<T: Real>(cpu: &Cpu, columns: usize, a: &[T], b: &[T], sums: &mut [T]) {
    let together = rows_per_task(columns, PASS);
    cpu.pool().for_each_chunk(sums, together, |task, sums| {
        T::dispatch(cpu.isa(), RowProducts { columns, start: task * together, a, b, sums });
    });
}

/// Calls `body` with each row's number and the row.
pub(super) fn for_each_row<T: Real>(
    cpu: &Cpu,
    columns: usize,
    matrix: &mut [T],
    body: impl Fn(usize, &mut [T]) + Sync,
) {
    let together = rows_per_task(columns, PASS);
    cpu.pool().for_each_chunk(matrix, together * columns, |task, rows| {
        for (number, row) in rows.chunks_exact_mut(columns).enumerate() {
            body(task * together + number, row);
        }
    });
}

/// The sum of a vector's elements by the 16-lane rule.
pub(super) fn total<T: Real>(cpu: &Cpu, x: &[T]) -> T {
    T::dispatch(cpu.isa(), Total(x))
}

/// The length of a vector.
pub(super) fn length<T: Real>(cpu: &Cpu, x: &[T]) -> T {
    let mut sum = [T::ZERO];
    T::dispatch(cpu.isa(), RowProducts { columns: x.len(), start: 0, a: x, b: x, sums: &mut sum });
    sum[0].sqrt()
}

/// `1 / x` of a length, and 0 of 0.
pub(super) fn inverse<T: Real>(x: T) -> T {
    if x > T::ZERO { T::ONE / x } else { T::ZERO }
}

struct Total<'a, T>(&'a [T]);

impl<T: Real> Kernel<T> for Total<'_, T> {
    type Output = T;

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) -> T {
        lane_sums(self.0, |x: V| x).reduce_sum()
    }
}

struct ColumnProducts<'a, T> {
    columns: usize,
    /// The first column.
    start: usize,
    a: &'a [T],
    b: &'a [T],
    sums: &'a mut [T],
}

impl<T: Real> Kernel<T> for ColumnProducts<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let Self { columns, start, a, b, sums } = self;
        let by_row = a.len() != b.len();
        for (number, sums) in sums.chunks_mut(LANES).enumerate() {
            let mut total = V::splat(T::ZERO);
            for (row, a) in a.chunks_exact(columns).enumerate() {
                let place = start + number * LANES;
                let part = place..place + sums.len();
                let other = match by_row {
                    true => V::splat(b[row]),
                    false => load(&b[row * columns..][part.clone()]),
                };
                total = load::<V>(&a[part]).mul_add(other, total);
            }
            store(total, sums);
        }
    }
}

struct RowProducts<'a, T> {
    columns: usize,
    /// The first row.
    start: usize,
    a: &'a [T],
    b: &'a [T],
    sums: &'a mut [T],
}

impl<T: Real> Kernel<T> for RowProducts<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let Self { columns, start, a, b, sums } = self;
        for (number, sum) in sums.iter_mut().enumerate() {
            let row = (start + number) * columns;
            let other = if b.len() == columns { b } else { &b[row..][..columns] };
            *sum = lane_sums2(&a[row..][..columns], other, |a: V, b| a * b).reduce_sum();
        }
    }
}

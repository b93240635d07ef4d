//! Products of rows quantised to int8 and weights of symmetric integers, with sums in 32-bit integers.
//!
//! Row i of A has one scale: S_i = (largest magnitude) / 127, 1 where that is 0, and codes
//! a = rint(A / S_i), half to even. With the weight's codes b and its scales S_g, one for each group g of k
//! that shares one in a column,
//!
//! ```text
//! sum = 0
//! for g in groups { sum = fma(f32(sum over k in g of a[i, k] b[k, j]), S_g[j], sum) }
//! C[i, j] = epilogue(sum S_i)          (or C's element + sum S_i, to continue)
//! ```
//!
//! The inner sums are exact, as long as k is less than [`DEPTH_LIMIT`], so that they are the same integers
//! whatever adds them up: four products an instruction where there is VNNI, two elsewhere, one without vector
//! instructions, or a GPU. What follows is in one order.

mod blocks;
mod codes;
mod dots;
mod flat;
mod limits;
mod plain;
mod right;
mod route;
mod rows;
mod scratch;
#[cfg(test)]
mod tests;

pub use codes::IntegerWeight;
pub use limits::DEPTH_LIMIT;
use limits::{COLUMNS, FEW};
use plain::PlainRows;
pub use right::IntegerRight;
pub use route::Route;
pub use rows::QuantizedRows;

use super::{Epilogue, Output, Start};
use crate::Buffer;
use crate::simd::Cpu;
use scratch::{Scratch, add_sums};
use std::cell::Cell;
use std::ops::Range;

/// The most rows of a task.
const ROWS: usize = 256;

thread_local! {
    /// Where the calling thread keeps quantised rows.
    static QUANTIZED: Cell<Buffer> = Cell::new(Buffer::default());
}

/// Computes C = A B, or C += A B, with the `rows` rows of A quantised to int8; then applies `epilogue`.
///
/// Spread over the pool. Allocates nothing but, the first time a thread needs them, buffers that it keeps.
///
/// # Panics
/// If the extents do not fit each other.
pub fn integer_product(
    cpu: &Cpu,
    a: &[f32],
    weight: &IntegerWeight<'_>,
    start: Start,
    epilogue: &dyn Epilogue<f32>,
    c: Output<'_, f32>,
) {
    let (depth, n) = weight.extents();
    assert_eq!(
        (a.len(), n),
        (c.rows * depth, c.columns),
        "A[m, k], B[k, n] and C[m, n] do not fit each other"
    );
    if c.rows == 0 || n == 0 {
        return;
    }
    let route = Route::best(cpu.isa());
    let mut memory = QUANTIZED.take();
    let flat = weight.in_rows().filter(|_| c.rows <= FEW);
    let blocks = weight.in_blocks();
    if depth > 0 && (blocks.is_some() || flat.is_some()) {
        let rows = PlainRows::new(route.isa(), a, c.rows, depth, &mut memory);
        if let Some(blocks) = blocks {
            blocks::product((cpu, route), &rows, blocks, start, epilogue, &c);
        } else if let Some(flat) = flat {
            flat::product((cpu, route), &rows, flat, start, epilogue, &c);
        }
        QUANTIZED.set(memory);
        return;
    }
    let quantized = QuantizedRows::new(cpu, route, a, c.rows, depth, &mut memory);

    let strips = n.div_ceil(COLUMNS);
    // Where columns alone give the threads too little to share, rows are cut too.
    let wanted = (2 * cpu.pool().threads()).div_ceil(strips);
    let height = c.rows.div_ceil(wanted).clamp(1, ROWS).next_multiple_of(dots::MOST_ROWS);
    let down = c.rows.div_ceil(height);
    let task = |task: usize| {
        let rows = task % down * height..c.rows.min((task % down + 1) * height);
        let columns = task / down * COLUMNS..n.min((task / down + 1) * COLUMNS);
        let piece = Piece { route, quantized: &quantized, weight, start };
        piece.compute(rows, columns, epilogue, &c);
    };
    cpu.pool().run(strips * down, &task);
    QUANTIZED.set(memory);
}

/// The exact sums of products of codes over a range of k, for [`integer_product`]'s rows and weights.
///
/// `sums` holds rows times columns, row after row. To be compared with other ways to compute the same.
///
/// # Panics
/// If the extents do not fit each other.
pub fn integer_sums(
    route: Route,
    rows: &QuantizedRows<'_>,
    weight: &IntegerWeight<'_>,
    depth: Range<usize>,
    sums: &mut [i32],
) {
    let (k, n) = weight.extents();
    assert_eq!((sums.len(), rows.depth()), (rows.len() * n, k), "the extents do not fit each other");
    assert!(depth.end <= k && rows.route() == route, "rows quantised for another product");
    let mut scratch = Scratch::take();
    for first in (0..n).step_by(COLUMNS) {
        let columns = first..n.min(first + COLUMNS);
        let room = scratch.room(route, rows.len());
        add_sums(route, rows, 0..rows.len(), weight, depth.clone(), columns.clone(), room.0, room.1);
        for (own, row) in room.1.chunks_exact(COLUMNS).zip(sums.chunks_exact_mut(n)) {
            row[columns.clone()].copy_from_slice(&own[..columns.len()]);
        }
    }
    scratch.give_back();
}

/// Rows times some columns of a weight, on this thread: `emit` is given 64 of those columns at a time (or what
/// is left of them) and their results for every row, 64 numbers a row.
///
/// # Panics
/// If the extents do not fit each other.
pub fn integer_rows(
    rows: &QuantizedRows<'_>,
    weight: &IntegerWeight<'_>,
    columns: Range<usize>,
    mut emit: impl FnMut(Range<usize>, &[f32]),
) {
    let (depth, n) = weight.extents();
    assert!(rows.depth() == depth && columns.end <= n, "the extents do not fit each other");
    let mut scratch = Scratch::take();
    for first in columns.clone().step_by(COLUMNS) {
        let columns = first..columns.end.min(first + COLUMNS);
        let results = scratch.results(rows, 0..rows.len(), weight, columns.clone());
        for (row, results) in results.chunks_exact_mut(COLUMNS).enumerate() {
            let scale = rows.scale(row);
            results.iter_mut().for_each(|result| *result *= scale);
        }
        emit(columns, results);
    }
    scratch.give_back();
}

/// What all tasks of a product share.
struct Piece<'a> {
    route: Route,
    quantized: &'a QuantizedRows<'a>,
    weight: &'a IntegerWeight<'a>,
    start: Start,
}

impl Piece<'_> {
    fn compute(
        &self,
        rows: Range<usize>,
        columns: Range<usize>,
        epilogue: &dyn Epilogue<f32>,
        c: &Output<'_, f32>,
    ) {
        let isa = self.route.isa();
        let mut scratch = Scratch::take();
        let results = scratch.results(self.quantized, rows.clone(), self.weight, columns.clone());
        for (row, results) in rows.zip(results.chunks_exact(COLUMNS)) {
            let scale = self.quantized.scale(row);
            // SAFETY: part of a row of C, which is borrowed exclusively; tasks' parts do not overlap.
            let out = unsafe {
                let first = c.data.add(row * c.row_stride + columns.start);
                std::slice::from_raw_parts_mut(first, columns.len())
            };
            match self.start {
                Start::Zero => out.iter_mut().zip(results).for_each(|(c, result)| *c = result * scale),
                Start::Continue => out.iter_mut().zip(results).for_each(|(c, result)| *c += result * scale),
            }
            if !epilogue.is_none() {
                epilogue.apply(isa, row, columns.start, out);
            }
        }
        scratch.give_back();
    }
}

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
//! The block formats ([`DType::Q4_0`](crate::dtype::DType::Q4_0), `Q8_0` and `MxFp4`, of whose codes twice the numbers
//! are integers) have activations with a scale for each of their blocks, too, S_i,g, made of its 32 elements as S_i is
//! of a row's:
//!
//! ```text
//! sum = 0
//! for g in blocks { sum = fma(f32(sum over k in g of a[i, k] b[k, j]), S_g[j] S_i,g, sum) }
//! C[i, j] = epilogue(sum)
//! ```
//!
//! The inner sums are exact, as long as k is less than [`DEPTH_LIMIT`], so that they are the same integers
//! whatever adds them up: four products an instruction where there is VNNI, two elsewhere, one without vector
//! instructions, or a GPU. What follows is in one order.

mod block_piece;
mod block_rows;
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
mod tiles;

use block_piece::{BlockRight, Piece, with_sixteen};
use block_rows::BlockRows;
pub use codes::IntegerWeight;
pub use limits::DEPTH_LIMIT;
use limits::{COLUMNS, FEW};
use plain::PlainRows;
pub use right::IntegerRight;
pub use route::Route;
pub use rows::QuantizedRows;

use super::{Epilogue, Output, Start};
use crate::Buffer;
use crate::dtype::CodeOrder;
use crate::simd::{Cpu, LANES};
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
    if let Some((blocks, order)) = weight.in_blocks().filter(|_| depth > 0) {
        let rows = BlockRows::new(cpu, order, a, (c.rows, depth), &mut memory);
        with_sixteen(blocks, n, |bytes, missing| {
            let (rows, dtype) = (&rows, blocks.packing.dtype);
            blocks::product(cpu, &[Piece { route, rows, dtype, bytes, missing, start, epilogue, c: &c }]);
        });
        QUANTIZED.set(memory);
        return;
    }
    if let Some(flat) = weight.in_rows().filter(|_| c.rows <= FEW && depth > 0) {
        let rows = PlainRows::new(route.isa(), a, c.rows, depth, &mut memory);
        flat::product((cpu, route), &rows, flat, start, epilogue, &c);
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
        let cut = Cut { route, quantized: &quantized, weight, start };
        cut.compute(rows, columns, epilogue, &c);
    };
    cpu.pool().run(strips * down, &task);
    QUANTIZED.set(memory);
}

/// One of several products with the same rows.
pub struct IntegerPart<'a, E> {
    /// The right operand.
    pub weight: IntegerWeight<'a>,
    /// What its sums start from.
    pub start: Start,
    /// What is applied to its results.
    pub epilogue: E,
    /// Where they go.
    pub c: Output<'a, f32>,
}

/// [`integer_product`] with each of several weights: where all lie in blocks alike, rows are quantised once, and the
/// threads begin together.
///
/// # Panics
/// As there.
pub fn integer_products<E: Epilogue<f32>, const N: usize>(
    cpu: &Cpu,
    a: &[f32],
    parts: [IntegerPart<'_, E>; N],
) {
    let lying = parts.each_ref().map(|part| part.weight.in_blocks());
    let of = |part: &IntegerPart<'_, E>| (part.weight.extents().0, part.c.rows);
    let alike = parts.iter().zip(&lying).all(|(part, lies)| {
        let (depth, n) = part.weight.extents();
        assert_eq!((a.len(), n), (part.c.rows * depth, part.c.columns), "A, B and C do not fit each other");
        let order = |lies: &Option<(BlockRight<'_>, CodeOrder)>| lies.as_ref().map(|(_, order)| *order);
        n >= LANES && depth > 0 && of(part) == of(&parts[0]) && order(lies) == order(&lying[0])
    });
    let Some((rows, depth, order)) = parts.first().zip(lying.first()).and_then(|(part, lies)| {
        let (depth, rows) = of(part);
        lies.as_ref().filter(|_| alike && rows > 0).map(|(_, order)| (rows, depth, *order))
    }) else {
        for IntegerPart { weight, start, epilogue, c } in parts {
            integer_product(cpu, a, &weight, start, &epilogue, c);
        }
        return;
    };
    let route = Route::best(cpu.isa());
    let mut memory = QUANTIZED.take();
    let rows = &BlockRows::new(cpu, order, a, (rows, depth), &mut memory);
    let pieces = parts.each_ref().map(|part| {
        let (dtype, bytes) = (part.weight.packing.dtype, part.weight.bytes);
        let (start, epilogue, c) = (part.start, &part.epilogue as &dyn Epilogue<f32>, &part.c);
        Piece { route, rows, dtype, bytes, missing: 0, start, epilogue, c }
    });
    blocks::product(cpu, &pieces);
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
struct Cut<'a> {
    route: Route,
    quantized: &'a QuantizedRows<'a>,
    weight: &'a IntegerWeight<'a>,
    start: Start,
}

impl Cut<'_> {
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

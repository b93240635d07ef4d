//! The matrix product: C[m, n] = A[m, k] B[k, n].
//!
//! Every element is the sum over k in order with fused multiply-add:
//!
//! ```text
//! sum = 0 (or C's element, to continue)
//! for k in 0..depth { sum = fma(A[i, k], B[k, j], sum) }
//! C[i, j] = epilogue(sum)
//! ```
//!
//! and equals, bit for bit, what [`product_reference`] computes by just that
//! loop: how the work is cut into tiles, blocks and tasks never changes the
//! order in which an element's terms are added, so the bits depend neither on
//! the instruction set, nor on the number of threads, nor on the number of rows.
//!
//! Operands come from [`PanelSource`]s. They are read in place where that is
//! fast, and packed into panels where it is not. Numbers of bfloat16 go two a word
//! where the processor multiplies them so: see [`product_of_pairs`].

mod block;
mod blocking;
mod decoders;
mod epilogue;
mod few_rows;
mod integer;
mod output;
mod packed;
mod pairs;
mod panels;
mod reference;
mod stream;
mod terms;
#[cfg(test)]
mod tests;
mod tile;
mod turned;

pub use decoders::{Bfloat16Panels, Int8Panels, PackedPanels};
pub use epilogue::{Bias, Epilogue, NoEpilogue};
pub use integer::{
    DEPTH_LIMIT, IntegerPart, IntegerRight, IntegerWeight, QuantizedRows, Route, integer_product,
    integer_products, integer_rows, integer_sums,
};
pub use output::{Output, Start};
pub use packed::PackedRight;
pub use pairs::{Pairs, Rows, pairs_pay, product_of_pairs, product_of_pairs_serial};
pub use panels::{PanelSource, Strided};
pub use reference::product_reference;
pub use turned::TurnedPanels;

use crate::simd::{Cpu, Isa, Pool, Real};
use block::Block;

/// Computes the product by the kernels for a few rows, if there is one for the right operand.
fn streamed<T: Real>(
    isa: Isa,
    pool: Option<&Pool>,
    a: &dyn PanelSource<T>,
    b: &dyn PanelSource<T>,
    start: Start,
    epilogue: &dyn Epilogue<T>,
    c: &Output<'_, T>,
) -> bool {
    if c.rows > stream::ROWS {
        return false;
    }
    let (Some(a), Some(b)) = (a.in_place(), b.streamed()) else { return false };
    let (m, k, (depth, n)) = (a.lanes(), a.depth(), b.extents());
    assert_eq!((m, k, n), (c.rows, depth, c.columns), "A[m, k], B[k, n] and C[m, n] do not fit each other");
    stream::product(isa, pool, a.left_at(0, 0), b, start, epilogue, c)
}

/// Computes C = A B, or C += A B, then applies `epilogue`, spread over the pool.
///
/// Allocates nothing but, the first time a thread needs them, buffers that it keeps.
///
/// # Panics
/// If the extents do not fit each other.
pub fn product<T: Real>(
    cpu: &Cpu,
    a: &dyn PanelSource<T>,
    b: &dyn PanelSource<T>,
    start: Start,
    epilogue: &dyn Epilogue<T>,
    c: Output<'_, T>,
) {
    if streamed(cpu.isa(), Some(cpu.pool()), a, b, start, epilogue, &c) {
        return;
    }
    Block::new(cpu.isa(), a, b, start, epilogue, &c).run(cpu.pool());
}

/// [`product`] on the calling thread alone: for use inside a pool's task.
///
/// The caller holds the default floating-point control, as tasks do.
///
/// # Panics
/// If the extents do not fit each other.
pub fn product_serial<T: Real>(
    isa: Isa,
    a: &dyn PanelSource<T>,
    b: &dyn PanelSource<T>,
    start: Start,
    epilogue: &dyn Epilogue<T>,
    c: Output<'_, T>,
) {
    if streamed(isa, None, a, b, start, epilogue, &c) {
        return;
    }
    Block::new(isa, a, b, start, epilogue, &c).run_serial();
}

//! Types without a decoder of their own: run by run of rows, decoded into the first-level cache as other code
//! decodes them, then added as plain numbers.

use super::kernel::Strip;
use super::piece::{Order, Piece, room};
use crate::Buffer;
use crate::dtype::Packing;
use crate::dtype::decoders::{Float32, Whole};
use crate::simd::Isa;

/// Columns that a group of the kernel has.
pub(super) const GROUP: usize = 128;
/// Columns that are decoded together, ...
const COLUMNS: usize = 4 * GROUP;
/// ... and rows of k.
const ROWS: usize = 8;

/// Computes a piece.
///
/// # Safety
/// The piece is within the operand and C, the left operand has its rows, and nobody else uses that part of C.
pub(super) unsafe fn run(
    isa: Isa,
    packing: &Packing,
    codes: (&[u8], &[f32]),
    piece: &Piece,
    scratch: &mut Buffer,
) {
    let lanes = piece.columns.len().next_multiple_of(GROUP);
    let (decoded, sums) = room(scratch, COLUMNS * ROWS + piece.rows * lanes).split_at_mut(COLUMNS * ROWS);
    let order = Order::<Whole<Float32>>::of(piece.columns.clone());
    // SAFETY: the caller's promise.
    unsafe { order.read(piece, sums) };
    for first in (0..lanes).step_by(COLUMNS) {
        let width = COLUMNS.min(lanes - first);
        let start = piece.columns.start + first;
        let columns = start..piece.columns.end.min(start + width);
        for k in (0..packing.rows).step_by(ROWS) {
            let depth = ROWS.min(packing.rows - k);
            packing.decode_tile(isa, codes, k..k + depth, columns.clone(), decoded, width);
            let strip = Strip {
                codes: decoded.as_ptr().cast(),
                stride: width * size_of::<f32>(),
                groups: width / GROUP,
                depth,
                a: piece.left.a.wrapping_add(k * piece.left.depth),
                a_row: piece.left.row,
                a_depth: piece.left.depth,
                // Of numbers that are no codes there are no scales: anything may be read.
                scales: decoded.as_ptr(),
                zeros: decoded.as_ptr(),
                sums: sums[first..].as_mut_ptr(),
                sums_row: lanes,
                ahead: 0,
            };
            // SAFETY: so many rows of so many columns were decoded, or hold anything where there is no column;
            // the left operand's elements and the sums of all lanes are there.
            unsafe { strip.enter::<Whole<Float32>>(isa, piece.rows) };
        }
    }
    // SAFETY: the caller's promise.
    unsafe { order.write(piece, sums) };
}

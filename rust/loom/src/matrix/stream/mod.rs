//! Products of a few rows, which the memory's speed bounds, not the arithmetic's.
//!
//! The right operand is read once, whole cache lines of its rows at a time and fetched ahead, and decoded in
//! registers. Sums wait in memory between blocks of k: each is still one chain of fused multiply-adds in the
//! order of k, so the bits are those of every other way through the product.

mod blocks;
mod decoded;
mod kernel;
mod lying;
mod piece;
#[cfg(test)]
mod tests;

use super::tile::Left;
use super::{Epilogue, Output, Start};
use crate::Buffer;
use crate::dtype::decoders::{Decoder, WithDecoder};
use crate::dtype::{DType, Granularity, Packing};
use crate::simd::{Isa, Pool, Real};
use kernel::Strip;
use piece::{Order, Piece, room};
use std::any::TypeId;
use std::cell::Cell;

/// The most rows that are served so: of plain numbers, ...
const PLAIN_ROWS: usize = 8;
/// ... of codes, which are decoded again for every few rows, ...
const CODED_ROWS: usize = 24;
/// ... and of blocks, which are turned round only once.
pub(super) const ROWS: usize = 48;
/// Rows that meet the same decoded codes.
const TOGETHER: usize = 4;
/// The fewest columns that are worth it.
const COLUMNS: usize = 32;
/// Bytes of codes that are worked on while as many are fetched.
const BLOCK: usize = 32 << 10;
/// The work that is worth a task of its own, in multiply-adds: a few microseconds.
const TASK: usize = 1 << 17;

thread_local! {
    /// Where this thread keeps sums and scales; it only grows.
    static SCRATCH: Cell<Buffer> = Cell::new(Buffer::default());
}

/// A right operand B[k, n] whose rows of codes are read as they lie in memory.
#[derive(Clone, Copy)]
pub struct Streamed<'a> {
    packing: Packing,
    bytes: &'a [u8],
    scales: &'a [f32],
    /// Columns that a task is a multiple of.
    group: usize,
    decoding: Decoding,
}

/// How codes become terms of the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decoding {
    /// Row by row, in registers.
    Rows,
    /// Turned round first, block by block.
    Blocks,
    /// Ahead of the sums, run by run: types of more bits than memory is worth, and rows that begin within a byte.
    Ahead,
}

impl<'a> Streamed<'a> {
    /// The operand, if it has columns enough.
    pub(super) fn new(packing: Packing, bytes: &'a [u8], scales: &'a [f32]) -> Option<Self> {
        if packing.channels < COLUMNS || packing.rows == 0 || packing.turned {
            return None;
        }
        let mut own = Self { packing, bytes, scales, group: decoded::GROUP, decoding: Decoding::Ahead };
        if packing.dtype.is_block_format() {
            (own.group, own.decoding) = (blocks::COLUMNS, Decoding::Blocks);
        } else if let Some(group) = packing.dtype.with_decoder(GroupOf(own)).flatten() {
            (own.group, own.decoding) = (group, Decoding::Rows);
        }
        Some(own)
    }

    /// A plain matrix, row after row.
    pub(super) fn plain(b: &'a [f32], k: usize, n: usize) -> Option<Self> {
        Self::new(Packing::new(DType::Float32, k, n), bytemuck::cast_slice(b), &[])
    }

    /// Whether rows begin with whole bytes, and scales are such that the decoder can do with them.
    fn is_served<D: Decoder>(&self) -> bool {
        // All are looked at, without a branch: a comparison of bits is one of magnitudes.
        let fine = |scale: &f32| scale.to_bits() & 0x7FFF_FFFF < D::SCALES;
        let within = |zero: &f32| u64::from(zero.to_bits()) < 1 << D::BITS.min(63);
        (self.packing.channels * D::BITS).is_multiple_of(8)
            && match (D::ZEROS, D::MINIMA) {
                (false, false) => self.scales.iter().fold(true, |all, scale| all & fine(scale)),
                (false, true) => self.scales.iter().step_by(2).fold(true, |all, scale| all & fine(scale)),
                (true, _) => {
                    let fits = self.scales.chunks_exact(2);
                    fits.fold(true, |all, fit| all & fine(&fit[0]) & within(&fit[1]))
                }
            }
    }

    pub(super) fn extents(&self) -> (usize, usize) {
        (self.packing.rows, self.packing.channels)
    }

    /// The most rows for which this is the fastest way.
    fn most_rows(&self) -> usize {
        match (self.packing.dtype, self.decoding) {
            (DType::Float32, _) => PLAIN_ROWS,
            (_, Decoding::Blocks) => ROWS,
            _ => CODED_ROWS,
        }
    }

    /// Rows and columns of a task: no more tasks than threads, for the longer the pieces of rows that a thread
    /// reads follow each other in memory, the faster they come.
    fn cut(&self, rows: usize, threads: usize) -> (usize, usize) {
        let (k, n) = self.extents();
        let wanted = (rows * k * n / TASK).clamp(1, threads);
        let width = n.div_ceil(wanted).next_multiple_of(self.group);
        // Codes are decoded once more for other rows.
        let down = (wanted / n.div_ceil(width)).clamp(1, rows.div_ceil(2 * TOGETHER));
        (rows.div_ceil(down).next_multiple_of(TOGETHER).min(rows), width)
    }

    /// # Safety
    /// The piece is within the operand and C, the left operand has its rows, and nobody else uses that part
    /// of C.
    unsafe fn run(&self, isa: Isa, piece: &Piece) {
        let mut scratch = SCRATCH.take();
        // SAFETY: the caller's promise.
        unsafe {
            match self.decoding {
                Decoding::Rows => {
                    self.packing.dtype.with_decoder(Rows { of: self, isa, piece, scratch: &mut scratch });
                }
                Decoding::Blocks if piece.rows <= lying::ROWS && lying::serves(&self.packing) => {
                    let (packing, bytes) = (&self.packing, self.bytes);
                    self.packing.dtype.with_blocks(lying::LyingPiece { isa, packing, bytes, piece });
                }
                Decoding::Blocks => {
                    let (packing, bytes, scratch) = (&self.packing, self.bytes, &mut scratch);
                    self.packing.dtype.with_blocks(blocks::BlockPiece {
                        isa,
                        packing,
                        bytes,
                        piece,
                        scratch,
                    });
                }
                Decoding::Ahead => {
                    decoded::run(isa, &self.packing, (self.bytes, self.scales), piece, &mut scratch)
                }
            }
        }
        SCRATCH.set(scratch);
    }

    /// [`run`](Streamed::run) for types whose rows are packed one by one.
    ///
    /// # Safety
    /// As `run`.
    unsafe fn rows<D: Decoder>(&self, isa: Isa, piece: &Piece, scratch: &mut Buffer) {
        let (depth, n) = self.extents();
        let groups = piece.columns.len().div_ceil(D::VECTORS * 16);
        let lanes = groups * D::VECTORS * 16;
        let (stride, start) = (n * D::BITS / 8, piece.columns.start * D::BITS / 8);
        // What a row of the groups reads, which may be more than it has.
        let reads = lanes * D::BITS / 8 + D::BEYOND;
        let padded = reads.next_multiple_of(64);
        let at_once = (BLOCK / reads).clamp(4, 256);
        // The last rows are read from a copy, where reading beyond them does no harm.
        let inside = match self.bytes.len().checked_sub(start + reads) {
            Some(spare) => depth.min(spare / stride + 1),
            None => 0,
        };
        let copied = (depth - inside).min(at_once);

        let floats = (piece.rows + if D::ZEROS || D::MINIMA { 2 } else { 1 }) * lanes;
        let scratch = room(scratch, floats + copied * padded / 4);
        let (floats, copies) = scratch.split_at_mut(floats);
        let (sums, fits) = floats.split_at_mut(piece.rows * lanes);
        let (scales, zeros) = fits.split_at_mut(lanes);
        let copies: &mut [u8] = bytemuck::cast_slice_mut(copies);
        let order = Order::<D>::of(piece.columns.clone());
        // SAFETY: the caller's promise.
        unsafe { order.read(piece, sums) };

        let mut done = 0;
        let mut filled = None;
        while done < depth {
            let (group, end) = self.scales_at(done);
            if filled != Some(group) {
                order.fill(scales, |column| D::scale(self.scale(group, column)));
                if D::ZEROS {
                    order.fill(zeros, |column| self.second(group, column).to_bits() as f32);
                }
                if D::MINIMA {
                    order.fill(zeros, |column| self.second(group, column));
                }
                filled = Some(group);
            }
            let mut some = at_once.min(end - done);
            let (codes, stride, ahead) = if done < inside {
                some = some.min(inside - done);
                (self.bytes[done * stride + start..].as_ptr(), stride, at_once * stride)
            } else {
                for (row, copy) in copies.chunks_exact_mut(padded).take(some).enumerate() {
                    let codes = &self.bytes[(done + row) * stride + start..];
                    let present = codes.len().min(reads);
                    copy[..present].copy_from_slice(&codes[..present]);
                }
                (copies.as_ptr(), padded, 0)
            };
            let strip = Strip {
                codes,
                stride,
                groups,
                depth: some,
                a: piece.left.a.wrapping_add(done * piece.left.depth),
                a_row: piece.left.row,
                a_depth: piece.left.depth,
                scales: scales.as_ptr(),
                zeros: zeros.as_ptr(),
                sums: sums.as_mut_ptr(),
                sums_row: lanes,
                ahead,
            };
            // SAFETY: the codes of so many rows are there with what is read beyond them, as are the left
            // operand's elements; scales and sums have all lanes.
            unsafe { strip.enter::<D>(isa, piece.rows) };
            done += some;
        }
        // SAFETY: the caller's promise.
        unsafe { order.write(piece, sums) };
    }

    /// The group of scales at a row of k, and where it ends.
    fn scales_at(&self, k: usize) -> (usize, usize) {
        match self.packing.granularity {
            Granularity::Block(rows) => {
                let group = k / rows.max(1);
                (group, self.packing.rows.min((group + 1) * rows.max(1)))
            }
            _ => (0, self.packing.rows),
        }
    }

    /// The place of a column's scale.
    fn fit(&self, group: usize, column: usize) -> usize {
        let number = match self.packing.granularity {
            Granularity::Unscaled | Granularity::Tensor => 0,
            Granularity::Channel => column,
            Granularity::Block(_) => group * self.packing.channels + column,
        };
        number * self.packing.group_words()
    }

    fn scale(&self, group: usize, column: usize) -> f32 {
        match self.packing.granularity {
            Granularity::Unscaled => 1.0,
            _ => self.scales[self.fit(group, column)],
        }
    }

    /// The zero point, or the minimum, of a type that has one.
    fn second(&self, group: usize, column: usize) -> f32 {
        self.scales[self.fit(group, column) + 1]
    }
}

/// The columns of a group of the decoder, where it serves.
struct GroupOf<'a>(Streamed<'a>);

impl WithDecoder for GroupOf<'_> {
    type Output = Option<usize>;

    fn with<D: Decoder>(self) -> Option<usize> {
        self.0.is_served::<D>().then_some(D::VECTORS * 16)
    }
}

/// [`Streamed::run`] of a type whose rows are packed one by one; asks for what that asks for.
struct Rows<'a> {
    of: &'a Streamed<'a>,
    isa: Isa,
    piece: &'a Piece,
    scratch: &'a mut Buffer,
}

impl WithDecoder for Rows<'_> {
    type Output = ();

    fn with<D: Decoder>(self) {
        // SAFETY: `Streamed::run`'s caller's promise; nothing else makes one of these.
        unsafe { self.of.rows::<D>(self.isa, self.piece, self.scratch) }
    }
}

/// Computes C = A B, or C += A B, where A has a few rows; false where it has too many, or elements are not `f32`.
///
/// The extents have been found to fit each other.
pub(super) fn product<T: Real>(
    isa: Isa,
    pool: Option<&Pool>,
    left: Left<T>,
    b: Streamed<'_>,
    start_from: Start,
    epilogue: &dyn Epilogue<T>,
    c: &Output<'_, T>,
) -> bool {
    if TypeId::of::<T>() != TypeId::of::<f32>() {
        return false;
    }
    let (_, n) = b.extents();
    if c.rows == 0 || c.rows > b.most_rows() {
        return c.rows == 0;
    }
    let (height, width) = b.cut(c.rows, pool.map_or(1, Pool::threads));
    let across = n.div_ceil(width);
    let task = |task: usize| {
        let (first, start) = (task / across * height, task % across * width);
        let (rows, columns) = (first..c.rows.min(first + height), start..n.min(start + width));
        let at = |row: usize| c.data.wrapping_add(row * c.row_stride + columns.start);
        let piece = Piece {
            rows: rows.len(),
            columns: columns.clone(),
            left: left.skip_rows(rows.start).cast(),
            c: at(rows.start).cast(),
            c_row: c.row_stride,
            accumulate: start_from == Start::Continue,
        };
        // SAFETY: within the operands' and C's extents, and of their type; tasks' parts do not overlap.
        unsafe { b.run(isa, &piece) };
        if !epilogue.is_none() {
            for row in rows {
                // SAFETY: part of a row of C, and this task's own.
                let piece = unsafe { std::slice::from_raw_parts_mut(at(row), columns.len()) };
                epilogue.apply(isa, row, columns.start, piece);
            }
        }
    };
    let tasks = across * c.rows.div_ceil(height);
    match pool {
        Some(pool) => pool.run(tasks, &task),
        None => (0..tasks).for_each(task),
    }
    true
}

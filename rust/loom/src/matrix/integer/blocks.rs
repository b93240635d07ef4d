//! Quantised rows against block formats. Few rows are multiplied with the blocks as they lie in memory: sixteen columns
//! at a time, block after block, while the next columns are fetched. For more rows see [`tiles`](super::tiles).

use super::block_piece::{AHEAD, Piece};
use super::limits::TASK;
use super::tiles;
use crate::dtype::{BLOCK, BlockCoding, Integers, Scale, WithBlocks};
use crate::simd::{
    Cpu, Decode, Kernel, LANES, Real, Sixteen, Vector, Words, dispatch_quads, prefetch_second_level,
};
use std::ops::Range;

/// The most rows that meet blocks as they lie: for more it pays to bring columns in line.
const AS_THEY_LIE: usize = 5;

/// Computes C = A B, or C += A B, with quantised rows and as many weights as there are pieces, over the threads of the
/// pool.
pub(super) fn product(cpu: &Cpu, pieces: &[Piece<'_>]) {
    let Some(Piece { rows, .. }) = pieces.first() else { return };
    if rows.len() > AS_THEY_LIE {
        return tiles::product(cpu, pieces);
    }
    // The longer the run of columns that a thread reads, the faster it comes.
    let groups: usize = pieces.iter().map(|piece| piece.c.columns.div_ceil(LANES)).sum();
    let work = rows.len() * rows.blocks() * BLOCK * groups * LANES;
    let wanted = (work / TASK).clamp(1, cpu.pool().threads());
    let each = groups.div_ceil(wanted).max(1);
    cpu.pool().run(groups.div_ceil(each), &|task| {
        let (mut first, end) = (task * each, (task + 1) * each);
        let mut before = 0;
        for piece in pieces {
            let n = piece.c.columns;
            let after = before + n.div_ceil(LANES);
            if first < after.min(end) {
                let columns = (first - before) * LANES..n.min((after.min(end) - before) * LANES);
                piece.dtype.with_blocks(AsTheyLie { piece, columns: columns.clone() });
                piece.finish(0..piece.c.rows, columns);
                first = after;
            }
            before = after;
        }
    });
}

/// Some columns of C, which nobody else writes.
struct AsTheyLie<'a> {
    piece: &'a Piece<'a>,
    columns: Range<usize>,
}

impl WithBlocks for AsTheyLie<'_> {
    type Output = ();

    fn with<B: BlockCoding>(self) {
        self.piece.check::<B>(&self.columns);
        let (piece, columns) = (self.piece, self.columns);
        let coding = std::marker::PhantomData;
        match piece.route.per() {
            4 => dispatch_quads(piece.route.isa(), Columns::<B, true> { piece, columns, coding }),
            _ => f32::dispatch(piece.route.isa(), Columns::<B, false> { piece, columns, coding }),
        }
    }
}

struct Columns<'a, B, const QUADS: bool> {
    piece: &'a Piece<'a>,
    columns: Range<usize>,
    coding: std::marker::PhantomData<B>,
}

impl<B: BlockCoding, const QUADS: bool> Kernel<f32> for Columns<'_, B, QUADS> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = f32>>(self) {
        let rows = self.piece.c.rows;
        for first in self.columns.clone().step_by(LANES) {
            let present = LANES.min(self.columns.end - first);
            let mut row = 0;
            while row < rows {
                // SAFETY: `AsTheyLie::with`, which alone makes one of these, has found columns, blocks and rows to be
                // there; it enters with instructions for four products where they are asked for.
                row += unsafe {
                    match rows - row {
                        1 => self.sixteen::<V::Float32, 1>(first + present, present, row),
                        2 | 3 => self.sixteen::<V::Float32, 2>(first + present, present, row),
                        _ => self.sixteen::<V::Float32, 4>(first + present, present, row),
                    }
                };
            }
        }
    }
}

impl<B: BlockCoding, const QUADS: bool> Columns<'_, B, QUADS> {
    /// The results of R rows in the sixteen columns that end before `end`, of which the last `present` are written.
    ///
    /// # Safety
    /// They are there, and the instructions, too.
    #[allow(
        clippy::needless_range_loop,
        reason = "iterators that are not inlined keep sums out of registers"
    )]
    #[inline(always)]
    unsafe fn sixteen<V: Decode, const R: usize>(&self, end: usize, present: usize, row: usize) -> usize {
        let rows = self.piece.rows;
        let stride = rows.blocks() * B::BYTES;
        let columns = self.piece.sixteen(end, stride);
        // Line after line in the order of addresses, though blocks are read column by column.
        let mut next = columns.wrapping_add(AHEAD.max(LANES * stride));
        let mut blocks = Sixteen::new(columns, stride);
        let mut sums = [V::splat(0.0); R];
        // SAFETY: the caller's promise.
        unsafe {
            for block in 0..rows.blocks() {
                if row == 0 {
                    for line in (0..LANES * B::BYTES).step_by(64) {
                        prefetch_second_level(next.wrapping_add(line));
                    }
                    next = next.wrapping_add(LANES * B::BYTES);
                }
                let scales = B::Scale::sixteen::<V>(&blocks) * V::splat(B::UNIT);
                for number in 0..R {
                    let (scale, codes, total) = rows.block(row + number, block);
                    let dots = dots::<B, V::Words, QUADS>(&blocks, B::Scale::BYTES, codes, total);
                    sums[number] = V::from_integers(dots).mul_add(scales * V::splat(scale), sums[number]);
                }
                blocks.advance(B::BYTES);
            }
            for number in 0..R {
                self.piece.write(sums[number], row + number, end, present);
            }
        }
        R
    }
}

/// The sums of the products of sixteen blocks' integers and 32 activations.
///
/// # Safety
/// As [`Words::dot_bytes`](crate::simd::Words::dot_bytes).
#[inline(always)]
unsafe fn dots<B: BlockCoding, W: Words, const QUADS: bool>(
    columns: &Sixteen,
    offset: usize,
    a: *const i8,
    total: i32,
) -> W {
    // SAFETY: the caller's promise.
    unsafe {
        match B::INTEGERS {
            Integers::None => W::splat(0),
            Integers::Bytes => W::dot_bytes::<QUADS>(columns, offset, a, total),
            Integers::Halves { less, table } => {
                let sums = match table {
                    None => W::dot_halves::<QUADS, false>(columns, offset, a, &[0; 16]),
                    Some(table) => W::dot_halves::<QUADS, true>(columns, offset, a, table),
                };
                sums.sub(W::splat(less * total))
            }
        }
    }
}

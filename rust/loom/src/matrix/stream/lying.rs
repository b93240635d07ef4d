//! A few rows of numbers against block formats whose codes are integers, as they lie in memory: sixteen columns at a
//! time, some times side by side, are turned in registers, word by word of four bytes of each column, so that every
//! code of a column's lane is one term of its sum, in the order of k.

use super::piece::Piece;
use crate::dtype::{BLOCK, BlockCoding, CodeOrder, Integers, Packing, Scale, WithBlocks};
use crate::simd::{Decode, Isa, Kernel, LANES, Level, Real, Sixteen, Vector, Words, prefetch_second_level};
use std::marker::PhantomData;
use std::ops::Range;

/// The most rows for which this is faster than to turn codes round in memory.
pub(super) const ROWS: usize = 8;
/// The fewest bytes ahead of what is read that are fetched.
const AHEAD: usize = 64 << 10;
/// Bytes of a column that are turned together: four words.
const TURNED: usize = 16;

/// Whether there are such kernels for a format, of which a weight has at least sixteen columns.
pub(super) fn serves(packing: &Packing) -> bool {
    packing.channels >= LANES && packing.dtype.with_blocks(Serves) == Some(true)
}

struct Serves;

impl WithBlocks for Serves {
    type Output = bool;

    fn with<B: BlockCoding>(self) -> bool {
        B::INTEGERS != Integers::None
    }
}

/// A piece of such a product, to be computed: it is within the operand and C, the left operand has its rows, and nobody
/// else uses that part of C.
pub(super) struct LyingPiece<'a> {
    pub isa: Isa,
    pub packing: &'a Packing,
    pub bytes: &'a [u8],
    pub piece: &'a Piece,
}

impl WithBlocks for LyingPiece<'_> {
    type Output = ();

    fn with<B: BlockCoding>(self) {
        let Self { isa, packing, bytes, piece } = self;
        let blocks = packing.rows.div_ceil(BLOCK);
        assert!(bytes.len() >= packing.channels * blocks * B::BYTES && piece.columns.end <= packing.channels);
        assert!(piece.columns.end >= LANES && B::INTEGERS != Integers::None);
        let columns = Columns::<B> { bytes, depth: packing.rows, piece, coding: PhantomData };
        f32::dispatch(isa, columns);
    }
}

struct Columns<'a, B> {
    bytes: &'a [u8],
    depth: usize,
    piece: &'a Piece,
    coding: PhantomData<B>,
}

/// How many times sixteen columns are summed side by side, for one row and for several: sums wait for each other
/// otherwise.
const fn beside(level: Level) -> (usize, usize) {
    match level {
        Level::Portable => (1, 1),
        Level::Avx2 => (2, 1),
        Level::Avx512 => (4, 2),
    }
}

impl<B: BlockCoding> Kernel<f32> for Columns<'_, B> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = f32>>(self) {
        let Range { start, end } = self.piece.columns;
        let mut column = start;
        // SAFETY: `LyingPiece::with`, which alone makes one of these, has found the columns' blocks to be there, and
        // has been promised the rest.
        unsafe {
            while column < end {
                column += match (end - column) / LANES {
                    0..=1 => self.all_rows::<V::Float32, 1, 1>(column, LANES.min(end - column)),
                    2..=3 => match const { beside(V::LEVEL) } {
                        (1, _) => self.all_rows::<V::Float32, 1, 1>(column, LANES),
                        (_, 1) => self.all_rows::<V::Float32, 2, 1>(column, 2 * LANES),
                        _ => self.all_rows::<V::Float32, 2, 2>(column, 2 * LANES),
                    },
                    _ => match const { beside(V::LEVEL) } {
                        (1, _) => self.all_rows::<V::Float32, 1, 1>(column, LANES),
                        (_, 1) => self.all_rows::<V::Float32, 2, 1>(column, 2 * LANES),
                        _ => self.all_rows::<V::Float32, 4, 2>(column, 4 * LANES),
                    },
                };
            }
        }
    }
}

impl<B: BlockCoding> Columns<'_, B> {
    /// All rows with the `count` columns from `column` on: `ONE` times sixteen at once for a row alone, `SEVERAL` times
    /// for more; or fewer than sixteen. Returns how many.
    ///
    /// # Safety
    /// As [`Kernel::run`] has it.
    #[inline(always)]
    unsafe fn all_rows<V: Decode, const ONE: usize, const SEVERAL: usize>(
        &self,
        column: usize,
        count: usize,
    ) -> usize {
        let mut row = 0;
        while row < self.piece.rows {
            let left = self.piece.rows - row;
            // SAFETY: the caller's promise.
            unsafe {
                if left == 1 {
                    self.sums::<V, 1, ONE>(row, column, count);
                    row += 1;
                    continue;
                }
                for first in (0..count).step_by(SEVERAL * LANES) {
                    let count = count.min(SEVERAL * LANES);
                    match left {
                        2 | 3 => self.sums::<V, 2, SEVERAL>(row, column + first, count),
                        _ => self.sums::<V, 4, SEVERAL>(row, column + first, count),
                    }
                }
            }
            row += if left < 4 { 2 } else { 4 };
        }
        count
    }

    /// The results of R rows in G times sixteen columns from `column` on, or in the `count` where those are fewer than
    /// sixteen: others before them are read, too, but not written.
    ///
    /// # Safety
    /// As [`Kernel::run`] has it.
    #[allow(
        clippy::needless_range_loop,
        reason = "iterators that are not inlined keep sums out of registers"
    )]
    #[inline(always)]
    unsafe fn sums<V: Decode, const R: usize, const G: usize>(
        &self,
        row: usize,
        column: usize,
        count: usize,
    ) {
        let blocks = self.depth.div_ceil(BLOCK);
        let stride = blocks * B::BYTES;
        let present = count.min(LANES);
        let first = self.bytes.as_ptr().wrapping_add((column + present - LANES) * stride);
        let mut lying = [Sixteen::new(first, stride); G];
        for g in 1..G {
            lying[g] = Sixteen::new(first.wrapping_add(g * LANES * stride), stride);
        }
        // Line after line in the order of addresses, though blocks are read column by column.
        let mut next = first.wrapping_add(AHEAD.max(G * LANES * stride));
        let left = self.piece.left.skip_rows(row);
        let mut sums = [[V::splat(0.0); G]; R];
        // SAFETY: the caller's promise.
        unsafe {
            if self.piece.accumulate {
                for i in 0..R {
                    for g in 0..G {
                        let mut lanes = [0.0; LANES];
                        let c = self.piece.c_at(row + i, column + g * LANES);
                        lanes[LANES - present..].as_mut_ptr().copy_from_nonoverlapping(c, present);
                        sums[i][g] = V::load(&lanes);
                    }
                }
            }
            for block in 0..blocks {
                if row == 0 {
                    for line in (0..G * LANES * B::BYTES).step_by(64) {
                        prefetch_second_level(next.wrapping_add(line));
                    }
                    next = next.wrapping_add(G * LANES * B::BYTES);
                }
                let mut a = [left.a.wrapping_add(block * BLOCK * left.depth); R];
                for i in 0..R {
                    a[i] = a[i].wrapping_add(i * left.row);
                }
                let there = self.depth - block * BLOCK;
                if there >= BLOCK {
                    add_block::<B, V, R, G, true>(&lying, (a, left.depth), BLOCK, &mut sums);
                } else {
                    add_block::<B, V, R, G, false>(&lying, (a, left.depth), there, &mut sums);
                }
                for lying in &mut lying {
                    lying.advance(B::BYTES);
                }
            }
            for i in 0..R {
                for g in 0..G {
                    let c = self.piece.c_at(row + i, column + g * LANES);
                    let lanes = sums[i][g].to_array();
                    c.copy_from_nonoverlapping(lanes[LANES - present..].as_ptr(), present);
                }
            }
        }
    }
}

/// Adds the terms of a block of each of G times sixteen columns, or of the `there` first of its rows of k.
///
/// # Safety
/// The blocks are there, and R rows' elements from `a` on, so far apart.
#[allow(clippy::needless_range_loop, reason = "as in `sums`")]
#[inline(always)]
unsafe fn add_block<B: BlockCoding, V: Decode, const R: usize, const G: usize, const WHOLE: bool>(
    lying: &[Sixteen; G],
    (a, a_depth): ([*const f32; R], usize),
    there: usize,
    sums: &mut [[V; G]; R],
) {
    let table = V::load(&numbers_of::<B>());
    let mut scales = [V::splat(0.0); G];
    // SAFETY: the caller's promise.
    unsafe {
        for g in 0..G {
            scales[g] = B::Scale::sixteen::<V>(&lying[g]);
            if matches!(B::ORDER, CodeOrder::Bytes) {
                scales[g] = scales[g] * V::splat(B::UNIT);
            }
        }
        for part in 0..(B::BYTES - B::Scale::BYTES) / TURNED {
            let mut words = [[V::Words::splat(0); 4]; G];
            for g in 0..G {
                words[g] = V::Words::turned_words(&lying[g], B::Scale::BYTES + part * TURNED);
            }
            // The rows of k in their order: of halves the lower ones of all bytes come first.
            let halves = if matches!(B::ORDER, CodeOrder::Halves) { 2 } else { 1 };
            for half in 0..halves {
                for word in 0..4 {
                    for byte in 0..4 {
                        let bytes_before = word * 4 + byte;
                        let shift = byte as u32 * 8;
                        let codes = if matches!(B::ORDER, CodeOrder::Pairs) { 2 } else { 1 };
                        for code in 0..codes {
                            let k = match B::ORDER {
                                CodeOrder::Bytes => part * TURNED + bytes_before,
                                CodeOrder::Halves => half * TURNED + bytes_before,
                                CodeOrder::Pairs => 2 * bytes_before + code,
                            };
                            if !WHOLE && k >= there {
                                return;
                            }
                            let mut weights = [V::splat(0.0); G];
                            for g in 0..G {
                                let word = words[g][word];
                                let numbers = match B::ORDER {
                                    CodeOrder::Bytes => {
                                        V::from_integers(word.shift_left(24 - shift).shift_right_signed(24))
                                    }
                                    _ => table.look_up(word.shift_right(shift + 4 * (half + code) as u32)),
                                };
                                weights[g] = numbers * scales[g];
                            }
                            for i in 0..R {
                                let a = V::splat(*a[i].wrapping_add(k * a_depth));
                                for g in 0..G {
                                    sums[i][g] = a.mul_add(weights[g], sums[i][g]);
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The numbers that codes of four bits stand for.
#[inline(always)]
fn numbers_of<B: BlockCoding>() -> [f32; LANES] {
    let mut numbers = [0.0; LANES];
    if !matches!(B::ORDER, CodeOrder::Bytes) {
        for (code, number) in numbers.iter_mut().enumerate() {
            *number = B::number(code as u8);
        }
    }
    numbers
}

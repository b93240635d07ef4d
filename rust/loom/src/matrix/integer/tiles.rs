//! Many quantised rows against block formats: 32 columns at a time are brought in line, word by word of four codes of
//! sixteen columns, and met by all rows, some at a time, whose integer and scaled sums stay in registers.

use super::block_piece::{AHEAD, Piece};
use crate::Buffer;
use crate::dtype::{BLOCK, BlockCoding, Integers, Scale, WithBlocks};
use crate::simd::{
    Cpu, Decode, Kernel, LANES, Level, Real, Sixteen, Vector, Words, dispatch_quads, prefetch_second_level,
};
use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Range;

/// Columns that are brought in line together.
const WIDTH: usize = 2 * LANES;
/// Words of a block's codes for each column.
const WORDS: usize = BLOCK / 4;
/// Bytes of a block of sixteen columns in line: scales and words.
const LINED: usize = LANES * (1 + WORDS) * 4;

thread_local! {
    /// Where this thread keeps columns in line; it only grows.
    static LINE: Cell<Buffer> = Cell::new(Buffer::default());
}

/// The most rows of a tile, and how many times sixteen columns it has.
const fn shape(level: Level) -> (usize, usize) {
    match level {
        Level::Portable | Level::Avx2 => (2, 1),
        Level::Avx512 => (6, 2),
    }
}

/// Computes products with the same rows over the threads of the pool.
pub(super) fn product(cpu: &Cpu, pieces: &[Piece<'_>]) {
    let strips = |piece: &Piece<'_>| piece.c.columns.div_ceil(WIDTH);
    let all: usize = pieces.iter().map(strips).sum();
    let rows = pieces.first().map_or(0, |piece| piece.c.rows);
    // Where columns alone give the threads too little to share, rows are cut too.
    let wanted = (2 * cpu.pool().threads()).div_ceil(all.max(1));
    let most = const { shape(Level::Avx512).0 };
    let height = rows.div_ceil(wanted).max(4 * most).next_multiple_of(most).min(rows.max(1));
    let down = rows.div_ceil(height);
    cpu.pool().run(all * down, &|task| {
        let rows = task % down * height..rows.min((task % down + 1) * height);
        let mut strip = task / down;
        for piece in pieces {
            let own = strips(piece);
            if strip < own {
                let columns = strip * WIDTH..piece.c.columns.min((strip + 1) * WIDTH);
                piece.dtype.with_blocks(Strip { piece, rows: rows.clone(), columns: columns.clone() });
                piece.finish(rows, columns);
                return;
            }
            strip -= own;
        }
    });
}

/// Some rows of at most 32 columns of C, which nobody else writes.
struct Strip<'a> {
    piece: &'a Piece<'a>,
    rows: Range<usize>,
    columns: Range<usize>,
}

impl WithBlocks for Strip<'_> {
    type Output = ();

    fn with<B: BlockCoding>(self) {
        self.piece.check::<B>(&self.columns);
        assert!(self.rows.end <= self.piece.c.rows && self.columns.len() <= WIDTH);
        let bytes = self.piece.rows.blocks() * LINED * self.columns.len().div_ceil(LANES);
        let mut memory = LINE.take();
        if memory.len_bytes() < bytes {
            memory = Buffer::working::<u8>(bytes);
        }
        let (isa, quads) = (self.piece.route.isa(), self.piece.route.per() == 4);
        let (strip, line, coding) = (&self, memory.bytes_mut().as_mut_ptr(), PhantomData);
        match quads {
            true => dispatch_quads(isa, Multiply::<B, true> { strip, line, coding }),
            false => f32::dispatch(isa, Multiply::<B, false> { strip, line, coding }),
        }
        LINE.set(memory);
    }
}

/// `line` has room for the strip's columns in line.
struct Multiply<'a, B, const QUADS: bool> {
    strip: &'a Strip<'a>,
    line: *mut u8,
    coding: PhantomData<B>,
}

impl<B: BlockCoding, const QUADS: bool> Kernel<f32> for Multiply<'_, B, QUADS> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = f32>>(self) {
        let Range { start, end } = self.strip.columns;
        let groups = (end - start).div_ceil(LANES);
        let present = |group: usize| LANES.min(end - start - group * LANES);
        let after = |group: usize| start + group * LANES + present(group);
        // SAFETY: `Strip::with`, which alone makes one of these, has found columns, blocks and rows to be there, made
        // room for the columns in line, and enters with instructions for four products where they are asked for.
        unsafe {
            for group in 0..groups {
                self.bring_in_line::<V::Float32>(after(group), group, groups);
            }
            if groups == 2 && const { shape(V::LEVEL).1 == 2 } {
                let columns = [(after(0), present(0)), (after(1), present(1))];
                self.all_rows::<V, 2>(columns, 0, groups);
                return;
            }
            for group in 0..groups {
                self.all_rows::<V, 1>([(after(group), present(group))], group, groups);
            }
        }
    }
}

impl<B: BlockCoding, const QUADS: bool> Multiply<'_, B, QUADS> {
    /// Writes the sixteen columns that end before `end`, one of so many groups of them: for each block the scales of
    /// every group, then word after word of every group.
    ///
    /// # Safety
    /// They are there, and there is room.
    #[allow(clippy::needless_range_loop, reason = "as in `tile`")]
    #[inline(always)]
    unsafe fn bring_in_line<V: Decode>(&self, end: usize, group: usize, groups: usize) {
        let piece = self.strip.piece;
        let stride = piece.rows.blocks() * B::BYTES;
        let columns = piece.sixteen(end, stride);
        let mut next = columns.wrapping_add(AHEAD.max(LANES * stride));
        let mut blocks = Sixteen::new(columns, stride);
        let mut to = self.line.wrapping_add(group * LANES * 4);
        let step = groups * LANES * 4;
        let mask = V::Words::splat(0x0F0F_0F0F);
        // SAFETY: the caller's promise.
        unsafe {
            for _ in 0..piece.rows.blocks() {
                for line in (0..LANES * B::BYTES).step_by(64) {
                    prefetch_second_level(next.wrapping_add(line));
                }
                next = next.wrapping_add(LANES * B::BYTES);
                (B::Scale::sixteen::<V>(&blocks) * V::splat(B::UNIT)).store_unchecked(to.cast());
                let word = |place: usize| to.wrapping_add((1 + place) * step).cast::<i32>();
                match B::INTEGERS {
                    Integers::None => {}
                    Integers::Bytes => {
                        let flip = V::Words::splat(if QUADS { 0x8080_8080_u32 as i32 } else { 0 });
                        for half in 0..2 {
                            let offset = B::Scale::BYTES + half * 16;
                            let words = V::Words::turned_words(&blocks, offset);
                            for place in 0..4 {
                                words[place].xor(flip).store(word(half * 4 + place));
                            }
                        }
                    }
                    Integers::Halves { table, .. } => {
                        let words = V::Words::turned_words(&blocks, B::Scale::BYTES);
                        for place in 0..4 {
                            let (mut low, mut high) =
                                (words[place].and(mask), words[place].shift_right(4).and(mask));
                            if let Some(table) = table {
                                (low, high) = (low.look_up_bytes(table), high.look_up_bytes(table));
                            }
                            low.store(word(place));
                            high.store(word(4 + place));
                        }
                    }
                }
                to = to.wrapping_add((1 + WORDS) * step);
                blocks.advance(B::BYTES);
            }
        }
    }

    /// Multiplies all rows with N times sixteen columns: for each where it ends, and how many of it are written.
    ///
    /// # Safety
    /// As [`Kernel::run`] has it.
    #[inline(always)]
    unsafe fn all_rows<V: Vector<Element = f32>, const N: usize>(
        &self,
        columns: [(usize, usize); N],
        group: usize,
        groups: usize,
    ) {
        let Range { start: mut row, end } = self.strip.rows;
        let line = self.line.wrapping_add(group * LANES * 4).cast_const();
        while row < end {
            // SAFETY: the caller's promise.
            row += unsafe {
                match end - row {
                    1 => self.tile::<V::Float32, 1, N>(columns, line, row, groups),
                    2..6 => self.tile::<V::Float32, 2, N>(columns, line, row, groups),
                    _ if const { shape(V::LEVEL).0 == 2 } => {
                        self.tile::<V::Float32, 2, N>(columns, line, row, groups)
                    }
                    _ => self.tile::<V::Float32, 6, N>(columns, line, row, groups),
                }
            };
        }
    }

    /// The results of R rows.
    ///
    /// # Safety
    /// As `all_rows`.
    #[allow(
        clippy::needless_range_loop,
        reason = "iterators that are not inlined keep sums out of registers"
    )]
    #[inline(always)]
    unsafe fn tile<V: Decode, const R: usize, const N: usize>(
        &self,
        columns: [(usize, usize); N],
        mut line: *const u8,
        row: usize,
        groups: usize,
    ) -> usize {
        let (piece, rows, step) = (self.strip.piece, self.strip.piece.rows, groups * LANES * 4);
        // Loops by number: what they go over has to be in registers, for which the compiler must unroll them.
        let mut heads = [rows.row(row); R];
        for i in 0..R {
            heads[i] = rows.row(row + i);
        }
        let (of_totals, mut of_codes) = (rows.totals(), rows.codes());
        let mut sums = [[V::splat(0.0); N]; R];
        // SAFETY: the caller's promise.
        unsafe {
            for _ in 0..rows.blocks() {
                let mut integers = [[V::Words::splat(0); N]; R];
                for i in 0..R {
                    let total = heads[i].wrapping_add(of_totals).cast::<i32>().read_unaligned();
                    let start = match B::INTEGERS {
                        Integers::Bytes if QUADS => -128 * total,
                        Integers::Halves { less, .. } => -less * total,
                        _ => 0,
                    };
                    integers[i] = [V::Words::splat(start); N];
                }
                for place in 0..WORDS {
                    let mut right = [V::Words::splat(0); N];
                    for j in 0..N {
                        right[j] = V::Words::load(line.wrapping_add((1 + place) * step + j * LANES * 4));
                    }
                    for i in 0..R {
                        let left = heads[i].wrapping_add(of_codes + place * 4).cast::<i32>();
                        let left = V::Words::splat(i32::from_le(left.read_unaligned()));
                        for j in 0..N {
                            let sum = integers[i][j];
                            integers[i][j] = match B::INTEGERS {
                                Integers::Bytes if QUADS => sum.add_quads(right[j], left),
                                Integers::Bytes => sum.add_signed_quads::<false>(right[j], left),
                                _ => sum.add_small_quads::<QUADS>(right[j], left),
                            };
                        }
                    }
                }
                for j in 0..N {
                    let scales = V::load_unchecked(line.wrapping_add(j * LANES * 4).cast());
                    for i in 0..R {
                        let scales = scales * V::splat(heads[i].cast::<f32>().read_unaligned());
                        sums[i][j] = V::from_integers(integers[i][j]).mul_add(scales, sums[i][j]);
                    }
                }
                line = line.wrapping_add((1 + WORDS) * step);
                for head in &mut heads {
                    *head = head.wrapping_add(size_of::<f32>());
                }
                of_codes += BLOCK - size_of::<f32>();
            }
            for (i, sums) in sums.into_iter().enumerate() {
                for (sum, (end, present)) in sums.into_iter().zip(columns) {
                    piece.write(sum, row + i, end, present);
                }
            }
        }
        R
    }
}

//! Quantised rows against block formats, whose blocks are multiplied as they lie in memory: sixteen columns
//! at a time, block after block, while the next columns are fetched.

use super::limits::TASK;
use super::plain::PlainRows;
use super::route::Route;
use crate::dtype::{BLOCK, BlockCoding, Integers, Packing, Scale, WithBlocks};
use crate::matrix::{Epilogue, Output, Start};
use crate::simd::{Cpu, Decode, Kernel, LANES, Real, Sixteen, Vector, dispatch_quads, prefetch_second_level};
use std::ops::Range;

/// The fewest bytes ahead of what is read that are fetched: what is under way while the memory answers.
const AHEAD: usize = 64 << 10;

/// Rows that meet the same columns while those are in the cache.
const BAND: usize = 64;

/// A weight in blocks that rows are multiplied with.
#[derive(Clone, Copy)]
pub(super) struct BlockRight<'a> {
    pub packing: &'a Packing,
    pub bytes: &'a [u8],
}

/// Computes C = A B, or C += A B, with quantised rows, over the threads of the pool.
///
/// The extents have been found to fit each other.
pub(super) fn product(
    (cpu, route): (&Cpu, Route),
    rows: &PlainRows<'_>,
    weight: BlockRight<'_>,
    start: Start,
    epilogue: &dyn Epilogue<f32>,
    c: &Output<'_, f32>,
) {
    let (k, n) = (weight.packing.rows, c.columns);
    // The longer the run of columns that a thread reads, the faster it comes.
    let wanted = (rows.len() * k * n / TASK).clamp(1, cpu.pool().threads());
    let width = n.div_ceil(wanted).next_multiple_of(LANES);
    cpu.pool().run(n.div_ceil(width), &|task| {
        let columns = task * width..n.min((task + 1) * width);
        for first in (0..c.rows).step_by(BAND) {
            let band = first..c.rows.min(first + BAND);
            let piece = Piece { route, rows, band, weight, columns: columns.clone(), start, c };
            weight.packing.dtype.with_blocks(piece);
        }
        if !epilogue.is_none() {
            for row in 0..c.rows {
                // SAFETY: part of a row of C, and this task's own.
                let out = unsafe {
                    let first = c.data.add(row * c.row_stride + columns.start);
                    std::slice::from_raw_parts_mut(first, columns.len())
                };
                epilogue.apply(route.isa(), row, columns.start, out);
            }
        }
    });
}

/// Some columns of C, which nobody else writes.
#[derive(Clone)]
struct Piece<'a> {
    route: Route,
    rows: &'a PlainRows<'a>,
    band: Range<usize>,
    weight: BlockRight<'a>,
    columns: Range<usize>,
    start: Start,
    c: &'a Output<'a, f32>,
}

impl WithBlocks for Piece<'_> {
    type Output = ();

    fn with<B: BlockCoding>(self) {
        let blocks = self.weight.packing.rows.div_ceil(BLOCK);
        assert!(self.weight.bytes.len() >= self.columns.end * blocks * B::BYTES);
        assert!(self.columns.end <= self.c.columns && self.rows.len() == self.c.rows);
        assert!(self.columns.end >= LANES && self.band.end <= self.c.rows);
        assert!(self.rows.blocks() == blocks);
        let (isa, quads) = (self.route.isa(), self.route.per() == 4);
        let columns = Columns::<B, false> { piece: &self, blocks, coding: std::marker::PhantomData };
        match quads {
            false => f32::dispatch(isa, columns),
            true => dispatch_quads(
                isa,
                Columns::<B, true> { piece: &self, blocks, coding: std::marker::PhantomData },
            ),
        }
    }
}

struct Columns<'a, B, const QUADS: bool> {
    piece: &'a Piece<'a>,
    blocks: usize,
    coding: std::marker::PhantomData<B>,
}

impl<B: BlockCoding, const QUADS: bool> Kernel<f32> for Columns<'_, B, QUADS> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = f32>>(self) {
        let columns = self.piece.columns.clone();
        for first in columns.clone().step_by(LANES) {
            let present = LANES.min(columns.end - first);
            // The last ones are read with some before them.
            let first = first + present - LANES;
            let Range { start: mut row, end } = self.piece.band;
            while row < end {
                // SAFETY: `Piece::with`, which alone makes one of these, has found columns, blocks and rows to be
                // there; it enters with instructions for four products where they are asked for.
                row += unsafe {
                    match end - row {
                        1 => self.sixteen::<V::Float32, 1>(first, present, row),
                        2 | 3 => self.sixteen::<V::Float32, 2>(first, present, row),
                        _ => self.sixteen::<V::Float32, 4>(first, present, row),
                    }
                };
            }
        }
    }
}

impl<B: BlockCoding, const QUADS: bool> Columns<'_, B, QUADS> {
    /// The results of R rows in sixteen columns from `first` on, of which the last `present` are written.
    ///
    /// # Safety
    /// They are there, and the instructions, too.
    #[inline(always)]
    unsafe fn sixteen<V: Decode, const R: usize>(&self, first: usize, present: usize, row: usize) -> usize {
        let Piece { rows, weight, start, c, .. } = self.piece;
        let stride = self.blocks * B::BYTES;
        let columns = weight.bytes.as_ptr().wrapping_add(first * stride);
        // Line after line in the order of addresses, though blocks are read column by column.
        let mut next = columns.wrapping_add(AHEAD.max(LANES * stride));
        let mut blocks = Sixteen::new(columns, stride);
        let mut sums = [V::splat(0.0); R];
        // SAFETY: the caller's promise.
        unsafe {
            for block in 0..self.blocks {
                if row == 0 {
                    for line in (0..LANES * B::BYTES).step_by(64) {
                        prefetch_second_level(next.wrapping_add(line));
                    }
                    next = next.wrapping_add(LANES * B::BYTES);
                }
                let scales: V = B::Scale::sixteen(&blocks);
                for (number, sum) in sums.iter_mut().enumerate() {
                    let (codes, total) = rows.block(row + number, block);
                    let dots = dots::<B, V::Words, QUADS>(&blocks, B::Scale::BYTES, codes, total);
                    *sum = V::from_integers(dots).mul_add(scales, *sum);
                }
                blocks.advance(B::BYTES);
            }
            for (number, sum) in sums.into_iter().enumerate() {
                let value = sum * V::splat(rows.scale(row + number));
                let out = c.data.add((row + number) * c.row_stride + first + LANES - present);
                let out = std::slice::from_raw_parts_mut(out, present);
                if present == LANES && *start == Start::Zero {
                    value.store(out);
                    continue;
                }
                let values = value.to_array();
                for (out, value) in out.iter_mut().zip(&values[LANES - present..]) {
                    *out = if *start == Start::Zero { *value } else { *out + *value };
                }
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
unsafe fn dots<B: BlockCoding, W: crate::simd::Words, const QUADS: bool>(
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
            Integers::Halves { less } => {
                let sums = W::dot_halves::<QUADS, false>(columns, offset, a, &[0; 16]);
                sums.sub(W::splat(less * total))
            }
        }
    }
}

//! A few quantised rows against codes that lie row after row of k, read as they lie in memory: four rows at a time,
//! whose bytes are brought together in words, 64 bytes of each.
//!
//! Sums wait in memory between blocks of rows, while the next block is fetched in the order of addresses.

use super::limits::TASK;
use super::plain::PlainRows;
use super::route::Route;
use crate::Buffer;
use crate::dtype::{Granularity, Packing};
use crate::matrix::{Epilogue, Output, Start};
use crate::simd::{
    Cpu, Decode, Kernel, LANES, Real, Vector, Words, array_of, dispatch_quads, prefetch_second_level,
};
use std::cell::Cell;
use std::ops::Range;

thread_local! {
    /// Where this thread keeps sums and results; it only grows.
    static SCRATCH: Cell<Buffer> = Cell::new(Buffer::default());
}

/// Bytes of a row that are worked on together.
const GROUP: usize = 64;
/// Bytes of codes that are worked on while as many are fetched.
const BLOCK: usize = 32 << 10;
/// The fewest columns that are worth it.
const FEWEST: usize = 32;

/// A weight whose codes follow one another row by row of k.
#[derive(Clone, Copy)]
pub(super) struct FlatRight<'a> {
    pub packing: &'a Packing,
    pub bytes: &'a [u8],
    pub scales: &'a [f32],
}

impl FlatRight<'_> {
    /// Bits of a code.
    fn bits(&self) -> usize {
        self.packing.dtype.row().bits
    }

    /// Whether rows begin with whole bytes and are long enough.
    pub fn is_served(&self) -> bool {
        (self.packing.channels * self.bits()).is_multiple_of(8) && self.packing.channels >= FEWEST
    }

    /// The rows that share their scales with `k`.
    fn group(&self, k: usize) -> (usize, usize) {
        match self.packing.granularity {
            Granularity::Block(rows) => (k / rows.max(1), (k / rows.max(1) + 1) * rows.max(1)),
            _ => (0, self.packing.rows),
        }
    }

    fn scale(&self, group: usize, column: usize) -> f32 {
        match self.packing.granularity {
            Granularity::Tensor => self.scales[0],
            Granularity::Block(_) => self.scales[group * self.packing.channels + column],
            _ => self.scales[column],
        }
    }
}

/// Computes C = A B, or C += A B, with quantised rows, over the threads of the pool.
///
/// The extents have been found to fit each other, and the weight to be served.
pub(super) fn product(
    (cpu, route): (&Cpu, Route),
    rows: &PlainRows<'_>,
    weight: FlatRight<'_>,
    start: Start,
    epilogue: &dyn Epilogue<f32>,
    c: &Output<'_, f32>,
) {
    let (k, n) = (weight.packing.rows, c.columns);
    // The longer the pieces of rows that a thread reads, the faster they come.
    let wanted = (rows.len() * k * n / TASK).clamp(1, cpu.pool().threads());
    let width = n.div_ceil(wanted).next_multiple_of(GROUP * 8 / weight.bits());
    cpu.pool().run(n.div_ceil(width), &|task| {
        let columns = task * width..n.min((task + 1) * width);
        let mut scratch = SCRATCH.take();
        let piece = Piece { route, rows, weight, columns: columns.clone() };
        let results = match weight.bits() {
            8 => piece.enter::<8>(&mut scratch),
            4 => piece.enter::<4>(&mut scratch),
            2 => piece.enter::<2>(&mut scratch),
            _ => piece.enter::<1>(&mut scratch),
        };
        for (row, results) in results.chunks_exact(results.len() / c.rows).enumerate() {
            let scale = rows.scale(row);
            // SAFETY: part of a row of C, which is borrowed exclusively; tasks' parts do not overlap.
            let out = unsafe {
                let first = c.data.add(row * c.row_stride + columns.start);
                std::slice::from_raw_parts_mut(first, columns.len())
            };
            match start {
                Start::Zero => out.iter_mut().zip(results).for_each(|(c, result)| *c = result * scale),
                Start::Continue => out.iter_mut().zip(results).for_each(|(c, result)| *c += result * scale),
            }
            if !epilogue.is_none() {
                epilogue.apply(route.isa(), row, columns.start, out);
            }
        }
        SCRATCH.set(scratch);
    });
}

/// Some columns of C, from the first of a group on.
struct Piece<'a> {
    route: Route,
    rows: &'a PlainRows<'a>,
    weight: FlatRight<'a>,
    columns: Range<usize>,
}

impl Piece<'_> {
    /// The rows' products but for their scales, row after row.
    fn enter<'s, const BITS: usize>(&self, scratch: &'s mut Buffer) -> &'s [f32] {
        let FlatRight { packing, bytes, .. } = self.weight;
        assert!(bytes.len() * 8 >= packing.rows * packing.channels * BITS);
        assert!(self.columns.end <= packing.channels && self.rows.depth() >= packing.rows);
        assert!((self.columns.start * BITS).is_multiple_of(8) && (packing.channels * BITS).is_multiple_of(8));
        let width = (self.columns.len() * BITS).div_ceil(8 * GROUP) * GROUP * 8 / BITS;
        let words = self.rows.len() * (width + self.columns.len());
        if scratch.len_bytes() < words * size_of::<i32>() {
            *scratch = Buffer::working::<i32>(words);
        }
        let (sums, results) = scratch.as_mut_slice::<i32>()[..words].split_at_mut(self.rows.len() * width);
        let results: &mut [f32] = bytemuck::cast_slice_mut(results);
        results.fill(0.0);
        let isa = self.route.isa();
        let mut done = 0;
        while done < packing.rows {
            let (group, end) = self.weight.group(done);
            let depth = done..end.min(packing.rows);
            sums.fill(0);
            match self.route.per() {
                4 => {
                    dispatch_quads(isa, Add::<BITS, true> { piece: self, depth: depth.clone(), sums, width })
                }
                _ => {
                    f32::dispatch(isa, Add::<BITS, false> { piece: self, depth: depth.clone(), sums, width })
                }
            }
            let parts = results.chunks_exact_mut(self.columns.len()).zip(sums.chunks_exact(width));
            for (row, (results, sums)) in parts.enumerate() {
                let less = match BITS {
                    8 if self.route.per() == 4 => 128,
                    8 => 0,
                    1 => 1,
                    _ => 1 << (BITS - 1),
                };
                let less = less * self.rows.total(row, depth.clone());
                // A bit stands for 1 and -1.
                let times = if BITS == 1 { 2 } else { 1 };
                for (column, result) in results.iter_mut().enumerate() {
                    let sum = times * sums[place::<BITS>(column)] - less;
                    let scale = self.weight.scale(group, self.columns.start + column);
                    *result = (sum as f32).mul_add(scale, *result);
                }
            }
            done = depth.end;
        }
        results
    }
}

/// Where the sum of a column is kept: the words of a group stand in the order in which bytes are interleaved, those
/// of each code in a byte by themselves.
fn place<const BITS: usize>(column: usize) -> usize {
    let per = 8 / BITS;
    let (byte, code) = (column / per, column % per);
    let (group, byte) = (byte / GROUP, byte % GROUP);
    let word = byte / 4 % 4 * LANES + byte / 16 * 4 + byte % 4;
    (group * per + code) * GROUP + word
}

/// Adds the products of some rows of k to the sums, `width` for each row of A.
struct Add<'a, const BITS: usize, const QUADS: bool> {
    piece: &'a Piece<'a>,
    depth: Range<usize>,
    sums: &'a mut [i32],
    width: usize,
}

impl<const BITS: usize, const QUADS: bool> Kernel<f32> for Add<'_, BITS, QUADS> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = f32>>(self) {
        let Piece { weight: FlatRight { packing, bytes, .. }, rows, .. } = self.piece;
        let stride = packing.channels * BITS / 8;
        let start = self.piece.columns.start * BITS / 8;
        let present = (self.piece.columns.len() * BITS).div_ceil(8);
        let groups = present.div_ceil(GROUP);
        let at_once = (BLOCK / (groups * GROUP)).clamp(4, 256) / 4 * 4;
        for first in self.depth.clone().step_by(at_once) {
            let depth = first..self.depth.end.min(first + at_once);
            let next = bytes.as_ptr().wrapping_add((first + at_once) * stride + start);
            let mut ahead = Ahead { next, fetched: 0, groups, stride };
            for group in 0..groups {
                let place = start + group * GROUP;
                let there = GROUP.min(present - group * GROUP);
                let block = Block::<BITS, QUADS> { bytes, stride, place, there, depth: depth.clone(), rows };
                let sums = &mut self.sums[group * GROUP * 8 / BITS..];
                let mut row = 0;
                while row < rows.len() {
                    let ahead = (row == 0).then_some(&mut ahead);
                    let of_row = (&mut sums[row * self.width..], self.width);
                    let left = rows.len() - row;
                    // SAFETY: the extents that `Piece::enter` has found; it enters with instructions for four
                    // products where they are asked for.
                    row += unsafe {
                        match BITS {
                            8 if left >= 4 => block.add::<V::Float32, 4>(row, of_row, ahead),
                            4 | 8 if left >= 2 => block.add::<V::Float32, 2>(row, of_row, ahead),
                            _ => block.add::<V::Float32, 1>(row, of_row, ahead),
                        }
                    };
                }
            }
        }
    }
}

/// Fetches rows to come, line after line in the order of addresses.
struct Ahead {
    next: *const u8,
    fetched: usize,
    groups: usize,
    stride: usize,
}

impl Ahead {
    /// As many lines as four rows of a group are.
    #[inline(always)]
    fn step(&mut self) {
        for _ in 0..4 {
            prefetch_second_level(self.next.wrapping_add(self.fetched * GROUP));
            self.fetched += 1;
            if self.fetched == self.groups {
                (self.fetched, self.next) = (0, self.next.wrapping_add(self.stride));
            }
        }
    }
}

/// Some rows of k of a group of columns.
struct Block<'a, const BITS: usize, const QUADS: bool> {
    bytes: &'a [u8],
    stride: usize,
    /// The group's first byte in a row, ...
    place: usize,
    /// ... and how many it has.
    there: usize,
    depth: Range<usize>,
    rows: &'a PlainRows<'a>,
}

impl<const BITS: usize, const QUADS: bool> Block<'_, BITS, QUADS> {
    /// Adds the products of R rows of A from `row` on to their sums, which lie so far apart.
    ///
    /// # Safety
    /// Rows, codes and sums are there, and the instructions, too.
    #[inline(always)]
    unsafe fn add<V: Decode, const R: usize>(
        &self,
        row: usize,
        (sums, width): (&mut [i32], usize),
        ahead: Option<&mut Ahead>,
    ) -> usize {
        assert!(sums.len() >= (R - 1) * width + 8 / BITS * GROUP);
        let sums = (sums.as_mut_ptr(), width);
        // Four rows at a time, as long as whole groups can be read of all of them; the others from copies.
        let readable = match self.bytes.len().checked_sub(self.place + GROUP) {
            Some(spare) => spare / self.stride + 1,
            None => 0,
        };
        let inside = readable.clamp(self.depth.start, self.depth.end);
        let steps = (inside - self.depth.start) / 4;
        let codes = self.bytes.as_ptr().wrapping_add(self.depth.start * self.stride + self.place);
        // SAFETY: the caller's promise; the sums are there, as was asserted.
        unsafe {
            let a = array_of(|i| self.rows.codes(row + i, self.depth.start));
            self.steps::<V, R>((codes, self.stride), steps, a, sums, ahead);
            for k in (self.depth.start + steps * 4..self.depth.end).step_by(4) {
                let count = 4.min(self.depth.end - k);
                let (mut copies, mut a) = ([0u8; 4 * GROUP], [[0i8; 4]; R]);
                for (copy, row) in copies.chunks_exact_mut(GROUP).zip(k..k + count) {
                    let from = &self.bytes[row * self.stride + self.place..][..self.there];
                    copy[..self.there].copy_from_slice(from);
                }
                for (i, a) in a.iter_mut().enumerate() {
                    let from = self.rows.codes(row + i, k);
                    a.as_mut_ptr().copy_from_nonoverlapping(from, count);
                }
                let a = array_of(|i| a[i].as_ptr());
                self.steps::<V, R>((copies.as_ptr(), GROUP), 1, a, sums, None);
            }
        }
        R
    }

    /// So many times four rows of codes, `stride` bytes apart, and four codes of each row of A.
    ///
    /// # Safety
    /// As [`add`](Self::add).
    #[inline(always)]
    unsafe fn steps<V: Decode, const R: usize>(
        &self,
        (mut codes, stride): (*const u8, usize),
        steps: usize,
        mut a: [*const i8; R],
        (sums, width): (*mut i32, usize),
        mut ahead: Option<&mut Ahead>,
    ) {
        let per = 8 / BITS;
        let mask = ((1u32 << if BITS == 8 { 7 } else { BITS }) - 1) * 0x0101_0101;
        let flip = (1u32 << (BITS - 1)) * 0x0101_0101;
        let (mask, flip) = (V::Words::splat(mask as i32), V::Words::splat(flip as i32));
        // SAFETY: the caller's promise.
        unsafe {
            let at = |i: usize, code: usize, j: usize| sums.add(i * width + code * GROUP + j * LANES);
            let mut held = [[[V::Words::splat(0); 4]; 8]; R];
            for (i, held) in held.iter_mut().enumerate() {
                for (code, held) in held.iter_mut().enumerate().take(per) {
                    for (j, sum) in held.iter_mut().enumerate() {
                        *sum = V::Words::load(at(i, code, j).cast());
                    }
                }
            }
            for _ in 0..steps {
                if let Some(ahead) = &mut ahead {
                    ahead.step();
                }
                let words = V::Words::interleaved(array_of(|row| codes.wrapping_add(row * stride)));
                codes = codes.wrapping_add(4 * stride);
                let mut fours = [V::Words::splat(0); R];
                // By numbers: compilers made a call of a zip here, for every four rows.
                for i in 0..R {
                    fours[i] = V::Words::splat(i32::from_le(a[i].cast::<i32>().read_unaligned()));
                    a[i] = a[i].wrapping_add(4);
                }
                #[allow(clippy::needless_range_loop, reason = "a zip would be a call, as above")]
                for code in 0..per {
                    for (j, word) in words.into_iter().enumerate() {
                        let own = match BITS {
                            8 => word,
                            1 => word.shift_right(code as u32).and(mask),
                            _ => word.shift_right((code * BITS) as u32).and(mask).xor(flip),
                        };
                        for i in 0..R {
                            let sum = &mut held[i][code][j];
                            *sum = match BITS {
                                8 => sum.add_signed_quads::<QUADS>(own, fours[i]),
                                _ => sum.add_small_quads::<QUADS>(own, fours[i]),
                            };
                        }
                    }
                }
            }
            for (i, held) in held.into_iter().enumerate() {
                for (code, held) in held.into_iter().enumerate().take(per) {
                    for (j, sum) in held.into_iter().enumerate() {
                        sum.store(at(i, code, j));
                    }
                }
            }
        }
    }
}

//! The loop over groups of columns and over k.

use crate::dtype::decoders::{Decoder, Fits};
use crate::simd::Isa;
use crate::simd::lanes::{self, Lanes, LanesKernel};
use std::marker::PhantomData;

/// Some rows of k of some groups of columns.
#[derive(Clone, Copy)]
pub(super) struct Strip {
    /// The first row's codes.
    pub codes: *const u8,
    /// Bytes from one k to the next.
    pub stride: usize,
    /// Groups of columns.
    pub groups: usize,
    /// Extent of k.
    pub depth: usize,
    /// The left operand's element at the first row and k ...
    pub a: *const f32,
    /// ... and how far apart its rows ...
    pub a_row: usize,
    /// ... and its k are.
    pub a_depth: usize,
    /// Scales, lane by lane in the decoder's order.
    pub scales: *const f32,
    /// Zero points likewise, where the decoder takes some.
    pub zeros: *const f32,
    /// Sums likewise, row after row, ...
    pub sums: *mut f32,
    /// ... so far apart.
    pub sums_row: usize,
    /// How many bytes ahead of what is read the next strip's codes are fetched; 0 for not at all.
    pub ahead: usize,
}

/// The rows of a strip, whose codes one decoder reads.
struct Rows<D> {
    strip: Strip,
    rows: usize,
    decoder: PhantomData<D>,
}

impl<D: Decoder> LanesKernel for Rows<D> {
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        // SAFETY: the caller's promise.
        unsafe { self.strip.run::<L, D>(self.rows) }
    }
}

impl Strip {
    /// [`run`](Strip::run) in the instruction set's own lanes.
    ///
    /// # Safety
    /// As `run`, but that the machine has `isa` needs no promise.
    pub unsafe fn enter<D: Decoder>(self, isa: Isa, rows: usize) {
        // SAFETY: the caller's promise.
        unsafe { lanes::enter(isa, Rows::<D> { strip: self, rows, decoder: PhantomData }) }
    }

    /// Adds the terms of `rows` rows, at most 8.
    ///
    /// # Safety
    /// As [`Lanes`]; what the strides reach is there.
    #[inline(always)]
    pub unsafe fn run<L: Lanes, D: Decoder>(mut self, rows: usize) {
        let mut left = rows;
        // SAFETY: the caller's promise.
        unsafe {
            while left > 0 {
                let some = match left {
                    _ if L::PLAIN => self.rows::<L, D, 1, 4>(),
                    1 => self.rows::<L, D, 1, 8>(),
                    2 | 3 => self.rows::<L, D, 2, 8>(),
                    _ => self.rows::<L, D, 4, 4>(),
                };
                self.a = self.a.wrapping_add(some * self.a_row);
                self.sums = self.sums.wrapping_add(some * self.sums_row);
                // The codes are in the cache now.
                self.ahead = 0;
                left -= some;
            }
        }
    }

    #[inline(always)]
    unsafe fn rows<L: Lanes, D: Decoder, const R: usize, const N: usize>(&self) -> usize {
        let bytes = D::VECTORS * 2 * D::BITS;
        // Row by row, though codes are read group by group: what is fetched in the order of addresses comes
        // faster, and there are as many groups' lines to fetch as are read.
        let (mut next, mut fetched) = (self.codes.wrapping_add(self.ahead), 0);
        // SAFETY: the caller's promise.
        unsafe {
            for group in 0..self.groups {
                let codes = self.codes.add(group * bytes);
                for first in (0..D::VECTORS).step_by(N) {
                    let place = (group * D::VECTORS + first) * 16;
                    let fits = Fits {
                        scales: std::array::from_fn(|j| L::load(self.scales.add(place + j * 16))),
                        zeros: std::array::from_fn(|j| match D::ZEROS {
                            true => L::load(self.zeros.add(place + j * 16)),
                            false => L::splat(0.0),
                        }),
                    };
                    let sums_at = |i: usize, j: usize| self.sums.add(i * self.sums_row + place + j * 16);
                    let mut sums: [[L; N]; R] =
                        std::array::from_fn(|i| std::array::from_fn(|j| L::load(sums_at(i, j))));
                    let (mut a, mut codes) = (self.a, codes);
                    for _ in 0..self.depth {
                        if first == 0 && self.ahead > 0 {
                            for line in (0..bytes).step_by(64) {
                                L::prefetch(next.wrapping_add(fetched * bytes + line));
                            }
                            fetched += 1;
                            if fetched == self.groups {
                                (fetched, next) = (0, next.wrapping_add(self.stride));
                            }
                        }
                        D::step(
                            codes,
                            first,
                            &fits,
                            std::array::from_fn(|i| *a.wrapping_add(i * self.a_row)),
                            &mut sums,
                        );
                        a = a.wrapping_add(self.a_depth);
                        codes = codes.wrapping_add(self.stride);
                    }
                    for (i, sums) in sums.into_iter().enumerate() {
                        for (j, sum) in sums.into_iter().enumerate() {
                            sum.store(sums_at(i, j));
                        }
                    }
                }
            }
        }
        R
    }
}

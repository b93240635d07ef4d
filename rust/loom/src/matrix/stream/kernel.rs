//! The loop over groups of columns and over k.

use crate::dtype::decoders::{Decoder, Fits};
use crate::simd::{Decode, Isa, Kernel, Level, Real, Vector, prefetch_second_level};
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
    /// Zero points or minima likewise, where the decoder takes some.
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

impl<D: Decoder> Kernel<f32> for Rows<D> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = f32>>(self) {
        // SAFETY: `Strip::enter`'s caller's promise; nothing else makes one of these.
        unsafe { self.strip.run::<V::Float32, D>(self.rows) }
    }
}

impl Strip {
    /// [`run`](Strip::run) with an instruction set's vectors.
    ///
    /// # Safety
    /// As `run`.
    pub unsafe fn enter<D: Decoder>(self, isa: Isa, rows: usize) {
        f32::dispatch(isa, Rows::<D> { strip: self, rows, decoder: PhantomData });
    }

    /// Adds the terms of `rows` rows.
    ///
    /// # Safety
    /// What the strides reach is there.
    #[inline(always)]
    pub unsafe fn run<V: Decode, D: Decoder>(mut self, rows: usize) {
        let mut left = rows;
        // SAFETY: the caller's promise.
        unsafe {
            while left > 0 {
                // Without vector instructions there is nothing to gain from several rows at once.
                let some = if const { matches!(V::LEVEL, Level::Portable) } {
                    self.rows::<V, D, 1, 4>()
                } else {
                    match left {
                        1 => self.rows::<V, D, 1, 8>(),
                        2 | 3 => self.rows::<V, D, 2, 8>(),
                        _ => self.rows::<V, D, 4, 4>(),
                    }
                };
                self.a = self.a.wrapping_add(some * self.a_row);
                self.sums = self.sums.wrapping_add(some * self.sums_row);
                // The codes are in the cache now.
                self.ahead = 0;
                left -= some;
            }
        }
    }

    #[allow(
        clippy::needless_range_loop,
        reason = "iterators that are not inlined keep sums out of registers"
    )]
    #[inline(always)]
    unsafe fn rows<V: Decode, D: Decoder, const R: usize, const N: usize>(&self) -> usize {
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
                    // No closures around instructions: one that is not inlined makes each of them a call.
                    let mut fits = Fits { scales: [V::splat(0.0); N], zeros: [V::splat(0.0); N] };
                    let mut sums = [[V::splat(0.0); N]; R];
                    for j in 0..N {
                        fits.scales[j] = V::load_unchecked(self.scales.add(place + j * 16));
                        if D::ZEROS || D::MINIMA {
                            fits.zeros[j] = V::load_unchecked(self.zeros.add(place + j * 16));
                        }
                        for i in 0..R {
                            sums[i][j] = V::load_unchecked(self.sums.add(i * self.sums_row + place + j * 16));
                        }
                    }
                    let (mut a, mut codes) = (self.a, codes);
                    for _ in 0..self.depth {
                        if first == 0 && self.ahead > 0 {
                            for line in (0..bytes).step_by(64) {
                                prefetch_second_level(next.wrapping_add(fetched * bytes + line));
                            }
                            fetched += 1;
                            if fetched == self.groups {
                                (fetched, next) = (0, next.wrapping_add(self.stride));
                            }
                        }
                        let mut rows = [0.0; R];
                        for i in 0..R {
                            rows[i] = *a.wrapping_add(i * self.a_row);
                        }
                        D::step(codes, first, &fits, rows, &mut sums);
                        a = a.wrapping_add(self.a_depth);
                        codes = codes.wrapping_add(self.stride);
                    }
                    for i in 0..R {
                        for j in 0..N {
                            sums[i][j].store_unchecked(self.sums.add(i * self.sums_row + place + j * 16));
                        }
                    }
                }
            }
        }
        R
    }
}

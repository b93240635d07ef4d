//! The weight gradient: output channels as lanes, pixels summed over.

use super::{multiply, scattered_rows, store_first, tile};
use crate::simd::{Isa, Kernel, LANES, Real, Vector};

/// A tile of the weight gradient: a few taps by one or two vectors of output
/// channels, summed over pixels.
#[derive(Clone, Copy)]
pub(in super::super) struct Correlation<'a, T> {
    /// Where the frame has each pixel's element, in the order of the sum.
    pub pixels: &'a [u32],
    /// How much further each tap's is.
    pub taps: &'a [u32],
    pub frame: *const T,
    /// For each pixel `vectors` of output gradients, side by side.
    pub gradient: *const T,
    pub vectors: usize,
    /// Whether the frame holds a vector for each place, an element for each output channel.
    pub paired: bool,
    /// The first sum, and from one tap's to the next's; `channels` beside each other.
    pub to: *mut T,
    pub to_tap: usize,
    pub channels: usize,
    /// Whether sums go on from what is there, instead of from zero.
    pub accumulate: bool,
}

impl<T: Real> Correlation<'_, T> {
    /// Computes the tile.
    ///
    /// # Safety
    /// All that the strides reach is live memory, and nobody else uses the destination.
    pub unsafe fn run(self, isa: Isa) {
        macro_rules! rows {
            ($($rows:literal)*) => {
                match (self.taps.len(), self.vectors, self.paired) {
                    $(($rows, 1, false) => T::dispatch(isa, Taps::<T, $rows, 1, false>(self)),
                    ($rows, 1, true) => T::dispatch(isa, Taps::<T, $rows, 1, true>(self)),
                    ($rows, _, _) => T::dispatch(isa, Taps::<T, $rows, 2, false>(self)),)*
                    _ => unreachable!("a tile of {} taps", self.taps.len()),
                }
            };
        }
        rows!(1 2 3 4 5 6 7 8 9);
    }
}

struct Taps<'a, T, const R: usize, const N: usize, const PAIRED: bool>(Correlation<'a, T>);

impl<T: Real, const R: usize, const N: usize, const PAIRED: bool> Kernel<T> for Taps<'_, T, R, N, PAIRED> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        // Which of the two is known at compile time.
        if const { R <= scattered_rows(V::LEVEL, size_of::<T>()) && N <= tile(V::LEVEL, size_of::<T>()).1 } {
            // SAFETY: the promise of `Correlation::run`, the only maker.
            unsafe { self.sums::<V>() }
        }
    }
}

impl<T: Real, const R: usize, const N: usize, const PAIRED: bool> Taps<'_, T, R, N, PAIRED> {
    /// # Safety
    /// As [`Correlation::run`].
    #[inline(always)]
    unsafe fn sums<V: Vector<Element = T>>(self) {
        let tile = self.0;
        let row = |i: usize, j: usize| {
            let present = LANES.min(tile.channels.saturating_sub(j * LANES));
            (tile.to.wrapping_add(i * tile.to_tap + j * LANES), present)
        };
        let mut sums = [[V::splat(T::ZERO); N]; R];
        if tile.accumulate {
            for (i, sums) in sums.iter_mut().enumerate() {
                for (j, sum) in sums.iter_mut().enumerate() {
                    let (from, present) = row(i, j);
                    // SAFETY: sums of the tile, which nobody else uses meanwhile; the caller's promise.
                    *sum = V::load_partial(unsafe { std::slice::from_raw_parts(from, present) });
                }
            }
        }
        let mut taps = [0; R];
        for (to, tap) in taps.iter_mut().zip(tile.taps) {
            *to = *tap as usize;
        }
        let stride = N * LANES;
        let sums = if PAIRED {
            let mut gradient = tile.gradient;
            for &pixel in tile.pixels {
                let at = tile.frame.wrapping_add(pixel as usize * LANES);
                // SAFETY: the caller's promise: N is 1 here.
                let right = unsafe { V::load_unchecked(gradient) };
                for (i, sums) in sums.iter_mut().enumerate() {
                    // SAFETY: the caller's promise.
                    let left = unsafe { V::load_unchecked(at.wrapping_add(taps[i] * LANES)) };
                    sums[0] = left.mul_add(right, sums[0]);
                }
                gradient = gradient.wrapping_add(stride);
            }
            sums
        } else {
            // SAFETY: the caller's promise.
            unsafe {
                multiply::<V, R, N>(sums, tile.pixels, tile.gradient, stride, |pixel, i| {
                    tile.frame.wrapping_add(pixel).wrapping_add(taps[i])
                })
            }
        };
        for (i, sums) in sums.into_iter().enumerate() {
            for (j, sum) in sums.into_iter().enumerate() {
                let (to, present) = row(i, j);
                // SAFETY: as above.
                unsafe { store_first(sum, present, to) };
            }
        }
    }
}

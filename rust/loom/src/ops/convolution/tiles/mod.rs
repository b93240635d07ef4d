//! The kernels: tiles of sums in registers, every sum in order.
//!
//! Two shapes of tile serve the sweeps. Where a group has many destination
//! channels they are the lanes: a tap's source pixel is broadcast and
//! multiplies a row of weights ([`ChannelStrip`]). Where it has few, pixels
//! are the lanes and weights are broadcast ([`PixelStrip`]), and where a
//! channel has one source channel only, rows of pixels ([`PlaneStrip`]). The weight
//! gradient exchanges taps and pixels of the former ([`Correlation`]).

mod channels;
mod correlation;
mod interleave;
mod pixels;
mod planes;

pub(super) use channels::ChannelStrip;
pub(super) use correlation::Correlation;
pub(super) use interleave::Interleave;
pub(super) use pixels::{PixelStrip, Settle};
pub(super) use planes::{PLANE_COLUMNS, PlaneStrip, ROWS as PLANE_ROWS};

use crate::simd::{Isa, LANES, Level, Real, Vector};

/// The most rows and vectors of a tile whose every row holds that many vectors of sums.
///
/// `f64` has portable vectors on every instruction set, hence the size of the element.
const fn tile(level: Level, element: usize) -> (usize, usize) {
    match (level, element) {
        (Level::Avx512, 4) => (14, 2),
        (Level::Avx2, 4) => (6, 1),
        _ => (4, 1),
    }
}

/// The most rows of a tile that lie anywhere: their addresses take registers, too, and the
/// compiler spills sums when it runs out of them.
const fn scattered_rows(level: Level, element: usize) -> usize {
    match tile(level, element).0 {
        14 => 9,
        rows => rows,
    }
}

/// The vectors of pixels beside each other in a tile of `channels` destination channels; 0 for none such.
const fn pixel_vectors(level: Level, element: usize, channels: usize) -> usize {
    match (level, element) {
        (Level::Avx512, 4) => match channels {
            1 | 2 => 8,
            4 => 6,
            8 => 3,
            12 => 2,
            _ => 0,
        },
        (Level::Avx2, 4) => match channels {
            1 => 4,
            2 => 2,
            4 => 1,
            _ => 0,
        },
        _ => match channels {
            1 | 2 => 1,
            _ => 0,
        },
    }
}

/// [`tile`] of the vectors that kernels get.
pub(super) fn channel_tile<T>(isa: Isa) -> (usize, usize) {
    tile(isa.level(), size_of::<T>())
}

/// The most taps of a tile of the weight gradient.
pub(super) fn tap_tile<T>(isa: Isa) -> usize {
    scattered_rows(isa.level(), size_of::<T>())
}

/// The channels of the tile of pixels that suits `left` channels yet to do.
pub(super) fn pixel_channels<T>(isa: Isa, left: usize) -> usize {
    let fits = |channels: usize| pixel_vectors(isa.level(), size_of::<T>(), channels) > 0;
    [12, 8, 4, 2].into_iter().find(|&channels| channels <= left && fits(channels)).unwrap_or(1)
}

/// The most elements that [`PixelStrip`] reads or writes beyond those asked for.
pub(super) const PIXEL_SLACK: usize = 8 * LANES;

/// `count` in parts of at most `most`, as equal as can be: the length of all but the last.
pub(super) fn even(count: usize, most: usize) -> usize {
    count.div_ceil(count.div_ceil(most).max(1))
}

/// Writes the first `count` lanes, which are at most 16.
///
/// # Safety
/// `to` is good for writing so many elements.
#[inline(always)]
unsafe fn store_first<V: Vector>(vector: V, count: usize, to: *mut V::Element) {
    // SAFETY: the caller's promise, for all that follows.
    unsafe {
        if count == LANES {
            vector.store_unchecked(to);
        } else if matches!(V::LEVEL, Level::Avx512) {
            vector.store_partial(std::slice::from_raw_parts_mut(to, count));
        } else {
            // AVX2's masked stores take many cycles on some machines.
            to.copy_from_nonoverlapping(vector.to_array().as_ptr(), count);
        }
    }
}

/// The sums of R rows by N vectors: for each step, a broadcast element of each row times N vectors.
///
/// # Safety
/// `at(step, row)` is good for reading one element, `to` for N vectors `stride` apart for each step.
#[inline(always)]
unsafe fn multiply<V: Vector, const R: usize, const N: usize>(
    mut sums: [[V; N]; R],
    steps: &[u32],
    right: *const V::Element,
    stride: usize,
    at: impl Fn(usize, usize) -> *const V::Element,
) -> [[V; N]; R] {
    let mut right = right;
    for &step in steps {
        let step = step as usize;
        let mut vectors = [V::splat(V::Element::ZERO); N];
        for (j, vector) in vectors.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            *vector = unsafe { V::load_unchecked(right.add(j * LANES)) };
        }
        for (i, sums) in sums.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            let left = V::splat(unsafe { *at(step, i) });
            for (sum, vector) in sums.iter_mut().zip(vectors) {
                *sum = left.mul_add(vector, *sum);
            }
        }
        right = right.wrapping_add(stride);
    }
    sums
}

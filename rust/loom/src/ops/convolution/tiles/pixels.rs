//! Pixels as lanes: a weight times a run of source pixels.

use super::{pixel_vectors, store_first};
use crate::simd::{Isa, Kernel, LANES, Real, Vector};

/// A few destination channels at consecutive places of a frame: pixels of its
/// rows, and what lies between one row's end and the next one's start.
#[derive(Clone, Copy)]
pub(in super::super) struct PixelStrip<'a, T> {
    /// Where each term finds its source element, in the order of the sum.
    pub taps: &'a [u32],
    /// The source of the first place.
    pub frame: *const T,
    /// The first channel's weight for the first tap, the other channels' beside it.
    pub weight: *const T,
    pub weight_row: usize,
    /// One that [`pixel_channels`] gave.
    pub channels: usize,
    pub places: usize,
    /// The sums, [`PIXEL_SLACK`] more than there are places, and from one channel to the next.
    pub to: *mut T,
    pub to_channel: usize,
}

impl<T: Real> PixelStrip<'_, T> {
    /// Computes the sums.
    ///
    /// # Safety
    /// All that the strides reach, and [`PIXEL_SLACK`] beyond the frame's places,
    /// is live memory, and nobody else uses the destination.
    pub unsafe fn run(self, isa: Isa) {
        macro_rules! channels {
            ($($channels:literal)*) => {
                match self.channels {
                    $($channels => T::dispatch(isa, Places::<T, $channels>(self)),)*
                    _ => unreachable!("a tile of {} channels", self.channels),
                }
            };
        }
        channels!(1 2 4 8 12);
    }
}

struct Places<'a, T, const R: usize>(PixelStrip<'a, T>);

impl<T: Real, const R: usize> Kernel<T> for Places<'_, T, R> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        // SAFETY: the promise of `PixelStrip::run`. Which arm is taken is known at compile time.
        unsafe {
            match const { pixel_vectors(V::LEVEL, size_of::<T>(), R) } {
                8 => self.tiles::<V, 8>(),
                6 => self.tiles::<V, 6>(),
                4 => self.tiles::<V, 4>(),
                3 => self.tiles::<V, 3>(),
                2 => self.tiles::<V, 2>(),
                1 => self.tiles::<V, 1>(),
                _ => {}
            }
        }
    }
}

impl<T: Real, const R: usize> Places<'_, T, R> {
    /// # Safety
    /// As [`PixelStrip::run`].
    #[inline(always)]
    unsafe fn tiles<V: Vector<Element = T>, const N: usize>(self) {
        let strip = self.0;
        for place in (0..strip.places).step_by(N * LANES) {
            let mut sums = [[V::splat(T::ZERO); N]; R];
            let mut weight = strip.weight;
            for &tap in strip.taps {
                let from = strip.frame.wrapping_add(tap as usize).wrapping_add(place);
                let mut pixels = [V::splat(T::ZERO); N];
                for (j, pixels) in pixels.iter_mut().enumerate() {
                    // SAFETY: places of the frame, or of its slack.
                    *pixels = unsafe { V::load_unchecked(from.add(j * LANES)) };
                }
                for (i, sums) in sums.iter_mut().enumerate() {
                    // SAFETY: a weight of this tap.
                    let weight = V::splat(unsafe { *weight.add(i) });
                    for (sum, pixels) in sums.iter_mut().zip(pixels) {
                        *sum = pixels.mul_add(weight, *sum);
                    }
                }
                weight = weight.wrapping_add(strip.weight_row);
            }
            for (i, sums) in sums.into_iter().enumerate() {
                for (j, sum) in sums.into_iter().enumerate() {
                    // SAFETY: places of the destination, or of its slack.
                    unsafe { sum.store_unchecked(strip.to.add(i * strip.to_channel + place + j * LANES)) };
                }
            }
        }
    }
}

/// Moves rows of sums to where they belong, adding a bias.
pub(in super::super) struct Settle<T> {
    pub from: *const T,
    pub from_row: usize,
    pub bias: Option<T>,
    pub rows: usize,
    pub columns: usize,
    pub to: *mut T,
    pub to_row: usize,
    pub to_column: usize,
}

impl<T: Real> Settle<T> {
    /// Moves them.
    ///
    /// # Safety
    /// All that the strides reach is live memory, and nobody else uses the destination.
    pub unsafe fn run(self, isa: Isa) {
        T::dispatch(isa, Settling(self));
    }
}

struct Settling<T>(Settle<T>);

impl<T: Real> Kernel<T> for Settling<T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let Settle { from, from_row, bias, rows, columns, to, to_row, to_column } = self.0;
        for row in 0..rows {
            let to = to.wrapping_add(row * to_row);
            // SAFETY: the promise of `Settle::run`, for this and what follows.
            let from = unsafe { std::slice::from_raw_parts(from.wrapping_add(row * from_row), columns) };
            for (piece, from) in from.chunks(LANES).enumerate() {
                let to = to.wrapping_add(piece * LANES * to_column);
                let mut sums = V::load_partial(from);
                if let Some(bias) = bias {
                    sums = sums + V::splat(bias);
                }
                if to_column == 1 {
                    // SAFETY: as above.
                    unsafe { store_first(sums, from.len(), to) };
                } else {
                    for (i, sum) in sums.to_array().into_iter().enumerate().take(from.len()) {
                        // SAFETY: as above.
                        unsafe { *to.add(i * to_column) = sum };
                    }
                }
            }
        }
    }
}

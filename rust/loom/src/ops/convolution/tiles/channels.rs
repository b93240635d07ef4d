//! Channels as lanes: a tap's source pixel times a row of weights.

use super::{channel_tile, even, multiply, scattered_rows, store_first, tile};
use crate::simd::{Isa, Kernel, LANES, Real, Vector};

/// One or two vectors of destination channels at all pixels of a band.
#[derive(Clone, Copy)]
pub(in super::super) struct ChannelStrip<'a, T> {
    /// Where each term finds its source element, in the order of the sum.
    pub taps: &'a [u32],
    /// The source of the first pixel.
    pub frame: *const T,
    /// From the sources of one row, and of one image, to the next's.
    pub frame_row: usize,
    pub frame_image: usize,
    /// A vector's weights for the first tap; `weight_row` from one tap to the next.
    pub weight: *const T,
    pub weight_row: usize,
    /// Of the channels, if there is one.
    pub bias: &'a [T],
    /// Channels: those of the last vector that are past it are not written.
    pub channels: usize,
    pub images: usize,
    pub rows: usize,
    pub columns: usize,
    /// The first channel's first pixel, and from each channel, image, row and column to the next.
    pub to: *mut T,
    pub to_channel: usize,
    pub to_image: usize,
    pub to_row: usize,
    pub to_column: usize,
}

impl<T: Real> ChannelStrip<'_, T> {
    /// Computes the band.
    ///
    /// # Safety
    /// All that the strides reach is live memory, and nobody else uses the destination.
    pub unsafe fn run(self, isa: Isa) {
        let (most, _) = channel_tile::<T>(isa);
        let vectors = self.channels.div_ceil(LANES);
        if self.columns >= most.div_ceil(2) {
            macro_rules! rows {
                ($($rows:literal)*) => {
                    match (even(self.columns, most), vectors) {
                        $(($rows, 1) => T::dispatch(isa, Along::<T, $rows, 1>(self)),
                        ($rows, _) => T::dispatch(isa, Along::<T, $rows, 2>(self)),)*
                        _ => unreachable!("a tile of too many rows"),
                    }
                };
            }
            rows!(1 2 3 4 5 6 7 8 9 10 11 12 13 14);
        } else {
            macro_rules! rows {
                ($($rows:literal)*) => {
                    match (scattered_rows(isa.level(), size_of::<T>()), vectors) {
                        $(($rows, 1) => T::dispatch(isa, Scattered::<T, $rows, 1>(self)),
                        ($rows, _) => T::dispatch(isa, Scattered::<T, $rows, 2>(self)),)*
                        _ => unreachable!("a tile of too many rows"),
                    }
                };
            }
            rows!(4 6 9);
        }
    }

    /// The bias in lanes.
    #[inline(always)]
    fn biases<V: Vector<Element = T>, const N: usize>(&self) -> [V; N] {
        let mut vectors = [V::splat(T::ZERO); N];
        for (j, vector) in vectors.iter_mut().enumerate() {
            *vector = V::load_partial(self.bias.get(j * LANES..).unwrap_or_default());
        }
        vectors
    }

    /// A tile's sums of vector `j`, with the bias, channel by channel.
    #[inline(always)]
    fn by_channel<V: Vector<Element = T>, const R: usize, const N: usize>(
        &self,
        sums: &[[V; N]; R],
        biases: &[V; N],
        j: usize,
    ) -> [V; LANES] {
        let mut block = [V::splat(T::ZERO); LANES];
        for i in 0..R {
            block[i] = if self.bias.is_empty() { sums[i][j] } else { sums[i][j] + biases[j] };
        }
        V::transpose(&mut block);
        block
    }
}

/// Tiles of R pixels of a row; the last of a row begins early enough to be whole.
struct Along<'a, T, const R: usize, const N: usize>(ChannelStrip<'a, T>);

impl<T: Real, const R: usize, const N: usize> Kernel<T> for Along<'_, T, R, N> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        // Which of the two is known at compile time.
        if const { R <= tile(V::LEVEL, size_of::<T>()).0 && N <= tile(V::LEVEL, size_of::<T>()).1 } {
            // SAFETY: the promise of `ChannelStrip::run`, the only maker.
            unsafe { self.tiles::<V>() }
        }
    }
}

impl<T: Real, const R: usize, const N: usize> Along<'_, T, R, N> {
    /// # Safety
    /// As [`ChannelStrip::run`].
    #[inline(always)]
    unsafe fn tiles<V: Vector<Element = T>>(self) {
        let strip = self.0;
        let biases = strip.biases::<V, N>();
        for image in 0..strip.images {
            for row in 0..strip.rows {
                let frame = strip.frame.wrapping_add(image * strip.frame_image + row * strip.frame_row);
                let to = strip.to.wrapping_add(image * strip.to_image + row * strip.to_row);
                for column in (0..strip.columns).step_by(R) {
                    let column = column.min(strip.columns - R);
                    let from = frame.wrapping_add(column);
                    // SAFETY: pixels of the band, says the caller.
                    let sums = unsafe {
                        multiply::<V, R, N>(
                            [[V::splat(T::ZERO); N]; R],
                            strip.taps,
                            strip.weight,
                            strip.weight_row,
                            |tap, i| from.wrapping_add(tap).wrapping_add(i),
                        )
                    };
                    let to = to.wrapping_add(column * strip.to_column);
                    for j in 0..N {
                        let block = strip.by_channel(&sums, &biases, j);
                        for (lane, pixels) in block.into_iter().enumerate().take(strip.channels - j * LANES) {
                            let to = to.wrapping_add((j * LANES + lane) * strip.to_channel);
                            if strip.to_column == 1 {
                                // SAFETY: pixels of the band, which nobody else uses meanwhile.
                                unsafe { store_first(pixels, R, to) };
                            } else {
                                for (i, pixel) in pixels.to_array().into_iter().enumerate().take(R) {
                                    // SAFETY: as above.
                                    unsafe { *to.add(i * strip.to_column) = pixel };
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Tiles of R pixels wherever they lie, for images narrower than a tile.
struct Scattered<'a, T, const R: usize, const N: usize>(ChannelStrip<'a, T>);

impl<T: Real, const R: usize, const N: usize> Kernel<T> for Scattered<'_, T, R, N> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        // Which of the two is known at compile time.
        if const { R == scattered_rows(V::LEVEL, size_of::<T>()) && N <= tile(V::LEVEL, size_of::<T>()).1 } {
            // SAFETY: the promise of `ChannelStrip::run`, the only maker.
            unsafe { self.tiles::<V>() }
        }
    }
}

impl<T: Real, const R: usize, const N: usize> Scattered<'_, T, R, N> {
    /// # Safety
    /// As [`ChannelStrip::run`].
    #[inline(always)]
    unsafe fn tiles<V: Vector<Element = T>>(self) {
        let strip = self.0;
        let biases = strip.biases::<V, N>();
        let per_image = strip.rows * strip.columns;
        let pixels = strip.images * per_image;
        for first in (0..pixels).step_by(R) {
            let count = R.min(pixels - first);
            let mut from = [0; R];
            let mut to = [0; R];
            for i in 0..R {
                // Past the last pixel, the last one again.
                let pixel = first + i.min(count - 1);
                let (image, pixel) = (pixel / per_image, pixel % per_image);
                let (row, column) = (pixel / strip.columns, pixel % strip.columns);
                from[i] = image * strip.frame_image + row * strip.frame_row + column;
                to[i] = image * strip.to_image + row * strip.to_row + column * strip.to_column;
            }
            // SAFETY: pixels of the band, says the caller.
            let sums = unsafe {
                multiply::<V, R, N>(
                    [[V::splat(T::ZERO); N]; R],
                    strip.taps,
                    strip.weight,
                    strip.weight_row,
                    |tap, i| strip.frame.wrapping_add(tap).wrapping_add(from[i]),
                )
            };
            for j in 0..N {
                let block = strip.by_channel(&sums, &biases, j);
                for (lane, pixels) in block.into_iter().enumerate().take(strip.channels - j * LANES) {
                    let channel = strip.to.wrapping_add((j * LANES + lane) * strip.to_channel);
                    let pixels = pixels.to_array();
                    for (to, pixel) in to.into_iter().zip(pixels).take(count) {
                        // SAFETY: a pixel of the band, which nobody else uses meanwhile.
                        unsafe { *channel.add(to) = pixel };
                    }
                }
            }
        }
    }
}

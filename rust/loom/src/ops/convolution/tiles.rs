//! The kernels: tiles of sums in registers, every sum in order.
//!
//! Two shapes of tile serve the sweeps. Where a group has many destination
//! channels they are the lanes: a tap's source pixel is broadcast and
//! multiplies a row of weights ([`ChannelStrip`]). Where it has few, pixels
//! are the lanes and weights are broadcast ([`PixelStrip`]). The weight
//! gradient exchanges taps and pixels of the former ([`Correlation`]).

use crate::cpu::{Isa, Kernel, LANES, Level, Real, Vector};

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

/// One or two vectors of destination channels at all pixels of a band.
#[derive(Clone, Copy)]
pub(super) struct ChannelStrip<'a, T> {
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
                                pixels.store_partial(unsafe { std::slice::from_raw_parts_mut(to, R) });
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

/// A few destination channels at consecutive places of a frame: pixels of its
/// rows, and what lies between one row's end and the next one's start.
#[derive(Clone, Copy)]
pub(super) struct PixelStrip<'a, T> {
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
pub(super) struct Settle<T> {
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
                    sums.store_partial(unsafe { std::slice::from_raw_parts_mut(to, from.len()) });
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

/// A tile of the weight gradient: a few taps by one or two vectors of output
/// channels, summed over pixels.
#[derive(Clone, Copy)]
pub(super) struct Correlation<'a, T> {
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
            let to = tile.to.wrapping_add(i * tile.to_tap + j * LANES);
            let present = LANES.min(tile.channels.saturating_sub(j * LANES));
            // SAFETY: sums of the tile, which nobody else uses meanwhile; the caller's promise.
            unsafe { std::slice::from_raw_parts_mut(to, present) }
        };
        let mut sums = [[V::splat(T::ZERO); N]; R];
        if tile.accumulate {
            for (i, sums) in sums.iter_mut().enumerate() {
                for (j, sum) in sums.iter_mut().enumerate() {
                    *sum = V::load_partial(row(i, j));
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
                sum.store_partial(row(i, j));
            }
        }
    }
}

/// Sixteen rows of the same length, turned so that each place's sixteen elements lie side by side.
pub(super) struct Interleave<T> {
    /// Rows; a null pointer stands for zeros.
    pub rows: [*const T; LANES],
    pub len: usize,
    /// A vector for each place, and from one to the next.
    pub to: *mut T,
    pub to_place: usize,
}

impl<T: Real> Interleave<T> {
    /// Writes them.
    ///
    /// # Safety
    /// Every row is good for `len` elements, and nobody else uses the destination.
    pub unsafe fn run(self, isa: Isa) {
        T::dispatch(isa, Interleaving(self));
    }
}

struct Interleaving<T>(Interleave<T>);

impl<T: Real> Kernel<T> for Interleaving<T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let Interleave { rows, len, to, to_place } = self.0;
        for first in (0..len).step_by(LANES) {
            let count = LANES.min(len - first);
            let mut block = [V::splat(T::ZERO); LANES];
            for (vector, row) in block.iter_mut().zip(rows) {
                if !row.is_null() {
                    // SAFETY: elements of the row, by the promise of `Interleave::run`.
                    *vector = V::load_partial(unsafe { std::slice::from_raw_parts(row.add(first), count) });
                }
            }
            V::transpose(&mut block);
            for (place, vector) in block.into_iter().enumerate().take(count) {
                // SAFETY: a place of the destination.
                unsafe { vector.store_unchecked(to.add((first + place) * to_place)) };
            }
        }
    }
}

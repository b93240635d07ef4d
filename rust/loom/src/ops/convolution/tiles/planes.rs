//! One channel by itself, as in a depthwise convolution: runs of source pixels times single weights.

use super::store_first;
use crate::simd::{Isa, Kernel, LANES, Level, Real, Vector};

/// The fewest columns that are worth a vector of their own in every row.
pub(in super::super) const PLANE_COLUMNS: usize = 12;

/// One destination channel at pixels whose columns are side by side.
#[derive(Clone, Copy)]
pub(in super::super) struct PlaneStrip<'a, T> {
    /// Where each term finds its source element, in the order of the sum.
    pub taps: &'a [u32],
    /// The source of the first pixel, and from one row to the next.
    pub frame: *const T,
    pub frame_row: usize,
    /// The first tap's weight, and from one to the next.
    pub weight: *const T,
    pub weight_row: usize,
    pub bias: Option<T>,
    /// Whether the frame is a source plane itself, under windows of three by three around each of its
    /// pixels, all of which are asked for. It then has no border, and starts with the first one's middle.
    pub bare: bool,
    pub rows: usize,
    pub columns: usize,
    pub to: *mut T,
    pub to_row: usize,
}

impl<T: Real> PlaneStrip<'_, T> {
    /// Computes the pixels.
    ///
    /// # Safety
    /// All that the strides reach, and a vector beyond the frame's places, is live memory, and
    /// nobody else uses the destination.
    pub unsafe fn run(self, isa: Isa) {
        T::dispatch(isa, Plane(self));
    }

    /// Whether the taps are those of three rows of three neighbours, and whether the last one
    /// comes first.
    #[inline(always)]
    fn three_by_three(&self) -> Option<bool> {
        let taps: &[u32; 9] = self.taps.try_into().ok()?;
        let place = |i: usize| i / 3 * self.frame_row + i % 3;
        if (0..9).all(|i| taps[i] as usize == taps[0] as usize + place(i)) {
            return Some(false);
        }
        (0..9).all(|i| taps[i] as usize == taps[8] as usize + place(8 - i)).then_some(true)
    }
}

struct Plane<'a, T>(PlaneStrip<'a, T>);

impl<T: Real> Kernel<T> for Plane<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let strip = self.0;
        // SAFETY: the promise of `PlaneStrip::run`, for all of these.
        unsafe {
            match strip.three_by_three() {
                Some(false) if strip.rows >= ROWS => strip.squares::<V, false>(),
                Some(true) if strip.rows >= ROWS => strip.squares::<V, true>(),
                _ if matches!(V::LEVEL, Level::Avx512) && strip.rows >= 8 => strip.tiles::<V, 8, 1>(),
                _ if strip.rows >= 4 => strip.tiles::<V, 4, 1>(),
                _ if strip.columns >= 4 * LANES => strip.tiles::<V, 1, 4>(),
                _ => strip.tiles::<V, 1, 1>(),
            }
        }
    }
}

/// Destination rows of a tile of [`PlaneStrip::squares`].
pub(in super::super) const ROWS: usize = 4;

impl<T: Real> PlaneStrip<'_, T> {
    /// Any taps, by tiles of R rows and N vectors; those at the end begin early enough to be whole.
    ///
    /// # Safety
    /// As [`PlaneStrip::run`].
    #[inline(always)]
    unsafe fn tiles<V: Vector<Element = T>, const R: usize, const N: usize>(self) {
        for row in (0..self.rows).step_by(R) {
            let row = row.min(self.rows - R);
            for column in (0..self.columns).step_by(N * LANES) {
                let column = column.min(self.columns.saturating_sub(N * LANES));
                let from = self.frame.wrapping_add(row * self.frame_row + column);
                let mut sums = [[V::splat(T::ZERO); N]; R];
                let mut weight = self.weight;
                for &tap in self.taps {
                    let from = from.wrapping_add(tap as usize);
                    // SAFETY: a weight of this tap; the caller's promise.
                    let factor = V::splat(unsafe { *weight });
                    for (i, sums) in sums.iter_mut().enumerate() {
                        for (j, sum) in sums.iter_mut().enumerate() {
                            let from = from.wrapping_add(i * self.frame_row + j * LANES);
                            // SAFETY: places of the frame, or of its slack.
                            *sum = unsafe { V::load_unchecked(from) }.mul_add(factor, *sum);
                        }
                    }
                    weight = weight.wrapping_add(self.weight_row);
                }
                for (i, sums) in sums.into_iter().enumerate() {
                    for (j, sum) in sums.into_iter().enumerate() {
                        // SAFETY: pixels of the strip.
                        unsafe { self.store(sum, row + i, column + j * LANES) };
                    }
                }
            }
        }
    }

    /// Three rows of three taps.
    ///
    /// # Safety
    /// As [`PlaneStrip::run`]; the taps are as `BACKWARDS` says, and there are [`ROWS`] rows, of a whole
    /// vector if the frame is bare.
    #[inline(always)]
    unsafe fn squares<V: Vector<Element = T>, const BACKWARDS: bool>(self) {
        let mut weights = [V::splat(T::ZERO); 9];
        for (i, weight) in weights.iter_mut().enumerate() {
            // SAFETY: a weight of each tap; the caller's promise.
            *weight = V::splat(unsafe { *self.weight.wrapping_add(i * self.weight_row) });
        }
        let last = self.columns.saturating_sub(LANES);
        for row in (0..self.rows).step_by(ROWS) {
            let row = row.min(self.rows - ROWS);
            for column in (0..self.columns).step_by(LANES) {
                let column = column.min(last);
                // SAFETY: the caller's promise, for all of these.
                unsafe {
                    match (self.bare && column == 0, self.bare && column == last) {
                        (false, false) => self.square::<V, BACKWARDS, false, false>(&weights, row, column),
                        (true, false) => self.square::<V, BACKWARDS, true, false>(&weights, row, column),
                        (false, true) => self.square::<V, BACKWARDS, false, true>(&weights, row, column),
                        (true, true) => self.square::<V, BACKWARDS, true, true>(&weights, row, column),
                    }
                }
            }
        }
    }

    /// A tile of [`ROWS`] rows: a row of the frame is read once for all of them. The order of a sum is
    /// that of the taps, so that they are walked backwards where the last one comes first. There may be
    /// a border before the first column or after the last.
    ///
    /// # Safety
    /// As [`PlaneStrip::squares`].
    #[inline(always)]
    unsafe fn square<V: Vector<Element = T>, const BACKWARDS: bool, const LEFT: bool, const RIGHT: bool>(
        &self,
        weights: &[V; 9],
        row: usize,
        column: usize,
    ) {
        let zero = V::splat(T::ZERO);
        let from = match self.bare {
            true => self.frame.wrapping_sub(self.frame_row + 1),
            false => self.frame.wrapping_add(self.taps[if BACKWARDS { 8 } else { 0 }] as usize),
        };
        let (above, below) = (self.bare && row == 0, self.bare && row + ROWS == self.rows);
        let from = from.wrapping_add(row * self.frame_row + column);
        let mut sums = [zero; ROWS];
        // One line of the frame after the other, each for the rows that it is under.
        macro_rules! lines {
            ($($step:literal)*) => {$(
                let line = if BACKWARDS { ROWS + 1 - $step } else { $step };
                let at = from.wrapping_add(line * self.frame_row);
                let outside = line == 0 && above || line == ROWS + 1 && below;
                let (left, middle, right) = if outside {
                    (zero, zero, zero)
                } else {
                    // SAFETY: places of the frame, or of its slack; in a bare one, of a row of the source.
                    unsafe {
                        let middle = V::load_unchecked(at.wrapping_add(1));
                        (
                            if LEFT { middle.shift_up() } else { V::load_unchecked(at) },
                            middle,
                            if RIGHT { middle.shift_down() } else { V::load_unchecked(at.wrapping_add(2)) },
                        )
                    }
                };
                let (first, last) = if BACKWARDS { (right, left) } else { (left, right) };
                for (row, sum) in sums.iter_mut().enumerate() {
                    if row <= line && line < row + 3 {
                        let taps = if BACKWARDS { 2 + row - line } else { line - row } * 3;
                        *sum = first.mul_add(weights[taps], *sum);
                        *sum = middle.mul_add(weights[taps + 1], *sum);
                        *sum = last.mul_add(weights[taps + 2], *sum);
                    }
                }
            )*};
        }
        lines!(0 1 2 3 4 5);
        for (i, sum) in sums.into_iter().enumerate() {
            // SAFETY: pixels of the strip.
            unsafe { self.store(sum, row + i, column) };
        }
    }

    /// Writes up to 16 pixels of a row, with the bias.
    ///
    /// # Safety
    /// The row and the pixels from `column` on belong to the strip, which no other task writes.
    #[inline(always)]
    unsafe fn store<V: Vector<Element = T>>(&self, sum: V, row: usize, column: usize) {
        let sum = match self.bias {
            Some(bias) => sum + V::splat(bias),
            None => sum,
        };
        let count = LANES.min(self.columns - column);
        // SAFETY: the caller's promise.
        unsafe { store_first(sum, count, self.to.wrapping_add(row * self.to_row + column)) };
    }
}

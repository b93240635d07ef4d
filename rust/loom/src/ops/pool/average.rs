//! Kernels of average pooling.

use super::window::{Lines, Span, candidates, from, halves, is_global};
use crate::ops::Geometry;
use crate::ops::element_loops::{lane_sums, load, store};
use crate::ops::reduced_axis::tree;
use crate::simd::{Kernel, LANES, Real, Vector};

/// Some whole volumes.
pub(super) struct AverageForward<'a, T> {
    pub(super) geometry: Geometry,
    pub(super) count_padding: bool,
    pub(super) x: &'a [T],
    pub(super) y: &'a mut [T],
}

impl<T: Real> Kernel<T> for AverageForward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let geometry = &self.geometry;
        let (input, output) = geometry.volumes();
        let (halves, global) = (halves(geometry), is_global(geometry));
        for (x, y) in self.x.chunks_exact(input).zip(self.y.chunks_exact_mut(output)) {
            if halves {
                halve::<V>(geometry, x, y);
            } else if global {
                y[0] = lane_sums(x, |x: V| x).reduce_sum() / T::from_usize(input);
            } else {
                mean::<V>(geometry, self.count_padding, x, y);
            }
        }
    }
}

/// What the sums of 16 windows from window `window` of a row on are divided by.
#[inline(always)]
fn divisors<V: Vector>(geometry: &Geometry, count_padding: bool, lines: Lines, window: usize) -> V {
    if count_padding {
        return V::splat(V::Element::from_usize(geometry.taps()));
    }
    let mut lanes = [V::Element::ONE; LANES];
    for (i, lane) in lanes.iter_mut().enumerate() {
        let columns = Span::new(geometry, 2, window + i);
        *lane = V::Element::from_usize((lines.count() * columns.count).max(1));
    }
    V::load(&lanes)
}

/// Any windows over one volume, 16 of a row at once.
#[inline(always)]
fn mean<V: Vector>(geometry: &Geometry, count_padding: bool, x: &[V::Element], y: &mut [V::Element]) {
    let (windows, width) = (geometry.output[2], geometry.kernel[2]);
    for (line, y) in y.chunks_exact_mut(windows).enumerate() {
        let lines = Lines::new(geometry, line);
        for (block, y) in y.chunks_mut(LANES).enumerate() {
            let window = block * LANES;
            // The sums of one window lie in the same lane of these.
            let mut sums = [V::splat(V::Element::ZERO); LANES];
            for (number, line) in lines.places() {
                for kernel in 0..width {
                    // The element's number in the window, the border's counted.
                    let number = number * width + kernel;
                    let sum = &mut sums[number % LANES];
                    *sum = *sum + candidates(geometry, x, line, window, kernel, V::Element::ZERO);
                }
            }
            store(tree(sums) / divisors(geometry, count_padding, lines, window), y);
        }
    }
}

/// Windows of 2 x 2 side by side over one plane: what [`mean`] comes to, for 16 windows at once.
///
/// Whole vectors are written as in maximum pooling.
#[inline(always)]
fn halve<V: Vector>(geometry: &Geometry, x: &[V::Element], y: &mut [V::Element]) {
    let [width, columns] = [geometry.input[2], geometry.output[2]];
    for row in 0..geometry.output[1] {
        for column in (0..columns).step_by(LANES) {
            let place = |down, right| from(2 * row + down, 2 * column + right, width, x.len());
            // The tree joins elements two apart first, which lie above each other.
            let even = load::<V>(&x[place(0, 0)]) + load(&x[place(1, 0)]);
            let odd = load::<V>(&x[place(0, LANES)]) + load(&x[place(1, LANES)]);
            let (left, right) = even.unzip(odd);
            // The tree's lanes start from 0, which makes the sum of negative zeros positive.
            let sum = left + right + V::splat(V::Element::ZERO);
            let results = from(row, column, columns, y.len());
            store(sum / V::constant(4.0), &mut y[results]);
        }
    }
}

/// Some whole volumes.
pub(super) struct AverageBackward<'a, T> {
    pub(super) geometry: Geometry,
    pub(super) count_padding: bool,
    pub(super) dy: &'a [T],
    pub(super) dx: &'a mut [T],
}

impl<T: Real> Kernel<T> for AverageBackward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let geometry = &self.geometry;
        let (input, output) = geometry.volumes();
        for (dy, dx) in self.dy.chunks_exact(output).zip(self.dx.chunks_exact_mut(input)) {
            dx.fill(T::ZERO);
            if halves(geometry) {
                double(geometry, dy, dx);
                continue;
            }
            let width = geometry.input[2];
            for (line, dy) in dy.chunks_exact(geometry.output[2]).enumerate() {
                let lines = Lines::new(geometry, line);
                for (block, dy) in dy.chunks(LANES).enumerate() {
                    let window = block * LANES;
                    let divisors = divisors::<V>(geometry, self.count_padding, lines, window);
                    let shares = (load::<V>(dy) / divisors).to_array();
                    let shares = &shares[..dy.len()];
                    for (_, line) in lines.places() {
                        let dx = &mut dx[line * width..][..width];
                        spread(geometry, shares, window, dx);
                    }
                }
            }
        }
    }
}

/// The gradient of [`halve`] over one plane of zeros.
#[inline(always)]
fn double<T: Real>(geometry: &Geometry, dy: &[T], dx: &mut [T]) {
    let [width, windows] = [geometry.input[2], geometry.output[2]];
    for (dy, dx) in dy.chunks_exact(windows).zip(dx.chunks_exact_mut(2 * width)) {
        let (upper, lower) = dx.split_at_mut(width);
        let pairs = upper.chunks_exact_mut(2).zip(lower.chunks_exact_mut(2));
        for (dy, (upper, lower)) in dy.iter().zip(pairs) {
            let share = *dy / T::from_f64(4.0);
            upper[0] += share;
            upper[1] += share;
            lower[0] += share;
            lower[1] += share;
        }
    }
}

/// Adds to one row of dx the shares of the windows of a row, from window `window` on.
///
/// Every element receives them in the order of the windows, whichever loop is inside.
#[inline(always)]
fn spread<T: Real>(geometry: &Geometry, shares: &[T], window: usize, dx: &mut [T]) {
    let (stride, padding, dilation) = (geometry.stride[2], geometry.padding[2], geometry.dilation[2]);
    if geometry.kernel[2] > shares.len() && dilation == 1 {
        for (i, share) in shares.iter().enumerate() {
            let columns = Span::new(geometry, 2, window + i);
            for dx in &mut dx[columns.start..][..columns.count] {
                *dx += *share;
            }
        }
        return;
    }
    // A later element of the kernel belongs to an earlier window of those that share an element of dx.
    for kernel in (0..geometry.kernel[2]).rev() {
        // Places count from the start of the border; windows that start on it come later.
        let start = window * stride + kernel * dilation;
        let skipped = padding.saturating_sub(start).div_ceil(stride).min(shares.len());
        let start = (start + skipped * stride).saturating_sub(padding).min(dx.len());
        for (dx, share) in dx[start..].iter_mut().step_by(stride).zip(&shares[skipped..]) {
            *dx += *share;
        }
    }
}

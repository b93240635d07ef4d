//! Kernels of average pooling.

use super::window::{Span, from, halves, is_global, planes};
use crate::cpu::{Kernel, LANES, Real, Vector};
use crate::ops::Geometry2D;
use crate::ops::sweep::{lane_sums, load, store};

/// Some whole planes.
pub(super) struct AverageForward<'a, T> {
    pub(super) geometry: Geometry2D,
    pub(super) count_padding: bool,
    pub(super) x: &'a [T],
    pub(super) y: &'a mut [T],
}

impl<T: Real> Kernel<T> for AverageForward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let geometry = &self.geometry;
        let (input, output) = planes(geometry);
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

/// What a window's sum is divided by.
#[inline(always)]
fn divisor<T: Real>(geometry: &Geometry2D, count_padding: bool, rows: Span, columns: Span) -> T {
    let [height, width] = geometry.kernel;
    T::from_usize(if count_padding { height * width } else { (rows.count * columns.count).max(1) })
}

/// Any windows over one plane.
#[inline(always)]
fn mean<V: Vector>(geometry: &Geometry2D, count_padding: bool, x: &[V::Element], y: &mut [V::Element]) {
    let [width, columns] = [geometry.input[1], geometry.output[1]];
    for (row, y) in y.chunks_exact_mut(columns).enumerate() {
        let rows = Span::new(geometry, 0, row);
        for (column, y) in y.iter_mut().enumerate() {
            let columns = Span::new(geometry, 1, column);
            let mut lanes = [V::Element::ZERO; LANES];
            for (i, row) in rows.places().enumerate() {
                // The element's number in the window, the border's counted.
                let number = (rows.first + i) * geometry.kernel[1] + columns.first;
                for (j, column) in columns.places().enumerate() {
                    lanes[(number + j) % LANES] += x[row * width + column];
                }
            }
            *y = V::load(&lanes).reduce_sum() / divisor(geometry, count_padding, rows, columns);
        }
    }
}

/// Windows of 2 x 2 side by side over one plane: what [`mean`] comes to, for 16 windows at once.
///
/// Whole vectors are written as in maximum pooling.
#[inline(always)]
fn halve<V: Vector>(geometry: &Geometry2D, x: &[V::Element], y: &mut [V::Element]) {
    let [width, columns] = [geometry.input[1], geometry.output[1]];
    for row in 0..geometry.output[0] {
        for column in (0..columns).step_by(LANES) {
            let place = |down, right| from(2 * row + down, 2 * column + right, width, x.len());
            let load = |range| load::<V>(&x[range]);
            // The tree joins elements two apart first, which lie above each other.
            let (left, right) =
                (load(place(0, 0)) + load(place(1, 0))).unzip(load(place(0, LANES)) + load(place(1, LANES)));
            // The tree's lanes start from 0, which makes the sum of negative zeros positive.
            let sum = left + right + V::splat(V::Element::ZERO);
            let results = from(row, column, columns, y.len());
            store(sum / V::constant(4.0), &mut y[results]);
        }
    }
}

/// Some whole planes.
pub(super) struct AverageBackward<'a, T> {
    pub(super) geometry: Geometry2D,
    pub(super) count_padding: bool,
    pub(super) dy: &'a [T],
    pub(super) dx: &'a mut [T],
}

impl<T: Real> Kernel<T> for AverageBackward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let geometry = &self.geometry;
        let (input, output) = planes(geometry);
        for (dy, dx) in self.dy.chunks_exact(output).zip(self.dx.chunks_exact_mut(input)) {
            dx.fill(T::ZERO);
            for (row, dy) in dy.chunks_exact(geometry.output[1]).enumerate() {
                let rows = Span::new(geometry, 0, row);
                for (column, dy) in dy.iter().enumerate() {
                    let columns = Span::new(geometry, 1, column);
                    spread(
                        geometry,
                        *dy / divisor(geometry, self.count_padding, rows, columns),
                        rows,
                        columns,
                        dx,
                    );
                }
            }
        }
    }
}

/// Adds `share` to every element of a window.
#[inline(always)]
fn spread<T: Real>(geometry: &Geometry2D, share: T, rows: Span, columns: Span, dx: &mut [T]) {
    for row in rows.places() {
        let dx = &mut dx[row * geometry.input[1]..][..geometry.input[1]];
        if columns.step == 1 {
            for dx in &mut dx[columns.start..][..columns.count] {
                *dx += share;
            }
        } else {
            for column in columns.places() {
                dx[column] += share;
            }
        }
    }
}

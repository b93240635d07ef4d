//! Kernels of maximum pooling.

use super::window::{Lines, Span, candidates, from, halves};
use crate::ops::Geometry;
use crate::ops::element_loops::{load, store};
use crate::simd::{Kernel, LANES, Real, Vector};

/// The index where a window holds nothing but border.
const NOWHERE: i32 = -1;

/// Some whole volumes.
pub(super) struct MaxForward<'a, T> {
    pub(super) geometry: Geometry,
    pub(super) x: &'a [T],
    pub(super) y: &'a mut [T],
    pub(super) indices: &'a mut [i32],
}

impl<T: Real> Kernel<T> for MaxForward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let geometry = &self.geometry;
        let (input, output) = geometry.volumes();
        let halves = halves(geometry);
        let results = self.y.chunks_exact_mut(output).zip(self.indices.chunks_exact_mut(output));
        for (x, (y, indices)) in self.x.chunks_exact(input).zip(results) {
            if halves {
                halve::<V>(geometry, x, y, indices);
            } else {
                largest::<V>(geometry, x, y, indices);
            }
        }
    }
}

/// Any windows over one volume, 16 of a row at once.
#[inline(always)]
fn largest<V: Vector>(geometry: &Geometry, x: &[V::Element], y: &mut [V::Element], indices: &mut [i32]) {
    let Geometry { input: [.., width], output: [.., windows], stride, padding, dilation, .. } = *geometry;
    let least = -V::Element::INFINITY;
    let results = y.chunks_exact_mut(windows).zip(indices.chunks_exact_mut(windows));
    for (line, (y, indices)) in results.enumerate() {
        let lines = Lines::new(geometry, line);
        let upper = lines.place(0) * width;
        for window in (0..windows).step_by(LANES) {
            let mut best = V::splat(least);
            // The winner's place in its window; -1 while there is none.
            let (mut down, mut right) = (V::constant(-1.0), V::constant(-1.0));
            for (i, (_, line)) in lines.places().enumerate() {
                for kernel in 0..geometry.kernel[2] {
                    let candidate = candidates::<V>(geometry, x, line, window, kernel, least);
                    let wins = V::or(candidate.gt(best), V::not(candidate.eq(candidate)));
                    best = V::select(wins, candidate, best);
                    down = V::select(wins, V::constant(i as f64), down);
                    right = V::select(wins, V::constant(kernel as f64), right);
                }
            }
            let windows = window..(window + LANES).min(windows);
            store(best, &mut y[windows.clone()]);
            let indices = &mut indices[windows];
            let first = (window * stride[2]) as i32 - padding[2] as i32;
            let places = down.to_array().into_iter().zip(right.to_array());
            for (i, (index, (down, right))) in indices.iter_mut().zip(places).enumerate() {
                let (down, right) = (down.to_f32() as i32, right.to_f32() as i32);
                let line = lines.place(down.max(0) as usize);
                *index = first + (line * width + i * stride[2]) as i32 + right * dilation[2] as i32;
            }
            if V::any(right.lt(V::splat(V::Element::ZERO))) {
                // Nothing was larger than minus infinity: the first element, if there is one.
                for (i, (index, right)) in indices.iter_mut().zip(right.to_array()).enumerate() {
                    if right < V::Element::ZERO {
                        let columns = Span::new(geometry, 2, window + i);
                        let some = lines.count() > 0 && columns.count > 0;
                        *index = if some { (upper + columns.start) as i32 } else { NOWHERE };
                    }
                }
            }
        }
    }
}

/// Windows of 2 x 2 side by side over one plane.
///
/// Rows are written in order and whole vectors where the plane has room for them, so
/// that what one writes beyond the row's end is written over by the next.
#[inline(always)]
fn halve<V: Vector>(geometry: &Geometry, x: &[V::Element], y: &mut [V::Element], indices: &mut [i32]) {
    let [width, columns] = [geometry.input[2], geometry.output[2]];
    let down = width as i32;
    for row in 0..geometry.output[1] {
        for column in (0..columns).step_by(LANES) {
            let place = |down, right| from(2 * row + down, 2 * column + right, width, x.len());
            let (upper_left, upper_right) = load::<V>(&x[place(0, 0)]).unzip(load(&x[place(0, LANES)]));
            let (lower_left, lower_right) = load::<V>(&x[place(1, 0)]).unzip(load(&x[place(1, LANES)]));
            let mut best = (upper_left, V::constant(0.0));
            for (number, candidate) in [upper_right, lower_left, lower_right].into_iter().enumerate() {
                let wins = V::or(candidate.gt(best.0), V::not(candidate.eq(candidate)));
                best.0 = V::select(wins, candidate, best.0);
                best.1 = V::select(wins, V::constant((number + 1) as f64), best.1);
            }
            let results = from(row, column, columns, y.len());
            store(best.0, &mut y[results.clone()]);
            let first = ((2 * row) * width + 2 * column) as i32;
            let mut winners = [0; LANES];
            for ((i, winner), number) in winners.iter_mut().enumerate().zip(best.1.to_array()) {
                let number = number.to_f32() as i32;
                *winner = first + 2 * i as i32 + (number & 1) + (number >> 1) * down;
            }
            let indices = &mut indices[results];
            if let Some(indices) = indices.first_chunk_mut() {
                *indices = winners;
            } else {
                indices.copy_from_slice(&winners[..indices.len()]);
            }
        }
    }
}

/// Some whole volumes.
pub(super) struct MaxBackward<'a, T> {
    pub(super) geometry: Geometry,
    pub(super) dy: &'a [T],
    pub(super) indices: &'a [i32],
    pub(super) dx: &'a mut [T],
}

impl<T: Real> Kernel<T> for MaxBackward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let (input, output) = self.geometry.volumes();
        let operands = self.dy.chunks_exact(output).zip(self.indices.chunks_exact(output));
        for ((dy, indices), dx) in operands.zip(self.dx.chunks_exact_mut(input)) {
            dx.fill(T::ZERO);
            for (dy, index) in dy.iter().zip(indices) {
                if let Some(dx) = dx.get_mut(*index as usize) {
                    *dx += *dy;
                }
            }
        }
    }
}

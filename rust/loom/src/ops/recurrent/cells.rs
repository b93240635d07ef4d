//! One step of a cell for one row, 16 units at a time.

use super::Cell;
use crate::ops::element_loops::{load, store};
use crate::simd::{Kernel, LANES, Real, Vector};

/// One row of a step forward, in place: sums in, next state out.
pub(super) struct Row<'a, T> {
    /// The input's share of the pre-activations (gates, units).
    pub input: &'a [T],
    /// Pre-activations (gates, units); of a GRU's last gate the state's share alone.
    pub sums: &'a [T],
    /// The hidden state, replaced by the next.
    pub hidden: &'a mut [T],
    /// An LSTM's cell state, replaced by the next; of a GRU that resets first, z.
    pub cell_state: &'a mut [T],
    /// Of a GRU that resets first, `r h`.
    pub reset: &'a mut [T],
    /// What the gradient needs (saved, units); empty where it is not kept.
    pub saved: &'a mut [T],
}

/// [`Row`]s of a step, all on one instruction set.
pub(super) struct Forward<'a, T: 'a, I: Iterator<Item = Row<'a, T>>> {
    pub cell: Cell,
    pub rows: I,
}

impl<'a, T: Real, I: Iterator<Item = Row<'a, T>>> Kernel<T> for Forward<'a, T, I> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let cell = self.cell;
        for row in self.rows {
            match cell {
                Cell::Tanh => simple::<V>(row, |z| z.tanh()),
                // In this order a NaN stays one.
                Cell::Relu => simple::<V>(row, |z| V::splat(T::ZERO).max(z)),
                Cell::Lstm => lstm::<V>(row),
                Cell::Gru => gru::<V>(row),
                Cell::ResetFirstGru => candidate::<V>(row),
            }
        }
    }
}

/// The first half of a step of a GRU that resets first: from the sums of r and z to `r h`.
pub(super) struct Reset<'a, T: 'a, I: Iterator<Item = Row<'a, T>>> {
    pub rows: I,
}

impl<'a, T: Real, I: Iterator<Item = Row<'a, T>>> Kernel<T> for Reset<'a, T, I> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        for row in self.rows {
            let units = row.hidden.len();
            for part in vectors(units) {
                let r = gate::<V>(row.sums, units, 0, part).sigmoid();
                let z = gate::<V>(row.sums, units, 1, part).sigmoid();
                let q = r * gate::<V>(row.hidden, units, 0, part);
                keep(z, row.cell_state, units, 0, part);
                keep(q, row.reset, units, 0, part);
                for (number, value) in [(0, r), (1, z), (3, q)] {
                    keep(value, row.saved, units, number, part);
                }
            }
        }
    }
}

/// The second half: from the sum of the candidate to the next state.
#[inline(always)]
fn candidate<V: Vector>(row: Row<'_, V::Element>) {
    let units = row.hidden.len();
    for part in vectors(units) {
        let n = gate::<V>(row.sums, units, 2, part).tanh();
        let z = gate::<V>(row.cell_state, units, 0, part);
        let h = gate::<V>(row.hidden, units, 0, part);
        keep(z.mul_add(h - n, n), row.hidden, units, 0, part);
        keep(n, row.saved, units, 2, part);
    }
}

/// The vectors of `units` elements, as ranges within one gate.
#[inline(always)]
fn vectors(units: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..units).step_by(LANES).map(move |start| (start, units.min(start + LANES)))
}

/// Elements of one gate out of several of `units`.
#[inline(always)]
fn gate<V: Vector>(x: &[V::Element], units: usize, number: usize, (start, end): (usize, usize)) -> V {
    load(&x[number * units + start..number * units + end])
}

/// Writes elements of one gate out of several of `units`, if there is room for any.
#[inline(always)]
fn keep<V: Vector>(
    value: V,
    to: &mut [V::Element],
    units: usize,
    number: usize,
    (start, end): (usize, usize),
) {
    if !to.is_empty() {
        store(value, &mut to[number * units + start..number * units + end]);
    }
}

#[inline(always)]
fn simple<V: Vector>(row: Row<'_, V::Element>, f: impl Fn(V) -> V) {
    let units = row.hidden.len();
    for part in vectors(units) {
        let h = f(gate::<V>(row.sums, units, 0, part));
        keep(h, row.hidden, units, 0, part);
        keep(h, row.saved, units, 0, part);
    }
}

#[inline(always)]
fn lstm<V: Vector>(row: Row<'_, V::Element>) {
    let units = row.hidden.len();
    for part in vectors(units) {
        let i = gate::<V>(row.sums, units, 0, part).sigmoid();
        let f = gate::<V>(row.sums, units, 1, part).sigmoid();
        let g = gate::<V>(row.sums, units, 2, part).tanh();
        let o = gate::<V>(row.sums, units, 3, part).sigmoid();
        let c = f.mul_add(gate::<V>(row.cell_state, units, 0, part), i * g);
        keep(c, row.cell_state, units, 0, part);
        keep(o * c.tanh(), row.hidden, units, 0, part);
        for (number, value) in [i, f, g, o, c].into_iter().enumerate() {
            keep(value, row.saved, units, number, part);
        }
    }
}

#[inline(always)]
fn gru<V: Vector>(row: Row<'_, V::Element>) {
    let units = row.hidden.len();
    for part in vectors(units) {
        let r = gate::<V>(row.sums, units, 0, part).sigmoid();
        let z = gate::<V>(row.sums, units, 1, part).sigmoid();
        let q = gate::<V>(row.sums, units, 2, part);
        let n = r.mul_add(q, gate::<V>(row.input, units, 2, part)).tanh();
        let h = gate::<V>(row.hidden, units, 0, part);
        keep(z.mul_add(h - n, n), row.hidden, units, 0, part);
        for (number, value) in [r, z, n, q].into_iter().enumerate() {
            keep(value, row.saved, units, number, part);
        }
    }
}

/// One row of a step backward.
pub(super) struct RowGradient<'a, T> {
    /// What the forward step has saved (saved, units).
    pub saved: &'a [T],
    /// The state before the step: a GRU's h, an LSTM's c; empty where it is zeros.
    pub before: &'a [T],
    /// The gradient of h after the step; replaced by the part of that before the step which does not
    /// pass through the product.
    pub hidden: &'a mut [T],
    /// The gradient of an LSTM's c after the step, replaced by that before it; of a GRU that resets first,
    /// the gradient of `r h`.
    pub cell_state: &'a mut [T],
    /// The gradient of the input's share (gates, units).
    pub input: &'a mut [T],
    /// The gradient of the state's share (gates, units).
    pub sums: &'a mut [T],
    /// The gradient of an LSTM's c, or of the others' h, after the step; empty where it is not asked for.
    pub state: &'a mut [T],
}

/// [`RowGradient`]s of a step, all on one instruction set.
pub(super) struct Backward<'a, T: 'a, I: Iterator<Item = RowGradient<'a, T>>> {
    pub cell: Cell,
    pub rows: I,
}

impl<'a, T: Real, I: Iterator<Item = RowGradient<'a, T>>> Kernel<T> for Backward<'a, T, I> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let cell = self.cell;
        let (zero, one) = (V::splat(T::ZERO), V::splat(T::ONE));
        for row in self.rows {
            match cell {
                Cell::Tanh => simple_gradient::<V>(row, |h, dh| dh * (-h).mul_add(h, one)),
                Cell::Relu => simple_gradient::<V>(row, |h, dh| V::select(h.gt(zero), dh, zero)),
                Cell::Lstm => lstm_gradient::<V>(row),
                Cell::Gru => gru_gradient::<V>(row),
                Cell::ResetFirstGru => reset_first_gradient::<V>(row),
            }
        }
    }
}

/// The first half of a step backward of a GRU that resets first: the gradient of the candidate's sum, to which
/// that of `r h` is made, from zero.
pub(super) struct CandidateGradient<'a, T: 'a, I: Iterator<Item = RowGradient<'a, T>>> {
    pub rows: I,
}

impl<'a, T: Real, I: Iterator<Item = RowGradient<'a, T>>> Kernel<T> for CandidateGradient<'a, T, I> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let one = V::splat(T::ONE);
        for mut row in self.rows {
            let units = row.hidden.len();
            for part in vectors(units) {
                let (z, n) = (gate::<V>(row.saved, units, 1, part), gate::<V>(row.saved, units, 2, part));
                let dn = gate::<V>(row.hidden, units, 0, part) * (one - z) * (-n).mul_add(n, one);
                both(dn, &mut row, units, 2, part);
                keep(V::splat(T::ZERO), row.cell_state, units, 0, part);
            }
        }
    }
}

/// The second half, of the gates.
#[inline(always)]
fn reset_first_gradient<V: Vector>(mut row: RowGradient<'_, V::Element>) {
    let units = row.hidden.len();
    let one = V::splat(V::Element::ONE);
    for part in vectors(units) {
        let saved = |number| gate::<V>(row.saved, units, number, part);
        let (r, z, n) = (saved(0), saved(1), saved(2));
        let dh = gate::<V>(row.hidden, units, 0, part);
        keep(dh, row.state, units, 0, part);
        let h = before::<V>(&row, units, part);
        let dq = gate::<V>(row.cell_state, units, 0, part);
        both(dq * h * (r * (one - r)), &mut row, units, 0, part);
        both(dh * (h - n) * (z * (one - z)), &mut row, units, 1, part);
        keep(V::splat(V::Element::ZERO), row.sums, units, 2, part);
        keep(dq.mul_add(r, dh * z), row.hidden, units, 0, part);
    }
}

/// The state before the step.
#[inline(always)]
fn before<V: Vector>(row: &RowGradient<'_, V::Element>, units: usize, part: (usize, usize)) -> V {
    if row.before.is_empty() { V::splat(V::Element::ZERO) } else { gate(row.before, units, 0, part) }
}

/// Writes the gradient of one gate to both shares.
#[inline(always)]
fn both<V: Vector>(
    value: V,
    row: &mut RowGradient<'_, V::Element>,
    units: usize,
    number: usize,
    part: (usize, usize),
) {
    keep(value, row.input, units, number, part);
    keep(value, row.sums, units, number, part);
}

#[inline(always)]
fn simple_gradient<V: Vector>(mut row: RowGradient<'_, V::Element>, f: impl Fn(V, V) -> V) {
    let units = row.hidden.len();
    for part in vectors(units) {
        let dh = gate(row.hidden, units, 0, part);
        keep(dh, row.state, units, 0, part);
        let dz = f(gate(row.saved, units, 0, part), dh);
        both(dz, &mut row, units, 0, part);
        keep(V::splat(V::Element::ZERO), row.hidden, units, 0, part);
    }
}

#[inline(always)]
fn lstm_gradient<V: Vector>(mut row: RowGradient<'_, V::Element>) {
    let units = row.hidden.len();
    let one = V::splat(V::Element::ONE);
    // s (1 - s), the derivative of the logistic function.
    let slope = |s: V| s * (one - s);
    for part in vectors(units) {
        let saved = |number| gate::<V>(row.saved, units, number, part);
        let (i, f, g, o) = (saved(0), saved(1), saved(2), saved(3));
        let t = saved(4).tanh();
        let dh = gate::<V>(row.hidden, units, 0, part);
        let dc = (dh * o).mul_add((-t).mul_add(t, one), gate::<V>(row.cell_state, units, 0, part));
        keep(dc, row.state, units, 0, part);
        let c = before::<V>(&row, units, part);
        both(dc * g * slope(i), &mut row, units, 0, part);
        both(dc * c * slope(f), &mut row, units, 1, part);
        both(dc * i * (-g).mul_add(g, one), &mut row, units, 2, part);
        both(dh * t * slope(o), &mut row, units, 3, part);
        keep(dc * f, row.cell_state, units, 0, part);
        keep(V::splat(V::Element::ZERO), row.hidden, units, 0, part);
    }
}

#[inline(always)]
fn gru_gradient<V: Vector>(mut row: RowGradient<'_, V::Element>) {
    let units = row.hidden.len();
    let one = V::splat(V::Element::ONE);
    for part in vectors(units) {
        let saved = |number| gate::<V>(row.saved, units, number, part);
        let (r, z, n, q) = (saved(0), saved(1), saved(2), saved(3));
        let dh = gate::<V>(row.hidden, units, 0, part);
        keep(dh, row.state, units, 0, part);
        let h = before::<V>(&row, units, part);
        let dn = dh * (one - z) * (-n).mul_add(n, one);
        both(dn * q * (r * (one - r)), &mut row, units, 0, part);
        both(dh * (h - n) * (z * (one - z)), &mut row, units, 1, part);
        keep(dn, row.input, units, 2, part);
        keep(dn * r, row.sums, units, 2, part);
        keep(dh * z, row.hidden, units, 0, part);
    }
}

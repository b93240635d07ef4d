//! Losses of single elements against real targets.

use super::cpu::Rows;
use crate::ops::sweep::{lane_sums2, map2};
use crate::simd::{Kernel, Real, Vector};

/// A loss of one element o against t, and its derivative with respect to o.
pub(super) trait ElementFunction: Copy {
    /// The loss.
    fn loss<V: Vector>(self, o: V, t: V) -> V;
    /// Its derivative.
    fn slope<V: Vector>(self, o: V, t: V) -> V;
}

/// `(o - t)^2`.
#[derive(Clone, Copy)]
pub(super) struct Squared;

impl ElementFunction for Squared {
    #[inline(always)]
    fn loss<V: Vector>(self, o: V, t: V) -> V {
        (o - t) * (o - t)
    }

    #[inline(always)]
    fn slope<V: Vector>(self, o: V, t: V) -> V {
        (o - t) + (o - t)
    }
}

/// `|o - t|`.
#[derive(Clone, Copy)]
pub(super) struct Absolute;

impl ElementFunction for Absolute {
    #[inline(always)]
    fn loss<V: Vector>(self, o: V, t: V) -> V {
        (o - t).abs()
    }

    #[inline(always)]
    fn slope<V: Vector>(self, o: V, t: V) -> V {
        let (zero, one) = (V::splat(V::Element::ZERO), V::splat(V::Element::ONE));
        // Where neither is larger the difference is 0 of either sign, or NaN, which must show.
        let neither = (o - t) + zero;
        V::select(o.gt(t), one, V::select(o.lt(t), -one, neither))
    }
}

/// A parabola within `delta` of the target, a line beyond.
#[derive(Clone, Copy)]
pub(super) struct Huber {
    pub(super) delta: f64,
}

impl ElementFunction for Huber {
    #[inline(always)]
    fn loss<V: Vector>(self, o: V, t: V) -> V {
        let (delta, half) = (V::constant(self.delta), V::constant(0.5));
        let distance = (o - t).abs();
        let line = delta * (distance - half * delta);
        V::select(distance.le(delta), half * distance * distance, line)
    }

    #[inline(always)]
    fn slope<V: Vector>(self, o: V, t: V) -> V {
        let delta = V::constant(self.delta);
        // The difference stands second, so that a NaN stays one.
        (-delta).max(delta.min(o - t))
    }
}

/// Binary cross-entropy on logits.
#[derive(Clone, Copy)]
pub(super) struct Binary;

impl ElementFunction for Binary {
    /// `max(o, 0) - o t + ln(1 + exp(-|o|))`: no exponential overflows.
    #[inline(always)]
    fn loss<V: Vector>(self, o: V, t: V) -> V {
        V::splat(V::Element::ZERO).max(o) - o * t + (-o.abs()).exp().ln_1p()
    }

    /// `sigmoid(o) - t`.
    #[inline(always)]
    fn slope<V: Vector>(self, o: V, t: V) -> V {
        o.sigmoid() - t
    }
}

/// Some rows of a loss of single elements.
pub(super) struct ElementRows<'a, T, F> {
    pub(super) function: F,
    pub(super) rows: Rows<'a, T>,
    pub(super) target: &'a [T],
    /// Elements of a row.
    pub(super) row: usize,
}

impl<T: Real, F: ElementFunction> Kernel<T> for ElementRows<'_, T, F> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let Self { function, rows, target, row } = self;
        for index in 0..rows.losses.len() {
            let part = index * row..(index + 1) * row;
            let (o, t) = (&rows.output[part.clone()], &target[part.clone()]);
            let (weight, scale) = rows.scale(index);
            let loss = lane_sums2(o, t, |o: V, t| function.loss(o, t)).reduce_sum();
            rows.losses[index] = loss * weight;
            if !rows.gradient.is_empty() {
                let scale = V::splat(scale);
                map2(o, t, &mut rows.gradient[part], |o: V, t| function.slope(o, t) * scale);
            }
        }
    }
}

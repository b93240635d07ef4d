//! Arithmetic of ranges: what a formula can give where its numbers are within bounds.

use crate::ops::pointwise::Arithmetic;
use std::cell::Cell;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// What all numbers of a formula share.
pub(super) struct Context {
    /// The largest magnitude on the way to any result.
    pub(super) peak: Cell<f64>,
    /// To the precision that the formula is computed in, so that a constant which that loses is 0.
    pub(super) round: fn(f64) -> f64,
}

/// Numbers from `low` to `high`, in real arithmetic; all numbers where a bound would be NaN.
#[derive(Clone, Copy)]
pub(super) struct Bounds<'a> {
    low: f64,
    high: f64,
    context: &'a Context,
}

impl<'a> Bounds<'a> {
    /// Numbers between these two.
    pub(super) fn between(low: f64, high: f64, context: &'a Context) -> Self {
        Self { low, high, context }.noted()
    }

    /// The largest magnitude.
    pub(super) fn magnitude(self) -> f64 {
        self.low.abs().max(self.high.abs())
    }

    fn noted(self) -> Self {
        let unknown = self.low.is_nan() || self.high.is_nan();
        let (low, high) = if unknown { (f64::NEG_INFINITY, f64::INFINITY) } else { (self.low, self.high) };
        let bounds = Self { low, high, ..self };
        let peak = &self.context.peak;
        peak.set(peak.get().max(bounds.magnitude()));
        bounds
    }

    /// All between the least and the largest of some numbers.
    fn spanned(self, ends: &[f64]) -> Self {
        if ends.iter().any(|end| end.is_nan()) {
            return Self { low: f64::NAN, ..self }.noted();
        }
        let low = ends.iter().copied().fold(f64::INFINITY, f64::min);
        let high = ends.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Self { low, high, ..self }.noted()
    }

    /// A function that grows with its argument, or falls.
    fn mapped(self, function: impl Fn(f64) -> f64) -> Self {
        self.spanned(&[function(self.low), function(self.high)])
    }
}

impl Add for Bounds<'_> {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { low: self.low + other.low, high: self.high + other.high, ..self }.noted()
    }
}

impl Sub for Bounds<'_> {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self + -other
    }
}

impl Mul for Bounds<'_> {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        let Self { low, high, .. } = other;
        self.spanned(&[self.low * low, self.low * high, self.high * low, self.high * high])
    }
}

impl Div for Bounds<'_> {
    type Output = Self;
    fn div(self, other: Self) -> Self {
        if other.low <= 0.0 && other.high >= 0.0 {
            return Self { low: f64::NAN, ..self }.noted();
        }
        let Self { low, high, .. } = other;
        self.spanned(&[self.low / low, self.low / high, self.high / low, self.high / high])
    }
}

impl Neg for Bounds<'_> {
    type Output = Self;
    fn neg(self) -> Self {
        Self { low: -self.high, high: -self.low, ..self }
    }
}

impl Arithmetic for Bounds<'_> {
    fn constant(self, value: f64) -> Self {
        let value = (self.context.round)(value);
        Self::between(value, value, self.context)
    }

    fn select_greater(self, than: Self, yes: Self, no: Self) -> Self {
        if self.low > than.high {
            return yes;
        }
        if self.high <= than.low {
            return no;
        }
        self.spanned(&[yes.low, yes.high, no.low, no.high])
    }

    fn at_least(self, low: f64) -> Self {
        Self { low: self.low.max(low), high: self.high.max(low), ..self }.noted()
    }

    fn at_most(self, high: f64) -> Self {
        Self { low: self.low.min(high), high: self.high.min(high), ..self }.noted()
    }

    fn positive_part(self) -> Self {
        self.at_least(0.0)
    }

    fn squared(self) -> Self {
        let least = if self.low <= 0.0 && self.high >= 0.0 { 0.0 } else { self.low * self.low };
        self.spanned(&[self.low * self.low, self.high * self.high, least])
    }

    fn mul_add(self, factor: Self, addend: Self) -> Self {
        self * factor + addend
    }

    fn flush(self) -> Self {
        self.spanned(&[self.low, self.high, 0.0])
    }

    fn toward(self, other: Self, share: f64) -> Self {
        self.times(1.0 - share) + other.times(share)
    }

    fn sign(self) -> Self {
        Self::between(-1.0, 1.0, self.context)
    }

    fn known_within(self, bound: f64) -> Self {
        Self { low: self.low.max(-bound), high: self.high.min(bound), ..self }
    }

    fn exp(self) -> Self {
        self.mapped(libm::exp)
    }

    fn exp_m1(self) -> Self {
        self.mapped(libm::expm1)
    }

    fn ln_1p(self) -> Self {
        self.mapped(libm::log1p)
    }

    fn tanh(self) -> Self {
        self.mapped(libm::tanh)
    }

    fn sigmoid(self) -> Self {
        self.mapped(|x| 1.0 / (1.0 + libm::exp(-x)))
    }

    fn erf(self) -> Self {
        self.mapped(libm::erf)
    }

    fn sqrt(self) -> Self {
        self.mapped(f64::sqrt)
    }

    fn abs(self) -> Self {
        let crosses = self.low < 0.0 && self.high > 0.0;
        self.spanned(&[self.low.abs(), self.high.abs(), if crosses { 0.0 } else { self.high.abs() }])
    }
}

//! What a formula of the table is written in.

use crate::simd::Math;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// Arithmetic that numbers, vectors and WGSL expressions have in common.
///
/// A formula over it is at once scalar code, vector code and shader text; over bounds it says how large
/// its results can be. Nothing is fused but [`Arithmetic::mul_add`], which is rounded once wherever it
/// runs, so that numbers and vectors give the same bits.
pub trait Arithmetic:
    Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self> + Neg<Output = Self>
{
    /// A constant of the same kind as `self`.
    fn constant(self, value: f64) -> Self;

    /// `yes` where `self > than`, else `no` (so too where either is NaN).
    fn select_greater(self, than: Self, yes: Self, no: Self) -> Self;

    /// `self * factor + addend`, rounded once.
    fn mul_add(self, factor: Self, addend: Self) -> Self;

    /// Zero instead of what is too small for a normal number, with which processors compute many times
    /// slower.
    fn flush(self) -> Self;

    /// e to the power of `self`.
    fn exp(self) -> Self;

    /// e to the power of `self`, less 1, accurate near 0.
    fn exp_m1(self) -> Self;

    /// The logarithm of 1 more than `self`, which is not negative; accurate near 0.
    fn ln_1p(self) -> Self;

    /// The hyperbolic tangent.
    fn tanh(self) -> Self;

    /// `1 / (1 + exp(-self))`.
    fn sigmoid(self) -> Self;

    /// The error function.
    fn erf(self) -> Self;

    /// The square root.
    fn sqrt(self) -> Self;

    /// The magnitude.
    fn abs(self) -> Self;

    /// `self`, moved by this share of the way to `other`; a share is from 0 to 1.
    #[inline(always)]
    fn toward(self, other: Self, share: f64) -> Self {
        (other - self).mul_add(self.constant(share), self)
    }

    /// `self`, of which is known that its magnitude is at most `bound`: changes nothing, but bounds hear
    /// of it.
    #[inline(always)]
    fn known_within(self, _bound: f64) -> Self {
        self
    }

    /// The square.
    #[inline(always)]
    fn squared(self) -> Self {
        self * self
    }

    /// `self` where it is above 0, else 0, for NaN too.
    #[inline(always)]
    fn positive_part(self) -> Self {
        let zero = self.constant(0.0);
        self.select_greater(zero, self, zero)
    }

    /// 1 with the sign of `self`; 0 and NaN stay.
    #[inline(always)]
    fn sign(self) -> Self {
        let zero = self.constant(0.0);
        self.select_greater(zero, self.constant(1.0), zero.select_greater(self, self.constant(-1.0), self))
    }

    /// `self + value`.
    #[inline(always)]
    fn plus(self, value: f64) -> Self {
        self + self.constant(value)
    }

    /// `self * value`.
    #[inline(always)]
    fn times(self, value: f64) -> Self {
        self * self.constant(value)
    }

    /// `1 - self`.
    #[inline(always)]
    fn one_minus(self) -> Self {
        self.constant(1.0) - self
    }

    /// `yes` where `self > 0`, else `no`.
    #[inline(always)]
    fn select_positive(self, yes: Self, no: Self) -> Self {
        self.select_greater(self.constant(0.0), yes, no)
    }

    /// `self`, but at least `low`; NaN stays NaN.
    #[inline(always)]
    fn at_least(self, low: f64) -> Self {
        let low = self.constant(low);
        low.select_greater(self, low, self)
    }

    /// `self`, but at most `high`; NaN stays NaN.
    #[inline(always)]
    fn at_most(self, high: f64) -> Self {
        let high = self.constant(high);
        self.select_greater(high, high, self)
    }
}

impl<M: Math> Arithmetic for M {
    #[inline(always)]
    fn constant(self, value: f64) -> Self {
        M::constant(value)
    }

    #[inline(always)]
    fn select_greater(self, than: Self, yes: Self, no: Self) -> Self {
        M::select(M::gt(self, than), yes, no)
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, addend: Self) -> Self {
        M::mul_add(self, factor, addend)
    }

    #[inline(always)]
    fn flush(self) -> Self {
        // Elements are f32 or f64.
        let single = size_of::<M::Element>() == size_of::<f32>();
        let least = if single { f64::from(f32::MIN_POSITIVE) } else { f64::MIN_POSITIVE };
        M::select(M::lt(M::abs(self), M::constant(least)), M::constant(0.0), self)
    }

    #[inline(always)]
    fn exp(self) -> Self {
        Math::exp(self)
    }

    #[inline(always)]
    fn exp_m1(self) -> Self {
        Math::exp_m1(self)
    }

    #[inline(always)]
    fn ln_1p(self) -> Self {
        Math::ln_1p(self)
    }

    #[inline(always)]
    fn tanh(self) -> Self {
        Math::tanh(self)
    }

    #[inline(always)]
    fn sigmoid(self) -> Self {
        Math::sigmoid(self)
    }

    #[inline(always)]
    fn erf(self) -> Self {
        Math::erf(self)
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        M::sqrt(self)
    }

    #[inline(always)]
    fn abs(self) -> Self {
        M::abs(self)
    }
}

//! Exponentials and their kin, the same on every machine.
//!
//! The standard library's versions come from the platform and differ between
//! platforms. For `f32` these are loom's own: each is written once over
//! [`Elementwise`] in operations that IEEE 754 fixes to the bit, so a scalar
//! and every vector agree. For `f64` the lanes go one by one through the
//! `libm` crate, which is software all the way down.
//!
//! Each `f32` function keeps within the bound in [`ulp`] over its whole
//! domain, subnormal arguments and results included.

pub(super) mod float32;
#[cfg(test)]
mod tests;

use super::Elementwise;

/// The largest errors of the `f32` functions, in units in the last place of
/// the exact result (below the least normal number, of the least subnormal one).
pub mod ulp {
    /// Of [`Math::exp`](super::Math::exp).
    pub const EXP: f64 = 1.1;
    /// Of [`Math::exp_m1`](super::Math::exp_m1).
    pub const EXP_M1: f64 = 1.75;
    /// Of [`Math::ln`](super::Math::ln).
    pub const LN: f64 = 1.0;
    /// Of [`Math::ln_1p`](super::Math::ln_1p).
    pub const LN_1P: f64 = 1.5;
    /// Of [`Math::tanh`](super::Math::tanh).
    pub const TANH: f64 = 3.0;
    /// Of [`Math::sigmoid`](super::Math::sigmoid).
    pub const SIGMOID: f64 = 2.5;
    /// Of [`Math::erf`](super::Math::erf).
    pub const ERF: f64 = 1.5;
    /// Of both results of [`Math::sin_cos_turns`](super::Math::sin_cos_turns).
    pub const SIN_COS_TURNS: f64 = 1.5;
}

/// Elementary functions of one number, or of each lane.
///
/// NaN gives NaN throughout, and limits at infinities are taken. Beware that on
/// a concrete `f32` or `f64` the method syntax finds the standard library's
/// function first: write `Math::exp(x)` there.
pub trait Math: Elementwise {
    /// e to the power of `self`.
    fn exp(self) -> Self;

    /// e to the power of `self`, less 1, accurate near 0.
    fn exp_m1(self) -> Self;

    /// The natural logarithm: minus infinity at 0, NaN below.
    fn ln(self) -> Self;

    /// The natural logarithm of 1 more than `self`, accurate near 0: minus infinity at -1, NaN below.
    fn ln_1p(self) -> Self;

    /// The hyperbolic tangent.
    fn tanh(self) -> Self;

    /// The logistic function `1 / (1 + exp(-self))`, accurate in its lower tail too.
    fn sigmoid(self) -> Self;

    /// The error function.
    fn erf(self) -> Self;

    /// Sine and cosine of `self` whole turns, that is of `2 pi self`; the
    /// reduction to one octant is exact. NaN at infinities.
    fn sin_cos_turns(self) -> (Self, Self);
}

/// Implements [`Math`] by the `f32` algorithms for a type whose elements are `f32`.
macro_rules! float32_math {
    ($type:ty) => {
        impl $crate::simd::math::Math for $type {
            #[inline(always)]
            fn exp(self) -> Self {
                $crate::simd::math::float32::exp(self)
            }

            #[inline(always)]
            fn exp_m1(self) -> Self {
                $crate::simd::math::float32::exp_m1(self)
            }

            #[inline(always)]
            fn ln(self) -> Self {
                $crate::simd::math::float32::ln(self)
            }

            #[inline(always)]
            fn ln_1p(self) -> Self {
                $crate::simd::math::float32::ln_1p(self)
            }

            #[inline(always)]
            fn tanh(self) -> Self {
                $crate::simd::math::float32::tanh(self)
            }

            #[inline(always)]
            fn sigmoid(self) -> Self {
                $crate::simd::math::float32::sigmoid(self)
            }

            #[inline(always)]
            fn erf(self) -> Self {
                $crate::simd::math::float32::erf(self)
            }

            #[inline(always)]
            fn sin_cos_turns(self) -> (Self, Self) {
                $crate::simd::math::float32::sin_cos_turns(self)
            }
        }
    };
}

// Only the vectors of particular instruction sets lie outside this module.
#[cfg(target_arch = "x86_64")]
pub(super) use float32_math;

float32_math!(f32);

impl Math for f64 {
    #[inline(always)]
    fn exp(self) -> Self {
        libm::exp(self)
    }

    #[inline(always)]
    fn exp_m1(self) -> Self {
        libm::expm1(self)
    }

    #[inline(always)]
    fn ln(self) -> Self {
        libm::log(self)
    }

    #[inline(always)]
    fn ln_1p(self) -> Self {
        libm::log1p(self)
    }

    #[inline(always)]
    fn tanh(self) -> Self {
        libm::tanh(self)
    }

    #[inline(always)]
    fn sigmoid(self) -> Self {
        let e = libm::exp(-self.abs());
        (if self < 0.0 { e } else { 1.0 }) / (1.0 + e)
    }

    #[inline(always)]
    fn erf(self) -> Self {
        libm::erf(self)
    }

    #[inline(always)]
    fn sin_cos_turns(self) -> (Self, Self) {
        let (quarter, rest) = float32::quarter_turns(self);
        let angle = std::f64::consts::TAU * rest;
        float32::turn_by_quarters(quarter, libm::sin(angle), libm::cos(angle))
    }
}

//! The two element types that networks compute in.

use super::Isa;
use super::math::Math;
use super::simd::{self, Kernel, Vector};
use crate::tensor::Precision;
use std::fmt::{Debug, Display};
use std::ops::{AddAssign, DivAssign, MulAssign, SubAssign};

/// `f32` or `f64`.
///
/// Elementwise arithmetic (`mul_add`, `sqrt`, `abs`, `select` and the rest)
/// comes from [`Elementwise`](super::Elementwise), `exp` and its kin from
/// [`Math`]; their results are the same on every machine.
pub trait Real:
    bytemuck::Pod
    + Math<Element = Self, Mask = bool>
    + super::product::Element
    + PartialOrd
    + Display
    + Debug
    + Default
    + AddAssign
    + SubAssign
    + MulAssign
    + DivAssign
    + std::iter::Sum
    + Send
    + Sync
    + 'static
{
    /// Which of the two it is.
    const PRECISION: Precision;
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// Positive infinity.
    const INFINITY: Self;
    /// Not a number.
    const NAN: Self;
    /// The distance from 1 to the next larger number.
    const EPSILON: Self;
    /// The least positive normal number.
    const MIN_POSITIVE: Self;

    /// The vector of 16 lanes that every machine has.
    type Portable: Vector<Element = Self>;

    /// The nearest number to `value`.
    fn from_f64(value: f64) -> Self;
    /// The nearest number to `value`.
    fn from_usize(value: usize) -> Self;
    /// The same number as `f64`, exactly.
    fn to_f64(self) -> f64;
    /// The nearest `f32`.
    fn to_f32(self) -> f32;
    /// Neither infinite nor NaN.
    fn is_finite(self) -> bool;
    /// Whether it is NaN.
    fn is_nan(self) -> bool;
    /// The bits, zero-extended, to compare or to print.
    fn to_bits_u64(self) -> u64;

    /// Runs `kernel` compiled for `isa`.
    ///
    /// Kernels that are written for vectors of any width enter code for an instruction set here alone; the
    /// products that choose instructions themselves have a dispatch of their own.
    fn dispatch<K: Kernel<Self>>(isa: Isa, kernel: K) -> K::Output;
}

macro_rules! real {
    ($type:ty, $precision:ident, $dispatch:path) => {
        impl Real for $type {
            const PRECISION: Precision = Precision::$precision;
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const INFINITY: Self = <$type>::INFINITY;
            const NAN: Self = <$type>::NAN;
            const EPSILON: Self = <$type>::EPSILON;
            const MIN_POSITIVE: Self = <$type>::MIN_POSITIVE;

            type Portable = simd::Portable<$type>;

            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                value as $type
            }

            #[inline(always)]
            fn from_usize(value: usize) -> Self {
                value as $type
            }

            #[inline(always)]
            fn to_f64(self) -> f64 {
                f64::from(self)
            }

            #[inline(always)]
            fn to_f32(self) -> f32 {
                self as f32
            }

            #[inline(always)]
            fn is_finite(self) -> bool {
                <$type>::is_finite(self)
            }

            #[inline(always)]
            fn is_nan(self) -> bool {
                <$type>::is_nan(self)
            }

            #[inline(always)]
            fn to_bits_u64(self) -> u64 {
                u64::from(self.to_bits())
            }

            #[inline(always)]
            fn dispatch<K: Kernel<Self>>(isa: Isa, kernel: K) -> K::Output {
                $dispatch(isa, kernel)
            }
        }
    };
}

real!(f32, Float32, simd::dispatch_f32);
real!(f64, Float64, simd::dispatch_f64);

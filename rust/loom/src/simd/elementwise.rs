//! What a scalar and a vector have in common: arithmetic lane by lane.

use std::ops::{Add, Div, Mul, Neg, Sub};

/// Arithmetic on one number, or on each lane of a vector, with the same bits everywhere.
///
/// Scalars implement it with themselves as the element and `bool` as the mask,
/// so that a formula written over it serves kernels and references alike.
pub trait Elementwise:
    Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self> + Neg<Output = Self>
{
    /// The type of one number.
    type Element: Copy;
    /// One truth value a lane.
    type Mask: Copy;

    /// `value` in every lane.
    fn splat(value: Self::Element) -> Self;

    /// The nearest number to `value`, in every lane.
    fn constant(value: f64) -> Self;

    /// `self * factor + addend`, rounded once.
    fn mul_add(self, factor: Self, addend: Self) -> Self;

    /// The square root, correctly rounded.
    fn sqrt(self) -> Self;

    /// The value without its sign; exact on the bits, NaN too.
    fn abs(self) -> Self;

    /// The value with the sign of `sign`; exact on the bits, NaN too.
    fn copysign(self, sign: Self) -> Self;

    /// The nearest integer, the even one of two equally near.
    fn round_ties_even(self) -> Self;

    /// `self` where it is greater than `other`, else `other`.
    ///
    /// So the second one is the result where either is NaN or both are zero.
    fn max(self, other: Self) -> Self;

    /// `self` where it is less than `other`, else `other`.
    ///
    /// So the second one is the result where either is NaN or both are zero.
    fn min(self, other: Self) -> Self;

    /// Whether `self < other`; false where either is NaN.
    fn lt(self, other: Self) -> Self::Mask;

    /// Whether `self <= other`; false where either is NaN.
    fn le(self, other: Self) -> Self::Mask;

    /// Whether `self > other`; false where either is NaN.
    fn gt(self, other: Self) -> Self::Mask;

    /// Whether `self >= other`; false where either is NaN.
    fn ge(self, other: Self) -> Self::Mask;

    /// Whether `self == other`; false where either is NaN.
    fn eq(self, other: Self) -> Self::Mask;

    /// `yes` where the mask is set, else `no`; exact on the bits.
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self;

    /// Both masks.
    fn and(left: Self::Mask, right: Self::Mask) -> Self::Mask;

    /// Either mask.
    fn or(left: Self::Mask, right: Self::Mask) -> Self::Mask;

    /// The other lanes.
    fn not(mask: Self::Mask) -> Self::Mask;

    /// Whether any lane is set.
    fn any(mask: Self::Mask) -> bool;

    /// Whether every lane is set.
    fn all(mask: Self::Mask) -> bool;

    /// Two to the power of `self`, by writing the exponent field.
    ///
    /// `self` must be an integer from -127 to 128 (`f64`: from -1023 to 1024),
    /// whose ends give 0 and infinity; for anything else the result is unspecified.
    fn pow2(self) -> Self;

    /// `self` times two to the power of `exponent`, rounded once.
    ///
    /// `self` must be between 0.25 and 4 in magnitude or NaN, and `exponent`
    /// an integer of at most 240 in magnitude (`f64`: 2000); for anything else
    /// the result is unspecified.
    #[inline(always)]
    fn scale(self, exponent: Self) -> Self {
        // The first product is exact, so that only the second one rounds.
        let half = (exponent * Self::constant(0.5)).round_ties_even();
        self * half.pow2() * (exponent - half).pow2()
    }

    /// The exponent field less its bias, as a number: `floor(log2(|x|))` for
    /// normal `x`; -127 for zeros and subnormals, 128 for infinities and NaN
    /// (`f64`: -1023, 1024).
    fn exponent(self) -> Self;

    /// The fraction field under the exponent of 1: `|x| / 2^exponent`, from 1
    /// to below 2, for normal `x`.
    fn mantissa(self) -> Self;
}

macro_rules! scalar {
    ($type:ty, $bits:ty, fraction $fraction:literal, bias $bias:literal) => {
        impl Elementwise for $type {
            type Element = Self;
            type Mask = bool;

            #[inline(always)]
            fn splat(value: Self) -> Self {
                value
            }

            #[inline(always)]
            fn constant(value: f64) -> Self {
                value as Self
            }

            #[inline(always)]
            fn mul_add(self, factor: Self, addend: Self) -> Self {
                <$type>::mul_add(self, factor, addend)
            }

            #[inline(always)]
            fn sqrt(self) -> Self {
                <$type>::sqrt(self)
            }

            #[inline(always)]
            fn abs(self) -> Self {
                <$type>::abs(self)
            }

            #[inline(always)]
            fn copysign(self, sign: Self) -> Self {
                <$type>::copysign(self, sign)
            }

            #[inline(always)]
            fn round_ties_even(self) -> Self {
                <$type>::round_ties_even(self)
            }

            #[inline(always)]
            fn max(self, other: Self) -> Self {
                if self > other { self } else { other }
            }

            #[inline(always)]
            fn min(self, other: Self) -> Self {
                if self < other { self } else { other }
            }

            #[inline(always)]
            fn lt(self, other: Self) -> bool {
                self < other
            }

            #[inline(always)]
            fn le(self, other: Self) -> bool {
                self <= other
            }

            #[inline(always)]
            fn gt(self, other: Self) -> bool {
                self > other
            }

            #[inline(always)]
            fn ge(self, other: Self) -> bool {
                self >= other
            }

            #[inline(always)]
            fn eq(self, other: Self) -> bool {
                self == other
            }

            #[inline(always)]
            fn select(mask: bool, yes: Self, no: Self) -> Self {
                if mask { yes } else { no }
            }

            #[inline(always)]
            fn and(left: bool, right: bool) -> bool {
                left & right
            }

            #[inline(always)]
            fn or(left: bool, right: bool) -> bool {
                left | right
            }

            #[inline(always)]
            fn not(mask: bool) -> bool {
                !mask
            }

            #[inline(always)]
            fn any(mask: bool) -> bool {
                mask
            }

            #[inline(always)]
            fn all(mask: bool) -> bool {
                mask
            }

            #[inline(always)]
            fn pow2(self) -> Self {
                // Adding 1.5 * 2^fraction puts the integer into the low bits of the fraction field.
                let magic = (3 as $bits << ($fraction - 1)) as $type;
                let field = (self + (magic + $bias as $type)).to_bits();
                Self::from_bits(field << $fraction)
            }

            #[inline(always)]
            fn exponent(self) -> Self {
                let field = self.abs().to_bits() >> $fraction;
                // The field is at most 2047, so the smallest signed type does.
                (field as i32 - $bias) as Self
            }

            #[inline(always)]
            fn mantissa(self) -> Self {
                let fraction = self.to_bits() & ((1 << $fraction) - 1);
                Self::from_bits(fraction | ($bias << $fraction))
            }
        }
    };
}

scalar!(f32, u32, fraction 23, bias 127);
scalar!(f64, u64, fraction 52, bias 1023);

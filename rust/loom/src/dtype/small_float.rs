//! The OCP floats of 8 and 4 bits: w / S rounded to nearest, ties to even, saturating; S = (largest
//! magnitude) / (largest number).

use super::coding::{Coding, Fit, Statistic};
use super::decoders::{self, WithDecoder};
use super::float16::{float_drawn, to_f32_odd};
use super::symmetric::{quotient, scale_of};
use super::vec4::{self, Vec4Decoder};
use crate::simd::Real;

/// A float of a few bits.
pub(super) trait SmallFloat: Send + Sync + 'static {
    /// Bits of the fraction.
    const FRACTION: u32;
    /// Subtracted from the exponent.
    const BIAS: u32;
    /// The sign's bit.
    const SIGN: u8;
    /// The code of the largest number.
    const LARGEST: u8;
    /// The exponent of the largest number.
    const LARGEST_EXPONENT: i32;

    /// The largest number.
    fn largest() -> f64 {
        f64::from(Self::value(Self::LARGEST))
    }

    /// The nearest code to a number that is not NaN, the largest for what is beyond it.
    #[inline(always)]
    fn nearest(value: f32) -> u8 {
        let bits = value.to_bits();
        let (sign, magnitude) = (bits >> 31, bits & 0x7FFF_FFFF);
        let drop = 23 - Self::FRACTION;
        // As for bfloat16, with other numbers of bits to drop and another bias.
        let rebias = (127 - Self::BIAS) << 23;
        let half = (1 << (drop - 1)) - 1 + (magnitude >> drop & 1);
        let normal = magnitude.wrapping_sub(rebias).wrapping_add(half) >> drop;
        // Adding a number whose last place is the unit of the subnormals rounds to that unit.
        let unit = f32::from_bits((127 + 24 - Self::BIAS - Self::FRACTION) << 23);
        let subnormal = (f32::from_bits(magnitude) + unit).to_bits().wrapping_sub(unit.to_bits());
        let code = if magnitude < (128 - Self::BIAS) << 23 { subnormal } else { normal };
        let code = code.min(u32::from(Self::LARGEST)) as u8;
        code | if sign == 1 { Self::SIGN } else { 0 }
    }

    /// The code of the number below or above in magnitude: above where `drawn` is less than how far `value` is
    /// from the one below.
    #[inline(always)]
    fn drawn_next(value: f32, drawn: f32) -> u8 {
        Self::nearest(float_drawn(value, drawn, Self::FRACTION, Self::BIAS))
    }

    /// The number of a finite code.
    #[inline(always)]
    fn value(code: u8) -> f32 {
        // The sign goes to the highest bit and the others below it to where they are the last of an exponent
        // and the first of a fraction. Read with binary32's bias the number is too small; the product is
        // exact, and makes subnormals normal.
        let sign = Self::SIGN.trailing_zeros();
        let top = (u32::from(code) << (31 - sign)) as i32;
        let mask = 1 << 31 | u32::from(Self::SIGN - 1) << (23 - Self::FRACTION);
        let bits = (top >> (8 + Self::FRACTION - sign)) as u32 & mask;
        f32::from_bits(bits) * f32::from_bits((254 - Self::BIAS) << 23)
    }
}

macro_rules! small_float {
    ($name:ident, $bits:literal, $fraction:literal, $bias:literal, $largest:literal, $exponent:literal,
     $sign:literal, $decoder:ty, $doc:literal) => {
        #[doc = $doc]
        pub(super) struct $name;

        impl SmallFloat for $name {
            const FRACTION: u32 = $fraction;
            const BIAS: u32 = $bias;
            const SIGN: u8 = $sign;
            const LARGEST: u8 = $largest;
            const LARGEST_EXPONENT: i32 = $exponent;
        }

        impl Coding for $name {
            type Code = u8;
            const BITS: usize = $bits;
            const STATISTIC: Statistic = Statistic::Largest;
            const WORDS: usize = 1;

            fn fit<T: Real>(first: T, _: T) -> Option<Fit> {
                scale_of(first, Self::largest())
            }

            #[inline(always)]
            fn code<T: Real>(value: T, fit: Fit) -> u8 {
                Self::nearest(to_f32_odd(quotient(value, fit)))
            }

            #[inline(always)]
            fn drawn<T: Real>(value: T, fit: Fit, drawn: f32) -> u8 {
                Self::drawn_next(to_f32_odd(quotient(value, fit)), drawn)
            }

            #[inline(always)]
            fn number<T: Real>(code: u8, fit: Fit) -> T {
                T::from_f64(f64::from(Self::value(code))) * T::from_f64(f64::from(fit.scale))
            }

            fn decoder<W: WithDecoder>(to: W) -> Option<W::Output> {
                Some(to.with::<$decoder>())
            }

            fn wgsl_code() -> Option<(f64, &'static str)> {
                Some((Self::largest(), concat!(
                    "let quotient = quotient_of(magnitude, scale);\n",
                    "    // As for bfloat16, with other numbers of bits to drop and another bias.\n",
                    "    let drop = 23u - ", $fraction, "u;\n",
                    "    let rounding = (1u << (drop - 1u)) - 1u + (quotient >> drop & 1u);\n",
                    "    let normal = (quotient - ((127u - ", $bias, "u) << 23u) + rounding) >> drop;\n",
                    "    // Adding a number whose last place is the unit of the subnormals rounds to that unit.\n",
                    "    let unit = (127u + 24u - ", $bias, "u - ", $fraction, "u) << 23u;\n",
                    "    let small = bitcast<u32>(bitcast<f32>(quotient) + bitcast<f32>(unit)) - unit;\n",
                    "    let code = select(normal, small, quotient < (128u - ", $bias, "u) << 23u);\n",
                    "    return min(code, ", $largest, "u) | select(0u, ", $sign, "u, negative);"
                )))
            }

            fn wgsl() -> &'static str {
                Self::WGSL
            }

            fn wgsl_vec4() -> Option<Vec4Decoder> {
                Some(Self::vec4_decoder())
            }
        }

        impl $name {
            /// How four codes are decoded together.
            pub(super) fn vec4_decoder() -> Vec4Decoder {
                vec4::floats($bits, $fraction, $bias)
            }

            /// From `code` to `number`: the fraction, with its leading bit above the subnormals,
            /// times a power of two.
            pub(super) const WGSL: &'static str = concat!(
                "let exponent = extractBits(code, ", $fraction, "u, ", $bits, "u - 1u - ", $fraction, "u);\n",
                "    let fraction = extractBits(code, 0u, ", $fraction, "u) | select(0u, 1u << ", $fraction,
                "u, exponent != 0u);\n",
                "    let unit = bitcast<f32>((max(exponent, 1u) + 127u - ", $bias, "u - ", $fraction,
                "u) << 23u);\n",
                "    let number = select(1.0, -1.0, (code & ", $sign, "u) != 0u) * f32(fraction) * unit;"
            );
        }
    };
}

small_float!(
    E4M3,
    8,
    3,
    7,
    0x7E,
    8,
    0x80,
    decoders::SmallFloat<4>,
    "4 bits of exponent, 3 of fraction, without infinity."
);
small_float!(E5M2, 8, 2, 15, 0x7B, 15, 0x80, decoders::SmallFloat<3>, "5 bits of exponent, 2 of fraction.");
small_float!(
    E2M1,
    4,
    1,
    1,
    0x07,
    2,
    0x08,
    decoders::FourBits<decoders::Float4>,
    "2 bits of exponent, 1 of fraction: 0, 0.5, 1, 1.5, 2, 3, 4, 6."
);

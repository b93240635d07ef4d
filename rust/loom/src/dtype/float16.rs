//! The 16-bit floats: bfloat16 (8 bits of exponent, 7 of fraction) and IEEE
//! binary16 (5 and 10), rounded to nearest, ties to even.
//!
//! Written on the bits without branches, so that the compiler makes vector code of the loops.

use super::coding::{Coding, Fit, Statistic};
use super::decoders::{self, WithDecoder};
use super::vec4::Vec4Decoder;
use crate::simd::Real;
pub use crate::simd::{bfloat16_to_f32, float16_to_f32};
use crate::tensor::Precision;

/// The nearest bfloat16 of a number that is not NaN, as bits.
#[inline(always)]
pub fn f32_to_bfloat16(value: f32) -> u16 {
    let bits = value.to_bits();
    // Adding just under half a unit carries into the kept half; ties carry where its last bit is odd.
    (bits.wrapping_add(0x7FFF + (bits >> 16 & 1)) >> 16) as u16
}

/// The nearest binary16 of a number that is not NaN, as bits.
#[inline(always)]
pub fn f32_to_float16(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = bits >> 16 & 0x8000;
    let magnitude = bits & 0x7FFF_FFFF;
    // Normal: the exponent's bias goes from 127 to 15; as for bfloat16 with 13 bits to drop.
    let rebias = (127 - 15) << 23;
    let normal = magnitude.wrapping_sub(rebias).wrapping_add(0xFFF + (magnitude >> 13 & 1)) >> 13;
    // Subnormal: adding 0.5 puts the unit of binary16's subnormals, 2^-24, in the last place,
    // and the addition rounds.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let finite = if magnitude < 113 << 23 { subnormal } else { normal };
    (sign | if magnitude >= 143 << 23 { 0x7C00 } else { finite }) as u16
}

/// `value` as `f32`, inexact results such that rounding them once more, to a format at least
/// two bits narrower, gives what rounding `value` once would have (rounding to odd).
#[inline(always)]
pub(crate) fn to_f32_odd<T: Real>(value: T) -> f32 {
    let nearest = value.to_f32();
    match T::PRECISION {
        Precision::Float32 | Precision::Mixed => nearest,
        Precision::Float64 => {
            let (exact, rounded) = (value.to_f64().abs(), f64::from(nearest).abs());
            let truncated = nearest.to_bits() - u32::from(rounded > exact);
            f32::from_bits(truncated | u32::from(rounded != exact))
        }
    }
}

/// The number next to `value`, towards zero or away from it, of those with so many bits of fraction and this
/// bias of the exponent, however large: away where `drawn` is less than how far `value` is from the other.
#[inline(always)]
pub(super) fn float_drawn(value: f32, drawn: f32, fraction: u32, bias: u32) -> f32 {
    let magnitude = value.abs();
    // Of the subnormals, or of the number's own power of two.
    let exponent = (magnitude.to_bits() >> 23).max(128 - bias);
    let unit = f32::from_bits((exponent - fraction) << 23);
    // A power of two: the quotient and the product are exact.
    let drawn = super::symmetric::integer_drawn(magnitude / unit, drawn) * unit;
    if value.is_sign_negative() { -drawn } else { drawn }
}

/// bfloat16.
pub(super) struct BFloat16;

impl Coding for BFloat16 {
    type Code = u16;
    const BITS: usize = 16;
    const STATISTIC: Statistic = Statistic::None;
    const WORDS: usize = 0;

    #[inline(always)]
    fn code<T: Real>(value: T, _: Fit) -> u16 {
        f32_to_bfloat16(to_f32_odd(value))
    }

    #[inline(always)]
    fn drawn<T: Real>(value: T, _: Fit, drawn: f32) -> u16 {
        let bits = to_f32_odd(value).to_bits();
        // Carries into the kept half as often as the dropped one is large; past the largest number, not at all.
        let (sign, magnitude) = (bits >> 16 & 0x8000, bits & 0x7FFF_FFFF);
        let carried = (magnitude + 0xFFFF - (drawn * 65536.0) as u32) >> 16;
        (sign | carried.min(0x7F7F)) as u16
    }

    /// Whether not all of the exponent's bits are set.
    #[inline(always)]
    fn holds(code: u16) -> bool {
        code & 0x7F80 != 0x7F80
    }

    #[inline(always)]
    fn number<T: Real>(code: u16, _: Fit) -> T {
        T::from_f64(f64::from(bfloat16_to_f32(code)))
    }

    fn decoder<W: WithDecoder>(to: W) -> Option<W::Output> {
        Some(to.with::<decoders::Whole<decoders::BFloat16>>())
    }

    fn wgsl() -> &'static str {
        "let number = bitcast<f32>(code << 16u);"
    }
}

/// IEEE binary16.
pub(super) struct Float16;

impl Coding for Float16 {
    type Code = u16;
    const BITS: usize = 16;
    const STATISTIC: Statistic = Statistic::None;
    const WORDS: usize = 0;

    #[inline(always)]
    fn code<T: Real>(value: T, _: Fit) -> u16 {
        f32_to_float16(to_f32_odd(value))
    }

    #[inline(always)]
    fn drawn<T: Real>(value: T, _: Fit, drawn: f32) -> u16 {
        f32_to_float16(float_drawn(to_f32_odd(value), drawn, 10, 15).clamp(-65504.0, 65504.0))
    }

    /// Whether not all of the exponent's bits are set.
    #[inline(always)]
    fn holds(code: u16) -> bool {
        code & 0x7C00 != 0x7C00
    }

    #[inline(always)]
    fn number<T: Real>(code: u16, _: Fit) -> T {
        T::from_f64(f64::from(float16_to_f32(code)))
    }

    fn decoder<W: WithDecoder>(to: W) -> Option<W::Output> {
        Some(to.with::<decoders::Whole<decoders::Float16>>())
    }

    fn wgsl() -> &'static str {
        "let number = unpack2x16float(code).x;"
    }

    fn wgsl_vec4() -> Option<Vec4Decoder> {
        Some(Vec4Decoder::new("    return vec4<f32>(unpack2x16float(word.x), unpack2x16float(word.y));\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    /// Every code, the midpoint above it, and the neighbours of both, in both precisions,
    /// against the independent conversions of the `half` crate.
    #[test]
    fn every_code_and_midpoint() {
        for code in 0..=u16::MAX {
            let (b, h) = (bf16::from_bits(code), f16::from_bits(code));
            for (found, expected) in [(bfloat16_to_f32(code), b.to_f32()), (float16_to_f32(code), h.to_f32())]
            {
                assert!(found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan());
            }
            if b.is_finite() {
                check_around(
                    b.to_f64(),
                    bf16::from_bits(code + 1).to_f64(),
                    code,
                    |x| bf16::from_f32(x).to_bits(),
                    f32_to_bfloat16,
                );
            }
            if h.is_finite() {
                check_around(
                    h.to_f64(),
                    f16::from_bits(code + 1).to_f64(),
                    code,
                    |x| f16::from_f32(x).to_bits(),
                    f32_to_float16,
                );
            }
        }
    }

    /// Between the values of `code` and of `code + 1`, the one further from zero.
    fn check_around(
        value: f64,
        next: f64,
        code: u16,
        expected: impl Fn(f32) -> u16,
        encode: impl Fn(f32) -> u16,
    ) {
        let single = value as f32;
        assert_eq!(f64::from(single), value);
        assert_eq!(encode(single), code);
        let middle = if next.is_finite() {
            (value + next) / 2.0
        } else {
            // Half a unit above the greatest number: from here on it rounds to infinity.
            let unit = value.abs().log2().floor() - if code & 0x7FFF == 0x7BFF { 10.0 } else { 7.0 };
            value + value.signum() * unit.exp2() / 2.0
        };
        for bits in [-1i64, 0, 1].map(|step| (middle as f32).to_bits().wrapping_add_signed(step as i32)) {
            let x = f32::from_bits(bits);
            assert_eq!(encode(x), expected(x), "{x:e}");
        }
        // One unit of f64 to either side of the midpoint decides, though f32 cannot tell them apart.
        let even = if code & 1 == 0 { code } else { code + 1 };
        for (x, right) in [
            (f64::from_bits(middle.to_bits() - 1), code),
            (middle, even),
            (f64::from_bits(middle.to_bits() + 1), code + 1),
        ] {
            assert_eq!(encode(to_f32_odd(x)), right, "{x:e}");
        }
    }

    #[test]
    fn random_values_agree_with_half() {
        let stream = crate::random::Stream::new(4, 0, 0, crate::random::Use::Initialize);
        for index in 0..200_000 {
            let x = f32::from_bits(stream.word(index));
            if !x.is_nan() {
                assert_eq!(f32_to_bfloat16(x), bf16::from_f32(x).to_bits(), "{x:e}");
                assert_eq!(f32_to_float16(x), f16::from_f32(x).to_bits(), "{x:e}");
            }
        }
    }

    #[test]
    fn tiny_and_huge_doubles() {
        assert_eq!(f32_to_bfloat16(to_f32_odd(1e-320)), 0);
        assert_eq!(f32_to_bfloat16(to_f32_odd(-1e-320)), 0x8000);
        assert_eq!(f32_to_bfloat16(to_f32_odd(1e300)), 0x7F80);
        assert_eq!(f32_to_float16(to_f32_odd(65_519.999_999)), 0x7BFF);
        assert_eq!(f32_to_float16(to_f32_odd(65520.0)), 0x7C00);
    }
}

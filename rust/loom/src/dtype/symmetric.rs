//! Signed integers: w' = q S, q in [-Q, Q], S = (largest magnitude) / Q; and ternary, with S the mean
//! magnitude and Q = 1 (BitNet b1.58), and binary, the sign alone (XNOR-Net).

use super::coding::{Code, Coding, Fit, Statistic};
use super::decoders::{self, FourBits, TwoBits, Whole, WithDecoder};
use super::vec4::{self, Vec4Decoder};
use crate::simd::Real;
use crate::tensor::Precision;

/// The scale that maps the magnitude `largest` to the code or value `limit`, the smallest normal number where
/// it would be less; 1 where the magnitude is zero, `None` where no scale will do.
pub(super) fn scale_of<T: Real>(largest: T, limit: f64) -> Option<Fit> {
    if largest == T::ZERO {
        return Some(Fit { scale: 1.0, zero: 0 });
    }
    let scale = (largest / T::constant(limit)).to_f32().max(f32::MIN_POSITIVE);
    // The quotient may have been rounded up so far that the largest code would decode to infinity.
    let limit = limit as f32;
    let next = if scale.is_finite() { scale.next_down() } else { scale };
    let scale = if (scale * limit).is_finite() { scale } else { next };
    (scale * limit).is_finite().then_some(Fit { scale, zero: 0 })
}

/// Adding 1.5 x 2^fraction rounds to an integer, half to even, and leaves it in the lowest bits in
/// two's complement.
#[inline(always)]
pub(super) fn magic<T: Real>() -> T {
    match T::PRECISION {
        Precision::Float32 | Precision::Mixed => T::constant(12_582_912.0),
        Precision::Float64 => T::constant(6_755_399_441_055_744.0),
    }
}

/// The integer below or above a number of less than 2^22, or 2^51 in double precision: above where `drawn`
/// is less than how far it is from the one below.
#[inline(always)]
pub(super) fn integer_drawn<T: Real>(value: T, drawn: f32) -> T {
    let nearest = (value + magic()) - magic();
    let below = if nearest > value { nearest - T::ONE } else { nearest };
    if T::from_f64(f64::from(drawn)) < value - below { below + T::ONE } else { below }
}

/// [`integer_drawn`] for numbers of any size.
#[inline(always)]
pub(super) fn wide_drawn(value: f64, drawn: f32) -> f64 {
    let below = value.floor();
    if f64::from(drawn) < value - below { below + 1.0 } else { below }
}

#[inline(always)]
pub(super) fn quotient<T: Real>(value: T, fit: Fit) -> T {
    value / T::from_f64(f64::from(fit.scale))
}

/// An integer code times its scale.
#[inline(always)]
pub(super) fn times<T: Real>(number: i32, fit: Fit) -> T {
    T::from_f64(f64::from(number)) * T::from_f64(f64::from(fit.scale))
}

/// The code of so many bits as an integer.
#[inline(always)]
fn extended<C: Code + Into<u64>>(code: C, bits: usize) -> i32 {
    let shift = 32 - bits;
    ((code.into() as u32) << shift) as i32 >> shift
}

/// Up to 16 bits, computed in the master's precision.
macro_rules! symmetric {
    ($name:ident, $code:ty, $bits:literal, $limit:literal, $statistic:ident, $divisor:expr, $decoder:ty, $doc:literal) => {
        #[doc = $doc]
        pub(super) struct $name;

        impl Coding for $name {
            type Code = $code;
            const BITS: usize = $bits;
            const STATISTIC: Statistic = Statistic::$statistic;
            const WORDS: usize = 1;
            const INTEGERS: bool = $bits <= 8;

            fn fit<T: Real>(first: T, _: T) -> Option<Fit> {
                scale_of(first, $divisor)
            }

            #[inline(always)]
            fn code<T: Real>(value: T, fit: Fit) -> $code {
                let limit = T::constant($limit);
                (quotient(value, fit).min(limit).max(-limit) + magic()).to_bits_u64() as $code
            }

            #[inline(always)]
            fn drawn<T: Real>(value: T, fit: Fit, drawn: f32) -> $code {
                let limit = T::constant($limit);
                let rounded = integer_drawn(quotient(value, fit).min(limit).max(-limit), drawn);
                (rounded + magic()).to_bits_u64() as $code
            }

            #[inline(always)]
            fn number<T: Real>(code: $code, fit: Fit) -> T {
                times(extended(code, $bits), fit)
            }

            fn decoder<W: WithDecoder>(to: W) -> Option<W::Output> {
                Some(to.with::<$decoder>())
            }

            fn wgsl_code() -> Option<(f64, &'static str)> {
                Some((
                    $divisor,
                    concat!(
                        "let code = integer_of(quotient_of(magnitude, scale), u32(",
                        $limit,
                        "));\n",
                        "    return select(code, 0u - code, negative);"
                    ),
                ))
            }

            fn wgsl() -> &'static str {
                concat!("let number = f32(extractBits(bitcast<i32>(code), 0u, ", $bits, "u));")
            }

            fn wgsl_vec4() -> Option<Vec4Decoder> {
                Some(vec4::signed($bits))
            }
        }
    };
}

symmetric!(Int2, u8, 2, 1.0, Largest, 1.0, TwoBits, "int2: -1, 0 and 1.");
symmetric!(Int4, u8, 4, 7.0, Largest, 7.0, FourBits<decoders::Int4>, "int4.");
symmetric!(Int8, u8, 8, 127.0, Largest, 127.0, Whole<decoders::Int8>, "int8.");
symmetric!(Int16, u16, 16, 32767.0, Largest, 32767.0, Whole<decoders::Int16>, "int16.");
symmetric!(Ternary, u8, 2, 1.0, Mean, 1.0, TwoBits, "-1, 0 and 1 times the mean magnitude.");

/// int32, computed in `f64`.
pub(super) struct Int32;

impl Coding for Int32 {
    type Code = u32;
    const BITS: usize = 32;
    const STATISTIC: Statistic = Statistic::Largest;
    const WORDS: usize = 1;

    fn fit<T: Real>(first: T, _: T) -> Option<Fit> {
        scale_of(first, f64::from(i32::MAX))
    }

    #[inline(always)]
    fn code<T: Real>(value: T, fit: Fit) -> u32 {
        let limit = f64::from(i32::MAX);
        let rounded = (quotient(value.to_f64(), fit)).round_ties_even().clamp(-limit, limit);
        rounded as i32 as u32
    }

    #[inline(always)]
    fn drawn<T: Real>(value: T, fit: Fit, drawn: f32) -> u32 {
        let limit = f64::from(i32::MAX);
        wide_drawn(quotient(value.to_f64(), fit), drawn).clamp(-limit, limit) as i32 as u32
    }

    #[inline(always)]
    fn number<T: Real>(code: u32, fit: Fit) -> T {
        T::from_f64(f64::from(code as i32) * f64::from(fit.scale))
    }

    fn wgsl() -> &'static str {
        "let number = f32(bitcast<i32>(code));"
    }
}

/// int64, computed in `f64`, saturating.
pub(super) struct Int64;

impl Coding for Int64 {
    type Code = u64;
    const BITS: usize = 64;
    const STATISTIC: Statistic = Statistic::Largest;
    const WORDS: usize = 1;

    fn fit<T: Real>(first: T, _: T) -> Option<Fit> {
        scale_of(first, i64::MAX as f64)
    }

    #[inline(always)]
    fn code<T: Real>(value: T, fit: Fit) -> u64 {
        // The cast saturates.
        (quotient(value.to_f64(), fit).round_ties_even() as i64).max(-i64::MAX) as u64
    }

    #[inline(always)]
    fn drawn<T: Real>(value: T, fit: Fit, drawn: f32) -> u64 {
        (wide_drawn(quotient(value.to_f64(), fit), drawn) as i64).max(-i64::MAX) as u64
    }

    #[inline(always)]
    fn number<T: Real>(code: u64, fit: Fit) -> T {
        T::from_f64(code as i64 as f64 * f64::from(fit.scale))
    }

    fn wgsl() -> &'static str {
        "// The magnitude, of which two halves are added.
    let negative = high >> 31u == 1u;
    let low_half = select(code, 0u - code, negative);
    let high_half = select(high, select(~high, 0u - high, code == 0u), negative);
    let magnitude = f32(high_half) * 4294967296.0 + f32(low_half);
    let number = select(magnitude, -magnitude, negative);"
    }
}

/// 1 or -1 times the mean magnitude; zero counts as 1. Zeros alone have the scale 0, as there is no code
/// for zero, and other groups no scale below the normal numbers.
pub(super) struct Binary;

impl Coding for Binary {
    type Code = u8;
    const BITS: usize = 1;
    const STATISTIC: Statistic = Statistic::Mean;
    const WORDS: usize = 1;
    const INTEGERS: bool = true;

    fn fit<T: Real>(first: T, _: T) -> Option<Fit> {
        let scale = if first == T::ZERO { 0.0 } else { first.to_f32().max(f32::MIN_POSITIVE) };
        scale.is_finite().then_some(Fit { scale, zero: 0 })
    }

    #[inline(always)]
    fn code<T: Real>(value: T, _: Fit) -> u8 {
        u8::from(value >= T::ZERO)
    }

    /// Its neighbours are -S and S.
    #[inline(always)]
    fn drawn<T: Real>(value: T, fit: Fit, drawn: f32) -> u8 {
        if fit.scale == 0.0 {
            return 1;
        }
        let part = (quotient(value, fit).min(T::ONE).max(-T::ONE) + T::ONE) * T::constant(0.5);
        u8::from(T::from_f64(f64::from(drawn)) < part)
    }

    #[inline(always)]
    fn number<T: Real>(code: u8, fit: Fit) -> T {
        times(2 * i32::from(code) - 1, fit)
    }

    fn decoder<W: WithDecoder>(to: W) -> Option<W::Output> {
        Some(to.with::<decoders::OneBit>())
    }

    fn wgsl_code() -> Option<(f64, &'static str)> {
        Some((1.0, "return select(1u, 0u, negative && magnitude != 0u);"))
    }

    fn wgsl() -> &'static str {
        "let number = f32(code) * 2.0 - 1.0;"
    }

    fn wgsl_vec4() -> Option<Vec4Decoder> {
        Some(vec4::signs())
    }
}

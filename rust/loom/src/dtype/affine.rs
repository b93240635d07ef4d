//! Unsigned integers: w' = (q - z) S with q and z in [0, L], L = 2^bits - 1, over the range from the least
//! number to the greatest, zero among them.

use super::coding::{Coding, Fit, Statistic};
use super::decoders::{self, FourBits, Whole, WithDecoder};
use super::symmetric::{integer_drawn, magic, quotient, wide_drawn};
use super::vec4::{self, Vec4Decoder};
use crate::simd::Real;

/// The scale and the zero point of a range.
fn fit_of<T: Real>(low: T, high: T, limit: f64) -> Option<Fit> {
    if low == high {
        // Zeros alone.
        return Some(Fit { scale: 1.0, zero: 0 });
    }
    let span = high - low;
    let scale = if span.is_finite() {
        span / T::constant(limit)
    } else {
        // Halves of the same.
        let half = T::constant(0.5);
        (high * half - low * half) / T::constant(limit * 0.5)
    };
    let exact = scale.to_f64();
    let mut scale = scale.to_f32().max(f32::MIN_POSITIVE);
    if limit > 65535.0 && f64::from(scale) < exact {
        // Rounded down, the greatest number would saturate, further off than a code.
        scale = scale.next_up();
    }
    // Numbers on either side of zero take no more codes than the larger side needs, and none of them
    // decodes to infinity.
    for _ in 0..2 {
        let zero = zero_of(low, scale, limit);
        let most = zero.max(limit - zero).min(zero.max((high.to_f64() / f64::from(scale)).ceil()));
        if (most as f32 * scale).is_finite() && scale.is_finite() {
            return Some(Fit { scale, zero: zero as u64 });
        }
        let largest = low.abs().max(high).to_f64();
        if largest > f64::from(f32::MAX) {
            return None;
        }
        // One code fewer, so that the next rounding fits.
        scale = ((f64::from(f32::MAX) / (most + 1.0)) as f32).next_down();
    }
    let zero = zero_of(low, scale, limit);
    Some(Fit { scale, zero: zero as u64 })
}

fn zero_of<T: Real>(low: T, scale: f32, limit: f64) -> f64 {
    (-quotient(low, Fit { scale, zero: 0 }).to_f64()).round_ties_even().clamp(0.0, limit)
}

/// Up to 16 bits, computed in the master's precision.
macro_rules! affine {
    ($name:ident, $code:ty, $bits:literal, $limit:literal, $decoder:ty, $doc:literal) => {
        #[doc = $doc]
        pub(super) struct $name;

        impl Coding for $name {
            type Code = $code;
            const BITS: usize = $bits;
            const STATISTIC: Statistic = Statistic::Range;
            const WORDS: usize = 2;

            fn fit<T: Real>(low: T, high: T) -> Option<Fit> {
                fit_of(low, high, $limit)
            }

            #[inline(always)]
            fn code<T: Real>(value: T, fit: Fit) -> $code {
                let beyond = T::constant(2.0 * $limit);
                let rounded = (quotient(value, fit).min(beyond).max(-beyond) + magic()) - magic();
                let zero = T::from_f64(f64::from(fit.zero as u32));
                let code = (rounded + zero).max(T::ZERO).min(T::constant($limit));
                (code + magic()).to_bits_u64() as $code
            }

            #[inline(always)]
            fn drawn<T: Real>(value: T, fit: Fit, drawn: f32) -> $code {
                let beyond = T::constant(2.0 * $limit);
                let rounded = integer_drawn(quotient(value, fit).min(beyond).max(-beyond), drawn);
                let zero = T::from_f64(f64::from(fit.zero as u32));
                let code = (rounded + zero).max(T::ZERO).min(T::constant($limit));
                (code + magic()).to_bits_u64() as $code
            }

            #[inline(always)]
            fn number<T: Real>(code: $code, fit: Fit) -> T {
                super::symmetric::times(i32::from(code).wrapping_sub(fit.zero as i32), fit)
            }

            fn decoder<W: WithDecoder>(to: W) -> Option<W::Output> {
                Some(to.with::<$decoder>())
            }

            fn wgsl_code() -> Option<(f64, &'static str)> {
                Some((
                    $limit,
                    concat!(
                        "let rounded = i32(integer_of(quotient_of(magnitude, scale), 2u * u32(",
                        $limit,
                        ")));\n",
                        "    let code = select(rounded, -rounded, negative) + i32(zero);\n",
                        "    return u32(clamp(code, 0, i32(",
                        $limit,
                        ")));"
                    ),
                ))
            }

            fn wgsl() -> &'static str {
                "let number = f32(bitcast<i32>(code) - bitcast<i32>(zero));"
            }

            fn wgsl_vec4() -> Option<Vec4Decoder> {
                Some(vec4::unsigned($bits))
            }
        }
    };
}

affine!(Uint2, u8, 2, 3.0, decoders::Uint2, "uint2.");
affine!(Uint4, u8, 4, 15.0, FourBits<decoders::Uint4>, "uint4.");
affine!(Uint8, u8, 8, 255.0, Whole<decoders::Uint8>, "uint8.");
affine!(Uint16, u16, 16, 65535.0, Whole<decoders::Uint16>, "uint16.");

/// uint32, computed in `f64`.
pub(super) struct Uint32;

impl Coding for Uint32 {
    type Code = u32;
    const BITS: usize = 32;
    const STATISTIC: Statistic = Statistic::Range;
    const WORDS: usize = 2;

    fn fit<T: Real>(low: T, high: T) -> Option<Fit> {
        fit_of(low.to_f64(), high.to_f64(), f64::from(u32::MAX))
    }

    #[inline(always)]
    fn code<T: Real>(value: T, fit: Fit) -> u32 {
        // Of two integers below 2^53 the sum is exact; the cast saturates.
        (quotient(value.to_f64(), fit).round_ties_even() + fit.zero as f64) as u32
    }

    #[inline(always)]
    fn drawn<T: Real>(value: T, fit: Fit, drawn: f32) -> u32 {
        (wide_drawn(quotient(value.to_f64(), fit), drawn) + fit.zero as f64) as u32
    }

    #[inline(always)]
    fn number<T: Real>(code: u32, fit: Fit) -> T {
        T::from_f64((f64::from(code) - fit.zero as f64) * f64::from(fit.scale))
    }

    fn wgsl() -> &'static str {
        "let number = select(-f32(zero - code), f32(code - zero), code >= zero);"
    }
}

/// uint64, computed in `f64`, saturating.
pub(super) struct Uint64;

impl Coding for Uint64 {
    type Code = u64;
    const BITS: usize = 64;
    const STATISTIC: Statistic = Statistic::Range;
    const WORDS: usize = 3;

    fn fit<T: Real>(low: T, high: T) -> Option<Fit> {
        fit_of(low.to_f64(), high.to_f64(), u64::MAX as f64)
    }

    #[inline(always)]
    fn code<T: Real>(value: T, fit: Fit) -> u64 {
        let rounded = quotient(value.to_f64(), fit).round_ties_even() as i128;
        (rounded + i128::from(fit.zero)).clamp(0, i128::from(u64::MAX)) as u64
    }

    #[inline(always)]
    fn drawn<T: Real>(value: T, fit: Fit, drawn: f32) -> u64 {
        let rounded = wide_drawn(quotient(value.to_f64(), fit), drawn) as i128;
        (rounded + i128::from(fit.zero)).clamp(0, i128::from(u64::MAX)) as u64
    }

    #[inline(always)]
    fn number<T: Real>(code: u64, fit: Fit) -> T {
        // Of the difference of 65 bits its magnitude, so that the conversion is one of 64.
        let (magnitude, sign) =
            if code < fit.zero { (fit.zero - code, -1.0) } else { (code - fit.zero, 1.0) };
        T::from_f64(sign * magnitude as f64 * f64::from(fit.scale))
    }

    fn wgsl() -> &'static str {
        "// The distance from zero, of which two halves are added.
    let negative = high < zero_high || high == zero_high && code < zero;
    let from_low = select(code, zero, negative);
    let from_high = select(high, zero_high, negative);
    let less_low = select(zero, code, negative);
    let less_high = select(zero_high, high, negative);
    let borrow = select(0u, 1u, from_low < less_low);
    let distance = f32(from_high - less_high - borrow) * 4294967296.0 + f32(from_low - less_low);
    let number = select(distance, -distance, negative);"
    }
}

//! Unsigned codes over a least number: w' = q S + m with q in [0, L], L = 2^bits - 1, over the range from the least
//! number of a group, m, to the greatest, whether or not zero is among them.
//!
//! The product and the sum are rounded once each. Of GGML's "type 1" quantization, K-blocks among it, this is what a
//! group decodes to; its own scales are products of smaller numbers.

use super::coding::{Coding, Fit, Statistic};
use super::decoders::{self, FourBits, Whole, WithDecoder};
use super::symmetric::{integer_drawn, magic};
use super::vec4::{self, Vec4Decoder};
use crate::simd::Real;

/// How often a scale is made less by a unit until the greatest code stands for a finite number.
const TRIES: usize = 4;

/// The scale and the minimum of a range; `None` where the greatest code would stand for no finite number.
fn fit_of<T: Real>(low: T, high: T, limit: f64) -> Option<Fit> {
    // Rounded down, so that every number is above it; and of the two zeros the positive one, for which of them is
    // the least one depends on the instruction set.
    let nearest = low.to_f32();
    let minimum = if f64::from(nearest) > low.to_f64() { nearest.next_down() } else { nearest } + 0.0;
    if !minimum.is_finite() {
        return None;
    }
    let span = high - T::from_f64(f64::from(minimum));
    if span <= T::ZERO {
        return Some(Fit::of_minimum(1.0, minimum));
    }
    let mut scale = (span / T::constant(limit)).to_f32().max(f32::MIN_POSITIVE);
    for _ in 0..TRIES {
        let reach = scale * limit as f32;
        if reach.is_finite() && (reach + minimum).is_finite() {
            return Some(Fit::of_minimum(scale, minimum));
        }
        if !scale.is_finite() {
            return None;
        }
        // The quotient may have been rounded up.
        scale = scale.next_down();
    }
    None
}

/// How far a number is above the minimum, in units of the scale, within the codes.
#[inline(always)]
fn place<T: Real>(value: T, fit: Fit, limit: f64) -> T {
    let above = value - T::from_f64(f64::from(fit.minimum()));
    (above / T::from_f64(f64::from(fit.scale))).max(T::ZERO).min(T::constant(limit))
}

macro_rules! minimum {
    ($name:ident, $bits:literal, $limit:literal, $decoder:ty, $doc:literal) => {
        #[doc = $doc]
        pub(super) struct $name;

        impl Coding for $name {
            type Code = u8;
            const BITS: usize = $bits;
            const STATISTIC: Statistic = Statistic::Extent;
            const WORDS: usize = 2;
            const BLOCK: Option<usize> = Some(32);
            const MINIMA: bool = true;

            fn fit<T: Real>(low: T, high: T) -> Option<Fit> {
                fit_of(low, high, $limit)
            }

            #[inline(always)]
            fn code<T: Real>(value: T, fit: Fit) -> u8 {
                (place(value, fit, $limit) + magic()).to_bits_u64() as u8
            }

            #[inline(always)]
            fn drawn<T: Real>(value: T, fit: Fit, drawn: f32) -> u8 {
                (integer_drawn(place(value, fit, $limit), drawn) + magic()).to_bits_u64() as u8
            }

            #[inline(always)]
            fn number<T: Real>(code: u8, fit: Fit) -> T {
                super::symmetric::times::<T>(i32::from(code), fit) + T::from_f64(f64::from(fit.minimum()))
            }

            fn decoder<W: WithDecoder>(to: W) -> Option<W::Output> {
                Some(to.with::<$decoder>())
            }

            fn wgsl() -> &'static str {
                "let number = f32(code);"
            }

            fn wgsl_vec4() -> Option<Vec4Decoder> {
                Some(vec4::unsigned_codes($bits))
            }
        }
    };
}

minimum!(Uint2Min, 2, 3.0, decoders::Uint2Min, "uint2_min.");
minimum!(Uint4Min, 4, 15.0, FourBits<decoders::Uint4Min>, "uint4_min.");
minimum!(Uint8Min, 8, 255.0, Whole<decoders::Uint8Min>, "uint8_min.");

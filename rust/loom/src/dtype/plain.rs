//! The types that networks compute in, kept as they are.

use super::coding::{Coding, Fit, Statistic};
use super::decoders::{self, Whole, WithDecoder};
use crate::simd::Real;

/// IEEE binary32.
pub(super) struct Float32;

impl Coding for Float32 {
    type Code = u32;
    const BITS: usize = 32;
    const STATISTIC: Statistic = Statistic::None;
    const WORDS: usize = 0;

    #[inline(always)]
    fn code<T: Real>(value: T, _: Fit) -> u32 {
        value.to_f32().to_bits()
    }

    #[inline(always)]
    fn drawn<T: Real>(value: T, _: Fit, drawn: f32) -> u32 {
        let (exact, nearest) = (value.to_f64(), value.to_f32());
        let (below, above) = match f64::from(nearest) > exact {
            true => (nearest.next_down(), nearest),
            false => (nearest, nearest.next_up()),
        };
        let part = (exact - f64::from(below)) / (f64::from(above) - f64::from(below));
        let found = if f64::from(drawn) < part && above.is_finite() { above } else { below };
        if found.is_finite() { found.to_bits() } else { nearest.to_bits() }
    }

    #[inline(always)]
    fn holds(code: u32) -> bool {
        f32::from_bits(code).is_finite()
    }

    #[inline(always)]
    fn number<T: Real>(code: u32, _: Fit) -> T {
        T::from_f64(f64::from(f32::from_bits(code)))
    }

    fn decoder<W: WithDecoder>(to: W) -> Option<W::Output> {
        Some(to.with::<Whole<decoders::Float32>>())
    }

    fn wgsl() -> &'static str {
        "let number = bitcast<f32>(code);"
    }
}

/// IEEE binary64.
pub(super) struct Float64;

impl Coding for Float64 {
    type Code = u64;
    const BITS: usize = 64;
    const STATISTIC: Statistic = Statistic::None;
    const WORDS: usize = 0;

    #[inline(always)]
    fn code<T: Real>(value: T, _: Fit) -> u64 {
        value.to_f64().to_bits()
    }

    #[inline(always)]
    fn drawn<T: Real>(value: T, fit: Fit, _: f32) -> u64 {
        Self::code(value, fit)
    }

    #[inline(always)]
    fn holds(code: u64) -> bool {
        f64::from_bits(code).is_finite()
    }

    #[inline(always)]
    fn number<T: Real>(code: u64, _: Fit) -> T {
        T::from_f64(f64::from_bits(code))
    }

    /// Exact for numbers that came from `f32`, as on a GPU all do.
    fn wgsl() -> &'static str {
        "let mantissa = (high & 0xfffffu) << 3u | code >> 29u;
    // The exponent's bias goes from 1023 to 127; below the normal numbers the leading bit is written out.
    let exponent = i32(high >> 20u & 0x7ffu) - 896;
    let small = (mantissa | 0x800000u) >> u32(clamp(1 - exponent, 0, 31));
    let magnitude = select(small, mantissa | u32(exponent) << 23u, exponent > 0);
    let number = bitcast<f32>(magnitude | high & 0x80000000u);"
    }
}

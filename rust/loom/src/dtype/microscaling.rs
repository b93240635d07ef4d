//! The OCP microscaling formats: 32 floats of a few bits that share a power of two, whose exponent is
//! floor(log2(largest magnitude)) - (exponent of the format's largest number).
//!
//! A block is the byte of the exponent, biased by 127, and the codes in order, the first in the lowest bits.

use super::block::{BLOCK, BlockCoding};
use super::float16::to_f32_odd;
use super::fours::BlockWords;
use super::small_float::{E2M1, E4M3, E5M2, SmallFloat};

/// The shared exponent of a block, in [-127, 127].
fn exponent_of<E: SmallFloat>(values: &[f32; BLOCK]) -> i32 {
    let largest = values.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
    // In binary64 all of these are normal numbers; zero's exponent is far below.
    let exponent = (f64::from(largest).to_bits() >> 52) as i32 - 1023;
    (exponent - E::LARGEST_EXPONENT).clamp(-127, 127)
}

/// 2^exponent.
fn power(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

fn code<E: SmallFloat>(value: f32, exponent: i32) -> u8 {
    E::nearest(to_f32_odd(f64::from(value) * power(-exponent)))
}

/// The power of two that a block's first byte stands for; infinity for 255, which no block is encoded with.
#[inline(always)]
pub(crate) fn scale(byte: u8) -> f32 {
    // The least is no normal number.
    f32::from_bits(if byte == 0 { 1 << 22 } else { u32::from(byte) << 23 })
}

/// From a code's number to the element's: times the block's power of two, the least of which is no normal
/// number.
fn wgsl(code: &str, number: &str) -> String {
    format!(
        "{code}
    {number}
    let shared_exponent = byte[start];
    let half = select(1.0, 0.5, shared_exponent == 0u);
    return number * half * bitcast<f32>(max(shared_exponent, 1u) << 23u);"
    )
}

/// The power of two, from the word at the start of a block; the least is no normal number.
const WGSL_SCALE: &str = "let exponent = head & 255u;
    return select(1.0, 0.5, exponent == 0u) * bitcast<f32>(max(exponent, 1u) << 23u);";

/// Formats with a byte a code.
macro_rules! bytes {
    ($name:ident, $float:ident, $doc:literal) => {
        #[doc = $doc]
        pub(super) struct $name;

        impl BlockCoding for $name {
            const BYTES: usize = 1 + BLOCK;

            fn encode(values: &[f32; BLOCK], bytes: &mut [u8]) -> bool {
                let exponent = exponent_of::<$float>(values);
                bytes[0] = (exponent + 127) as u8;
                for (byte, value) in bytes[1..].iter_mut().zip(values) {
                    *byte = code::<$float>(*value, exponent);
                }
                true
            }

            #[inline(always)]
            fn decode(bytes: &[u8], values: &mut [f32; BLOCK]) {
                let scale = scale(bytes[0]);
                for (value, byte) in values.iter_mut().zip(&bytes[1..]) {
                    *value = $float::value(*byte) * scale;
                }
            }

            fn wgsl() -> String {
                wgsl("let code = byte[start + 1u + place];", $float::WGSL)
            }

            fn wgsl_words(name: &str) -> BlockWords {
                let fours = ($float::fours(), &["word"][..]);
                BlockWords::new(name, [Self::BYTES, 1], &[(1, 0)], fours, WGSL_SCALE)
            }
        }
    };
}

bytes!(MxFp8E4M3, E4M3, "MXFP8 of E4M3.");
bytes!(MxFp8E5M2, E5M2, "MXFP8 of E5M2.");

/// MXFP4: E2M1, two codes a byte.
pub(super) struct MxFp4;

impl BlockCoding for MxFp4 {
    const BYTES: usize = 1 + BLOCK / 2;

    fn encode(values: &[f32; BLOCK], bytes: &mut [u8]) -> bool {
        let exponent = exponent_of::<E2M1>(values);
        bytes[0] = (exponent + 127) as u8;
        for (byte, pair) in bytes[1..].iter_mut().zip(values.chunks_exact(2)) {
            *byte = code::<E2M1>(pair[0], exponent) | code::<E2M1>(pair[1], exponent) << 4;
        }
        true
    }

    #[inline(always)]
    fn decode(bytes: &[u8], values: &mut [f32; BLOCK]) {
        let scale = scale(bytes[0]);
        for (pair, byte) in values.chunks_exact_mut(2).zip(&bytes[1..]) {
            pair[0] = E2M1::value(byte & 15) * scale;
            pair[1] = E2M1::value(byte >> 4) * scale;
        }
    }

    fn wgsl() -> String {
        wgsl("let code = byte[start + 1u + place / 2u] >> (place % 2u * 4u) & 15u;", E2M1::WGSL)
    }

    fn wgsl_words(name: &str) -> BlockWords {
        let fours = (E2M1::fours(), &["word", "word >> 16u"][..]);
        BlockWords::new(name, [Self::BYTES, 1], &[(2, 0), (2, 4)], fours, WGSL_SCALE)
    }
}

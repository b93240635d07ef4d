//! The OCP microscaling formats: 32 floats of a few bits that share a power of two, whose exponent is
//! floor(log2(largest magnitude)) - (exponent of the format's largest number).
//!
//! A block is the byte of the exponent, biased by 127, and the codes in order, the first in the lowest bits.

use super::block_coding::{BlockCoding, Integers, Scale};
use super::block_layout::{BLOCK, CodeOrder};
use super::decoders::{self, Float4, Nibbles, Whole};
use super::float16::to_f32_odd;
use super::small_float::{E2M1, E4M3, E5M2, SmallFloat};
use super::vec4::Vec4Decoder;
use crate::simd::{Decode, LANES, Sixteen, Words, array_of};

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

fn code_of<E: SmallFloat>(value: f32, exponent: i32) -> u8 {
    E::nearest(to_f32_odd(f64::from(value) * power(-exponent)))
}

/// The power of two that a block's first byte stands for; infinity for 255, which no block is encoded with.
pub(super) struct PowerOfTwo;

impl Scale for PowerOfTwo {
    const BYTES: usize = 1;
    // The least is no normal number.
    const WGSL: &'static str =
        "select(1.0, 0.5, (head & 255u) == 0u) * bitcast<f32>(max(head & 255u, 1u) << 23u)";

    #[inline(always)]
    fn read(bits: u16) -> f32 {
        f32::from_bits(if bits == 0 { 1 << 22 } else { u32::from(bits) << 23 })
    }

    #[inline(always)]
    unsafe fn sixteen<V: Decode>(blocks: &Sixteen) -> V {
        // SAFETY: the caller's promise; an array of sixteen bytes.
        let exponents = unsafe {
            let bytes: [u8; LANES] = array_of(|block| *blocks.at(block));
            V::Words::bytes(bytes.as_ptr())
        };
        let powers = V::from_bits(exponents.shift_left(23));
        let least = V::splat(f32::from_bits(1 << 22));
        V::select(powers.lt(V::splat(f32::MIN_POSITIVE)), least, powers)
    }

    /// Halved first, so that no factor is too small to be normal.
    fn wgsl_times(number: &str) -> String {
        format!("{number} * select(1.0, 0.5, head == 0u) * bitcast<f32>(max(head, 1u) << 23u)")
    }
}

macro_rules! microscaled {
    ($name:ident, $float:ident, $order:ident, $decoder:ty, $doc:literal $(, $integers:tt)?) => {
        #[doc = $doc]
        pub(super) struct $name;

        impl BlockCoding for $name {
            type Scale = PowerOfTwo;
            const ORDER: CodeOrder = CodeOrder::$order;
            type Decoder = $decoder;
            type UpperDecoder = $decoder;
            $(microscaled!(@integers $integers);)?

            fn encode(values: &[f32; BLOCK], codes: &mut [u8; BLOCK]) -> Option<u16> {
                let exponent = exponent_of::<$float>(values);
                for (code, value) in codes.iter_mut().zip(values) {
                    *code = code_of::<$float>(*value, exponent);
                }
                Some((exponent + 127) as u16)
            }

            #[inline(always)]
            fn number(code: u8) -> f32 {
                $float::value(code)
            }

            fn wgsl_number() -> String {
                $float::WGSL.into()
            }

            fn wgsl_vec4() -> Vec4Decoder {
                $float::vec4_decoder()
            }
        }
    };
    (@integers halves) => {
        const INTEGERS: Integers = Integers::Halves { less: RAISED[0] as i32, table: Some(&RAISED) };
        const UNIT: f32 = 0.5;
        const WGSL_INTEGER: Option<&'static str> =
            Some("select(1, -1, code >= 8u) * i32(0xc8643210u >> (code % 8u * 4u) & 15u)");

        fn integer(code: u8) -> i8 {
            RAISED[usize::from(code & 15)] as i8 - RAISED[0] as i8
        }
    };
}

/// Twice the number that a code of E2M1 stands for, an integer, with 12 added.
const RAISED: [u8; 16] = [12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0];

microscaled!(MxFp8E4M3, E4M3, Bytes, Whole<decoders::E4M3>, "MXFP8 of E4M3.");
microscaled!(MxFp8E5M2, E5M2, Bytes, Whole<decoders::E5M2>, "MXFP8 of E5M2.");
microscaled!(MxFp4, E2M1, Pairs, Nibbles<Float4, false>, "MXFP4: E2M1, two codes a byte.", halves);

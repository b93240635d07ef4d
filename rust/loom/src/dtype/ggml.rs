//! The block formats of llama.cpp, byte for byte: `block_q4_0` and `block_q8_0`, a binary16 scale d before
//! the codes.

use super::block::encode_block;
use super::block_coding::{BlockCoding, Integers, Scale};
use super::block_layout::{BLOCK, CodeOrder};
use super::decoders::{Int8, Nibbles, Offset, Table, Whole};
use super::float16::{f32_to_float16, float16_to_f32};
use super::vec4::{self, Vec4Decoder};
use crate::simd::{Decode, LANES, Sixteen, Words, array_of};

/// A binary16 number.
pub(super) struct Half;

impl Scale for Half {
    const BYTES: usize = 2;
    const WGSL: &'static str = "unpack2x16float(head).x";

    #[inline(always)]
    fn read(bits: u16) -> f32 {
        float16_to_f32(bits)
    }

    #[inline(always)]
    unsafe fn sixteen<V: Decode>(blocks: &Sixteen) -> V {
        // SAFETY: the caller's promise; an array of sixteen numbers.
        unsafe {
            let halves: [[u8; 2]; LANES] = array_of(|block| *blocks.at(block).cast());
            V::float16(halves.as_ptr().cast())
        }
    }
}

/// Packs a block as [`Q4_0`]; false where its scale would not be finite.
pub(crate) fn encode_q4_0(values: &[f32; BLOCK], bytes: &mut [u8]) -> bool {
    encode_block::<Q4_0>(values, bytes)
}

/// Packs a block as [`Q8_0`]; false where its scale would not be finite.
pub(crate) fn encode_q8_0(values: &[f32; BLOCK], bytes: &mut [u8]) -> bool {
    encode_block::<Q8_0>(values, bytes)
}

/// The reciprocal that codes are made with: of d before it is rounded, 0 where d is.
fn reciprocal(d: f32) -> f32 {
    if d == 0.0 { 0.0 } else { 1.0 / d }
}

/// The bits of d, where it is finite.
fn scale(d: f32) -> Option<u16> {
    let bits = f32_to_float16(d);
    (bits & 0x7C00 != 0x7C00).then_some(bits)
}

/// Four bits: d = (the value of largest magnitude) / -8, w' = (q - 8) d.
pub(super) struct Q4_0;

impl BlockCoding for Q4_0 {
    type Scale = Half;
    const INTEGERS: Integers = Integers::Halves { less: 8, table: None };
    const ORDER: CodeOrder = CodeOrder::Halves;
    const WGSL_INTEGER: Option<&'static str> = Some("i32(code) - 8");
    type Decoder = Nibbles<Offset, false>;
    type UpperDecoder = Nibbles<Offset, true>;

    fn encode(values: &[f32; BLOCK], codes: &mut [u8; BLOCK]) -> Option<u16> {
        // The first of several.
        let largest = values.iter().fold(
            0.0f32,
            |largest, value| {
                if largest.abs() < value.abs() { *value } else { largest }
            },
        );
        let d = largest / -8.0;
        let by = reciprocal(d);
        for (code, value) in codes.iter_mut().zip(values) {
            // The cast truncates, saturates, and takes NaN for 0.
            *code = ((value * by + 8.5) as i8).clamp(0, 15) as u8;
        }
        scale(d)
    }

    #[inline(always)]
    fn number(code: u8) -> f32 {
        f32::from(code) - 8.0
    }

    #[inline(always)]
    unsafe fn numbers<V: Decode>(block: *const u8) -> [V; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            let table = V::load(&Offset::NUMBERS);
            let codes = V::Words::bytes(block.add(2));
            [table.look_up(codes), table.look_up(codes.shift_right(4))]
        }
    }

    fn integer(code: u8) -> i8 {
        code as i8 - 8
    }

    fn wgsl_number() -> String {
        "let number = f32(code) - 8.0;".into()
    }

    fn wgsl_vec4() -> Vec4Decoder {
        vec4::bytes_less(8, 15)
    }
}

/// Eight bits: d = (largest magnitude) / 127, w' = q d, q rounded half away from zero.
pub(super) struct Q8_0;

impl BlockCoding for Q8_0 {
    type Scale = Half;
    const INTEGERS: Integers = Integers::Bytes;
    const ORDER: CodeOrder = CodeOrder::Bytes;
    const WGSL_INTEGER: Option<&'static str> = Some("bitcast<i32>(code << 24u) >> 24u");
    type Decoder = Whole<Int8>;
    type UpperDecoder = Whole<Int8>;

    fn encode(values: &[f32; BLOCK], codes: &mut [u8; BLOCK]) -> Option<u16> {
        let largest = values.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
        let d = largest / 127.0;
        let by = reciprocal(d);
        for (code, value) in codes.iter_mut().zip(values) {
            // The cast saturates, and takes NaN for 0.
            *code = (value * by).round() as i8 as u8;
        }
        scale(d)
    }

    #[inline(always)]
    fn number(code: u8) -> f32 {
        f32::from(code as i8)
    }

    #[inline(always)]
    unsafe fn numbers<V: Decode>(block: *const u8) -> [V; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            let codes = block.add(2);
            [
                V::from_integers(V::Words::signed_bytes(codes)),
                V::from_integers(V::Words::signed_bytes(codes.add(LANES))),
            ]
        }
    }

    fn integer(code: u8) -> i8 {
        code as i8
    }

    fn wgsl_number() -> String {
        "let number = f32(bitcast<i32>(code << 24u) >> 24u);".into()
    }

    fn wgsl_vec4() -> Vec4Decoder {
        vec4::signed(8)
    }
}

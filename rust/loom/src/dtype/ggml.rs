//! The block formats of llama.cpp, byte for byte: `block_q4_0` and `block_q8_0`, a binary16 scale d before
//! the codes.

use super::block::{BLOCK, BlockCoding};
use super::float16::{f32_to_float16, float16_to_f32};
use super::fours::{self, BlockWords};

/// d, from the word at the start of a block.
const WGSL_SCALE: &str = "return unpack2x16float(head).x;";

/// The reciprocal that codes are made with: of d before it is rounded, 0 where d is.
fn reciprocal(d: f32) -> f32 {
    if d == 0.0 { 0.0 } else { 1.0 / d }
}

/// Writes d; false where it is not finite.
fn write_scale(d: f32, bytes: &mut [u8]) -> bool {
    let bits = f32_to_float16(d);
    bytes[..2].copy_from_slice(&bits.to_le_bytes());
    bits & 0x7C00 != 0x7C00
}

#[inline(always)]
fn scale(bytes: &[u8]) -> f32 {
    float16_to_f32(u16::from_le_bytes([bytes[0], bytes[1]]))
}

/// Four bits: d = (the value of largest magnitude) / -8, w' = (q - 8) d. The lower halves of the bytes hold
/// the first 16 codes, the upper halves the others.
pub(super) struct Q4_0;

impl BlockCoding for Q4_0 {
    const BYTES: usize = 2 + BLOCK / 2;

    fn encode(values: &[f32; BLOCK], bytes: &mut [u8]) -> bool {
        // The first of several.
        let largest = values.iter().fold(
            0.0f32,
            |largest, value| {
                if largest.abs() < value.abs() { *value } else { largest }
            },
        );
        let d = largest / -8.0;
        let by = reciprocal(d);
        // The cast truncates, saturates, and takes NaN for 0.
        let code = |value: f32| ((value * by + 8.5) as i8).clamp(0, 15) as u8;
        let (low, high) = values.split_at(BLOCK / 2);
        for ((byte, low), high) in bytes[2..].iter_mut().zip(low).zip(high) {
            *byte = code(*low) | code(*high) << 4;
        }
        write_scale(d, bytes)
    }

    #[inline(always)]
    fn decode(bytes: &[u8], values: &mut [f32; BLOCK]) {
        let d = scale(bytes);
        let (low, high) = values.split_at_mut(BLOCK / 2);
        for ((byte, low), high) in bytes[2..].iter().zip(low).zip(high) {
            *low = (f32::from(byte & 15) - 8.0) * d;
            *high = (f32::from(byte >> 4) - 8.0) * d;
        }
    }

    fn wgsl() -> String {
        "let d = unpack2x16float(byte[start] | byte[start + 1u] << 8u).x;
    let code = byte[start + 2u + place % 16u] >> (place / 16u * 4u) & 15u;
    return (f32(code) - 8.0) * d;"
            .into()
    }

    fn wgsl_words(name: &str) -> BlockWords {
        let fours = (fours::bytes_less(8, 15), &["word", "word >> 4u"][..]);
        BlockWords::new(name, [Self::BYTES, 2], &[(1, 0), (1, BLOCK / 2)], fours, WGSL_SCALE)
    }
}

/// Eight bits: d = (largest magnitude) / 127, w' = q d, q rounded half away from zero.
pub(super) struct Q8_0;

impl BlockCoding for Q8_0 {
    const BYTES: usize = 2 + BLOCK;

    fn encode(values: &[f32; BLOCK], bytes: &mut [u8]) -> bool {
        let largest = values.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
        let d = largest / 127.0;
        let by = reciprocal(d);
        for (byte, value) in bytes[2..].iter_mut().zip(values) {
            // The cast saturates, and takes NaN for 0.
            *byte = (value * by).round() as i8 as u8;
        }
        write_scale(d, bytes)
    }

    #[inline(always)]
    fn decode(bytes: &[u8], values: &mut [f32; BLOCK]) {
        let d = scale(bytes);
        for (byte, value) in bytes[2..].iter().zip(values) {
            *value = f32::from(*byte as i8) * d;
        }
    }

    fn wgsl() -> String {
        "let d = unpack2x16float(byte[start] | byte[start + 1u] << 8u).x;
    let code = bitcast<i32>(byte[start + 2u + place] << 24u) >> 24u;
    return f32(code) * d;"
            .into()
    }

    fn wgsl_words(name: &str) -> BlockWords {
        BlockWords::new(name, [Self::BYTES, 2], &[(1, 0)], (fours::signed(8), &["word"]), WGSL_SCALE)
    }
}

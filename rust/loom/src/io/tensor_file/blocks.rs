//! What the blocks of GGUF's packed types stand for: llama.cpp's formats, with its products and sums.

use super::element::ElementType;
use half::f16;

/// The levels of IQ4_NL.
const LEVELS: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Twice the values of E2M1.
const E2M1: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// A binary16 number at the beginning of bytes.
fn half(bytes: &[u8]) -> f32 {
    f16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
}

/// Numbers of two halves of bytes: the lower ones first.
fn halves<N>(codes: &[u8], out: &mut [N], number: impl Fn(u8, usize) -> N) {
    let half = codes.len();
    for (place, code) in codes.iter().enumerate() {
        out[place] = number(code & 0xF, place);
        out[place + half] = number(code >> 4, place + half);
    }
}

pub(super) fn q4_0(block: &[u8; 18], out: &mut [f32; 32]) {
    let d = half(block);
    halves(&block[2..], out, |code, _| d * (f32::from(code) - 8.0));
}

pub(super) fn q4_1(block: &[u8; 20], out: &mut [f32; 32]) {
    let (d, m) = (half(block), half(&block[2..]));
    halves(&block[4..], out, |code, _| d * f32::from(code) + m);
}

/// The fifth bit of a code, from four bytes of them.
fn fifth(bits: &[u8], place: usize) -> u8 {
    (bits[place / 8] >> (place % 8) & 1) << 4
}

/// Writes the codes of a block, as integers, and the scale of each group of them.
pub(crate) type ReadIntegers = fn(block: &[u8], codes: &mut [i8], scales: &mut [f32]);

/// How many elements share a scale, and what reads a block, of a type whose numbers are integers times scales.
pub(crate) fn integers(element: ElementType) -> Option<(usize, ReadIntegers)> {
    Some(match element {
        ElementType::Q5_0 => (32, q5_0),
        ElementType::IQ4_NL => (32, iq4_nl),
        ElementType::MXFP4 => (32, mxfp4),
        ElementType::Q3_K => (16, q3_k),
        ElementType::Q6_K => (16, q6_k),
        _ => return None,
    })
}

fn q5_0(block: &[u8], codes: &mut [i8], scales: &mut [f32]) {
    let high = &block[2..6];
    scales[0] = half(block);
    halves(&block[6..], codes, |code, place| (code | fifth(high, place)) as i8 - 16);
}

pub(super) fn q5_1(block: &[u8; 24], out: &mut [f32; 32]) {
    let (d, m, high) = (half(block), half(&block[2..]), &block[4..8]);
    halves(&block[8..], out, |code, place| d * f32::from(code | fifth(high, place)) + m);
}

pub(super) fn q8_0(block: &[u8; 34], out: &mut [f32; 32]) {
    let d = half(block);
    for (number, code) in out.iter_mut().zip(&block[2..]) {
        *number = f32::from(*code as i8) * d;
    }
}

fn iq4_nl(block: &[u8], codes: &mut [i8], scales: &mut [f32]) {
    scales[0] = half(block);
    halves(&block[2..], codes, |code, _| LEVELS[usize::from(code)]);
}

fn mxfp4(block: &[u8], codes: &mut [i8], scales: &mut [f32]) {
    // Half of the scale, a power of two, for the values are doubled.
    let bits = match u32::from(block[0]) {
        subnormal @ 0..2 => 0x0020_0000 << subnormal,
        exponent => (exponent - 1) << 23,
    };
    scales[0] = f32::from_bits(bits);
    halves(&block[1..], codes, |code, _| E2M1[usize::from(code)]);
}

/// Codes of two bits, as K-blocks have them: runs of 32 numbers, four in the same bytes.
fn pair_of_bits(codes: &[u8], place: usize) -> u8 {
    codes[place / 128 * 32 + place % 32] >> (place % 128 / 32 * 2) & 3
}

/// Codes of four bits: runs of 32 numbers, two in the same bytes.
fn nibble(codes: &[u8], place: usize) -> u8 {
    codes[place / 64 * 32 + place % 32] >> (place % 64 / 32 * 4) & 0xF
}

pub(super) fn q2_k(block: &[u8; 84], out: &mut [f32; 256]) {
    let (scales, codes) = (&block[..16], &block[16..80]);
    let (d, least) = (half(&block[80..]), half(&block[82..]));
    for (place, number) in out.iter_mut().enumerate() {
        let scale = scales[place / 16];
        let code = f32::from(pair_of_bits(codes, place));
        *number = d * f32::from(scale & 0xF) * code - least * f32::from(scale >> 4);
    }
}

fn q3_k(block: &[u8], integers: &mut [i8], of_groups: &mut [f32]) {
    let (high, codes, scales, d) = (&block[..32], &block[32..96], &block[96..108], half(&block[108..]));
    // Six bits each: four of them in the first eight bytes, two in the last four.
    let scale = |group: usize| {
        let low = scales[group % 8] >> (group / 8 * 4) & 0xF;
        let high = scales[8 + group % 4] >> (group / 4 * 2) & 3;
        f32::from(low | high << 4) - 32.0
    };
    of_groups.iter_mut().enumerate().for_each(|(group, of_group)| *of_group = d * scale(group));
    for (place, integer) in integers.iter_mut().enumerate() {
        // A set bit means that nothing is taken away.
        let less = if high[place % 32] >> (place / 32) & 1 == 0 { 4 } else { 0 };
        *integer = pair_of_bits(codes, place) as i8 - less;
    }
}

/// The scale and the least value of a group of 32, six bits each, of twelve bytes.
fn scale_and_least(scales: &[u8], group: usize) -> (f32, f32) {
    let (scale, least) = match group {
        0..4 => (scales[group] & 0x3F, scales[group + 4] & 0x3F),
        _ => {
            let low = scales[group + 4];
            (low & 0xF | scales[group - 4] >> 2 & 0x30, low >> 4 | scales[group] >> 2 & 0x30)
        }
    };
    (f32::from(scale), f32::from(least))
}

/// Eight groups of 32: a scale and a least value each, and what `code` says.
fn groups(head: &[u8], out: &mut [f32; 256], code: impl Fn(usize) -> u8) {
    let (d, least, scales) = (half(head), half(&head[2..]), &head[4..16]);
    for (group, numbers) in out.chunks_exact_mut(32).enumerate() {
        let (scale, of_group) = scale_and_least(scales, group);
        let (d, least) = (d * scale, least * of_group);
        for (within, number) in numbers.iter_mut().enumerate() {
            *number = d * f32::from(code(group * 32 + within)) - least;
        }
    }
}

pub(super) fn q4_k(block: &[u8; 144], out: &mut [f32; 256]) {
    groups(&block[..16], out, |place| nibble(&block[16..], place));
}

pub(super) fn q5_k(block: &[u8; 176], out: &mut [f32; 256]) {
    let (high, codes) = (&block[16..48], &block[48..]);
    groups(&block[..16], out, |place| nibble(codes, place) | (high[place % 32] >> (place / 32) & 1) << 4);
}

fn q6_k(block: &[u8], integers: &mut [i8], of_groups: &mut [f32]) {
    let (low, high, scales, d) = (&block[..128], &block[128..192], &block[192..208], half(&block[208..]));
    of_groups.iter_mut().zip(scales).for_each(|(of_group, scale)| *of_group = d * f32::from(*scale as i8));
    for (place, integer) in integers.iter_mut().enumerate() {
        // Runs of 64 numbers, two in the same bytes.
        let four = low[place / 128 * 64 + place % 64] >> (place % 128 / 64 * 4) & 0xF;
        *integer = (four | pair_of_bits(high, place) << 4) as i8 - 32;
    }
}

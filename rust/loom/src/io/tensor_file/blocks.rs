//! What the blocks of GGUF's packed types stand for: llama.cpp's formats, with its products and sums.

use super::element::ElementType;
use crate::dtype::DType;
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

/// The fifth bit of a code, from four bytes of them.
fn fifth(bits: &[u8], place: usize) -> u8 {
    (bits[place / 8] >> (place % 8) & 1) << 4
}

/// Elements in groups, each with a scale.
#[derive(Clone, Copy)]
pub(crate) struct Grouped {
    /// Elements of a group.
    pub(crate) elements: usize,
    /// The numeric type whose codes these are.
    pub(crate) dtype: DType,
    /// Whether codes are integers without a sign, to which times the scale a minimum of the group is added; otherwise
    /// they have a sign.
    pub(crate) minima: bool,
    /// Writes the codes of a block, each in a byte, and of each group its scale, and its minimum if there is one.
    pub(crate) read: fn(block: &[u8], codes: &mut [u8], fits: &mut [f32]),
}

impl Grouped {
    /// Numbers that a group has beside its codes.
    pub(crate) fn words(self) -> usize {
        if self.minima { 2 } else { 1 }
    }

    /// Those of so many elements.
    pub(crate) fn fits_of(self, elements: usize) -> usize {
        elements / self.elements * self.words()
    }

    /// What the codes of a group stand for.
    pub(super) fn decode(self, codes: &[u8], fit: &[f32], numbers: &mut [f32]) {
        for (number, code) in numbers.iter_mut().zip(codes) {
            *number = match self.minima {
                false => fit[0] * f32::from(*code as i8),
                true => fit[0] * f32::from(*code) + fit[1],
            };
        }
    }
}

/// How blocks are read, of a type whose numbers are integers times scales of groups, with a minimum or without.
pub(crate) fn grouped(element: ElementType) -> Option<Grouped> {
    let signed = |elements, read| Some(Grouped { elements, dtype: DType::Int8, minima: false, read });
    let unsigned = |elements, dtype, read| Some(Grouped { elements, dtype, minima: true, read });
    match element {
        ElementType::Q5_0 => signed(32, q5_0),
        ElementType::IQ4_NL => signed(32, iq4_nl),
        ElementType::MXFP4 => signed(32, mxfp4),
        ElementType::Q3_K => signed(16, q3_k),
        ElementType::Q6_K => signed(16, q6_k),
        ElementType::Q4_1 => unsigned(32, DType::Uint4Min, q4_1),
        ElementType::Q5_1 => unsigned(32, DType::Uint8Min, q5_1),
        ElementType::Q2_K => unsigned(16, DType::Uint2Min, q2_k),
        ElementType::Q4_K => unsigned(32, DType::Uint4Min, q4_k),
        ElementType::Q5_K => unsigned(32, DType::Uint8Min, q5_k),
        _ => None,
    }
}

fn q4_1(block: &[u8], codes: &mut [u8], fits: &mut [f32]) {
    fits.copy_from_slice(&[half(block), half(&block[2..])]);
    halves(&block[4..], codes, |code, _| code);
}

fn q5_0(block: &[u8], codes: &mut [u8], scales: &mut [f32]) {
    let high = &block[2..6];
    scales[0] = half(block);
    halves(&block[6..], codes, |code, place| (code | fifth(high, place)).wrapping_sub(16));
}

fn q5_1(block: &[u8], codes: &mut [u8], fits: &mut [f32]) {
    let high = &block[4..8];
    fits.copy_from_slice(&[half(block), half(&block[2..])]);
    halves(&block[8..], codes, |code, place| code | fifth(high, place));
}

pub(super) fn q8_0(block: &[u8; 34], out: &mut [f32; 32]) {
    let d = half(block);
    for (number, code) in out.iter_mut().zip(&block[2..]) {
        *number = f32::from(*code as i8) * d;
    }
}

fn iq4_nl(block: &[u8], codes: &mut [u8], scales: &mut [f32]) {
    scales[0] = half(block);
    halves(&block[2..], codes, |code, _| LEVELS[usize::from(code)] as u8);
}

fn mxfp4(block: &[u8], codes: &mut [u8], scales: &mut [f32]) {
    // Half of the scale, a power of two, for the values are doubled.
    let bits = match u32::from(block[0]) {
        subnormal @ 0..2 => 0x0020_0000 << subnormal,
        exponent => (exponent - 1) << 23,
    };
    scales[0] = f32::from_bits(bits);
    halves(&block[1..], codes, |code, _| E2M1[usize::from(code)] as u8);
}

/// Codes of two bits, as K-blocks have them: runs of 32 numbers, four in the same bytes.
fn pair_of_bits(codes: &[u8], place: usize) -> u8 {
    codes[place / 128 * 32 + place % 32] >> (place % 128 / 32 * 2) & 3
}

/// Codes of four bits: runs of 32 numbers, two in the same bytes.
fn nibble(codes: &[u8], place: usize) -> u8 {
    codes[place / 64 * 32 + place % 32] >> (place % 64 / 32 * 4) & 0xF
}

fn q2_k(block: &[u8], integers: &mut [u8], fits: &mut [f32]) {
    let (scales, codes) = (&block[..16], &block[16..80]);
    let (d, least) = (half(&block[80..]), half(&block[82..]));
    for (fit, scale) in fits.chunks_exact_mut(2).zip(scales) {
        fit.copy_from_slice(&[d * f32::from(scale & 0xF), -(least * f32::from(scale >> 4))]);
    }
    for (place, integer) in integers.iter_mut().enumerate() {
        *integer = pair_of_bits(codes, place);
    }
}

fn q3_k(block: &[u8], integers: &mut [u8], of_groups: &mut [f32]) {
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
        *integer = pair_of_bits(codes, place).wrapping_sub(less);
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

/// Eight groups of 32: a scale and a least value each.
fn scales_and_minima(head: &[u8], fits: &mut [f32]) {
    let (d, least, scales) = (half(head), half(&head[2..]), &head[4..16]);
    for (group, fit) in fits.chunks_exact_mut(2).enumerate() {
        let (scale, of_group) = scale_and_least(scales, group);
        // What is taken away is added with the other sign, which rounds to the same.
        fit.copy_from_slice(&[d * scale, -(least * of_group)]);
    }
}

fn q4_k(block: &[u8], codes: &mut [u8], fits: &mut [f32]) {
    scales_and_minima(&block[..16], fits);
    for (place, code) in codes.iter_mut().enumerate() {
        *code = nibble(&block[16..], place);
    }
}

fn q5_k(block: &[u8], codes: &mut [u8], fits: &mut [f32]) {
    scales_and_minima(&block[..16], fits);
    let (high, low) = (&block[16..48], &block[48..]);
    for (place, code) in codes.iter_mut().enumerate() {
        *code = nibble(low, place) | (high[place % 32] >> (place / 32) & 1) << 4;
    }
}

fn q6_k(block: &[u8], integers: &mut [u8], of_groups: &mut [f32]) {
    let (low, high, scales, d) = (&block[..128], &block[128..192], &block[192..208], half(&block[208..]));
    of_groups.iter_mut().zip(scales).for_each(|(of_group, scale)| *of_group = d * f32::from(*scale as i8));
    for (place, integer) in integers.iter_mut().enumerate() {
        // Runs of 64 numbers, two in the same bytes.
        let four = low[place / 128 * 64 + place % 64] >> (place % 128 / 64 * 4) & 0xF;
        *integer = (four | pair_of_bits(high, place) << 4).wrapping_sub(32);
    }
}

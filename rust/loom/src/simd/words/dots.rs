//! Sums of products of whole blocks of codes, sixteen blocks at a time, in registers; safe as the vectors of `f32`
//! are.
//!
//! A block's sum is spread over the words of a register, a word for every four products. Words of one block are
//! added up beside those of others, by interleaving registers, so that what comes out is a word for each block in
//! the order of the blocks.

use crate::simd::Sixteen;
use crate::simd::avx2::avx2;
use crate::simd::avx512::avx512;
use std::arch::x86_64::*;

/// In each quarter of a register, the sums of the four words of the quarter of each of four registers.
macro_rules! sum_fours {
    ($blocks:expr, $add:ident, $low:ident, $high:ident, $low_pairs:ident, $high_pairs:ident) => {{
        let [a, b, c, d] = $blocks;
        let left = $add($low(a, b), $high(a, b));
        let right = $add($low(c, d), $high(c, d));
        $add($low_pairs(left, right), $high_pairs(left, right))
    }};
}

#[inline(always)]
fn sum_fours_avx2(blocks: [__m256i; 4]) -> __m256i {
    avx2!(sum_fours!(
        blocks,
        _mm256_add_epi32,
        _mm256_unpacklo_epi32,
        _mm256_unpackhi_epi32,
        _mm256_unpacklo_epi64,
        _mm256_unpackhi_epi64
    ))
}

#[inline(always)]
fn sum_fours_avx512(blocks: [__m512i; 4]) -> __m512i {
    avx512!(sum_fours!(
        blocks,
        _mm512_add_epi32,
        _mm512_unpacklo_epi32,
        _mm512_unpackhi_epi32,
        _mm512_unpacklo_epi64,
        _mm512_unpackhi_epi64
    ))
}

/// [`Words::turned_words`](crate::simd::Words::turned_words), places in the order in which quarters of registers are
/// read.
macro_rules! turned_words {
    ($blocks:expr, $low:ident, $high:ident, $low_pairs:ident, $high_pairs:ident) => {{
        let [a, b, c, d] = $blocks;
        let (left, right) = ($low(a, b), $low(c, d));
        let (upper_left, upper_right) = ($high(a, b), $high(c, d));
        [
            $low_pairs(left, right),
            $high_pairs(left, right),
            $low_pairs(upper_left, upper_right),
            $high_pairs(upper_left, upper_right),
        ]
    }};
}

/// [`Words::turned_words`](crate::simd::Words::turned_words) of eight places from `first` on.
///
/// # Safety
/// As there.
#[inline(always)]
pub(super) unsafe fn turned_words_avx2(blocks: &Sixteen, offset: usize, first: usize) -> [__m256i; 4] {
    // SAFETY: the caller's promise.
    let places = unsafe {
        [
            two_places(blocks, offset, first),
            two_places(blocks, offset, first + 1),
            two_places(blocks, offset, first + 2),
            two_places(blocks, offset, first + 3),
        ]
    };
    avx2!(turned_words!(
        places,
        _mm256_unpacklo_epi32,
        _mm256_unpackhi_epi32,
        _mm256_unpacklo_epi64,
        _mm256_unpackhi_epi64
    ))
}

/// Sixteen bytes of two places, of which the second is the fourth after `place`. No closure, as in [`four_places`].
///
/// # Safety
/// The bytes must be valid for reading.
#[inline(always)]
unsafe fn two_places(blocks: &Sixteen, offset: usize, place: usize) -> __m256i {
    avx2!({
        let first = blocks.at(place).wrapping_add(offset).cast();
        _mm256_loadu2_m128i(blocks.at(place + 4).wrapping_add(offset).cast(), first)
    })
}

/// Sixteen bytes of four places, every fourth from `place` on.
///
/// No closure: those are not always inlined, and without the instructions of who calls them each of these is a call.
///
/// # Safety
/// The bytes must be valid for reading.
#[inline(always)]
unsafe fn four_places(blocks: &Sixteen, offset: usize, place: usize) -> __m512i {
    avx512!({
        let first = _mm_loadu_si128(blocks.at(place).wrapping_add(offset).cast());
        let words = _mm512_castsi128_si512(first);
        let second = _mm_loadu_si128(blocks.at(place + 4).wrapping_add(offset).cast());
        let words = _mm512_inserti32x4::<1>(words, second);
        let third = _mm_loadu_si128(blocks.at(place + 8).wrapping_add(offset).cast());
        let words = _mm512_inserti32x4::<2>(words, third);
        let fourth = _mm_loadu_si128(blocks.at(place + 12).wrapping_add(offset).cast());
        _mm512_inserti32x4::<3>(words, fourth)
    })
}

/// [`Words::turned_words`](crate::simd::Words::turned_words).
///
/// # Safety
/// As there.
#[inline(always)]
pub(super) unsafe fn turned_words_avx512(blocks: &Sixteen, offset: usize) -> [__m512i; 4] {
    // SAFETY: the caller's promise.
    let places = unsafe {
        [
            four_places(blocks, offset, 0),
            four_places(blocks, offset, 1),
            four_places(blocks, offset, 2),
            four_places(blocks, offset, 3),
        ]
    };
    avx512!(turned_words!(
        places,
        _mm512_unpacklo_epi32,
        _mm512_unpackhi_epi32,
        _mm512_unpacklo_epi64,
        _mm512_unpackhi_epi64
    ))
}

/// [`Words::dot_bytes`](crate::simd::Words::dot_bytes) with products of bytes added in pairs.
///
/// # Safety
/// As there.
#[inline(always)]
pub(super) unsafe fn dot_bytes_avx2(blocks: &Sixteen, offset: usize, a: *const i8) -> [__m256i; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        let a = _mm256_loadu_si256(a.cast());
        [eight_bytes(blocks, offset, 0, a), eight_bytes(blocks, offset, 8, a)]
    }
}

/// The sums of eight blocks from this one on. No closure, as in [`four_places`].
///
/// # Safety
/// As `dot_bytes_avx2`.
#[inline(always)]
unsafe fn eight_bytes(blocks: &Sixteen, offset: usize, first: usize, a: __m256i) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        let left = sum_fours_avx2([
            block_of_bytes(blocks, offset, first, a),
            block_of_bytes(blocks, offset, first + 1, a),
            block_of_bytes(blocks, offset, first + 2, a),
            block_of_bytes(blocks, offset, first + 3, a),
        ]);
        let right = sum_fours_avx2([
            block_of_bytes(blocks, offset, first + 4, a),
            block_of_bytes(blocks, offset, first + 5, a),
            block_of_bytes(blocks, offset, first + 6, a),
            block_of_bytes(blocks, offset, first + 7, a),
        ]);
        let low = _mm256_permute2x128_si256::<0x20>(left, right);
        _mm256_add_epi32(low, _mm256_permute2x128_si256::<0x31>(left, right))
    }
}

/// A sum for every four products of a block: of magnitudes and activations with the sign of the code, two of which fit
/// 16 bits, 2 x 128 x 127.
///
/// # Safety
/// As `dot_bytes_avx2`.
#[inline(always)]
unsafe fn block_of_bytes(blocks: &Sixteen, offset: usize, block: usize, a: __m256i) -> __m256i {
    avx2!({
        let codes = _mm256_loadu_si256(blocks.at(block).wrapping_add(offset).cast());
        let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(a, codes));
        _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))
    })
}

/// [`Words::dot_halves`](crate::simd::Words::dot_halves) with products of bytes added in pairs.
///
/// # Safety
/// As there.
#[inline(always)]
pub(super) unsafe fn dot_halves_avx2<const TABLE: bool>(
    blocks: &Sixteen,
    offset: usize,
    a: *const i8,
    table: &[u8; 16],
) -> [__m256i; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        let lower = _mm256_broadcastsi128_si256(_mm_loadu_si128(a.cast()));
        let upper = _mm256_broadcastsi128_si256(_mm_loadu_si128(a.add(16).cast()));
        let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
        let with = [lower, upper, table];
        [
            sum_fours_avx2([
                two_of_halves::<TABLE>(blocks, offset, 0, with),
                two_of_halves::<TABLE>(blocks, offset, 1, with),
                two_of_halves::<TABLE>(blocks, offset, 2, with),
                two_of_halves::<TABLE>(blocks, offset, 3, with),
            ]),
            sum_fours_avx2([
                two_of_halves::<TABLE>(blocks, offset, 8, with),
                two_of_halves::<TABLE>(blocks, offset, 9, with),
                two_of_halves::<TABLE>(blocks, offset, 10, with),
                two_of_halves::<TABLE>(blocks, offset, 11, with),
            ]),
        ]
    }
}

/// A sum for every eight products of a block and of the fourth after it.
///
/// # Safety
/// As `dot_halves_avx2`.
#[inline(always)]
unsafe fn two_of_halves<const TABLE: bool>(
    blocks: &Sixteen,
    offset: usize,
    block: usize,
    [lower, upper, table]: [__m256i; 3],
) -> __m256i {
    avx2!({
        let first = blocks.at(block).wrapping_add(offset).cast();
        let second = blocks.at(block + 4).wrapping_add(offset).cast();
        let (codes, mask) = (_mm256_loadu2_m128i(second, first), _mm256_set1_epi8(15));
        let mut low = _mm256_and_si256(codes, mask);
        let mut high = _mm256_and_si256(_mm256_srli_epi16::<4>(codes), mask);
        if TABLE {
            low = _mm256_shuffle_epi8(table, low);
            high = _mm256_shuffle_epi8(table, high);
        }
        let (low, high) = (_mm256_maddubs_epi16(low, lower), _mm256_maddubs_epi16(high, upper));
        _mm256_madd_epi16(_mm256_add_epi16(low, high), _mm256_set1_epi16(1))
    })
}

/// [`Words::dot_bytes`](crate::simd::Words::dot_bytes) with four products an instruction: of codes with 128 added,
/// so that 128 times the sum of the activations comes off again.
///
/// # Safety
/// As there, with `QUADS`.
#[inline(always)]
pub(super) unsafe fn dot_bytes_quads(blocks: &Sixteen, offset: usize, a: *const i8, total: i32) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe {
        let a = _mm512_broadcast_i64x4(_mm256_loadu_si256(a.cast()));
        let flip = _mm512_set1_epi8(i8::MIN);
        let mut sums = [_mm512_setzero_si512(); 8];
        let mut number = 0;
        while number < 8 {
            // 0 to 3, then 8 to 11, each with the fourth after it.
            let block = number + number / 4 * 4;
            let first = _mm256_loadu_si256(blocks.at(block).wrapping_add(offset).cast());
            let last = _mm256_loadu_si256(blocks.at(block + 4).wrapping_add(offset).cast());
            let codes = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(first), last);
            sums[number] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_xor_si512(codes, flip), a);
            number += 1;
        }
        let left = sum_fours_avx512([sums[0], sums[1], sums[2], sums[3]]);
        let right = sum_fours_avx512([sums[4], sums[5], sums[6], sums[7]]);
        let first = _mm512_shuffle_i32x4::<0b10_00_10_00>(left, right);
        let second = _mm512_shuffle_i32x4::<0b11_01_11_01>(left, right);
        let sums = _mm512_add_epi32(first, second);
        _mm512_sub_epi32(sums, _mm512_set1_epi32(128 * total))
    }
}

/// [`Words::dot_halves`](crate::simd::Words::dot_halves) with four products an instruction.
///
/// # Safety
/// As there, with `QUADS`.
#[inline(always)]
pub(super) unsafe fn dot_halves_quads<const TABLE: bool>(
    blocks: &Sixteen,
    offset: usize,
    a: *const i8,
    table: &[u8; 16],
) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe {
        let lower = _mm512_broadcast_i32x4(_mm_loadu_si128(a.cast()));
        let upper = _mm512_broadcast_i32x4(_mm_loadu_si128(a.add(16).cast()));
        let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
        let mask = _mm512_set1_epi8(15);
        let mut sums = [_mm512_setzero_si512(); 4];
        let mut block = 0;
        while block < 4 {
            let codes = four_places(blocks, offset, block);
            let mut first = _mm512_and_si512(codes, mask);
            let mut last = _mm512_and_si512(_mm512_srli_epi16::<4>(codes), mask);
            if TABLE {
                first = _mm512_shuffle_epi8(table, first);
                last = _mm512_shuffle_epi8(table, last);
            }
            let sum = _mm512_dpbusd_epi32(_mm512_setzero_si512(), first, lower);
            sums[block] = _mm512_dpbusd_epi32(sum, last, upper);
            block += 1;
        }
        sum_fours_avx512(sums)
    }
}

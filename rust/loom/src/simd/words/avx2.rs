//! Sixteen words in two AVX2 registers; safe as the vectors of `f32` are.

use super::dots;
use crate::simd::avx2::{F32x16, avx2};
use crate::simd::{Decode, Sixteen, Words};
use std::arch::x86_64::*;

/// Words 0 to 7, then 8 to 15.
#[derive(Clone, Copy)]
pub struct Avx2Words(__m256i, __m256i);

impl Avx2Words {
    /// One result for each register.
    #[inline(always)]
    fn map(self, f: impl Fn(__m256i) -> __m256i) -> Self {
        Self(f(self.0), f(self.1))
    }
}

impl Words for Avx2Words {
    #[inline(always)]
    fn splat(word: i32) -> Self {
        avx2!(Self(_mm256_set1_epi32(word), _mm256_set1_epi32(word)))
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        avx2!(Self(_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(32).cast())))
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut i32) {
        avx2!({
            _mm256_storeu_si256(to.cast(), self.0);
            _mm256_storeu_si256(to.add(8).cast(), self.1);
        });
    }

    #[inline(always)]
    unsafe fn bytes(from: *const u8) -> Self {
        let eight = |from: *const u8| avx2!(_mm256_cvtepu8_epi32(_mm_loadl_epi64(from.cast())));
        Self(eight(from), eight(from.wrapping_add(8)))
    }

    #[inline(always)]
    unsafe fn signed_bytes(from: *const u8) -> Self {
        let eight = |from: *const u8| avx2!(_mm256_cvtepi8_epi32(_mm_loadl_epi64(from.cast())));
        Self(eight(from), eight(from.wrapping_add(8)))
    }

    #[inline(always)]
    unsafe fn halves(from: *const u8) -> Self {
        let eight = |from: *const u8| avx2!(_mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast())));
        Self(eight(from), eight(from.wrapping_add(16)))
    }

    #[inline(always)]
    unsafe fn signed_halves(from: *const u8) -> Self {
        let eight = |from: *const u8| avx2!(_mm256_cvtepi16_epi32(_mm_loadu_si128(from.cast())));
        Self(eight(from), eight(from.wrapping_add(16)))
    }

    #[inline(always)]
    fn shift_left(self, bits: u32) -> Self {
        self.map(|words| avx2!(_mm256_sll_epi32(words, _mm_cvtsi32_si128(bits as i32))))
    }

    #[inline(always)]
    fn shift_right(self, bits: u32) -> Self {
        self.map(|words| avx2!(_mm256_srl_epi32(words, _mm_cvtsi32_si128(bits as i32))))
    }

    #[inline(always)]
    fn shift_right_signed(self, bits: u32) -> Self {
        self.map(|words| avx2!(_mm256_sra_epi32(words, _mm_cvtsi32_si128(bits as i32))))
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        avx2!(Self(_mm256_and_si256(self.0, other.0), _mm256_and_si256(self.1, other.1)))
    }

    #[inline(always)]
    fn or(self, other: Self) -> Self {
        avx2!(Self(_mm256_or_si256(self.0, other.0), _mm256_or_si256(self.1, other.1)))
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        avx2!(Self(_mm256_xor_si256(self.0, other.0), _mm256_xor_si256(self.1, other.1)))
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        avx2!(Self(_mm256_sub_epi32(self.0, other.0), _mm256_sub_epi32(self.1, other.1)))
    }

    #[inline(always)]
    fn add_pairs(self, a: Self, b: Self) -> Self {
        avx2!(Self(
            _mm256_add_epi32(self.0, _mm256_madd_epi16(a.0, b.0)),
            _mm256_add_epi32(self.1, _mm256_madd_epi16(a.1, b.1)),
        ))
    }

    #[inline(always)]
    unsafe fn add_small_quads<const QUADS: bool>(self, a: Self, b: Self) -> Self {
        let add = |sum: __m256i, a: __m256i, b: __m256i| {
            avx2!({
                let pairs = _mm256_maddubs_epi16(a, b);
                _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
            })
        };
        Self(add(self.0, a.0, b.0), add(self.1, a.1, b.1))
    }

    #[inline(always)]
    unsafe fn add_signed_quads<const QUADS: bool>(self, a: Self, b: Self) -> Self {
        // Of magnitudes and numbers with the other's sign, whose products in pairs fit 16 bits.
        let add = |sum: __m256i, a: __m256i, b: __m256i| {
            avx2!({
                let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(a), _mm256_sign_epi8(b, a));
                _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
            })
        };
        Self(add(self.0, a.0, b.0), add(self.1, a.1, b.1))
    }

    #[inline(always)]
    unsafe fn interleaved(rows: [*const u8; 4]) -> [Self; 4] {
        // SAFETY: the caller's promise.
        let (first, last) = unsafe { (interleaved(rows, 0), interleaved(rows, 32)) };
        [Self(first[0], last[0]), Self(first[1], last[1]), Self(first[2], last[2]), Self(first[3], last[3])]
    }

    #[inline(always)]
    unsafe fn turned_words(blocks: &Sixteen, offset: usize) -> [Self; 4] {
        // SAFETY: the caller's promise.
        let (first, last) = unsafe {
            (dots::turned_words_avx2(blocks, offset, 0), dots::turned_words_avx2(blocks, offset, 8))
        };
        [Self(first[0], last[0]), Self(first[1], last[1]), Self(first[2], last[2]), Self(first[3], last[3])]
    }

    #[inline(always)]
    fn look_up_bytes(self, table: &[u8; 16]) -> Self {
        avx2!({
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            self.map(|codes| _mm256_shuffle_epi8(table, codes))
        })
    }

    #[inline(always)]
    unsafe fn dot_bytes<const QUADS: bool>(blocks: &Sixteen, offset: usize, a: *const i8, _: i32) -> Self {
        // SAFETY: the caller's promise.
        let [first, last] = unsafe { dots::dot_bytes_avx2(blocks, offset, a) };
        Self(first, last)
    }

    #[inline(always)]
    unsafe fn dot_halves<const QUADS: bool, const TABLE: bool>(
        blocks: &Sixteen,
        offset: usize,
        a: *const i8,
        table: &[u8; 16],
    ) -> Self {
        // SAFETY: the caller's promise.
        let [first, last] = unsafe { dots::dot_halves_avx2::<TABLE>(blocks, offset, a, table) };
        Self(first, last)
    }
}

impl Decode for F32x16 {
    type Words = Avx2Words;

    #[inline(always)]
    fn from_bits(words: Avx2Words) -> Self {
        avx2!(Self(_mm256_castsi256_ps(words.0), _mm256_castsi256_ps(words.1)))
    }

    #[inline(always)]
    fn from_integers(words: Avx2Words) -> Self {
        avx2!(Self(_mm256_cvtepi32_ps(words.0), _mm256_cvtepi32_ps(words.1)))
    }

    #[inline(always)]
    fn look_up(self, words: Avx2Words) -> Self {
        let eight = |words: __m256i| {
            avx2!({
                // The fourth bit chooses between the table's halves.
                let upper = _mm256_castsi256_ps(_mm256_slli_epi32::<28>(words));
                let below = _mm256_permutevar8x32_ps(self.0, words);
                let above = _mm256_permutevar8x32_ps(self.1, words);
                _mm256_blendv_ps(below, above, upper)
            })
        };
        Self(eight(words.0), eight(words.1))
    }

    #[inline(always)]
    fn negate_where(self, bits: u16) -> Self {
        avx2!({
            let bits = _mm256_set1_epi32(i32::from(bits));
            // Each lane's bit moved to the sign.
            let place = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
            let sign = _mm256_set1_epi32(i32::MIN);
            let left = _mm256_and_si256(_mm256_sllv_epi32(bits, place), sign);
            let later = _mm256_sub_epi32(place, _mm256_set1_epi32(8));
            let right = _mm256_and_si256(_mm256_sllv_epi32(bits, later), sign);
            let [left, right] = [_mm256_castsi256_ps(left), _mm256_castsi256_ps(right)];
            Self(_mm256_xor_ps(self.0, left), _mm256_xor_ps(self.1, right))
        })
    }

    #[inline(always)]
    unsafe fn transpose_bytes(rows: &[*const u8; 32], offset: usize, to: *mut u8, stride: usize) {
        // SAFETY: the caller's promise.
        unsafe { transpose_bytes(rows, offset, to, stride) }
    }
}

/// Half of [`Words::interleaved`], 32 bytes of each row from `offset` on.
///
/// # Safety
/// As there.
#[inline(always)]
unsafe fn interleaved(rows: [*const u8; 4], offset: usize) -> [__m256i; 4] {
    avx2!({
        let [a, b, c, d] = rows;
        let (a, b) = (_mm256_loadu_si256(a.add(offset).cast()), _mm256_loadu_si256(b.add(offset).cast()));
        let (c, d) = (_mm256_loadu_si256(c.add(offset).cast()), _mm256_loadu_si256(d.add(offset).cast()));
        let (low, other_low) = (_mm256_unpacklo_epi8(a, b), _mm256_unpacklo_epi8(c, d));
        let (high, other_high) = (_mm256_unpackhi_epi8(a, b), _mm256_unpackhi_epi8(c, d));
        [
            _mm256_unpacklo_epi16(low, other_low),
            _mm256_unpackhi_epi16(low, other_low),
            _mm256_unpacklo_epi16(high, other_high),
            _mm256_unpackhi_epi16(high, other_high),
        ]
    })
}

/// [`Decode::transpose_bytes`], 16 rows in either half of a register, in four rounds that interleave rows eight
/// apart.
///
/// # Safety
/// As there.
#[inline(always)]
pub(super) unsafe fn transpose_bytes(rows: &[*const u8; 32], offset: usize, to: *mut u8, stride: usize) {
    avx2!({
        let mut block = [_mm256_setzero_si256(); 16];
        for (row, both) in block.iter_mut().enumerate() {
            *both = _mm256_loadu2_m128i(rows[row + 16].add(offset).cast(), rows[row].add(offset).cast());
        }
        for _ in 0..4 {
            let before = block;
            for pair in 0..8 {
                block[2 * pair] = _mm256_unpacklo_epi8(before[pair], before[pair + 8]);
                block[2 * pair + 1] = _mm256_unpackhi_epi8(before[pair], before[pair + 8]);
            }
        }
        for (column, codes) in block.into_iter().enumerate() {
            _mm256_storeu_si256(to.add(column * stride).cast(), codes);
        }
    });
}

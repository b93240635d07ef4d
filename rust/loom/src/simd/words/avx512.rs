//! Sixteen words in one AVX-512 register; safe as the vectors of `f32` are.

use super::avx2::transpose_bytes;
use super::dots;
use crate::simd::avx512::{F32x16, avx512};
use crate::simd::{Decode, Sixteen, Words};
use std::arch::x86_64::*;

/// Sixteen words.
#[derive(Clone, Copy)]
pub struct Avx512Words(__m512i);

impl Avx512Words {
    /// These sixteen, in two registers.
    #[inline(always)]
    fn joined([first, last]: [__m256i; 2]) -> Self {
        Self(avx512!(_mm512_inserti64x4::<1>(_mm512_castsi256_si512(first), last)))
    }
}

impl Words for Avx512Words {
    #[inline(always)]
    fn splat(word: i32) -> Self {
        Self(avx512!(_mm512_set1_epi32(word)))
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        Self(avx512!(_mm512_loadu_si512(from.cast())))
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut i32) {
        avx512!(_mm512_storeu_si512(to.cast(), self.0));
    }

    #[inline(always)]
    unsafe fn bytes(from: *const u8) -> Self {
        Self(avx512!(_mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast()))))
    }

    #[inline(always)]
    unsafe fn signed_bytes(from: *const u8) -> Self {
        Self(avx512!(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast()))))
    }

    #[inline(always)]
    unsafe fn halves(from: *const u8) -> Self {
        Self(avx512!(_mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()))))
    }

    #[inline(always)]
    unsafe fn signed_halves(from: *const u8) -> Self {
        Self(avx512!(_mm512_cvtepi16_epi32(_mm256_loadu_si256(from.cast()))))
    }

    #[inline(always)]
    fn shift_left(self, bits: u32) -> Self {
        Self(avx512!(_mm512_sll_epi32(self.0, _mm_cvtsi32_si128(bits as i32))))
    }

    #[inline(always)]
    fn shift_right(self, bits: u32) -> Self {
        Self(avx512!(_mm512_srl_epi32(self.0, _mm_cvtsi32_si128(bits as i32))))
    }

    #[inline(always)]
    fn shift_right_signed(self, bits: u32) -> Self {
        Self(avx512!(_mm512_sra_epi32(self.0, _mm_cvtsi32_si128(bits as i32))))
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        Self(avx512!(_mm512_and_si512(self.0, other.0)))
    }

    #[inline(always)]
    fn or(self, other: Self) -> Self {
        Self(avx512!(_mm512_or_si512(self.0, other.0)))
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        Self(avx512!(_mm512_xor_si512(self.0, other.0)))
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        Self(avx512!(_mm512_sub_epi32(self.0, other.0)))
    }

    #[inline(always)]
    fn add_pairs(self, a: Self, b: Self) -> Self {
        Self(avx512!(_mm512_add_epi32(self.0, _mm512_madd_epi16(a.0, b.0))))
    }

    #[inline(always)]
    unsafe fn add_quads(self, a: Self, b: Self) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { _mm512_dpbusd_epi32(self.0, a.0, b.0) })
    }

    #[inline(always)]
    unsafe fn add_small_quads<const QUADS: bool>(self, a: Self, b: Self) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            if QUADS {
                return self.add_quads(a, b);
            }
            let pairs = _mm512_maddubs_epi16(a.0, b.0);
            Self(_mm512_add_epi32(self.0, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1))))
        }
    }

    #[inline(always)]
    unsafe fn add_signed_quads<const QUADS: bool>(self, a: Self, b: Self) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            if QUADS {
                return self.add_quads(a.xor(Self::splat(0x8080_8080_u32 as i32)), b);
            }
            // Of magnitudes and numbers with the other's sign, whose products in pairs fit 16 bits.
            let negative = _mm512_movepi8_mask(a.0);
            let b = _mm512_mask_sub_epi8(b.0, negative, _mm512_setzero_si512(), b.0);
            let pairs = _mm512_maddubs_epi16(_mm512_abs_epi8(a.0), b);
            Self(_mm512_add_epi32(self.0, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1))))
        }
    }

    #[inline(always)]
    unsafe fn interleaved(rows: [*const u8; 4]) -> [Self; 4] {
        // SAFETY: the caller's promise.
        avx512!({
            let [a, b, c, d] = rows;
            let (a, b) = (_mm512_loadu_si512(a.cast()), _mm512_loadu_si512(b.cast()));
            let (c, d) = (_mm512_loadu_si512(c.cast()), _mm512_loadu_si512(d.cast()));
            let (low, other_low) = (_mm512_unpacklo_epi8(a, b), _mm512_unpacklo_epi8(c, d));
            let (high, other_high) = (_mm512_unpackhi_epi8(a, b), _mm512_unpackhi_epi8(c, d));
            [
                Self(_mm512_unpacklo_epi16(low, other_low)),
                Self(_mm512_unpackhi_epi16(low, other_low)),
                Self(_mm512_unpacklo_epi16(high, other_high)),
                Self(_mm512_unpackhi_epi16(high, other_high)),
            ]
        })
    }

    #[inline(always)]
    unsafe fn turned_words(blocks: &Sixteen, offset: usize) -> [Self; 4] {
        // SAFETY: the caller's promise.
        unsafe { dots::turned_words_avx512(blocks, offset) }.map(Self)
    }

    #[inline(always)]
    fn look_up_bytes(self, table: &[u8; 16]) -> Self {
        avx512!({
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
            Self(_mm512_shuffle_epi8(table, self.0))
        })
    }

    #[inline(always)]
    unsafe fn dot_bytes<const QUADS: bool>(
        blocks: &Sixteen,
        offset: usize,
        a: *const i8,
        total: i32,
    ) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            match QUADS {
                true => Self(dots::dot_bytes_quads(blocks, offset, a, total)),
                false => Self::joined(dots::dot_bytes_avx2(blocks, offset, a)),
            }
        }
    }

    #[inline(always)]
    unsafe fn dot_halves<const QUADS: bool, const TABLE: bool>(
        blocks: &Sixteen,
        offset: usize,
        a: *const i8,
        table: &[u8; 16],
    ) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            match QUADS {
                true => Self(dots::dot_halves_quads::<TABLE>(blocks, offset, a, table)),
                false => Self::joined(dots::dot_halves_avx2::<TABLE>(blocks, offset, a, table)),
            }
        }
    }
}

impl Decode for F32x16 {
    type Words = Avx512Words;

    #[inline(always)]
    fn from_bits(words: Avx512Words) -> Self {
        Self(avx512!(_mm512_castsi512_ps(words.0)))
    }

    #[inline(always)]
    fn from_integers(words: Avx512Words) -> Self {
        Self(avx512!(_mm512_cvtepi32_ps(words.0)))
    }

    #[inline(always)]
    fn look_up(self, words: Avx512Words) -> Self {
        Self(avx512!(_mm512_permutexvar_ps(words.0, self.0)))
    }

    #[inline(always)]
    unsafe fn add_bfloat16_pairs(self, a: Avx512Words, b: Avx512Words) -> Self {
        // The instruction adds the product of upper halves first, then that of lower ones, each sum rounded once.
        // SAFETY: the caller's promise; words and pairs are 64 bytes each.
        unsafe {
            let pairs = |words: Avx512Words| std::mem::transmute::<__m512i, __m512bh>(words.0);
            Self(_mm512_dpbf16_ps(self.0, pairs(a), pairs(b)))
        }
    }

    #[inline(always)]
    unsafe fn to_bfloat16_pairs(upper: Self, lower: Self) -> Avx512Words {
        // SAFETY: the caller's promise; pairs and words are 64 bytes each.
        unsafe {
            // The halves of `lower`, then those of `upper`, dealt out in turn.
            let halves = std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(upper.0, lower.0));
            let lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
            let places = _mm512_or_si512(
                lanes,
                _mm512_slli_epi32::<16>(_mm512_add_epi32(lanes, _mm512_set1_epi32(16))),
            );
            Avx512Words(_mm512_permutexvar_epi16(places, halves))
        }
    }

    #[inline(always)]
    unsafe fn to_bfloat16_neighbours(first: Self, next: Self) -> Avx512Words {
        // SAFETY: as above.
        unsafe {
            let halves = std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(next.0, first.0));
            Avx512Words(_mm512_rol_epi32::<16>(halves))
        }
    }

    #[inline(always)]
    fn negate_where(self, bits: u16) -> Self {
        Self(avx512!(_mm512_mask_xor_ps(self.0, bits, self.0, _mm512_set1_ps(-0.0))))
    }

    #[inline(always)]
    unsafe fn float16(from: *const u8) -> Self {
        Self(avx512!(_mm512_cvtph_ps(_mm256_loadu_si256(from.cast()))))
    }

    #[inline(always)]
    unsafe fn transpose_bytes(rows: &[*const u8; 32], offset: usize, to: *mut u8, stride: usize) {
        // SAFETY: the caller's promise.
        unsafe { transpose_bytes(rows, offset, to, stride) }
    }
}

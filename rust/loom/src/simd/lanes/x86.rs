//! Sixteen lanes in AVX-512 and AVX2 registers.

use super::{Lanes, small_float_mask};
use std::arch::x86_64::*;

/// An unsafe block of the one kind that this module has.
macro_rules! trust {
    ($($body:tt)*) => {{
        // SAFETY: [`Lanes`]'s promise, on which everything here is called: the instruction set was found,
        // and pointers are good for what is read and written. Loads and stores ask for no alignment.
        unsafe { $($body)* }
    }};
}

/// One register.
#[derive(Clone, Copy)]
pub struct Avx512(__m512);

impl Lanes for Avx512 {
    type Words = __m512i;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        Self(trust! { _mm512_set1_ps(value) })
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        Self(trust! { _mm512_loadu_ps(from) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        trust! { _mm512_storeu_ps(to, self.0) }
    }

    #[inline(always)]
    unsafe fn multiply_add(self, a: Self, b: Self) -> Self {
        Self(trust! { _mm512_fmadd_ps(a.0, b.0, self.0) })
    }

    #[inline(always)]
    unsafe fn multiply(self, b: Self) -> Self {
        Self(trust! { _mm512_mul_ps(self.0, b.0) })
    }

    #[inline(always)]
    unsafe fn subtract(self, b: Self) -> Self {
        Self(trust! { _mm512_sub_ps(self.0, b.0) })
    }

    #[inline(always)]
    unsafe fn prefetch(from: *const u8) {
        trust! { _mm_prefetch::<_MM_HINT_T1>(from.cast()) };
    }

    #[inline(always)]
    unsafe fn words(from: *const u8) -> __m512i {
        trust! { _mm512_loadu_si512(from.cast()) }
    }

    #[inline(always)]
    unsafe fn shift_right<const BITS: u32>(words: __m512i) -> __m512i {
        trust! { _mm512_srli_epi32::<BITS>(words) }
    }

    #[inline(always)]
    unsafe fn look_up(self, words: __m512i) -> Self {
        Self(trust! { _mm512_permutexvar_ps(words, self.0) })
    }

    #[inline(always)]
    unsafe fn small_float<const BYTE: u32, const DOWN: u32>(words: __m512i) -> Self {
        trust! {
            let top = match BYTE {
                0 => _mm512_slli_epi32::<24>(words),
                1 => _mm512_slli_epi32::<16>(words),
                2 => _mm512_slli_epi32::<8>(words),
                _ => words,
            };
            let mask = _mm512_set1_epi32(small_float_mask(DOWN) as i32);
            Self(_mm512_castsi512_ps(_mm512_and_si512(_mm512_srai_epi32::<DOWN>(top), mask)))
        }
    }

    #[inline(always)]
    unsafe fn bytes(from: *const u8) -> __m512i {
        trust! { _mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast())) }
    }

    #[inline(always)]
    unsafe fn halves(from: *const u8) -> __m512i {
        trust! { _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast())) }
    }

    #[inline(always)]
    unsafe fn numbers(words: __m512i) -> Self {
        trust! { Self(_mm512_cvtepi32_ps(words)) }
    }

    #[inline(always)]
    unsafe fn integers(from: *const i8) -> Self {
        trust! { Self(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast())))) }
    }

    #[inline(always)]
    unsafe fn integers16(from: *const u8) -> Self {
        trust! { Self(_mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(_mm256_loadu_si256(from.cast())))) }
    }

    #[inline(always)]
    unsafe fn float16(from: *const u8) -> Self {
        trust! { Self(_mm512_cvtph_ps(_mm256_loadu_si256(from.cast()))) }
    }

    #[inline(always)]
    unsafe fn bfloat16(from: *const u8) -> Self {
        trust! { Self(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(Self::halves(from)))) }
    }

    #[inline(always)]
    unsafe fn turned_by(self, bits: *const u8) -> Self {
        trust! {
            let turned = bits.cast::<u16>().read_unaligned();
            Self(_mm512_mask_xor_ps(self.0, turned, self.0, _mm512_set1_ps(-0.0)))
        }
    }

    #[inline(always)]
    unsafe fn turn(rows: &[*const u8; 32], offset: usize, to: *mut u8, stride: usize) {
        trust! { turn(rows, offset, to, stride) }
    }
}

/// Two registers.
#[derive(Clone, Copy)]
pub struct Avx2(__m256, __m256);

impl Lanes for Avx2 {
    type Words = (__m256i, __m256i);

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        let all = trust! { _mm256_set1_ps(value) };
        Self(all, all)
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        trust! { Self(_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        trust! {
            _mm256_storeu_ps(to, self.0);
            _mm256_storeu_ps(to.add(8), self.1);
        }
    }

    #[inline(always)]
    unsafe fn multiply_add(self, a: Self, b: Self) -> Self {
        trust! { Self(_mm256_fmadd_ps(a.0, b.0, self.0), _mm256_fmadd_ps(a.1, b.1, self.1)) }
    }

    #[inline(always)]
    unsafe fn multiply(self, b: Self) -> Self {
        trust! { Self(_mm256_mul_ps(self.0, b.0), _mm256_mul_ps(self.1, b.1)) }
    }

    #[inline(always)]
    unsafe fn subtract(self, b: Self) -> Self {
        trust! { Self(_mm256_sub_ps(self.0, b.0), _mm256_sub_ps(self.1, b.1)) }
    }

    #[inline(always)]
    unsafe fn prefetch(from: *const u8) {
        trust! { _mm_prefetch::<_MM_HINT_T1>(from.cast()) };
    }

    #[inline(always)]
    unsafe fn words(from: *const u8) -> Self::Words {
        trust! { (_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(32).cast())) }
    }

    #[inline(always)]
    unsafe fn shift_right<const BITS: u32>((low, high): Self::Words) -> Self::Words {
        let count = BITS as i32;
        trust! {
            let count = _mm_cvtsi32_si128(count);
            (_mm256_srl_epi32(low, count), _mm256_srl_epi32(high, count))
        }
    }

    #[inline(always)]
    unsafe fn look_up(self, (low, high): Self::Words) -> Self {
        trust! {
            let [low, high] = [low, high].map(|words| {
                // The fourth bit chooses between the table's halves.
                let upper = _mm256_castsi256_ps(_mm256_slli_epi32::<28>(words));
                let below = _mm256_permutevar8x32_ps(self.0, words);
                let above = _mm256_permutevar8x32_ps(self.1, words);
                _mm256_blendv_ps(below, above, upper)
            });
            Self(low, high)
        }
    }

    #[inline(always)]
    unsafe fn small_float<const BYTE: u32, const DOWN: u32>((low, high): Self::Words) -> Self {
        trust! {
            let [low, high] = [low, high].map(|words| {
                let top = _mm256_sll_epi32(words, _mm_cvtsi32_si128(24 - 8 * BYTE as i32));
                let mask = _mm256_set1_epi32(small_float_mask(DOWN) as i32);
                let placed = _mm256_sra_epi32(top, _mm_cvtsi32_si128(DOWN as i32));
                _mm256_castsi256_ps(_mm256_and_si256(placed, mask))
            });
            Self(low, high)
        }
    }

    #[inline(always)]
    unsafe fn bytes(from: *const u8) -> Self::Words {
        trust! {
            let [left, right] = [0, 8].map(|i| _mm256_cvtepu8_epi32(_mm_loadl_epi64(from.add(i).cast())));
            (left, right)
        }
    }

    #[inline(always)]
    unsafe fn halves(from: *const u8) -> Self::Words {
        trust! {
            let [left, right] = [0, 16].map(|i| _mm256_cvtepu16_epi32(_mm_loadu_si128(from.add(i).cast())));
            (left, right)
        }
    }

    #[inline(always)]
    unsafe fn numbers((low, high): Self::Words) -> Self {
        trust! { Self(_mm256_cvtepi32_ps(low), _mm256_cvtepi32_ps(high)) }
    }

    #[inline(always)]
    unsafe fn integers16(from: *const u8) -> Self {
        trust! {
            let [left, right] = [0, 16]
                .map(|i| _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(_mm_loadu_si128(from.add(i).cast()))));
            Self(left, right)
        }
    }

    /// As [`float16_to_f32`](crate::simd::float16_to_f32) does it: the instruction that does is not of AVX2.
    #[inline(always)]
    unsafe fn float16(from: *const u8) -> Self {
        trust! {
            let (low, high) = Self::halves(from);
            let [left, right] = [low, high].map(|half| {
                let magnitude = _mm256_slli_epi32::<13>(_mm256_and_si256(half, _mm256_set1_epi32(0x7FFF)));
                let power = _mm256_set1_ps(f32::from_bits((127 + 112) << 23));
                let scaled = _mm256_mul_ps(_mm256_castsi256_ps(magnitude), power);
                let special = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x0F7F_FFFF));
                let beyond = _mm256_or_si256(magnitude, _mm256_set1_epi32(0x7F80_0000));
                let number =
                    _mm256_blendv_ps(scaled, _mm256_castsi256_ps(beyond), _mm256_castsi256_ps(special));
                let sign = _mm256_slli_epi32::<16>(_mm256_and_si256(half, _mm256_set1_epi32(0x8000)));
                _mm256_or_ps(number, _mm256_castsi256_ps(sign))
            });
            Self(left, right)
        }
    }

    #[inline(always)]
    unsafe fn bfloat16(from: *const u8) -> Self {
        trust! {
            let (low, high) = Self::halves(from);
            let [left, right] = [low, high].map(|half| _mm256_castsi256_ps(_mm256_slli_epi32::<16>(half)));
            Self(left, right)
        }
    }

    #[inline(always)]
    unsafe fn integers(from: *const i8) -> Self {
        trust! {
            let [left, right] = [0, 8]
                .map(|i| _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(from.add(i).cast()))));
            Self(left, right)
        }
    }

    #[inline(always)]
    unsafe fn turned_by(self, bits: *const u8) -> Self {
        trust! {
            let bits = i32::from(bits.cast::<u16>().read_unaligned());
            let bits = _mm256_set1_epi32(bits);
            // Each lane's bit moved to the sign.
            let place = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
            let sign = _mm256_set1_epi32(i32::MIN);
            let [left, right] = [_mm256_setzero_si256(), _mm256_set1_epi32(8)].map(|less| {
                let moved = _mm256_sllv_epi32(bits, _mm256_sub_epi32(place, less));
                _mm256_castsi256_ps(_mm256_and_si256(moved, sign))
            });
            Self(_mm256_xor_ps(self.0, left), _mm256_xor_ps(self.1, right))
        }
    }

    #[inline(always)]
    unsafe fn turn(rows: &[*const u8; 32], offset: usize, to: *mut u8, stride: usize) {
        trust! { turn(rows, offset, to, stride) }
    }
}

/// 32 rows of 16 bytes as columns, 16 rows in either half of a register, in four rounds that interleave rows
/// eight apart.
#[inline(always)]
unsafe fn turn(rows: &[*const u8; 32], offset: usize, to: *mut u8, stride: usize) {
    trust! {
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
    }
}

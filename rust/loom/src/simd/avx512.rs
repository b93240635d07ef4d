//! 16 lanes of `f32` in one AVX-512 register.
//!
//! # Safety of this module
//! The type is not visible outside `simd`, where the dispatch functions alone
//! name it, after an [`Isa`](super::Isa) has proved that the machine has
//! AVX-512 F, BW, DQ and VL. So wherever code of this module runs, every
//! intrinsic it calls exists.

use super::elementwise::Elementwise;
use super::isa::Level;
use super::real::{LANES, Vector};
use crate::simd::math::float32_math;
use std::arch::x86_64::*;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// 16 lanes of `f32`.
#[derive(Clone, Copy)]
pub struct F32x16(pub(super) __m512);

/// Calls intrinsics that the module's safety argument covers.
macro_rules! avx512 {
    ($body:expr) => {{
        // SAFETY: the machine has AVX-512 wherever this type is used; see the module.
        unsafe { $body }
    }};
}

pub(super) use avx512;

macro_rules! operator {
    ($trait:ident, $method:ident, $intrinsic:ident) => {
        impl $trait for F32x16 {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                Self(avx512!($intrinsic(self.0, other.0)))
            }
        }
    };
}

operator!(Add, add, _mm512_add_ps);
operator!(Sub, sub, _mm512_sub_ps);
operator!(Mul, mul, _mm512_mul_ps);
operator!(Div, div, _mm512_div_ps);

impl Neg for F32x16 {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        Self(avx512!(_mm512_xor_ps(self.0, _mm512_set1_ps(-0.0))))
    }
}

impl F32x16 {
    /// The fixed tree over the lanes.
    #[inline(always)]
    fn reduce(self, join: impl Fn(__m128, __m128) -> __m128) -> f32 {
        avx512!({
            // Lanes i and i + 8 sit in quarters i / 4 and i / 4 + 2.
            let low = join(_mm512_castps512_ps128(self.0), _mm512_extractf32x4_ps::<2>(self.0));
            let high = join(_mm512_extractf32x4_ps::<1>(self.0), _mm512_extractf32x4_ps::<3>(self.0));
            super::avx2::reduce_four(join(low, high), join)
        })
    }
}

impl Elementwise for F32x16 {
    type Element = f32;
    type Mask = __mmask16;

    #[inline(always)]
    fn splat(value: f32) -> Self {
        Self(avx512!(_mm512_set1_ps(value)))
    }

    #[inline(always)]
    fn constant(value: f64) -> Self {
        Self::splat(value as f32)
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, addend: Self) -> Self {
        Self(avx512!(_mm512_fmadd_ps(self.0, factor.0, addend.0)))
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        Self(avx512!(_mm512_sqrt_ps(self.0)))
    }

    #[inline(always)]
    fn abs(self) -> Self {
        Self(avx512!(_mm512_andnot_ps(_mm512_set1_ps(-0.0), self.0)))
    }

    #[inline(always)]
    fn copysign(self, sign: Self) -> Self {
        Self(avx512!({
            let bit = _mm512_set1_ps(-0.0);
            _mm512_or_ps(_mm512_andnot_ps(bit, self.0), _mm512_and_ps(bit, sign.0))
        }))
    }

    #[inline(always)]
    fn round_ties_even(self) -> Self {
        Self(avx512!(_mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(self.0)))
    }

    // The instruction's own rule is the trait's: the second operand unless the first one wins.
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        Self(avx512!(_mm512_max_ps(self.0, other.0)))
    }

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        Self(avx512!(_mm512_min_ps(self.0, other.0)))
    }

    #[inline(always)]
    fn lt(self, other: Self) -> __mmask16 {
        avx512!(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(self.0, other.0))
    }

    #[inline(always)]
    fn le(self, other: Self) -> __mmask16 {
        avx512!(_mm512_cmp_ps_mask::<_CMP_LE_OQ>(self.0, other.0))
    }

    #[inline(always)]
    fn gt(self, other: Self) -> __mmask16 {
        avx512!(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(self.0, other.0))
    }

    #[inline(always)]
    fn ge(self, other: Self) -> __mmask16 {
        avx512!(_mm512_cmp_ps_mask::<_CMP_GE_OQ>(self.0, other.0))
    }

    #[inline(always)]
    fn eq(self, other: Self) -> __mmask16 {
        avx512!(_mm512_cmp_ps_mask::<_CMP_EQ_OQ>(self.0, other.0))
    }

    #[inline(always)]
    fn select(mask: __mmask16, yes: Self, no: Self) -> Self {
        Self(avx512!(_mm512_mask_blend_ps(mask, no.0, yes.0)))
    }

    #[inline(always)]
    fn and(left: __mmask16, right: __mmask16) -> __mmask16 {
        left & right
    }

    #[inline(always)]
    fn or(left: __mmask16, right: __mmask16) -> __mmask16 {
        left | right
    }

    #[inline(always)]
    fn not(mask: __mmask16) -> __mmask16 {
        !mask
    }

    #[inline(always)]
    fn any(mask: __mmask16) -> bool {
        mask != 0
    }

    #[inline(always)]
    fn all(mask: __mmask16) -> bool {
        mask == !0
    }

    #[inline(always)]
    fn pow2(self) -> Self {
        Self(avx512!({
            let field = _mm512_add_ps(self.0, _mm512_set1_ps(12_582_912.0 + 127.0));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(_mm512_castps_si512(field)))
        }))
    }

    #[inline(always)]
    fn scale(self, exponent: Self) -> Self {
        Self(avx512!(_mm512_scalef_ps(self.0, exponent.0)))
    }

    #[inline(always)]
    fn exponent(self) -> Self {
        Self(avx512!({
            let field = _mm512_srli_epi32::<23>(_mm512_castps_si512(self.abs().0));
            _mm512_cvtepi32_ps(_mm512_sub_epi32(field, _mm512_set1_epi32(127)))
        }))
    }

    #[inline(always)]
    fn mantissa(self) -> Self {
        Self(avx512!({
            let fraction = _mm512_and_si512(_mm512_castps_si512(self.0), _mm512_set1_epi32(0x007F_FFFF));
            _mm512_castsi512_ps(_mm512_or_si512(fraction, _mm512_set1_epi32(0x3F80_0000)))
        }))
    }
}

float32_math!(F32x16);

impl Vector for F32x16 {
    const LEVEL: Level = Level::Avx512;

    type Float32 = Self;

    #[inline(always)]
    fn from_f32(numbers: Self) -> Self {
        numbers
    }

    #[inline(always)]
    fn load(from: &[f32]) -> Self {
        let from = &from[..LANES];
        // SAFETY: the slice has 16 elements.
        unsafe { Self::load_unchecked(from.as_ptr()) }
    }

    #[inline(always)]
    fn load_partial(from: &[f32]) -> Self {
        // The masked load touches only lanes that the slice has.
        Self(avx512!(_mm512_maskz_loadu_ps(Self::first_lanes(from.len()), from.as_ptr())))
    }

    #[inline(always)]
    unsafe fn load_unchecked(from: *const f32) -> Self {
        Self(avx512!(_mm512_loadu_ps(from)))
    }

    #[inline(always)]
    fn store(self, to: &mut [f32]) {
        let to = &mut to[..LANES];
        // SAFETY: the slice has 16 elements.
        unsafe { self.store_unchecked(to.as_mut_ptr()) }
    }

    #[inline(always)]
    fn store_partial(self, to: &mut [f32]) {
        // The masked store touches only lanes that the slice has.
        avx512!(_mm512_mask_storeu_ps(to.as_mut_ptr(), Self::first_lanes(to.len()), self.0));
    }

    #[inline(always)]
    unsafe fn store_unchecked(self, to: *mut f32) {
        avx512!(_mm512_storeu_ps(to, self.0));
    }

    #[inline(always)]
    fn unzip(self, other: Self) -> (Self, Self) {
        avx512!({
            let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            let odd = _mm512_or_si512(even, _mm512_set1_epi32(1));
            (
                Self(_mm512_permutex2var_ps(self.0, even, other.0)),
                Self(_mm512_permutex2var_ps(self.0, odd, other.0)),
            )
        })
    }

    #[inline(always)]
    fn shift_up(self) -> Self {
        avx512!({
            let lanes = _mm512_castps_si512(self.0);
            Self(_mm512_castsi512_ps(_mm512_alignr_epi32::<15>(lanes, _mm512_setzero_si512())))
        })
    }

    #[inline(always)]
    fn shift_down(self) -> Self {
        avx512!({
            let lanes = _mm512_castps_si512(self.0);
            Self(_mm512_castsi512_ps(_mm512_alignr_epi32::<1>(_mm512_setzero_si512(), lanes)))
        })
    }

    #[inline(always)]
    fn first_lanes(count: usize) -> __mmask16 {
        ((1u32 << count.min(LANES)) - 1) as __mmask16
    }

    #[inline(always)]
    fn reduce_sum(self) -> f32 {
        self.reduce(|a, b| avx512!(_mm_add_ps(a, b)))
    }

    #[inline(always)]
    fn reduce_max(self) -> f32 {
        self.reduce(|a, b| avx512!(_mm_max_ps(a, b)))
    }

    #[inline(always)]
    fn reduce_min(self) -> f32 {
        self.reduce(|a, b| avx512!(_mm_min_ps(a, b)))
    }

    #[inline(always)]
    fn transpose(block: &mut [Self; LANES]) {
        avx512!({
            // Pairs of rows, then fours, within each 128-bit quarter.
            let mut fours = [_mm512_setzero_ps(); LANES];
            for i in 0..4 {
                let [a, b, c, d] =
                    [block[4 * i].0, block[4 * i + 1].0, block[4 * i + 2].0, block[4 * i + 3].0];
                let [ab, cd] = [_mm512_unpacklo_ps(a, b), _mm512_unpacklo_ps(c, d)];
                let [ef, gh] = [_mm512_unpackhi_ps(a, b), _mm512_unpackhi_ps(c, d)];
                fours[4 * i] = _mm512_shuffle_ps::<0b01_00_01_00>(ab, cd);
                fours[4 * i + 1] = _mm512_shuffle_ps::<0b11_10_11_10>(ab, cd);
                fours[4 * i + 2] = _mm512_shuffle_ps::<0b01_00_01_00>(ef, gh);
                fours[4 * i + 3] = _mm512_shuffle_ps::<0b11_10_11_10>(ef, gh);
            }
            // Quarter q of fours[4 i + j] holds rows 4 i to 4 i + 3 of column 4 q + j.
            for j in 0..4 {
                let [a, b, c, d] = [fours[j], fours[4 + j], fours[8 + j], fours[12 + j]];
                let [even_low, even_high] = [
                    _mm512_shuffle_f32x4::<0b10_00_10_00>(a, b),
                    _mm512_shuffle_f32x4::<0b10_00_10_00>(c, d),
                ];
                let [odd_low, odd_high] = [
                    _mm512_shuffle_f32x4::<0b11_01_11_01>(a, b),
                    _mm512_shuffle_f32x4::<0b11_01_11_01>(c, d),
                ];
                block[j].0 = _mm512_shuffle_f32x4::<0b10_00_10_00>(even_low, even_high);
                block[8 + j].0 = _mm512_shuffle_f32x4::<0b11_01_11_01>(even_low, even_high);
                block[4 + j].0 = _mm512_shuffle_f32x4::<0b10_00_10_00>(odd_low, odd_high);
                block[12 + j].0 = _mm512_shuffle_f32x4::<0b11_01_11_01>(odd_low, odd_high);
            }
        });
    }
}

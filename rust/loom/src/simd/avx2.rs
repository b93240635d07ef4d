//! 16 lanes of `f32` in two AVX2 registers.
//!
//! # Safety of this module
//! The type is not visible outside `simd`, where the dispatch functions alone
//! name it, after an [`Isa`](super::Isa) has proved that the machine has AVX2
//! and FMA. So wherever code of this module runs, every intrinsic it calls
//! exists.

use super::elementwise::Elementwise;
use super::isa::Level;
use super::real::{LANES, Vector};
use crate::simd::math::float32_math;
use std::arch::x86_64::*;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// 16 lanes of `f32`: lanes 0 to 7, then 8 to 15.
#[derive(Clone, Copy)]
pub struct F32x16(pub(super) __m256, pub(super) __m256);

/// Set lanes are all ones.
#[derive(Clone, Copy)]
pub struct Mask(__m256, __m256);

/// Calls intrinsics that the module's safety argument covers.
macro_rules! avx2 {
    ($body:expr) => {{
        // SAFETY: the machine has AVX2 and FMA wherever this type is used; see the module.
        unsafe { $body }
    }};
}

pub(super) use avx2;

macro_rules! operator {
    ($trait:ident, $method:ident, $intrinsic:ident) => {
        impl $trait for F32x16 {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                avx2!(Self($intrinsic(self.0, other.0), $intrinsic(self.1, other.1)))
            }
        }
    };
}

operator!(Add, add, _mm256_add_ps);
operator!(Sub, sub, _mm256_sub_ps);
operator!(Mul, mul, _mm256_mul_ps);
operator!(Div, div, _mm256_div_ps);

impl Neg for F32x16 {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        avx2!({
            let bit = _mm256_set1_ps(-0.0);
            Self(_mm256_xor_ps(self.0, bit), _mm256_xor_ps(self.1, bit))
        })
    }
}

/// The last two levels of the fixed tree, over four lanes.
#[inline(always)]
pub(super) fn reduce_four(lanes: __m128, join: impl Fn(__m128, __m128) -> __m128) -> f32 {
    avx2!({
        let two = join(lanes, _mm_movehl_ps(lanes, lanes));
        _mm_cvtss_f32(join(two, _mm_shuffle_ps::<1>(two, two)))
    })
}

/// The sliding window from which masks of leading lanes are read.
static LEADING: [i32; 2 * LANES] = {
    let mut window = [0; 2 * LANES];
    let mut i = 0;
    while i < LANES {
        window[i] = -1;
        i += 1;
    }
    window
};

/// Masks of the first `count` lanes, as integers.
#[inline(always)]
fn leading(count: usize) -> (__m256i, __m256i) {
    let from = LEADING[LANES - count.min(LANES)..].as_ptr();
    // At least 16 elements follow: the window starts at index 16 or before and has 32.
    avx2!((_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(8).cast())))
}

impl F32x16 {
    /// The fixed tree over the lanes.
    #[inline(always)]
    fn reduce(self, join: impl Fn(__m128, __m128) -> __m128) -> f32 {
        avx2!({
            let low = join(_mm256_castps256_ps128(self.0), _mm256_castps256_ps128(self.1));
            let high = join(_mm256_extractf128_ps::<1>(self.0), _mm256_extractf128_ps::<1>(self.1));
            reduce_four(join(low, high), join)
        })
    }

    /// A comparison of each pair of lanes.
    #[inline(always)]
    fn compare<const PREDICATE: i32>(self, other: Self) -> Mask {
        avx2!(Mask(_mm256_cmp_ps::<PREDICATE>(self.0, other.0), _mm256_cmp_ps::<PREDICATE>(self.1, other.1)))
    }
}

impl Elementwise for F32x16 {
    type Element = f32;
    type Mask = Mask;

    #[inline(always)]
    fn splat(value: f32) -> Self {
        avx2!(Self(_mm256_set1_ps(value), _mm256_set1_ps(value)))
    }

    #[inline(always)]
    fn constant(value: f64) -> Self {
        Self::splat(value as f32)
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, addend: Self) -> Self {
        avx2!(Self(_mm256_fmadd_ps(self.0, factor.0, addend.0), _mm256_fmadd_ps(self.1, factor.1, addend.1)))
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        avx2!(Self(_mm256_sqrt_ps(self.0), _mm256_sqrt_ps(self.1)))
    }

    #[inline(always)]
    fn abs(self) -> Self {
        avx2!({
            let bit = _mm256_set1_ps(-0.0);
            Self(_mm256_andnot_ps(bit, self.0), _mm256_andnot_ps(bit, self.1))
        })
    }

    #[inline(always)]
    fn copysign(self, sign: Self) -> Self {
        avx2!({
            let bit = _mm256_set1_ps(-0.0);
            Self(
                _mm256_or_ps(_mm256_andnot_ps(bit, self.0), _mm256_and_ps(bit, sign.0)),
                _mm256_or_ps(_mm256_andnot_ps(bit, self.1), _mm256_and_ps(bit, sign.1)),
            )
        })
    }

    #[inline(always)]
    fn round_ties_even(self) -> Self {
        const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        avx2!(Self(_mm256_round_ps::<NEAREST>(self.0), _mm256_round_ps::<NEAREST>(self.1)))
    }

    // The instruction's own rule is the trait's: the second operand unless the first one wins.
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        avx2!(Self(_mm256_max_ps(self.0, other.0), _mm256_max_ps(self.1, other.1)))
    }

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        avx2!(Self(_mm256_min_ps(self.0, other.0), _mm256_min_ps(self.1, other.1)))
    }

    #[inline(always)]
    fn lt(self, other: Self) -> Mask {
        self.compare::<_CMP_LT_OQ>(other)
    }

    #[inline(always)]
    fn le(self, other: Self) -> Mask {
        self.compare::<_CMP_LE_OQ>(other)
    }

    #[inline(always)]
    fn gt(self, other: Self) -> Mask {
        self.compare::<_CMP_GT_OQ>(other)
    }

    #[inline(always)]
    fn ge(self, other: Self) -> Mask {
        self.compare::<_CMP_GE_OQ>(other)
    }

    #[inline(always)]
    fn eq(self, other: Self) -> Mask {
        self.compare::<_CMP_EQ_OQ>(other)
    }

    #[inline(always)]
    fn select(mask: Mask, yes: Self, no: Self) -> Self {
        avx2!(Self(_mm256_blendv_ps(no.0, yes.0, mask.0), _mm256_blendv_ps(no.1, yes.1, mask.1)))
    }

    #[inline(always)]
    fn and(left: Mask, right: Mask) -> Mask {
        avx2!(Mask(_mm256_and_ps(left.0, right.0), _mm256_and_ps(left.1, right.1)))
    }

    #[inline(always)]
    fn or(left: Mask, right: Mask) -> Mask {
        avx2!(Mask(_mm256_or_ps(left.0, right.0), _mm256_or_ps(left.1, right.1)))
    }

    #[inline(always)]
    fn not(mask: Mask) -> Mask {
        avx2!({
            let ones = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
            Mask(_mm256_xor_ps(mask.0, ones), _mm256_xor_ps(mask.1, ones))
        })
    }

    #[inline(always)]
    fn any(mask: Mask) -> bool {
        avx2!(_mm256_movemask_ps(_mm256_or_ps(mask.0, mask.1)) != 0)
    }

    #[inline(always)]
    fn all(mask: Mask) -> bool {
        avx2!(_mm256_movemask_ps(_mm256_and_ps(mask.0, mask.1)) == 0xFF)
    }

    #[inline(always)]
    fn pow2(self) -> Self {
        avx2!({
            let offset = _mm256_set1_ps(12_582_912.0 + 127.0);
            let low = _mm256_castps_si256(_mm256_add_ps(self.0, offset));
            let high = _mm256_castps_si256(_mm256_add_ps(self.1, offset));
            Self(
                _mm256_castsi256_ps(_mm256_slli_epi32::<23>(low)),
                _mm256_castsi256_ps(_mm256_slli_epi32::<23>(high)),
            )
        })
    }

    #[inline(always)]
    fn exponent(self) -> Self {
        avx2!({
            let bias = _mm256_set1_epi32(127);
            let x = self.abs();
            let low = _mm256_srli_epi32::<23>(_mm256_castps_si256(x.0));
            let high = _mm256_srli_epi32::<23>(_mm256_castps_si256(x.1));
            Self(
                _mm256_cvtepi32_ps(_mm256_sub_epi32(low, bias)),
                _mm256_cvtepi32_ps(_mm256_sub_epi32(high, bias)),
            )
        })
    }

    #[inline(always)]
    fn mantissa(self) -> Self {
        avx2!({
            let fraction = _mm256_castsi256_ps(_mm256_set1_epi32(0x007F_FFFF));
            let one = _mm256_set1_ps(1.0);
            Self(
                _mm256_or_ps(_mm256_and_ps(self.0, fraction), one),
                _mm256_or_ps(_mm256_and_ps(self.1, fraction), one),
            )
        })
    }
}

float32_math!(F32x16);

impl Vector for F32x16 {
    const LEVEL: Level = Level::Avx2;

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
        let (low, high) = leading(from.len());
        // The masked loads touch only lanes that the slice has; the second address may lie past
        // the slice's end, where no lane is loaded, hence the wrapping sum.
        avx2!(Self(
            _mm256_maskload_ps(from.as_ptr(), low),
            _mm256_maskload_ps(from.as_ptr().wrapping_add(8), high)
        ))
    }

    #[inline(always)]
    unsafe fn load_unchecked(from: *const f32) -> Self {
        avx2!(Self(_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))))
    }

    #[inline(always)]
    fn store(self, to: &mut [f32]) {
        let to = &mut to[..LANES];
        // SAFETY: the slice has 16 elements.
        unsafe { self.store_unchecked(to.as_mut_ptr()) }
    }

    #[inline(always)]
    fn store_partial(self, to: &mut [f32]) {
        let (low, high) = leading(to.len());
        // As in `load_partial`.
        avx2!({
            _mm256_maskstore_ps(to.as_mut_ptr(), low, self.0);
            _mm256_maskstore_ps(to.as_mut_ptr().wrapping_add(8), high, self.1);
        });
    }

    #[inline(always)]
    unsafe fn store_unchecked(self, to: *mut f32) {
        avx2!({
            _mm256_storeu_ps(to, self.0);
            _mm256_storeu_ps(to.add(8), self.1);
        });
    }

    #[inline(always)]
    fn unzip(self, other: Self) -> (Self, Self) {
        /// Moves the second and the third quarter into each other's place.
        const MIDDLE: i32 = 0b11_01_10_00;
        avx2!({
            // The shuffles work within halves of a register, so that the middle quarters come out swapped.
            let sorted = |shuffled: __m256| {
                _mm256_castpd_ps(_mm256_permute4x64_pd::<MIDDLE>(_mm256_castps_pd(shuffled)))
            };
            let even = |a, b| sorted(_mm256_shuffle_ps::<0b10_00_10_00>(a, b));
            let odd = |a, b| sorted(_mm256_shuffle_ps::<0b11_01_11_01>(a, b));
            (
                Self(even(self.0, self.1), even(other.0, other.1)),
                Self(odd(self.0, self.1), odd(other.0, other.1)),
            )
        })
    }

    #[inline(always)]
    fn shift_up(self) -> Self {
        avx2!({
            let further = _mm256_setr_epi32(7, 0, 1, 2, 3, 4, 5, 6);
            let low = _mm256_permutevar8x32_ps(self.0, further);
            let high = _mm256_permutevar8x32_ps(self.1, further);
            Self(_mm256_blend_ps::<1>(low, _mm256_setzero_ps()), _mm256_blend_ps::<1>(high, low))
        })
    }

    #[inline(always)]
    fn shift_down(self) -> Self {
        avx2!({
            let before = _mm256_setr_epi32(1, 2, 3, 4, 5, 6, 7, 0);
            let low = _mm256_permutevar8x32_ps(self.0, before);
            let high = _mm256_permutevar8x32_ps(self.1, before);
            Self(_mm256_blend_ps::<0x80>(low, high), _mm256_blend_ps::<0x80>(high, _mm256_setzero_ps()))
        })
    }

    #[inline(always)]
    fn first_lanes(count: usize) -> Mask {
        let (low, high) = leading(count);
        avx2!(Mask(_mm256_castsi256_ps(low), _mm256_castsi256_ps(high)))
    }

    #[inline(always)]
    fn reduce_sum(self) -> f32 {
        self.reduce(|a, b| avx2!(_mm_add_ps(a, b)))
    }

    #[inline(always)]
    fn reduce_max(self) -> f32 {
        self.reduce(|a, b| avx2!(_mm_max_ps(a, b)))
    }

    #[inline(always)]
    fn reduce_min(self) -> f32 {
        self.reduce(|a, b| avx2!(_mm_min_ps(a, b)))
    }

    #[inline(always)]
    fn transpose(block: &mut [Self; LANES]) {
        // The four quarters, each turned, trade places across the diagonal.
        let mut quarters = [[block[0].0; 8]; 4];
        for i in 0..8 {
            quarters[0][i] = block[i].0;
            quarters[1][i] = block[i].1;
            quarters[2][i] = block[8 + i].0;
            quarters[3][i] = block[8 + i].1;
        }
        let [upper_left, upper_right, lower_left, lower_right] = quarters;
        let (upper_left, upper_right) = (transpose_eight(upper_left), transpose_eight(upper_right));
        let (lower_left, lower_right) = (transpose_eight(lower_left), transpose_eight(lower_right));
        for i in 0..8 {
            block[i] = Self(upper_left[i], lower_left[i]);
            block[8 + i] = Self(upper_right[i], lower_right[i]);
        }
    }
}

/// The transpose of a block of 8 by 8.
#[inline(always)]
fn transpose_eight(rows: [__m256; 8]) -> [__m256; 8] {
    avx2!({
        // Pairs of rows, then fours, within each half.
        let mut fours = rows;
        for i in 0..2 {
            let [a, b, c, d] = [rows[4 * i], rows[4 * i + 1], rows[4 * i + 2], rows[4 * i + 3]];
            let [ab, cd] = [_mm256_unpacklo_ps(a, b), _mm256_unpacklo_ps(c, d)];
            let [ef, gh] = [_mm256_unpackhi_ps(a, b), _mm256_unpackhi_ps(c, d)];
            fours[4 * i] = _mm256_shuffle_ps::<0b01_00_01_00>(ab, cd);
            fours[4 * i + 1] = _mm256_shuffle_ps::<0b11_10_11_10>(ab, cd);
            fours[4 * i + 2] = _mm256_shuffle_ps::<0b01_00_01_00>(ef, gh);
            fours[4 * i + 3] = _mm256_shuffle_ps::<0b11_10_11_10>(ef, gh);
        }
        let mut columns = fours;
        for j in 0..4 {
            columns[j] = _mm256_permute2f128_ps::<0x20>(fours[j], fours[4 + j]);
            columns[4 + j] = _mm256_permute2f128_ps::<0x31>(fours[j], fours[4 + j]);
        }
        columns
    })
}

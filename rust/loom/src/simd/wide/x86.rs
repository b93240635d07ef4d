//! Sixteen elements in AVX-512 and AVX2 registers.

use super::{LANES, MAX_ROWS, Wide, padded, widen};
use half::bf16;
use std::arch::x86_64::*;

/// An unsafe block of the one kind that this module has.
macro_rules! trust {
    ($($body:tt)*) => {{
        // SAFETY: [`Wide`]'s promise, on which everything here is called: the
        // instruction set was found, and pointers are good for 16 elements.
        // Loads and stores ask for no alignment.
        unsafe { $($body)* }
    }};
}

/// AVX-512: 12 rows by 32 columns are 24 of 32 registers. Fewer rows are
/// made wider, for enough independent sums to hide the latency of one.
#[derive(Clone, Copy)]
pub struct F32x16(__m512);

impl Wide<f32> for F32x16 {
    const ROWS: usize = 12;

    const VECTORS: [usize; MAX_ROWS + 1] = [8, 8, 8, 8, 4, 4, 2, 2, 2, 2, 2, 2, 2];

    #[inline(always)]
    unsafe fn zero() -> Self {
        Self(trust! { _mm512_setzero_ps() })
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        Self(trust! { _mm512_loadu_ps(from) })
    }

    #[inline(always)]
    unsafe fn load_few(from: *const f32, count: usize) -> Self {
        Self(trust! { _mm512_maskz_loadu_ps((1 << count) - 1, from) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        trust! { _mm512_storeu_ps(to, self.0) }
    }

    #[inline(always)]
    unsafe fn prefetch(from: *const f32) {
        trust! { _mm_prefetch::<_MM_HINT_T0>(from.cast()) };
    }

    #[inline(always)]
    unsafe fn broadcast(from: *const f32) -> Self {
        Self(trust! { _mm512_set1_ps(*from) })
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
    unsafe fn load_bfloat16(from: *const bf16) -> Self {
        trust! {
            let half = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
            Self(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(half)))
        }
    }

    #[inline(always)]
    unsafe fn load_int8(from: *const i8) -> Self {
        trust! { Self(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast())))) }
    }

    #[inline(always)]
    unsafe fn transpose(block: &mut [Self; LANES]) {
        trust! {
            // Pairs of rows, then fours, within each 128-bit quarter.
            let mut fours = [_mm512_setzero_ps(); LANES];
            for i in 0..4 {
                let [a, b, c, d] = [0, 1, 2, 3].map(|j| block[4 * i + j].0);
                let [ab, cd] = [_mm512_unpacklo_ps(a, b), _mm512_unpacklo_ps(c, d)];
                let [ef, gh] = [_mm512_unpackhi_ps(a, b), _mm512_unpackhi_ps(c, d)];
                fours[4 * i] = _mm512_shuffle_ps::<0b01_00_01_00>(ab, cd);
                fours[4 * i + 1] = _mm512_shuffle_ps::<0b11_10_11_10>(ab, cd);
                fours[4 * i + 2] = _mm512_shuffle_ps::<0b01_00_01_00>(ef, gh);
                fours[4 * i + 3] = _mm512_shuffle_ps::<0b11_10_11_10>(ef, gh);
            }
            // fours[4 i + j], quarter q: rows 4 i .. 4 i + 4 of column 4 q + j.
            for j in 0..4 {
                let [a, b, c, d] = [0, 1, 2, 3].map(|i| fours[4 * i + j]);
                let even_low = _mm512_shuffle_f32x4::<0b10_00_10_00>(a, b);
                let even_high = _mm512_shuffle_f32x4::<0b10_00_10_00>(c, d);
                let odd_low = _mm512_shuffle_f32x4::<0b11_01_11_01>(a, b);
                let odd_high = _mm512_shuffle_f32x4::<0b11_01_11_01>(c, d);
                block[j].0 = _mm512_shuffle_f32x4::<0b10_00_10_00>(even_low, even_high);
                block[8 + j].0 = _mm512_shuffle_f32x4::<0b11_01_11_01>(even_low, even_high);
                block[4 + j].0 = _mm512_shuffle_f32x4::<0b10_00_10_00>(odd_low, odd_high);
                block[12 + j].0 = _mm512_shuffle_f32x4::<0b11_01_11_01>(odd_low, odd_high);
            }
        }
    }
}

/// AVX2: 6 rows by 16 columns are 12 of 16 registers.
#[derive(Clone, Copy)]
pub struct F32x8x2(__m256, __m256);

impl Wide<f32> for F32x8x2 {
    const ROWS: usize = 6;

    const VECTORS: [usize; MAX_ROWS + 1] = [4, 4, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1];

    #[inline(always)]
    unsafe fn zero() -> Self {
        trust! { Self(_mm256_setzero_ps(), _mm256_setzero_ps()) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        trust! { Self(_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))) }
    }

    #[inline(always)]
    unsafe fn load_few(from: *const f32, count: usize) -> Self {
        trust! {
            let lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            let [left, right] = [0, 8].map(|i| {
                let present = _mm256_cmpgt_epi32(_mm256_set1_epi32(count as i32 - i as i32), lane);
                _mm256_maskload_ps(from.wrapping_add(i), present)
            });
            Self(left, right)
        }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        trust! {
            _mm256_storeu_ps(to, self.0);
            _mm256_storeu_ps(to.add(8), self.1);
        }
    }

    #[inline(always)]
    unsafe fn prefetch(from: *const f32) {
        trust! { _mm_prefetch::<_MM_HINT_T0>(from.cast()) };
    }

    #[inline(always)]
    unsafe fn broadcast(from: *const f32) -> Self {
        let all = trust! { _mm256_set1_ps(*from) };
        Self(all, all)
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
    unsafe fn load_bfloat16(from: *const bf16) -> Self {
        trust! {
            let [left, right] = [0, 8].map(|i| {
                let half = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.add(i).cast()));
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(half))
            });
            Self(left, right)
        }
    }

    #[inline(always)]
    unsafe fn load_int8(from: *const i8) -> Self {
        trust! {
            let [left, right] = [0, 8]
                .map(|i| _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(from.add(i).cast()))));
            Self(left, right)
        }
    }

    #[inline(always)]
    unsafe fn transpose(block: &mut [Self; LANES]) {
        trust! {
            let left = transpose8(std::array::from_fn(|i| block[i].0));
            let right = transpose8(std::array::from_fn(|i| block[i].1));
            let lower_left = transpose8(std::array::from_fn(|i| block[8 + i].0));
            let lower_right = transpose8(std::array::from_fn(|i| block[8 + i].1));
            for i in 0..8 {
                block[i] = Self(left[i], lower_left[i]);
                block[8 + i] = Self(right[i], lower_right[i]);
            }
        }
    }
}
#[inline(always)]
unsafe fn transpose8(rows: [__m256; 8]) -> [__m256; 8] {
    trust! {
        let mut fours = rows;
        for i in 0..2 {
            let [a, b, c, d] = [0, 1, 2, 3].map(|j| rows[4 * i + j]);
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
    }
}

/// Double precision in `$count` registers of `$per` elements.
macro_rules! double {
    ($name:ident, $register:ty, $per:literal, $count:literal, $rows:literal, $vectors:expr,
     $zero:ident, $load:ident, $store:ident, $set:ident, $fma:ident, $mul:ident) => {
        #[derive(Clone, Copy)]
        pub struct $name([$register; $count]);

        impl Wide<f64> for $name {
            const ROWS: usize = $rows;

            const VECTORS: [usize; MAX_ROWS + 1] = $vectors;

            #[inline(always)]
            unsafe fn zero() -> Self {
                Self([trust! { $zero() }; $count])
            }

            #[inline(always)]
            unsafe fn load(from: *const f64) -> Self {
                Self(std::array::from_fn(|i| trust! { $load(from.add(i * $per)) }))
            }

            #[inline(always)]
            unsafe fn load_few(from: *const f64, count: usize) -> Self {
                trust! { Self::load(padded(from, count).as_ptr()) }
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut f64) {
                for i in 0..$count {
                    trust! { $store(to.add(i * $per), self.0[i]) };
                }
            }

            #[inline(always)]
            unsafe fn broadcast(from: *const f64) -> Self {
                Self([trust! { $set(*from) }; $count])
            }

            #[inline(always)]
            unsafe fn multiply_add(self, a: Self, b: Self) -> Self {
                Self(std::array::from_fn(|i| trust! { $fma(a.0[i], b.0[i], self.0[i]) }))
            }

            #[inline(always)]
            unsafe fn multiply(self, b: Self) -> Self {
                Self(std::array::from_fn(|i| trust! { $mul(self.0[i], b.0[i]) }))
            }

            #[inline(always)]
            unsafe fn load_bfloat16(from: *const bf16) -> Self {
                trust! {
                    let values = (*from.cast::<[bf16; LANES]>()).map(|x| f64::from(widen(x)));
                    Self::load(values.as_ptr())
                }
            }

            #[inline(always)]
            unsafe fn load_int8(from: *const i8) -> Self {
                trust! { Self::load((*from.cast::<[i8; LANES]>()).map(f64::from).as_ptr()) }
            }

            #[inline(always)]
            unsafe fn transpose(block: &mut [Self; LANES]) {
                trust! {
                    let mut rows = [[0.0; LANES]; LANES];
                    for (row, wide) in rows.iter_mut().zip(block.iter()) {
                        wide.store(row.as_mut_ptr());
                    }
                    for (j, wide) in block.iter_mut().enumerate() {
                        let mut column = [0.0; LANES];
                        for (element, row) in column.iter_mut().zip(&rows) {
                            *element = row[j];
                        }
                        *wide = Self::load(column.as_ptr());
                    }
                }
            }
        }
    };
}

double!(
    F64x8x2,
    __m512d,
    8,
    2,
    12,
    [4, 4, 4, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1],
    _mm512_setzero_pd,
    _mm512_loadu_pd,
    _mm512_storeu_pd,
    _mm512_set1_pd,
    _mm512_fmadd_pd,
    _mm512_mul_pd
);
double!(
    F64x4x4,
    __m256d,
    4,
    4,
    3,
    [1; MAX_ROWS + 1],
    _mm256_setzero_pd,
    _mm256_loadu_pd,
    _mm256_storeu_pd,
    _mm256_set1_pd,
    _mm256_fmadd_pd,
    _mm256_mul_pd
);

//! Sixteen elements side by side, as the product's kernels hold them in registers.
//!
//! The kernels work on raw pointers and keep whole tiles in registers, so they
//! have a narrower vector type than the rest of the CPU code: load, store,
//! broadcast, fused multiply-add, and the 16x16 transpose that packing needs.

use crate::cpu::{Isa, Level, Real};
use half::bf16;

/// The number of elements in a [`Wide`].
pub(super) const LANES: usize = 16;
/// The most rows that a tile has on any instruction set.
pub(super) const MAX_ROWS: usize = 12;

/// Sixteen elements in registers.
///
/// # Safety
/// All methods may be called only where the instruction set that the type
/// stands for has been found at run time; pointers must be good for 16 elements
/// (or the number given).
pub(super) trait Wide<T>: Copy {
    /// The most rows a tile has: what fits the registers beside one vector of B.
    const ROWS: usize;
    /// How many vectors wide a tile is, by its number of rows: 8, 4, 2 or 1; the
    /// same for `ROWS / 2` and more, as panels of one block share their width.
    const VECTORS: [usize; MAX_ROWS + 1];
    unsafe fn zero() -> Self;
    unsafe fn load(from: *const T) -> Self;
    /// The first `count` elements, less than 16; the rest are zero.
    unsafe fn load_few(from: *const T, count: usize) -> Self;
    unsafe fn store(self, to: *mut T);
    /// Says that the memory there will be read soon; any address will do.
    #[inline(always)]
    unsafe fn prefetch(_: *const T) {}
    unsafe fn broadcast(from: *const T) -> Self;
    /// `a * b + self`, rounded once.
    unsafe fn multiply_add(self, a: Self, b: Self) -> Self;
    /// `self * b`, rounded once.
    unsafe fn multiply(self, b: Self) -> Self;
    /// Sixteen bfloat16 numbers, converted.
    unsafe fn load_bfloat16(from: *const bf16) -> Self;
    /// Sixteen integers, converted.
    unsafe fn load_int8(from: *const i8) -> Self;
    /// Vector j of the result holds element j of each vector given.
    unsafe fn transpose(block: &mut [Self; LANES]);
}

/// Whether tiles of half the rows and more are equally wide: rows are spread
/// evenly over panels, so where there are several none has fewer.
const fn shares_width(rows: usize, vectors: [usize; MAX_ROWS + 1]) -> bool {
    let mut few = rows / 2;
    while few <= rows {
        if vectors[few] != vectors[rows] {
            return false;
        }
        few += 1;
    }
    true
}

/// Code that is generic over the instruction set.
pub(super) trait Kernel<T> {
    /// Runs with the instruction set that `W` stands for enabled.
    ///
    /// # Safety
    /// The instruction set has been found at run time, and whatever else the kernel asks for.
    unsafe fn run<W: Wide<T>>(self);
}

/// The element types that products have kernels for.
pub trait Element: bytemuck::Pod + Default + Send + Sync {
    /// Runs `kernel` with `isa` enabled.
    ///
    /// # Safety
    /// What the kernel asks for. That the machine has `isa` needs no promise:
    /// an [`Isa`] exists only for what was found.
    #[doc(hidden)]
    #[allow(private_bounds, private_interfaces)] // callable from this module only
    unsafe fn enter<K: Kernel<Self>>(isa: Isa, kernel: K);

    /// The most rows of a tile, and the vectors in a tile of `rows` rows.
    #[doc(hidden)]
    fn tile(isa: Isa, rows: usize) -> (usize, usize);
}

macro_rules! element {
    ($element:ty, $avx512:ty, $avx2:ty) => {
        impl Element for $element {
            #[allow(private_bounds, private_interfaces)]
            unsafe fn enter<K: Kernel<Self>>(isa: Isa, kernel: K) {
                #[cfg(target_arch = "x86_64")]
                {
                    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
                    unsafe fn avx512<K: Kernel<$element>>(kernel: K) {
                        // SAFETY: as `enter`.
                        unsafe { kernel.run::<$avx512>() }
                    }
                    #[target_feature(enable = "avx2,fma")]
                    unsafe fn avx2<K: Kernel<$element>>(kernel: K) {
                        // SAFETY: as `enter`.
                        unsafe { kernel.run::<$avx2>() }
                    }
                    match isa.level() {
                        // SAFETY: `isa` proves that the machine has it; the rest as `enter`.
                        Level::Avx512 => return unsafe { avx512(kernel) },
                        // SAFETY: as above.
                        Level::Avx2 => return unsafe { avx2(kernel) },
                        Level::Portable => {}
                    }
                }
                let _ = isa;
                // SAFETY: as `enter`.
                unsafe { kernel.run::<Plain<$element>>() }
            }

            fn tile(isa: Isa, rows: usize) -> (usize, usize) {
                fn of<T, W: Wide<T>>(rows: usize) -> (usize, usize) {
                    const { assert!(shares_width(W::ROWS, W::VECTORS)) };
                    (W::ROWS, W::VECTORS[rows.min(W::ROWS)])
                }
                match isa.level() {
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx512 => of::<$element, $avx512>(rows),
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx2 => of::<$element, $avx2>(rows),
                    _ => of::<$element, Plain<$element>>(rows),
                }
            }
        }
    };
}

element!(f32, x86::F32x16, x86::F32x8x2);
element!(f64, x86::F64x8x2, x86::F64x4x4);

/// The same number in f32, exactly (and a NaN with the same payload).
#[inline(always)]
fn widen(x: bf16) -> f32 {
    f32::from_bits(u32::from(x.to_bits()) << 16)
}

/// The first `count` elements after `from`, then zeros.
///
/// # Safety
/// `from` is good for `count` elements, at most 16.
#[inline(always)]
pub(super) unsafe fn padded<Q: Copy + Default>(from: *const Q, count: usize) -> [Q; LANES] {
    let mut copy = [Q::default(); LANES];
    // SAFETY: the caller's promise.
    unsafe { copy.as_mut_ptr().copy_from_nonoverlapping(from, count) };
    copy
}

/// Without vector instructions: an array.
#[derive(Clone, Copy)]
pub(super) struct Plain<T>([T; LANES]);

impl<T: Real> Wide<T> for Plain<T> {
    const ROWS: usize = 4;

    const VECTORS: [usize; MAX_ROWS + 1] = [1; MAX_ROWS + 1];

    #[inline(always)]
    unsafe fn zero() -> Self {
        Self([T::ZERO; LANES])
    }

    #[inline(always)]
    unsafe fn load(from: *const T) -> Self {
        // SAFETY: the caller's promise; an array has its element's alignment.
        Self(unsafe { *from.cast() })
    }

    #[inline(always)]
    unsafe fn load_few(from: *const T, count: usize) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { padded(from, count) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut T) {
        // SAFETY: as `load`.
        unsafe { *to.cast() = self.0 }
    }

    #[inline(always)]
    unsafe fn broadcast(from: *const T) -> Self {
        // SAFETY: the caller's promise.
        Self([unsafe { *from }; LANES])
    }

    #[inline(always)]
    unsafe fn multiply_add(mut self, a: Self, b: Self) -> Self {
        for i in 0..LANES {
            self.0[i] = a.0[i].mul_add(b.0[i], self.0[i]);
        }
        self
    }

    #[inline(always)]
    unsafe fn multiply(mut self, b: Self) -> Self {
        for i in 0..LANES {
            self.0[i] *= b.0[i];
        }
        self
    }

    #[inline(always)]
    unsafe fn load_bfloat16(from: *const bf16) -> Self {
        // SAFETY: as `load`.
        Self(unsafe { *from.cast::<[bf16; LANES]>() }.map(|x| T::from_f64(f64::from(widen(x)))))
    }

    #[inline(always)]
    unsafe fn load_int8(from: *const i8) -> Self {
        // SAFETY: as `load`.
        Self(unsafe { *from.cast::<[i8; LANES]>() }.map(|x| T::from_f64(f64::from(x))))
    }

    #[inline(always)]
    unsafe fn transpose(block: &mut [Self; LANES]) {
        for i in 0..LANES {
            for j in 0..i {
                (block[i].0[j], block[j].0[i]) = (block[j].0[i], block[i].0[j]);
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
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
        ($name:ident, $register:ty, $per:literal, $count:literal, $rows:literal,
         $zero:ident, $load:ident, $store:ident, $set:ident, $fma:ident, $mul:ident) => {
            #[derive(Clone, Copy)]
            pub struct $name([$register; $count]);

            impl Wide<f64> for $name {
                const ROWS: usize = $rows;

                const VECTORS: [usize; MAX_ROWS + 1] = [1; MAX_ROWS + 1];

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
                            *wide = Self::load(rows.map(|row| row[j]).as_ptr());
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
        _mm256_setzero_pd,
        _mm256_loadu_pd,
        _mm256_storeu_pd,
        _mm256_set1_pd,
        _mm256_fmadd_pd,
        _mm256_mul_pd
    );
}

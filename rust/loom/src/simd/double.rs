//! 16 lanes of `f64` in AVX2 and AVX-512 registers.
//!
//! What products and sums do is done in registers; the rest as [`Portable`] lanes, of which the compiler makes
//! vector code. The types are safe as those of `f32` are: see [`avx2`](super::avx2).

use super::elementwise::Elementwise;
use super::isa::Level;
use super::math::Math;
use super::portable::Portable;
use super::real::{LANES, Vector};
use super::{avx2, avx512};
use std::arch::x86_64::*;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// Calls intrinsics that the module's safety argument covers.
macro_rules! trust {
    ($body:expr) => {{
        // SAFETY: the machine has the instructions wherever a type that uses them is used; see the module.
        unsafe { $body }
    }};
}

/// The mask of the first `count` lanes of a register.
#[inline(always)]
fn leading_four(count: usize) -> __m256i {
    trust!(_mm256_cmpgt_epi64(_mm256_set1_epi64x(count.min(4) as i64), _mm256_setr_epi64x(0, 1, 2, 3)))
}

#[inline(always)]
fn leading_eight(count: usize) -> __mmask8 {
    ((1u32 << count.min(8)) - 1) as __mmask8
}

#[inline(always)]
unsafe fn load_four(from: *const f64, count: usize) -> __m256d {
    trust!(_mm256_maskload_pd(from, leading_four(count)))
}

#[inline(always)]
unsafe fn store_four(to: *mut f64, count: usize, lanes: __m256d) {
    trust!(_mm256_maskstore_pd(to, leading_four(count), lanes));
}

#[inline(always)]
unsafe fn load_eight(from: *const f64, count: usize) -> __m512d {
    trust!(_mm512_maskz_loadu_pd(leading_eight(count), from))
}

#[inline(always)]
unsafe fn store_eight(to: *mut f64, count: usize, lanes: __m512d) {
    trust!(_mm512_mask_storeu_pd(to, leading_eight(count), lanes));
}

/// Vectors in `$count` registers of `$per` lanes.
macro_rules! double {
    ($name:ident, $level:ident, $single:ty, $register:ty, $count:literal of $per:literal,
     $set:ident, $load:ident, $store:ident, $load_some:ident, $store_some:ident, $multiply_add:ident,
     $sqrt:ident, $max:ident, $min:ident, $($operator:ident $method:ident $intrinsic:ident),*) => {
        /// 16 lanes of `f64`.
        #[derive(Clone, Copy)]
        pub struct $name([$register; $count]);

        impl $name {
            #[inline(always)]
            fn lanes(self) -> Portable<f64> {
                // SAFETY: both are sixteen numbers, one after the other.
                unsafe { std::mem::transmute(self) }
            }

            #[inline(always)]
            fn of(lanes: Portable<f64>) -> Self {
                // SAFETY: as `lanes`.
                unsafe { std::mem::transmute(lanes) }
            }

            /// One result for each pair of registers. Loops here and below: what `from_fn` and `map` of arrays call is not
            /// always inlined, and is compiled for no instruction set.
            #[inline(always)]
            fn zip(mut self, other: Self, f: impl Fn($register, $register) -> $register) -> Self {
                for (one, other) in self.0.iter_mut().zip(other.0) {
                    *one = f(*one, other);
                }
                self
            }
        }

        $(impl $operator for $name {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                self.zip(other, |a, b| trust!($intrinsic(a, b)))
            }
        })*

        impl Neg for $name {
            type Output = Self;
            #[inline(always)]
            fn neg(self) -> Self {
                Self::of(-self.lanes())
            }
        }

        impl Elementwise for $name {
            type Element = f64;
            type Mask = [bool; LANES];

            #[inline(always)]
            fn splat(value: f64) -> Self {
                Self([trust!($set(value)); $count])
            }

            #[inline(always)]
            fn constant(value: f64) -> Self {
                Self::splat(value)
            }

            #[inline(always)]
            fn mul_add(mut self, factor: Self, addend: Self) -> Self {
                for (one, (factor, addend)) in self.0.iter_mut().zip(factor.0.into_iter().zip(addend.0)) {
                    *one = trust!($multiply_add(*one, factor, addend));
                }
                self
            }

            #[inline(always)]
            fn sqrt(mut self) -> Self {
                for one in &mut self.0 {
                    *one = trust!($sqrt(*one));
                }
                self
            }

            // The instruction's own rule is the trait's: the second operand unless the first one wins.
            #[inline(always)]
            fn max(self, other: Self) -> Self {
                self.zip(other, |a, b| trust!($max(a, b)))
            }

            #[inline(always)]
            fn min(self, other: Self) -> Self {
                self.zip(other, |a, b| trust!($min(a, b)))
            }

            by_lanes!(one: abs round_ties_even pow2 exponent mantissa);
            by_lanes!(two: copysign);
            by_lanes!(compare: lt le gt ge eq);
            by_lanes!(masks: and or);

            #[inline(always)]
            fn select(mask: Self::Mask, yes: Self, no: Self) -> Self {
                Self::of(Portable::select(mask, yes.lanes(), no.lanes()))
            }

            #[inline(always)]
            fn not(mask: Self::Mask) -> Self::Mask {
                Portable::<f64>::not(mask)
            }

            #[inline(always)]
            fn any(mask: Self::Mask) -> bool {
                Portable::<f64>::any(mask)
            }

            #[inline(always)]
            fn all(mask: Self::Mask) -> bool {
                Portable::<f64>::all(mask)
            }
        }

        impl Math for $name {
            by_lanes!(one: exp exp_m1 ln ln_1p tanh sigmoid erf);

            #[inline(always)]
            fn sin_cos_turns(self) -> (Self, Self) {
                let (sin, cos) = self.lanes().sin_cos_turns();
                (Self::of(sin), Self::of(cos))
            }
        }

        impl Vector for $name {
            const LEVEL: Level = Level::$level;

            type Float32 = $single;

            by_lanes!(one: shift_up shift_down);
            by_lanes!(reduce: reduce_sum reduce_max reduce_min);

            #[inline(always)]
            fn from_f32(numbers: $single) -> Self {
                Self::load(&numbers.to_array().map(f64::from))
            }

            #[inline(always)]
            fn load(from: &[f64]) -> Self {
                let from = &from[..LANES];
                // SAFETY: the slice has 16 elements.
                unsafe { Self::load_unchecked(from.as_ptr()) }
            }

            #[inline(always)]
            fn load_partial(from: &[f64]) -> Self {
                let mut all = Self::splat(0.0);
                for (i, one) in all.0.iter_mut().enumerate() {
                    let count = from.len().saturating_sub(i * $per);
                    // SAFETY: masked loads touch only lanes that the slice has, though addresses may lie past its end.
                    *one = unsafe { $load_some(from.as_ptr().wrapping_add(i * $per), count) };
                }
                all
            }

            #[inline(always)]
            unsafe fn load_unchecked(from: *const f64) -> Self {
                let mut all = Self::splat(0.0);
                for (i, one) in all.0.iter_mut().enumerate() {
                    *one = trust!($load(from.add(i * $per)));
                }
                all
            }

            #[inline(always)]
            fn store(self, to: &mut [f64]) {
                let to = &mut to[..LANES];
                // SAFETY: the slice has 16 elements.
                unsafe { self.store_unchecked(to.as_mut_ptr()) }
            }

            #[inline(always)]
            fn store_partial(self, to: &mut [f64]) {
                for (i, lanes) in self.0.into_iter().enumerate() {
                    let count = to.len().saturating_sub(i * $per);
                    // SAFETY: as `load_partial`.
                    unsafe { $store_some(to.as_mut_ptr().wrapping_add(i * $per), count, lanes) };
                }
            }

            #[inline(always)]
            unsafe fn store_unchecked(self, to: *mut f64) {
                for (i, lanes) in self.0.into_iter().enumerate() {
                    trust!($store(to.add(i * $per), lanes));
                }
            }

            #[inline(always)]
            fn unzip(self, other: Self) -> (Self, Self) {
                let (even, odd) = self.lanes().unzip(other.lanes());
                (Self::of(even), Self::of(odd))
            }

            #[inline(always)]
            fn first_lanes(count: usize) -> Self::Mask {
                Portable::<f64>::first_lanes(count)
            }

            #[inline(always)]
            fn transpose(block: &mut [Self; LANES]) {
                let mut lanes = block.map(Self::lanes);
                Portable::transpose(&mut lanes);
                *block = lanes.map(Self::of);
            }
        }
    };
}

/// Methods that portable lanes have.
macro_rules! by_lanes {
    (one: $($method:ident)*) => {
        $(#[inline(always)]
        fn $method(self) -> Self {
            Self::of(self.lanes().$method())
        })*
    };
    (two: $($method:ident)*) => {
        $(#[inline(always)]
        fn $method(self, other: Self) -> Self {
            Self::of(self.lanes().$method(other.lanes()))
        })*
    };
    (compare: $($method:ident)*) => {
        $(#[inline(always)]
        fn $method(self, other: Self) -> Self::Mask {
            self.lanes().$method(other.lanes())
        })*
    };
    (masks: $($method:ident)*) => {
        $(#[inline(always)]
        fn $method(left: Self::Mask, right: Self::Mask) -> Self::Mask {
            Portable::<f64>::$method(left, right)
        })*
    };
    (reduce: $($method:ident)*) => {
        $(#[inline(always)]
        fn $method(self) -> f64 {
            self.lanes().$method()
        })*
    };
}

double!(
    Avx2F64x16, Avx2, avx2::F32x16, __m256d, 4 of 4,
    _mm256_set1_pd, _mm256_loadu_pd, _mm256_storeu_pd, load_four, store_four, _mm256_fmadd_pd,
    _mm256_sqrt_pd, _mm256_max_pd, _mm256_min_pd, Add add _mm256_add_pd, Sub sub _mm256_sub_pd,
    Mul mul _mm256_mul_pd, Div div _mm256_div_pd
);
double!(
    Avx512F64x16, Avx512, avx512::F32x16, __m512d, 2 of 8,
    _mm512_set1_pd, _mm512_loadu_pd, _mm512_storeu_pd, load_eight, store_eight, _mm512_fmadd_pd,
    _mm512_sqrt_pd, _mm512_max_pd, _mm512_min_pd, Add add _mm512_add_pd, Sub sub _mm512_sub_pd,
    Mul mul _mm512_mul_pd, Div div _mm512_div_pd
);

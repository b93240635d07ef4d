//! Where kernels written for any vectors enter code for an instruction set.

use super::{Isa, Kernel, Level, Portable, Real, Vector};
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};
use crate::precision::Precision;

/// Runs a kernel with AVX2 and FMA instructions.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn enter_avx2<T: Real, V: Vector<Element = T>, K: Kernel<T>>(kernel: K) -> K::Output {
    kernel.run::<V>()
}

/// Runs a kernel with AVX-512 instructions.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn enter_avx512<T: Real, V: Vector<Element = T>, K: Kernel<T>>(kernel: K) -> K::Output {
    kernel.run::<V>()
}

/// [`Real::dispatch`] of `f32`: vectors written for each instruction set.
#[inline(always)]
fn dispatch_f32<K: Kernel<f32>>(isa: Isa, kernel: K) -> K::Output {
    match isa.level() {
        Level::Portable => kernel.run::<Portable<f32>>(),
        // SAFETY: an `Isa` of this level exists only on a machine where `Level::is_supported` found
        // every feature that the entry function enables.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { enter_avx2::<f32, avx2::F32x16, K>(kernel) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { enter_avx512::<f32, avx512::F32x16, K>(kernel) },
        #[cfg(not(target_arch = "x86_64"))]
        Level::Avx2 | Level::Avx512 => kernel.run::<Portable<f32>>(),
    }
}

/// [`Real::dispatch`] of `f64`: portable vectors, which
/// the compiler turns into the instruction set's own.
#[inline(always)]
fn dispatch_f64<K: Kernel<f64>>(isa: Isa, kernel: K) -> K::Output {
    match isa.level() {
        Level::Portable => kernel.run::<Portable<f64>>(),
        // SAFETY: an `Isa` of this level exists only on a machine where `Level::is_supported` found
        // every feature that the entry function enables.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { enter_avx2::<f64, Portable<f64>, K>(kernel) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { enter_avx512::<f64, Portable<f64>, K>(kernel) },
        #[cfg(not(target_arch = "x86_64"))]
        Level::Avx2 | Level::Avx512 => kernel.run::<Portable<f64>>(),
    }
}

macro_rules! real {
    ($type:ty, $precision:ident, $dispatch:path) => {
        impl Real for $type {
            const PRECISION: Precision = Precision::$precision;
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const INFINITY: Self = <$type>::INFINITY;
            const NAN: Self = <$type>::NAN;
            const EPSILON: Self = <$type>::EPSILON;
            const MIN_POSITIVE: Self = <$type>::MIN_POSITIVE;

            type Portable = Portable<$type>;

            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                value as $type
            }

            #[inline(always)]
            fn from_usize(value: usize) -> Self {
                value as $type
            }

            #[inline(always)]
            fn to_f64(self) -> f64 {
                f64::from(self)
            }

            #[inline(always)]
            fn to_f32(self) -> f32 {
                self as f32
            }

            #[inline(always)]
            fn is_finite(self) -> bool {
                <$type>::is_finite(self)
            }

            #[inline(always)]
            fn is_nan(self) -> bool {
                <$type>::is_nan(self)
            }

            #[inline(always)]
            fn to_bits_u64(self) -> u64 {
                u64::from(self.to_bits())
            }

            #[inline(always)]
            fn dispatch<K: Kernel<Self>>(isa: Isa, kernel: K) -> K::Output {
                $dispatch(isa, kernel)
            }
        }
    };
}

real!(f32, Float32, dispatch_f32);
real!(f64, Float64, dispatch_f64);

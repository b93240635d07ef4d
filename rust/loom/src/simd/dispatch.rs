//! Where code for an instruction set is entered.

use super::{Isa, Kernel, Level, Portable, Real};
#[cfg(target_arch = "x86_64")]
use super::{Vector, avx2, avx512, double};
use crate::precision::Precision;

// Kernels for a level that this build leaves out (`Level::is_compiled`) are not made: what stands behind a constant
// that is false is not translated.

/// What is entered with an instruction set that there is no `Isa` of.
#[cold]
fn left_out(isa: Isa) -> ! {
    unreachable!("this build has no kernels for {isa}")
}

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

/// Runs a kernel with AVX-512 instructions and those of VNNI.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma")]
fn enter_quads<K: Kernel<f32>>(kernel: K) -> K::Output {
    kernel.run::<avx512::F32x16>()
}

/// Runs a kernel with AVX-512 instructions and those for bfloat16.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
fn enter_bfloat16_pairs<K: Kernel<f32>>(kernel: K) -> K::Output {
    kernel.run::<avx512::F32x16>()
}

/// Whether [`dispatch_bfloat16_pairs`] has instructions for two products a word on machines where `isa` is used.
pub(crate) fn has_bfloat16_pairs(isa: Isa) -> bool {
    #[cfg(target_arch = "x86_64")]
    return isa.level() == Level::Avx512 && is_x86_feature_detected!("avx512bf16");
    #[cfg(not(target_arch = "x86_64"))]
    return isa.level() > Level::Avx512;
}

/// [`Real::dispatch`] of `f32`, for kernels that use [`Decode::add_bfloat16_pairs`](super::Decode::add_bfloat16_pairs).
///
/// # Panics
/// Where there are no such instructions.
pub(crate) fn dispatch_bfloat16_pairs<K: Kernel<f32>>(isa: Isa, kernel: K) -> K::Output {
    assert!(has_bfloat16_pairs(isa), "no products of two numbers of bfloat16 with {}", isa.level());
    match const { Level::Avx512.is_compiled() } {
        // SAFETY: the machine has AVX-512, as an `Isa` of this level proves, and its extension for bfloat16.
        #[cfg(target_arch = "x86_64")]
        true => unsafe { enter_bfloat16_pairs(kernel) },
        _ => {
            drop(kernel);
            left_out(isa)
        }
    }
}

/// Whether [`dispatch_quads`] has instructions for four products a word on machines where `isa` is used.
pub(crate) fn has_quads(isa: Isa) -> bool {
    #[cfg(target_arch = "x86_64")]
    return isa.level() == Level::Avx512 && is_x86_feature_detected!("avx512vnni");
    #[cfg(not(target_arch = "x86_64"))]
    return isa.level() > Level::Avx512;
}

/// [`Real::dispatch`] of `f32`, for kernels that use [`Words::add_quads`](super::Words::add_quads).
///
/// # Panics
/// Where there are no such instructions.
pub(crate) fn dispatch_quads<K: Kernel<f32>>(isa: Isa, kernel: K) -> K::Output {
    assert!(has_quads(isa), "no products of four bytes with {}", isa.level());
    match const { Level::Avx512.is_compiled() } {
        // SAFETY: the machine has AVX-512, as an `Isa` of this level proves, and VNNI.
        #[cfg(target_arch = "x86_64")]
        true => unsafe { enter_quads(kernel) },
        _ => {
            drop(kernel);
            left_out(isa)
        }
    }
}

macro_rules! real {
    ($type:ty, $precision:ident, $avx2:ident :: $vector2:ident, $avx512:ident :: $vector512:ident) => {
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
                match isa.level() {
                    // SAFETY: an `Isa` of this level exists only on a machine where `Level::is_supported` found
                    // every feature that the entry function enables.
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx2 if const { Level::Avx2.is_compiled() } => unsafe {
                        enter_avx2::<$type, $avx2::$vector2, K>(kernel)
                    },
                    // SAFETY: as above.
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx512 if const { Level::Avx512.is_compiled() } => unsafe {
                        enter_avx512::<$type, $avx512::$vector512, K>(kernel)
                    },
                    Level::Portable if const { Level::Portable.is_compiled() } => {
                        kernel.run::<Portable<$type>>()
                    }
                    _ => left_out(isa),
                }
            }

            #[inline(always)]
            fn dispatch_single<K: Kernel<Self>>(isa: Isa, kernel: K) -> K::Output {
                match const { matches!(Self::PRECISION, Precision::Float32) } {
                    true => Self::dispatch(isa, kernel),
                    false => kernel.run::<Portable<$type>>(),
                }
            }
        }
    };
}

real!(f32, Float32, avx2::F32x16, avx512::F32x16);
real!(f64, Float64, double::Avx2F64x16, double::Avx512F64x16);

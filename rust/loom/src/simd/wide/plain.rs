//! Sixteen elements without vector instructions.

use super::{LANES, MAX_ROWS, Wide, padded, widen};
use crate::simd::Real;
use half::bf16;

/// Without vector instructions: an array.
#[derive(Clone, Copy)]
pub(crate) struct Plain<T>([T; LANES]);

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

//! Sixteen elements side by side, as the product's kernels hold them in registers.
//!
//! The kernels work on raw pointers and keep whole tiles in registers, so they
//! have a narrower vector type than the rest of the CPU code: load, store,
//! broadcast, fused multiply-add, and the 16x16 transpose that packing needs.

#[cfg(target_arch = "x86_64")]
mod x86;

use super::stream;
use super::{Epilogue, Output, PanelSource, Start};
use crate::cpu::{Isa, Level, Pool, Real};
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

    /// Computes the product by the kernels for a few rows, if there is one for the right operand.
    #[doc(hidden)]
    fn stream(
        isa: Isa,
        pool: Option<&Pool>,
        a: &dyn PanelSource<Self>,
        b: &dyn PanelSource<Self>,
        start: Start,
        epilogue: &dyn Epilogue<Self>,
        c: &Output<'_, Self>,
    ) -> bool {
        let _ = (isa, pool, a, b, start, epilogue, c);
        false
    }

    /// The most rows of a tile, and the vectors in a tile of `rows` rows.
    #[doc(hidden)]
    fn tile(isa: Isa, rows: usize) -> (usize, usize);
}

macro_rules! element {
    ($element:ty, $avx512:ty, $avx2:ty $(, $more:item)*) => {
        impl Element for $element {
            $($more)*

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

element!(
    f32,
    x86::F32x16,
    x86::F32x8x2,
    fn stream(
        isa: Isa,
        pool: Option<&Pool>,
        a: &dyn PanelSource<f32>,
        b: &dyn PanelSource<f32>,
        start: Start,
        epilogue: &dyn Epilogue<f32>,
        c: &Output<'_, f32>,
    ) -> bool {
        b.streamed().is_some_and(|b| stream::product(isa, pool, a, b, start, epilogue, c))
    }
);
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

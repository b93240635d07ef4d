//! Vectors of 16 lanes, one implementation an instruction set.
//!
//! A kernel is written once, generically over [`Vector`], and handed to
//! [`Real::dispatch`], which enters a function compiled
//! for the instruction set and runs it there. Every operation here gives the
//! same bits on every implementation: they are either single operations that
//! IEEE 754 defines to the bit, or built from such. The one exception is the
//! payload and sign of a NaN that arithmetic produces, which the standard
//! leaves open; that a lane is NaN is the same everywhere.
//!
//! Whatever a kernel calls should be `#[inline(always)]`, closures kept small:
//! code that is not inlined into the entry function is compiled for the
//! baseline machine, which gives the same bits slowly.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod elementwise;
mod portable;
#[cfg(test)]
mod tests;

pub use elementwise::Elementwise;
pub use portable::Portable;

use super::{Isa, Level, Math, Real};

/// The lanes of every [`Vector`], on every instruction set.
pub const LANES: usize = 16;

/// 16 elements, operated on together.
///
/// Element `i` of an extent belongs to lane `i % 16`, so sums taken lane by
/// lane and finished with [`Vector::reduce_sum`] come out the same wherever
/// they run.
pub trait Vector: Math<Element: Real> + Send + Sync + 'static {
    /// The instruction set it is written for, so that a kernel can choose its
    /// tile's size; the order of sums must not depend on it.
    const LEVEL: Level;

    /// The first 16 elements; panics where there are fewer.
    fn load(from: &[Self::Element]) -> Self;

    /// The first elements, at most 16; lanes past the slice's end are 0.
    fn load_partial(from: &[Self::Element]) -> Self;

    /// 16 elements from `from` on, which needs no alignment.
    ///
    /// # Safety
    /// `from` must be valid for reading 16 elements.
    unsafe fn load_unchecked(from: *const Self::Element) -> Self;

    /// Writes the first 16 elements; panics where there are fewer.
    fn store(self, to: &mut [Self::Element]);

    /// Writes the first elements, at most 16; lanes past the slice's end are dropped.
    fn store_partial(self, to: &mut [Self::Element]);

    /// Writes 16 elements from `to` on, which needs no alignment.
    ///
    /// # Safety
    /// `to` must be valid for writing 16 elements.
    unsafe fn store_unchecked(self, to: *mut Self::Element);

    /// The lanes as an array.
    #[inline(always)]
    fn to_array(self) -> [Self::Element; LANES] {
        let mut lanes = [Self::Element::ZERO; LANES];
        self.store(&mut lanes);
        lanes
    }

    /// The 32 elements of `self` and `other` sorted apart: those at even places, those at odd ones.
    fn unzip(self, other: Self) -> (Self, Self);

    /// Every lane moved to the next; the first is 0.
    fn shift_up(self) -> Self;

    /// Every lane moved to the one before; the last is 0.
    fn shift_down(self) -> Self;

    /// A mask of the first `count` lanes (all of them from 16 on).
    fn first_lanes(count: usize) -> Self::Mask;

    /// The sum of the lanes by the fixed tree: lane `i` with `i + 8`, then
    /// `i + 4`, `i + 2`, `i + 1`.
    fn reduce_sum(self) -> Self::Element;

    /// The largest lane by the same tree with [`Elementwise::max`], the lower
    /// lane on the left: where there is a NaN, the result is one that the tree
    /// decides, the same everywhere.
    fn reduce_max(self) -> Self::Element;

    /// The smallest lane, as [`Vector::reduce_max`].
    fn reduce_min(self) -> Self::Element;

    /// Turns rows into columns: vector `j` then holds lane `j` of each of the 16 vectors.
    fn transpose(block: &mut [Self; LANES]);
}

/// Work written once over vectors, for [`Real::dispatch`].
///
/// Mark `run` and what it calls `#[inline(always)]`.
pub trait Kernel<T: Real> {
    /// What the work returns.
    type Output;

    /// Does the work with vectors of the type `V`.
    fn run<V: Vector<Element = T>>(self) -> Self::Output;
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

/// [`Real::dispatch`] of `f32`: vectors written for each instruction set.
#[inline(always)]
pub(super) fn dispatch_f32<K: Kernel<f32>>(isa: Isa, kernel: K) -> K::Output {
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
pub(super) fn dispatch_f64<K: Kernel<f64>>(isa: Isa, kernel: K) -> K::Output {
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

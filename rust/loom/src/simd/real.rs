//! The two element types that networks compute in, the vectors of them, and kernels written for both.

use super::isa::{Isa, Level};
use super::math::Math;
use super::wide::Element;
use crate::precision::Precision;
use std::fmt::{Debug, Display};
use std::ops::{AddAssign, DivAssign, MulAssign, SubAssign};

/// `f32` or `f64`.
///
/// Elementwise arithmetic (`mul_add`, `sqrt`, `abs`, `select` and the rest)
/// comes from [`Elementwise`](super::Elementwise), `exp` and its kin from
/// [`Math`]; their results are the same on every machine.
pub trait Real:
    bytemuck::Pod
    + Math<Element = Self, Mask = bool>
    + Element
    + PartialOrd
    + Display
    + Debug
    + Default
    + AddAssign
    + SubAssign
    + MulAssign
    + DivAssign
    + std::iter::Sum
    + Send
    + Sync
    + 'static
{
    /// Which of the two it is.
    const PRECISION: Precision;
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// Positive infinity.
    const INFINITY: Self;
    /// Not a number.
    const NAN: Self;
    /// The distance from 1 to the next larger number.
    const EPSILON: Self;
    /// The least positive normal number.
    const MIN_POSITIVE: Self;

    /// The vector of 16 lanes that every machine has.
    type Portable: Vector<Element = Self>;

    /// The nearest number to `value`.
    fn from_f64(value: f64) -> Self;
    /// The nearest number to `value`.
    fn from_usize(value: usize) -> Self;
    /// The same number as `f64`, exactly.
    fn to_f64(self) -> f64;
    /// The nearest `f32`.
    fn to_f32(self) -> f32;
    /// Neither infinite nor NaN.
    fn is_finite(self) -> bool;
    /// Whether it is NaN.
    fn is_nan(self) -> bool;
    /// The bits, zero-extended, to compare or to print.
    fn to_bits_u64(self) -> u64;

    /// Runs `kernel` compiled for `isa`.
    ///
    /// Kernels that are written for vectors of any width enter code for an instruction set here alone; the
    /// products that choose instructions themselves have a dispatch of their own.
    fn dispatch<K: Kernel<Self>>(isa: Isa, kernel: K) -> K::Output;
}

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

    /// The largest lane by the same tree with `max`, the lower
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

//! 16 lanes in an array: what every machine has, and the definition that the
//! other implementations must equal.

use super::{Elementwise, LANES, Level, Math, Real, Vector};
use std::ops::{Add, Div, Mul, Neg, Sub};

/// 16 numbers, operated on one after the other as far as the source says; the
/// compiler uses what instructions the surrounding function may.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Portable<T>(pub(super) [T; LANES]);

impl<T: Real> Portable<T> {
    /// One result a lane.
    #[inline(always)]
    fn map(self, f: impl Fn(T) -> T) -> Self {
        let mut lanes = self.0;
        for lane in &mut lanes {
            *lane = f(*lane);
        }
        Self(lanes)
    }

    /// One result for each pair of lanes.
    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(T, T) -> T) -> Self {
        let mut lanes = self.0;
        for (lane, other) in lanes.iter_mut().zip(other.0) {
            *lane = f(*lane, other);
        }
        Self(lanes)
    }

    /// One truth value for each pair of lanes.
    #[inline(always)]
    fn compare(self, other: Self, f: impl Fn(T, T) -> bool) -> [bool; LANES] {
        let mut mask = [false; LANES];
        for ((bit, left), right) in mask.iter_mut().zip(self.0).zip(other.0) {
            *bit = f(left, right);
        }
        mask
    }

    /// The lanes joined pairwise by the fixed tree.
    #[inline(always)]
    fn reduce(self, f: impl Fn(T, T) -> T) -> T {
        let mut lanes = self.0;
        for half in [8, 4, 2, 1] {
            for i in 0..half {
                lanes[i] = f(lanes[i], lanes[i + half]);
            }
        }
        lanes[0]
    }
}

/// One truth value for each pair of truth values.
#[inline(always)]
fn zip_masks(left: [bool; LANES], right: [bool; LANES], f: impl Fn(bool, bool) -> bool) -> [bool; LANES] {
    let mut mask = left;
    for (bit, right) in mask.iter_mut().zip(right) {
        *bit = f(*bit, right);
    }
    mask
}

macro_rules! operator {
    ($trait:ident, $method:ident, $symbol:tt) => {
        impl<T: Real> $trait for Portable<T> {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                self.zip(other, |a, b| a $symbol b)
            }
        }
    };
}

operator!(Add, add, +);
operator!(Sub, sub, -);
operator!(Mul, mul, *);
operator!(Div, div, /);

impl<T: Real> Neg for Portable<T> {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        self.map(|a| -a)
    }
}

impl<T: Real> Elementwise for Portable<T> {
    type Element = T;
    type Mask = [bool; LANES];

    #[inline(always)]
    fn splat(value: T) -> Self {
        Self([value; LANES])
    }

    #[inline(always)]
    fn constant(value: f64) -> Self {
        Self([T::from_f64(value); LANES])
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, addend: Self) -> Self {
        let mut lanes = self.0;
        for ((lane, factor), addend) in lanes.iter_mut().zip(factor.0).zip(addend.0) {
            *lane = lane.mul_add(factor, addend);
        }
        Self(lanes)
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        self.map(|a| a.sqrt())
    }

    #[inline(always)]
    fn abs(self) -> Self {
        self.map(|a| a.abs())
    }

    #[inline(always)]
    fn copysign(self, sign: Self) -> Self {
        self.zip(sign, |a, b| a.copysign(b))
    }

    #[inline(always)]
    fn round_ties_even(self) -> Self {
        self.map(|a| a.round_ties_even())
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        self.zip(other, |a, b| a.max(b))
    }

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        self.zip(other, |a, b| a.min(b))
    }

    #[inline(always)]
    fn lt(self, other: Self) -> Self::Mask {
        self.compare(other, |a, b| a < b)
    }

    #[inline(always)]
    fn le(self, other: Self) -> Self::Mask {
        self.compare(other, |a, b| a <= b)
    }

    #[inline(always)]
    fn gt(self, other: Self) -> Self::Mask {
        self.compare(other, |a, b| a > b)
    }

    #[inline(always)]
    fn ge(self, other: Self) -> Self::Mask {
        self.compare(other, |a, b| a >= b)
    }

    #[inline(always)]
    fn eq(self, other: Self) -> Self::Mask {
        self.compare(other, |a, b| a == b)
    }

    #[inline(always)]
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self {
        let mut lanes = no.0;
        for ((lane, yes), bit) in lanes.iter_mut().zip(yes.0).zip(mask) {
            *lane = if bit { yes } else { *lane };
        }
        Self(lanes)
    }

    #[inline(always)]
    fn and(left: Self::Mask, right: Self::Mask) -> Self::Mask {
        zip_masks(left, right, |a, b| a & b)
    }

    #[inline(always)]
    fn or(left: Self::Mask, right: Self::Mask) -> Self::Mask {
        zip_masks(left, right, |a, b| a | b)
    }

    #[inline(always)]
    fn not(mask: Self::Mask) -> Self::Mask {
        zip_masks(mask, mask, |a, _| !a)
    }

    #[inline(always)]
    fn any(mask: Self::Mask) -> bool {
        mask.into_iter().fold(false, |any, bit| any | bit)
    }

    #[inline(always)]
    fn all(mask: Self::Mask) -> bool {
        mask.into_iter().fold(true, |all, bit| all & bit)
    }

    #[inline(always)]
    fn pow2(self) -> Self {
        self.map(|a| a.pow2())
    }

    #[inline(always)]
    fn exponent(self) -> Self {
        self.map(|a| a.exponent())
    }

    #[inline(always)]
    fn mantissa(self) -> Self {
        self.map(|a| a.mantissa())
    }
}

impl<T: Real> Math for Portable<T> {
    #[inline(always)]
    fn exp(self) -> Self {
        self.map(|a| a.exp())
    }

    #[inline(always)]
    fn exp_m1(self) -> Self {
        self.map(|a| a.exp_m1())
    }

    #[inline(always)]
    fn ln(self) -> Self {
        self.map(|a| a.ln())
    }

    #[inline(always)]
    fn ln_1p(self) -> Self {
        self.map(|a| a.ln_1p())
    }

    #[inline(always)]
    fn tanh(self) -> Self {
        self.map(|a| a.tanh())
    }

    #[inline(always)]
    fn sigmoid(self) -> Self {
        self.map(|a| a.sigmoid())
    }

    #[inline(always)]
    fn erf(self) -> Self {
        self.map(|a| a.erf())
    }

    #[inline(always)]
    fn sin_cos_turns(self) -> (Self, Self) {
        let (mut sin, mut cos) = (self, self);
        for (s, c) in sin.0.iter_mut().zip(&mut cos.0) {
            (*s, *c) = s.sin_cos_turns();
        }
        (sin, cos)
    }
}

impl<T: Real> Vector for Portable<T> {
    const LEVEL: Level = Level::Portable;

    type Float32 = Portable<f32>;

    #[inline(always)]
    fn from_f32(numbers: Portable<f32>) -> Self {
        Self(numbers.0.map(|number| T::from_f64(f64::from(number))))
    }

    #[inline(always)]
    fn load(from: &[T]) -> Self {
        let mut lanes = [T::ZERO; LANES];
        lanes.copy_from_slice(&from[..LANES]);
        Self(lanes)
    }

    #[inline(always)]
    fn load_partial(from: &[T]) -> Self {
        let mut lanes = [T::ZERO; LANES];
        let count = from.len().min(LANES);
        lanes[..count].copy_from_slice(&from[..count]);
        Self(lanes)
    }

    #[inline(always)]
    unsafe fn load_unchecked(from: *const T) -> Self {
        // SAFETY: the caller vouches for 16 elements, and `read_unaligned` asks for no alignment.
        Self(unsafe { from.cast::<[T; LANES]>().read_unaligned() })
    }

    #[inline(always)]
    fn store(self, to: &mut [T]) {
        to[..LANES].copy_from_slice(&self.0);
    }

    #[inline(always)]
    fn store_partial(self, to: &mut [T]) {
        let count = to.len().min(LANES);
        to[..count].copy_from_slice(&self.0[..count]);
    }

    #[inline(always)]
    unsafe fn store_unchecked(self, to: *mut T) {
        // SAFETY: the caller vouches for 16 elements, and `write_unaligned` asks for no alignment.
        unsafe { to.cast::<[T; LANES]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    fn unzip(self, other: Self) -> (Self, Self) {
        let (mut even, mut odd) = (self.0, self.0);
        for i in 0..LANES / 2 {
            (even[i], odd[i]) = (self.0[2 * i], self.0[2 * i + 1]);
            (even[i + LANES / 2], odd[i + LANES / 2]) = (other.0[2 * i], other.0[2 * i + 1]);
        }
        (Self(even), Self(odd))
    }

    #[inline(always)]
    fn shift_up(self) -> Self {
        let mut lanes = [T::ZERO; LANES];
        lanes[1..].copy_from_slice(&self.0[..LANES - 1]);
        Self(lanes)
    }

    #[inline(always)]
    fn shift_down(self) -> Self {
        let mut lanes = [T::ZERO; LANES];
        lanes[..LANES - 1].copy_from_slice(&self.0[1..]);
        Self(lanes)
    }

    #[inline(always)]
    fn first_lanes(count: usize) -> Self::Mask {
        let mut mask = [false; LANES];
        for (i, bit) in mask.iter_mut().enumerate() {
            *bit = i < count;
        }
        mask
    }

    #[inline(always)]
    fn reduce_sum(self) -> T {
        self.reduce(|a, b| a + b)
    }

    #[inline(always)]
    fn reduce_max(self) -> T {
        self.reduce(|a, b| a.max(b))
    }

    #[inline(always)]
    fn reduce_min(self) -> T {
        self.reduce(|a, b| a.min(b))
    }

    #[inline(always)]
    fn transpose(block: &mut [Self; LANES]) {
        for i in 0..LANES {
            for j in 0..i {
                (block[i].0[j], block[j].0[i]) = (block[j].0[i], block[i].0[j]);
            }
        }
    }
}

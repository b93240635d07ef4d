//! What an element of a product's operands stands for: a number, or a word of two numbers of bfloat16.

use crate::simd::{Decode, LANES, Real, Vector, Words};
use std::slice::from_raw_parts;

/// Sixteen elements, or `count` where there may be fewer.
///
/// # Safety
/// They can be read.
#[inline(always)]
pub(super) unsafe fn load<V: Vector, const RAGGED: bool>(from: *const V::Element, count: usize) -> V {
    // SAFETY: the caller's promise.
    unsafe {
        match RAGGED {
            true => V::load_partial(from_raw_parts(from, count)),
            false => V::load_unchecked(from),
        }
    }
}

/// How a tile adds to its sums what one element of either operand makes.
pub(super) trait Terms<V: Vector> {
    /// Whether subnormal sums become zero.
    const FLUSHES: bool;
    /// The same terms, none of which become zero.
    type Gradual: Terms<V>;
    /// An element of the left operand, for every lane.
    type Left: Copy;
    /// Sixteen elements of the right one.
    type Right: Copy;

    /// The left operand's element.
    ///
    /// # Safety
    /// It can be read.
    unsafe fn left(from: *const V::Element) -> Self::Left;

    /// The right operand's elements, `count` of them where there may be fewer.
    ///
    /// # Safety
    /// They can be read.
    unsafe fn right<const RAGGED: bool>(from: *const V::Element, count: usize) -> Self::Right;

    /// The sum with what they make.
    ///
    /// # Safety
    /// The code was entered for these terms.
    unsafe fn add(sum: V, left: Self::Left, right: Self::Right) -> V;
}

/// Elements are numbers: one fused multiply-add.
pub(super) struct Numbers;

impl<V: Vector> Terms<V> for Numbers {
    const FLUSHES: bool = false;
    type Gradual = Self;
    type Left = V;
    type Right = V;

    #[inline(always)]
    unsafe fn left(from: *const V::Element) -> V {
        // SAFETY: the caller's promise.
        V::splat(unsafe { *from })
    }

    #[inline(always)]
    unsafe fn right<const RAGGED: bool>(from: *const V::Element, count: usize) -> V {
        // SAFETY: the caller's promise.
        unsafe { load::<V, RAGGED>(from, count) }
    }

    #[inline(always)]
    unsafe fn add(sum: V, left: V, right: V) -> V {
        left.mul_add(right, sum)
    }
}

/// Elements are words of two numbers of bfloat16, which one instruction multiplies and adds.
pub(super) struct Pairs;

/// Elements are such words, and two fused multiply-adds, as numbers of their own would be added.
pub(super) struct GradualPairs;

/// Sixteen words, or `count` where there may be fewer.
///
/// # Safety
/// They can be read.
#[inline(always)]
unsafe fn words<W: Words, const RAGGED: bool>(from: *const f32, count: usize) -> W {
    // SAFETY: the caller's promise.
    unsafe {
        match RAGGED {
            true => {
                let mut words = [0_i32; LANES];
                words[..count].copy_from_slice(from_raw_parts(from.cast(), count));
                W::load(words.as_ptr().cast())
            }
            false => W::load(from.cast()),
        }
    }
}

impl<V: Decode> Terms<V> for Pairs {
    const FLUSHES: bool = true;
    type Gradual = GradualPairs;
    type Left = V::Words;
    type Right = V::Words;

    #[inline(always)]
    unsafe fn left(from: *const f32) -> V::Words {
        // SAFETY: the caller's promise.
        V::Words::splat(unsafe { *from.cast() })
    }

    #[inline(always)]
    unsafe fn right<const RAGGED: bool>(from: *const f32, count: usize) -> V::Words {
        // SAFETY: the caller's promise.
        unsafe { words::<V::Words, RAGGED>(from, count) }
    }

    #[inline(always)]
    unsafe fn add(sum: V, left: V::Words, right: V::Words) -> V {
        // SAFETY: the caller's promise.
        unsafe { sum.add_bfloat16_pairs(left, right) }
    }
}

impl<V: Decode> Terms<V> for GradualPairs {
    const FLUSHES: bool = false;
    type Gradual = Self;
    type Left = [V; 2];
    type Right = [V; 2];

    #[inline(always)]
    unsafe fn left(from: *const f32) -> [V; 2] {
        // SAFETY: the caller's promise.
        let word: u32 = unsafe { *from.cast() };
        [V::splat(f32::from_bits(word & 0xFFFF_0000)), V::splat(f32::from_bits(word << 16))]
    }

    #[inline(always)]
    unsafe fn right<const RAGGED: bool>(from: *const f32, count: usize) -> [V; 2] {
        // SAFETY: the caller's promise.
        let words = unsafe { words::<V::Words, RAGGED>(from, count) };
        let upper = V::Words::splat(0xFFFF_0000_u32 as i32);
        [V::from_bits(words.and(upper)), V::from_bits(words.shift_left(16))]
    }

    #[inline(always)]
    unsafe fn add(sum: V, left: [V; 2], right: [V; 2]) -> V {
        left[1].mul_add(right[1], left[0].mul_add(right[0], sum))
    }
}

/// Whether any of these is a subnormal number.
#[inline(always)]
pub(super) fn any_subnormal<V: Vector>(numbers: V) -> bool {
    let (least, zero) = (V::splat(V::Element::MIN_POSITIVE), V::splat(V::Element::ZERO));
    let size = numbers.abs();
    V::any(V::and(V::lt(size, least), V::gt(size, zero)))
}

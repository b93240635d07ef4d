//! Sixteen words in an array: the definition that the other implementations must equal.

use crate::simd::{Decode, LANES, Portable, Words};

/// Sixteen words, operated on one after the other as far as the source says.
#[derive(Clone, Copy, Debug)]
pub struct PortableWords([i32; LANES]);

impl PortableWords {
    /// One result for each pair of words.
    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(i32, i32) -> i32) -> Self {
        let mut words = self.0;
        for (word, other) in words.iter_mut().zip(other.0) {
            *word = f(*word, other);
        }
        Self(words)
    }
}

impl Words for PortableWords {
    #[inline(always)]
    fn splat(word: i32) -> Self {
        Self([word; LANES])
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { from.cast::<[i32; LANES]>().read_unaligned() }.map(i32::from_le))
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut i32) {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<[i32; LANES]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    unsafe fn bytes(from: *const u8) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { *from.cast::<[u8; LANES]>() }.map(i32::from))
    }

    #[inline(always)]
    unsafe fn signed_bytes(from: *const u8) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { *from.cast::<[i8; LANES]>() }.map(i32::from))
    }

    #[inline(always)]
    unsafe fn halves(from: *const u8) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { *from.cast::<[[u8; 2]; LANES]>() }.map(|half| i32::from(u16::from_le_bytes(half))))
    }

    #[inline(always)]
    unsafe fn signed_halves(from: *const u8) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { *from.cast::<[[u8; 2]; LANES]>() }.map(|half| i32::from(i16::from_le_bytes(half))))
    }

    #[inline(always)]
    fn shift_left(self, bits: u32) -> Self {
        Self(self.0.map(|word| word << bits))
    }

    #[inline(always)]
    fn shift_right(self, bits: u32) -> Self {
        Self(self.0.map(|word| (word as u32 >> bits) as i32))
    }

    #[inline(always)]
    fn shift_right_signed(self, bits: u32) -> Self {
        Self(self.0.map(|word| word >> bits))
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        self.zip(other, |a, b| a & b)
    }

    #[inline(always)]
    fn or(self, other: Self) -> Self {
        self.zip(other, |a, b| a | b)
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        self.zip(other, |word, other| word ^ other)
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        self.zip(other, i32::wrapping_sub)
    }

    #[inline(always)]
    fn add_pairs(self, a: Self, b: Self) -> Self {
        let products =
            a.zip(b, |a, b| (i32::from(a as i16) * i32::from(b as i16)).wrapping_add((a >> 16) * (b >> 16)));
        self.zip(products, i32::wrapping_add)
    }
}

impl Decode for Portable<f32> {
    type Words = PortableWords;

    #[inline(always)]
    fn from_bits(words: PortableWords) -> Self {
        Self(words.0.map(|word| f32::from_bits(word as u32)))
    }

    #[inline(always)]
    fn from_integers(words: PortableWords) -> Self {
        Self(words.0.map(|word| word as f32))
    }

    #[inline(always)]
    fn look_up(self, words: PortableWords) -> Self {
        Self(words.0.map(|word| self.0[word as usize % LANES]))
    }

    #[inline(always)]
    fn negate_where(self, bits: u16) -> Self {
        Self(std::array::from_fn(|lane| if bits >> lane & 1 == 1 { -self.0[lane] } else { self.0[lane] }))
    }
}

//! Sixteen lanes for any processor.

use super::{Lanes, float16_to_f32, small_float_mask};

/// The sixteen lanes as an array.
#[derive(Clone, Copy)]
pub(super) struct Plain([f32; 16]);

impl Lanes for Plain {
    type Words = [u32; 16];
    const PLAIN: bool = true;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        Self([value; 16])
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's promise; an array has its element's alignment.
        Self(unsafe { *from.cast() })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: as `load`.
        unsafe { *to.cast() = self.0 }
    }

    #[inline(always)]
    unsafe fn multiply_add(self, a: Self, b: Self) -> Self {
        Self(std::array::from_fn(|lane| a.0[lane].mul_add(b.0[lane], self.0[lane])))
    }

    #[inline(always)]
    unsafe fn multiply(self, b: Self) -> Self {
        Self(std::array::from_fn(|lane| self.0[lane] * b.0[lane]))
    }

    #[inline(always)]
    unsafe fn subtract(self, b: Self) -> Self {
        Self(std::array::from_fn(|lane| self.0[lane] - b.0[lane]))
    }

    #[inline(always)]
    unsafe fn words(from: *const u8) -> [u32; 16] {
        // SAFETY: the caller's promise; bytes need no alignment.
        let bytes = unsafe { *from.cast::<[[u8; 4]; 16]>() };
        bytes.map(u32::from_le_bytes)
    }

    #[inline(always)]
    unsafe fn shift_right<const BITS: u32>(words: [u32; 16]) -> [u32; 16] {
        words.map(|word| word >> BITS)
    }

    #[inline(always)]
    unsafe fn look_up(self, words: [u32; 16]) -> Self {
        Self(words.map(|word| self.0[word as usize % 16]))
    }

    #[inline(always)]
    unsafe fn small_float<const BYTE: u32, const DOWN: u32>(words: [u32; 16]) -> Self {
        let place = |word: u32| ((word << (24 - 8 * BYTE)) as i32 >> DOWN) as u32;
        Self(words.map(|word| f32::from_bits(place(word) & small_float_mask(DOWN))))
    }

    #[inline(always)]
    unsafe fn bytes(from: *const u8) -> [u32; 16] {
        // SAFETY: the caller's promise; bytes need no alignment.
        unsafe { *from.cast::<[u8; 16]>() }.map(u32::from)
    }

    #[inline(always)]
    unsafe fn halves(from: *const u8) -> [u32; 16] {
        // SAFETY: the caller's promise; bytes need no alignment.
        unsafe { *from.cast::<[[u8; 2]; 16]>() }.map(|half| u32::from(u16::from_le_bytes(half)))
    }

    #[inline(always)]
    unsafe fn numbers(words: [u32; 16]) -> Self {
        Self(words.map(|word| word as i32 as f32))
    }

    #[inline(always)]
    unsafe fn integers(from: *const i8) -> Self {
        // SAFETY: the caller's promise; bytes need no alignment.
        Self(unsafe { *from.cast::<[i8; 16]>() }.map(f32::from))
    }

    #[inline(always)]
    unsafe fn integers16(from: *const u8) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { Self::halves(from) }.map(|half| f32::from(half as i16)))
    }

    #[inline(always)]
    unsafe fn float16(from: *const u8) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { Self::halves(from) }.map(|half| float16_to_f32(half as u16)))
    }

    #[inline(always)]
    unsafe fn bfloat16(from: *const u8) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { Self::halves(from) }.map(|half| f32::from_bits(half << 16)))
    }

    #[inline(always)]
    unsafe fn turned_by(self, bits: *const u8) -> Self {
        // SAFETY: the caller's promise; bytes need no alignment.
        let bits = u16::from_le_bytes(unsafe { *bits.cast() });
        Self(std::array::from_fn(|lane| if bits >> lane & 1 == 1 { -self.0[lane] } else { self.0[lane] }))
    }

    #[inline(always)]
    unsafe fn turn(rows: &[*const u8; 32], offset: usize, to: *mut u8, stride: usize) {
        for (row, from) in rows.iter().enumerate() {
            for column in 0..16 {
                // SAFETY: the caller's promise.
                unsafe { *to.add(column * stride + row) = *from.add(offset + column) };
            }
        }
    }
}

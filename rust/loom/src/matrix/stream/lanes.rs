//! Sixteen sums side by side, and what decodes codes into them.
//!
//! Wider in what it does than the batch kernels' vectors, and for `f32` alone.

use crate::dtype::float16_to_f32;

/// Sixteen `f32` in registers.
///
/// # Safety
/// All methods may be called only where the instruction set that the type stands for has been found at run
/// time; pointers must be good for as many elements as are read or written.
pub(super) trait Lanes: Copy {
    /// Sixteen words of 32 bits.
    type Words: Copy;
    /// Whether there is nothing to gain from several rows at once, which then need no code.
    const PLAIN: bool = false;

    unsafe fn splat(value: f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    unsafe fn store(self, to: *mut f32);
    /// `a * b + self`, rounded once.
    unsafe fn multiply_add(self, a: Self, b: Self) -> Self;
    /// `self * b`, rounded once.
    unsafe fn multiply(self, b: Self) -> Self;
    /// `self - b`, rounded once.
    unsafe fn subtract(self, b: Self) -> Self;
    /// Says that the memory there will be read soon; any address will do. It comes to the second-level cache: the
    /// first has too few ways for rows whose distance is a power of two, and too few misses under way at once.
    #[inline(always)]
    unsafe fn prefetch(_: *const u8) {}

    /// 64 bytes, the first in the lowest bits.
    unsafe fn words(from: *const u8) -> Self::Words;
    unsafe fn shift_right<const BITS: u32>(words: Self::Words) -> Self::Words;
    /// The element of a table of 16 that the four lowest bits of each word name.
    unsafe fn look_up(self, words: Self::Words) -> Self;
    /// Byte `BYTE` of each word, its highest bit the sign, the others below it from bit 31 - `DOWN` on, as
    /// the bits of a number: a small float but for a power of two.
    unsafe fn small_float<const BYTE: u32, const DOWN: u32>(words: Self::Words) -> Self;
    /// Sixteen bytes as words.
    unsafe fn bytes(from: *const u8) -> Self::Words;
    /// Sixteen codes of 16 bits as words.
    unsafe fn halves(from: *const u8) -> Self::Words;
    /// Words as signed integers.
    unsafe fn numbers(words: Self::Words) -> Self;
    /// Sixteen signed bytes as integers.
    unsafe fn integers(from: *const i8) -> Self;
    /// Sixteen signed integers of 16 bits.
    unsafe fn integers16(from: *const u8) -> Self;
    /// Sixteen numbers of binary16.
    unsafe fn float16(from: *const u8) -> Self;
    /// Sixteen numbers of bfloat16.
    unsafe fn bfloat16(from: *const u8) -> Self;
    /// Two bytes' bits, the lowest first: the sign of those that are 1 turned round.
    unsafe fn turned_by(self, bits: *const u8) -> Self;
    /// 32 rows of 16 bytes, `offset` bytes after these addresses, as columns, written `stride` bytes apart.
    unsafe fn turn(rows: &[*const u8; 32], offset: usize, to: *mut u8, stride: usize);
}

/// The sixteen lanes as an array.
#[derive(Clone, Copy)]
pub(super) struct Plain([f32; 16]);

/// The bits of a number that a small float's byte fills, `DOWN` bits below the sign.
pub(super) const fn small_float_mask(down: u32) -> u32 {
    0x8000_0000 | (0x7F00_0000 >> down)
}

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

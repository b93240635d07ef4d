//! Sixteen sums side by side, and what decodes codes into them.
//!
//! Wider in what it does than the batch kernels' vectors, and for `f32` alone.

mod entry;
mod plain;
#[cfg(target_arch = "x86_64")]
mod x86;

pub(crate) use entry::{LanesKernel, enter};

/// Sixteen `f32` in registers.
///
/// # Safety
/// All methods may be called only where the instruction set that the type stands for has been found at run
/// time; pointers must be good for as many elements as are read or written.
pub(crate) trait Lanes: Copy {
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

/// The number that binary16 bits stand for.
#[inline(always)]
pub fn float16_to_f32(bits: u16) -> f32 {
    let magnitude = u32::from(bits & 0x7FFF) << 13;
    // Read with binary32's bias the number is too small by 2^112; the product is exact,
    // and makes subnormals normal.
    let scaled = (f32::from_bits(magnitude) * f32::from_bits((127 + 112) << 23)).to_bits();
    let special = magnitude | 0x7F80_0000;
    let magnitude = if magnitude >= 0x0F80_0000 { special } else { scaled };
    f32::from_bits(magnitude | u32::from(bits & 0x8000) << 16)
}

/// The bits of a number that a small float's byte fills, `DOWN` bits below the sign.
const fn small_float_mask(down: u32) -> u32 {
    0x8000_0000 | (0x7F00_0000 >> down)
}

//! How a type whose elements are coded one by one turns numbers into codes and back.

use super::decoders::WithDecoder;
pub(super) use super::groups::Fit;
use super::vec4::Vec4Decoder;
use crate::simd::Real;

/// What of a group of elements its scale is made from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Statistic {
    /// Nothing: there is no scale.
    None,
    /// The largest magnitude.
    Largest,
    /// The least and the greatest, 0 among them.
    Range,
    /// The least and the greatest of its own.
    Extent,
    /// The mean magnitude.
    Mean,
}

/// An unsigned integer that holds a code.
pub(super) trait Code: Copy + Default + Send + Sync + 'static {
    /// Reads as many from their bytes, one after the other, the lowest byte first.
    fn read_all(bytes: &[u8], codes: &mut [Self]);
    /// [`read_all`](Self::read_all) of so many, or of none if there are fewer bytes.
    fn read<const COUNT: usize>(bytes: &[u8], codes: &mut [Self; COUNT]);
    /// To its bytes, the lowest first.
    fn write(self, bytes: &mut [u8]);
    /// The lowest eight bits.
    fn low(self) -> u8;
    /// From eight bits.
    fn from_low(low: u8) -> Self;
}

macro_rules! code {
    ($($type:ty),*) => {$(
        impl Code for $type {
            #[inline(always)]
            fn read_all(bytes: &[u8], codes: &mut [Self]) {
                // Bytes in arrays: slices of two bytes may be copied by a call each.
                for (code, bytes) in codes.iter_mut().zip(bytes.as_chunks().0) {
                    *code = Self::from_le_bytes(*bytes);
                }
            }

            #[inline(always)]
            fn read<const COUNT: usize>(bytes: &[u8], codes: &mut [Self; COUNT]) {
                // The number known ahead and no iterator: one load of a vector.
                if let Some(bytes) = bytes.as_chunks().0.first_chunk::<COUNT>() {
                    let mut place = 0;
                    while place < COUNT {
                        codes[place] = Self::from_le_bytes(bytes[place]);
                        place += 1;
                    }
                }
            }

            #[inline(always)]
            fn write(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }

            #[inline(always)]
            fn low(self) -> u8 {
                self as u8
            }

            #[inline(always)]
            fn from_low(low: u8) -> Self {
                Self::from(low)
            }
        }
    )*};
}

code!(u8, u16, u32, u64);

/// How one type turns numbers into codes and back.
pub(super) trait Coding: Send + Sync + 'static {
    /// What holds a code; it may have more bits.
    type Code: Code;
    /// Bits of a code: 1, 2, 4, or as many as [`Code`](Coding::Code) has.
    const BITS: usize;
    /// What scales are made from.
    const STATISTIC: Statistic;
    /// Words of 32 bits a group has: its scale, and the halves of its zero or its minimum.
    const WORDS: usize;
    /// Whether a minimum is added to codes times scales.
    const MINIMA: bool = false;
    /// How many inputs of an output share a scale unless asked otherwise, where not all of them do.
    const BLOCK: Option<usize> = None;
    /// Whether codes are symmetric integers of at most eight bits: in two's complement, or a bit for 1 or -1.
    const INTEGERS: bool = false;

    /// The scale of a group of this statistic (of which ranges and extents have two numbers); `None` where no code
    /// could hold its numbers.
    fn fit<T: Real>(first: T, second: T) -> Option<Fit> {
        let _ = (first, second);
        None
    }

    /// The code of a number; bits above [`BITS`](Coding::BITS) are anything.
    fn code<T: Real>(value: T, fit: Fit) -> Self::Code;

    /// The code of one of the two numbers next to `value` that codes stand for: of the upper one where the
    /// uniform number `drawn` in [0, 1) is less than how far `value` is from the lower one, as a part of their
    /// distance. Beyond all of them, of the last.
    fn drawn<T: Real>(value: T, fit: Fit, drawn: f32) -> Self::Code;

    /// Whether a code stands for a finite number.
    fn holds(code: Self::Code) -> bool {
        let _ = code;
        true
    }

    /// The number that a code stands for; bits above [`BITS`](Coding::BITS) are zeros.
    fn number<T: Real>(code: Self::Code, fit: Fit) -> T;

    /// Gives `to` the vector code that decodes rows of its codes, where there is such.
    fn decoder<W: WithDecoder>(to: W) -> Option<W::Output> {
        let _ = to;
        None
    }

    /// What a statistic is divided by for the scale, and WGSL statements that end in a `return` of a
    /// weight's code, as [`GpuEncoding`](super::format::GpuEncoding) has them; `None` for types that are
    /// encoded on the host.
    fn wgsl_code() -> Option<(f64, &'static str)> {
        None
    }

    /// WGSL statements that end in `let number = ..`, an `f32` from `code` and `zero`, both `u32` (and
    /// `high` and `zero_high` above 32 bits), to be multiplied by the scale where there is one; types with a
    /// minimum have no `zero`.
    fn wgsl() -> &'static str;

    /// How four codes are decoded together; `None` where that is no faster than one after the other by
    /// [`wgsl`](Coding::wgsl).
    fn wgsl_vec4() -> Option<Vec4Decoder> {
        None
    }
}

/// Packs the codes of whole bytes, or of the last few elements.
#[inline(always)]
pub(super) fn pack<C: Coding>(codes: &[C::Code], bytes: &mut [u8]) {
    if C::BITS < 8 {
        let (per, mask) = (8 / C::BITS, (1u32 << C::BITS) - 1);
        for (byte, codes) in bytes.iter_mut().zip(codes.chunks(per)) {
            let packed = codes.iter().enumerate().fold(0, |packed, (place, code)| {
                packed | (u32::from(code.low()) & mask) << (place * C::BITS)
            });
            *byte = packed as u8;
        }
    } else {
        for (bytes, code) in bytes.chunks_exact_mut(C::BITS / 8).zip(codes) {
            code.write(bytes);
        }
    }
}

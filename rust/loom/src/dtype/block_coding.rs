//! How a block format turns numbers into codes and back.

use super::block_layout::{BLOCK, CodeOrder};
use super::decoders::Decoder;
use super::grouping::Extents;
use super::vec4::Vec4Decoder;
use crate::simd::{Decode, LANES, Sixteen};
use std::ops::Range;

/// How the scale of a block is written: the bytes before its codes.
pub(crate) trait Scale: Send + Sync + 'static {
    /// One or two.
    const BYTES: usize;
    /// A WGSL expression of the scale, from a word `head` that the block begins with.
    const WGSL: &'static str;

    /// From those bytes, the lowest first; to be inlined.
    fn read(bits: u16) -> f32;

    /// Those of sixteen blocks.
    ///
    /// # Safety
    /// The bytes must be valid for reading.
    #[inline(always)]
    unsafe fn sixteen<V: Decode>(blocks: &Sixteen) -> V {
        let mut scales = [0.0; LANES];
        for (number, scale) in scales.iter_mut().enumerate() {
            let block = blocks.at(number);
            // SAFETY: the caller's promise.
            let bits = unsafe {
                match Self::BYTES {
                    1 => u16::from(*block),
                    _ => u16::from_le_bytes(*block.cast()),
                }
            };
            *scale = Self::read(bits);
        }
        V::load(&scales)
    }

    /// A WGSL expression of `number` times the scale, from a word `head` of those bytes alone.
    fn wgsl_times(number: &str) -> String {
        format!("{number} * {}", Self::WGSL)
    }
}

/// How one format packs a block. All that is done with its blocks follows from this.
pub(crate) trait BlockCoding: Send + Sync + 'static {
    /// How its scale is written, before the codes.
    type Scale: Scale;
    /// The integers that codes stand for, where they stand for such, as products of whole blocks read them.
    const INTEGERS: Integers = Integers::None;
    /// What an integer of 1 is worth, beside the scale: a power of two.
    const UNIT: f32 = 1.0;
    /// How its codes lie.
    const ORDER: CodeOrder;
    /// Bytes of a block.
    const BYTES: usize = Self::Scale::BYTES + Self::ORDER.bytes();
    /// A WGSL expression of the integer that a `code` stands for, an `u32`, where codes are symmetric integers.
    const WGSL_INTEGER: Option<&'static str> = None;
    /// Vector code for rows of bytes, of which those of four bits count the lower ones, ...
    type Decoder: Decoder;
    /// ... or the upper ones.
    type UpperDecoder: Decoder;

    /// Makes codes of a block of finite numbers; returns the bits of its scale, `None` where that would not be
    /// finite.
    fn encode(values: &[f32; BLOCK], codes: &mut [u8; BLOCK]) -> Option<u16>;

    /// The number that a code stands for, but for the scale; to be inlined.
    fn number(code: u8) -> f32;

    /// The 32 numbers of a block, but for its scale.
    ///
    /// # Safety
    /// The block's bytes must be valid for reading.
    #[inline(always)]
    unsafe fn numbers<V: Decode>(block: *const u8) -> [V; 2] {
        let mut numbers = [0.0; BLOCK];
        for (place, number) in numbers.iter_mut().enumerate() {
            let (byte, shift) = Self::ORDER.of(place);
            // SAFETY: the caller's promise.
            let code = unsafe { *block.add(Self::Scale::BYTES + byte) } >> shift;
            *number = Self::number(if Self::ORDER.bits() == 4 { code & 15 } else { code });
        }
        [V::load(&numbers[..LANES]), V::load(&numbers[LANES..])]
    }

    /// The same where that is an integer.
    fn integer(_: u8) -> i8 {
        0
    }

    /// WGSL statements that end in `let number = ..`, from `code`.
    fn wgsl_number() -> String;

    /// How four codes are decoded together.
    fn wgsl_vec4() -> Vec4Decoder;
}

/// How the integers of a block are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Integers {
    /// Codes are no integers.
    None,
    /// Signed bytes.
    Bytes,
    /// The halves of bytes, less a number: the lower halves are the block's first half or, with `CodeOrder::Pairs`,
    /// what stands at even places.
    Halves {
        /// That number.
        less: i32,
        /// What codes stand for before it is taken off, where not for themselves; at most 63.
        table: Option<&'static [u8; 16]>,
    },
}

/// What is done with the layout of a format's blocks.
pub(crate) trait WithBlocks {
    /// What `with` returns.
    type Output;

    /// Called with the coding of the format.
    fn with<B: BlockCoding>(self) -> Self::Output;
}

/// What of blocks whose codes are symmetric integers is read apart: integers, and scales.
pub(super) trait BlockIntegers {
    /// The integers of some columns of some rows of k, row after row, so far apart.
    fn codes(
        &self,
        packing: &Extents,
        bytes: &[u8],
        depth: Range<usize>,
        columns: Range<usize>,
        codes: (&mut [i8], usize),
    );

    /// The scales of some columns at row `k`.
    fn scales(&self, packing: &Extents, bytes: &[u8], k: usize, columns: Range<usize>, scales: &mut [f32]);
}

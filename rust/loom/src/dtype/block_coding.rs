//! How a block format turns numbers into codes and back.

use super::block_layout::{BLOCK, CodeOrder};
use super::decoders::Decoder;
use super::grouping::Extents;
use super::vec4::Vec4Decoder;
use std::ops::Range;

/// How the scale of a block is written: the bytes before its codes.
pub(crate) trait Scale: Send + Sync + 'static {
    /// One or two.
    const BYTES: usize;
    /// A WGSL expression of the scale, from a word `head` that the block begins with.
    const WGSL: &'static str;

    /// From those bytes, the lowest first; to be inlined.
    fn read(bits: u16) -> f32;

    /// A WGSL expression of `number` times the scale, from a word `head` of those bytes alone.
    fn wgsl_times(number: &str) -> String {
        format!("{number} * {}", Self::WGSL)
    }
}

/// How one format packs a block. All that is done with its blocks follows from this.
pub(crate) trait BlockCoding: Send + Sync + 'static {
    /// How its scale is written, before the codes.
    type Scale: Scale;
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

    /// The same where that is an integer.
    fn integer(_: u8) -> i8 {
        0
    }

    /// WGSL statements that end in `let number = ..`, from `code`.
    fn wgsl_number() -> String;

    /// How four codes are decoded together.
    fn wgsl_vec4() -> Vec4Decoder;
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

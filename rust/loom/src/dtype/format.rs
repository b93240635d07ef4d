//! What a numeric type's row can do.

use super::block_coding::{BlockIntegers, WithBlocks};
use super::block_layout::BlockLayout;
use super::decoders::WithDecoder;
use super::grouping::Extents;
use super::rule::Rule;
use super::vec4::BlockWords;
use crate::simd::{Cpu, Isa, Real};
use std::ops::Range;

/// Why a parameter cannot be encoded; `index` is that of the first element concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is NaN or infinite.
    NonFinite {
        /// Flat index.
        index: usize,
    },
    /// It is finite, but would become infinite.
    Overflow {
        /// Flat index.
        index: usize,
    },
}

/// Where codes and scales go.
pub(super) struct Target<'a> {
    pub bytes: &'a mut [u8],
    pub scales: &'a mut [f32],
}

/// What of a group of elements its scale is made from, where a GPU finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GpuStatistic {
    /// The largest magnitude.
    Largest,
    /// The least and the greatest.
    Range,
    /// The mean magnitude.
    Mean,
}

/// How a GPU encodes a type with scales and codes of up to 16 bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GpuEncoding {
    /// What scales are made from.
    pub(crate) statistic: GpuStatistic,
    /// What the statistic is divided by.
    pub(crate) limit: f64,
    /// WGSL statements that end in a `return` of the code of the weight `bits` (its `magnitude`, and whether
    /// it is `negative`) by `scale` and `zero`, all of them bits.
    pub(crate) code: &'static str,
}

/// What a numeric type is in memory and on a GPU, as its table row has it.
pub(super) trait Format: Send + Sync {
    /// Words of 32 bits that a group of elements has beside its codes.
    fn words(&self) -> usize;

    /// Whether the second of them is a minimum, which is added to codes times scales.
    fn has_minima(&self) -> bool {
        false
    }

    /// Bytes of a packed parameter of these extents.
    fn bytes(&self, rows: usize, channels: usize) -> usize;

    /// How a GPU encodes it, where it can.
    fn gpu_encoding(&self) -> Option<GpuEncoding> {
        None
    }

    /// The body of a WGSL function of `at: u32`, the number of an element, that returns it as `f32`, from
    /// the arrays of words `packed` and `scales`.
    fn wgsl(&self, how: &Extents) -> String;

    /// The WGSL of `fn NAME(word: .., zeros: ..) -> vec4<f32>`, four codes that follow each other in whole
    /// words, with `fn NAME_scales` and `fn NAME_zeros`, as [`Packing::wgsl_vec4`](super::Packing::wgsl_vec4) says.
    fn wgsl_vec4(&self, _name: &str) -> Option<(String, f32)> {
        None
    }

    /// How words of the codes of a block are decoded, of formats that have blocks.
    fn wgsl_block(&self, _name: &str) -> Option<BlockWords> {
        None
    }

    /// The layout of blocks, of formats that have them.
    fn block_layout(&self) -> Option<BlockLayout> {
        None
    }

    /// Integers and scales of blocks, of formats whose codes are symmetric integers.
    fn block_integers(&self) -> Option<&dyn BlockIntegers> {
        None
    }

    /// WGSL statements that return the code of the element (`k`, `column`) as an integer, and such that return
    /// the scale of group `number` of a column, of types whose codes are symmetric integers.
    fn wgsl_integers(&self, _: &Extents) -> Option<[String; 2]> {
        None
    }

    /// The WGSL of `fn NAME(at: u32) -> vec4<f32>`, four elements from a multiple of four on, where they are
    /// found together faster than one by one.
    fn wgsl_vec4_at(&self, _: &Extents, _name: &str) -> Option<String> {
        None
    }
}

/// What of a [`Format`] is chosen where code is compiled for it.
pub(super) trait Storage: Format + 'static {
    /// Bits of a code.
    const BITS: usize;
    /// How many inputs of an output share a scale unless asked otherwise, where that is a matter of the type.
    const BLOCK: Option<usize>;
    /// Whether codes are symmetric integers of at most eight bits.
    const INTEGERS: bool;
    /// The same for whom it does not matter.
    const FORMAT: &'static dyn Format;

    /// Encodes a parameter of these extents.
    fn encode<T: Real>(
        how: &Extents,
        cpu: Option<&Cpu>,
        rule: &Rule<'_>,
        data: &[T],
        to: Target<'_>,
    ) -> Result<(), Refusal>;

    /// Encodes with the scales that are there; for types that have scales apart.
    #[cfg(test)]
    fn encode_held<T: Real>(_: &Extents, _: &[T], _: &mut [u8], _: &[f32]) {}

    /// Decodes a tile of rows and columns, row after row, `stride` elements from one to the next.
    fn decode<T: Real>(
        with: (&Extents, Isa),
        from: (&[u8], &[f32]),
        tile: (Range<usize>, Range<usize>),
        out: &mut [T],
        stride: usize,
    );

    /// Gives `to` the vector code that decodes rows of its codes, where there is such.
    fn decoder<W: WithDecoder>(_: W) -> Option<W::Output> {
        None
    }

    /// Gives `to` the layout of its blocks, of a block format.
    fn blocks<W: WithBlocks>(_: W) -> Option<W::Output> {
        None
    }
}

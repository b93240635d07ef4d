//! What a numeric type's row can do, and the extents of what it does that with.

use super::block::{BlockIntegers, BlockLayout, WithBlocks};
use super::decoders::WithDecoder;
use super::rule::Rule;
use super::vec4::BlockWords;
use crate::simd::{Cpu, Isa, Real};
use crate::{Error, Result};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// Which elements share a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Granularity {
    /// There is no scale.
    Unscaled,
    /// The whole parameter.
    Tensor,
    /// The weights of one output.
    Channel,
    /// So many inputs of one output that follow each other; the last may be fewer.
    Block(usize),
}

impl fmt::Display for Granularity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Granularity::Unscaled => f.write_str("none"),
            Granularity::Tensor => f.write_str("tensor"),
            Granularity::Channel => f.write_str("channel"),
            Granularity::Block(elements) => write!(f, "block({elements})"),
        }
    }
}

impl FromStr for Granularity {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let elements = || text.strip_prefix("block(")?.strip_suffix(')')?.trim().parse().ok();
        match text {
            "tensor" => Ok(Granularity::Tensor),
            "channel" => Ok(Granularity::Channel),
            "none" => Ok(Granularity::Unscaled),
            _ => elements().filter(|elements| *elements > 0).map(Granularity::Block).ok_or_else(|| {
                Error::Value(format!(
                    "unknown granularity \"{text}\"; use \"channel\", \"tensor\", or \"block(n)\" for a scale \
                     for each n inputs of an output"
                ))
            }),
        }
    }
}

impl Serialize for Granularity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Granularity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

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

/// A row-major matrix whose columns are the output channels, and which of its elements share a scale.
#[derive(Clone, Copy)]
pub(super) struct Extents {
    pub granularity: Granularity,
    pub rows: usize,
    pub channels: usize,
}

impl Extents {
    /// Rows and columns of the matrix that groups of so many rows of a column cut.
    pub fn groups_grid(&self) -> (usize, usize, usize) {
        let elements = self.rows * self.channels;
        match self.granularity {
            // One long column.
            Granularity::Tensor => (elements, 1, elements.max(1)),
            Granularity::Block(rows) => (self.rows, self.channels, rows.clamp(1, self.rows.max(1))),
            Granularity::Channel | Granularity::Unscaled => (self.rows, self.channels, self.rows.max(1)),
        }
    }
}

/// What a numeric type is in memory and on a GPU, as its table row has it.
pub(super) trait Format: Send + Sync {
    /// Words of 32 bits that a group of elements has beside its codes.
    fn words(&self) -> usize;

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

//! The numeric types that weights are held and used in: one table row each.

mod affine;
mod block;
mod block_coding;
mod block_layout;
mod codec;
mod coding;
mod columns;
mod decode;
pub(crate) mod decoders;
mod elsewhere;
mod encode;
mod float16;
mod format;
mod ggml;
mod grouping;
mod groups;
mod integers;
mod microscaling;
mod minimum;
mod nf4;
mod packing;
mod plain;
mod recipe;
mod rule;
mod search;
mod small_float;
mod symmetric;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod vec4;
mod wgsl;

pub(crate) use block_coding::{BlockCoding, Integers, Scale, WithBlocks};
pub(crate) use block_layout::{BLOCK, BlockLayout, CodeOrder};
pub(crate) use float16::to_f32_odd;
pub use float16::{bfloat16_to_f32, f32_to_bfloat16, f32_to_float16, float16_to_f32};
pub use format::Refusal;
pub(crate) use format::{GpuEncoding, GpuStatistic};
pub(crate) use ggml::{encode_q4_0, encode_q8_0};
pub use grouping::Granularity;
pub use packing::Packing;
pub use recipe::Recipe;
pub use rule::{Calibration, Rounding, Rule};
pub(crate) use vec4::BlockWords;

use crate::precision::Precision;
use crate::simd::{Cpu, Isa, Real};
use crate::{Error, Result, error};
use block::Blocks;
use codec::Flat;
use decoders::WithDecoder;
use format::{Format, Storage, Target};
use grouping::Extents;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// How codes stand for numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Sign, exponent and fraction, or a level of a table; below 16 bits times a scale.
    Float,
    /// q S with q in [-Q, Q].
    Symmetric,
    /// (q - z) S with q in [0, 2^bits - 1].
    Affine,
    /// q S + m with q in [0, 2^bits - 1].
    Minimum,
    /// q S with q in {-1, 0, 1}, S the mean magnitude.
    Ternary,
    /// q S with q in {-1, 1}, S the mean magnitude.
    Binary,
    /// Blocks that hold their own scale, by rules of their own.
    Block,
}

/// What is known of a numeric type: its row of the table.
#[derive(Clone, Copy)]
pub struct Row {
    /// The type.
    pub dtype: DType,
    /// Its name.
    pub name: &'static str,
    /// Bits of one element, a block format's scale left out.
    pub bits: usize,
    /// How codes stand for numbers.
    pub kind: Kind,
    /// Which elements share a scale unless asked otherwise.
    pub granularity: Granularity,
    /// The least and the greatest: values of a float, codes of anything else.
    pub range: (f64, f64),
    /// The fewest elements that fill whole bytes.
    pub block: usize,
    /// The rule, in words.
    pub rule: &'static str,
    /// Whether codes are symmetric integers of at most eight bits.
    integers: bool,
    /// What it is in memory and on a GPU.
    format: &'static dyn Format,
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Row {
    const fn rule(self, rule: &'static str) -> Self {
        Self { rule, ..self }
    }

    /// Bits that an element takes, with its share of the scale of a block, where that is a matter of the type.
    pub fn bits_per_weight(&self) -> f64 {
        match self.granularity {
            Granularity::Block(inputs) => {
                let bits = self.format.bytes(inputs, 1) * 8 + self.format.words() * 32;
                bits as f64 / inputs as f64
            }
            _ => self.bits as f64,
        }
    }
}

const fn row<S: Storage>(dtype: DType, name: &'static str, kind: Kind, range: (f64, f64)) -> Row {
    let bits = S::BITS;
    let granularity = match kind {
        Kind::Float if bits >= 16 => Granularity::Unscaled,
        _ if bits > 8 => Granularity::Tensor,
        _ => Granularity::Channel,
    };
    let granularity = match S::BLOCK {
        Some(inputs) => Granularity::Block(inputs),
        None => granularity,
    };
    let block = match kind {
        Kind::Block => BLOCK,
        _ if bits < 8 => 8 / bits,
        _ => 1,
    };
    let rule = match kind {
        Kind::Float if bits > 32 => "as is",
        Kind::Float if bits == 32 => "rounded to nearest, ties to even",
        Kind::Float if bits == 16 => {
            "rounded to nearest, ties to even; what would become infinite is refused"
        }
        Kind::Float => "w/S rounded to nearest, ties to even, saturating; S = amax / largest",
        Kind::Symmetric => "q = rint(w/S) in [-Q, Q], Q = 2^(bits-1) - 1, S = amax / Q",
        Kind::Affine => "q = rint(w/S) + z in [0, L], L = 2^bits - 1, S = (hi - lo) / L, z = rint(-lo/S)",
        Kind::Minimum => {
            "q S + m: q = rint((w - m)/S) in [0, L], L = 2^bits - 1, S = (hi - lo) / L, m = lo of 32"
        }
        Kind::Ternary => "q = rint(w/S) in [-1, 1], S = mean magnitude",
        Kind::Binary => "q = sign, zero counts as 1, S = mean magnitude",
        Kind::Block => "",
    };
    Row { dtype, name, bits, kind, granularity, range, block, rule, integers: S::INTEGERS, format: S::FORMAT }
}

const fn within(limit: f64) -> (f64, f64) {
    (-limit, limit)
}

use Kind::{Affine, Binary, Block, Float, Minimum, Symmetric, Ternary};

const Q4_0_RULE: &str =
    "llama.cpp's bytes: d = (value of largest magnitude) / -8, q = min(15, trunc(w/d + 8.5))";
const Q8_0_RULE: &str = "llama.cpp's bytes: d = amax / 127, q = round(w/d), half away from zero";
const NF4_RULE: &str = "QLoRA's levels: w/S rounded to the nearest, the lower of two, S = amax of 64";
const MX_RULE: &str = "OCP MX: S = 2^(floor(log2 amax) - emax), w/S rounded to nearest, saturating";

/// Makes the types of their rows: the name in code, the name, how codes stand for numbers, the least and the
/// greatest, how it is stored, and the rule where the kind does not say it.
macro_rules! types {
    ($($variant:ident: $name:literal, $kind:expr, $range:expr, $storage:ty $(, $rule:expr)?;)*) => {
        /// A numeric type.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs, reason = "each variant is the type of that name, described by its table row")]
        pub enum DType {
            $($variant,)*
        }

        /// The table, in the order of [`DType`]'s variants.
        static TABLE: [Row; [$($name),*].len()] =
            [$(row::<$storage>(DType::$variant, $name, $kind, $range)$(.rule($rule))?),*];

        impl DType {
            fn encode<T: Real>(
                self,
                how: &Extents,
                cpu: Option<&Cpu>,
                rule: &Rule<'_>,
                data: &[T],
                to: Target<'_>,
            ) -> Result<(), Refusal> {
                match self {
                    $(DType::$variant => <$storage>::encode(how, cpu, rule, data, to),)*
                }
            }

            #[cfg(test)]
            fn encode_held<T: Real>(self, how: &Extents, data: &[T], bytes: &mut [u8], scales: &[f32]) {
                match self {
                    $(DType::$variant => <$storage>::encode_held(how, data, bytes, scales),)*
                }
            }

            fn decode<T: Real>(
                self,
                with: (&Extents, Isa),
                from: (&[u8], &[f32]),
                tile: (Range<usize>, Range<usize>),
                out: &mut [T],
                stride: usize,
            ) {
                match self {
                    $(DType::$variant => <$storage>::decode(with, from, tile, out, stride),)*
                }
            }

            /// Gives `to` the vector code that decodes rows of its codes, where there is such.
            pub(crate) fn with_decoder<W: WithDecoder>(self, to: W) -> Option<W::Output> {
                match self {
                    $(DType::$variant => <$storage>::decoder(to),)*
                }
            }

            /// Gives `to` the layout of its blocks, of a block format.
            pub(crate) fn with_blocks<W: WithBlocks>(self, to: W) -> Option<W::Output> {
                match self {
                    $(DType::$variant => <$storage>::blocks(to),)*
                }
            }
        }
    };
}

types! {
    Float64: "float64", Float, within(f64::MAX), Flat<plain::Float64>;
    Float32: "float32", Float, within(f32::MAX as f64), Flat<plain::Float32>;
    Float16: "float16", Float, within(65504.0), Flat<float16::Float16>;
    // (2 - 2^-7) 2^127
    BFloat16: "bfloat16", Float, within(3.389_531_389_251_535_5e38), Flat<float16::BFloat16>;
    Float8E4M3: "float8_e4m3", Float, within(448.0), Flat<small_float::E4M3>;
    Float8E5M2: "float8_e5m2", Float, within(57344.0), Flat<small_float::E5M2>;
    Float4E2M1: "float4_e2m1", Float, within(6.0), Flat<small_float::E2M1>;
    Int64: "int64", Symmetric, within(i64::MAX as f64), Flat<symmetric::Int64>;
    Int32: "int32", Symmetric, within(2_147_483_647.0), Flat<symmetric::Int32>;
    Int16: "int16", Symmetric, within(32767.0), Flat<symmetric::Int16>;
    Int8: "int8", Symmetric, within(127.0), Flat<symmetric::Int8>;
    Int4: "int4", Symmetric, within(7.0), Flat<symmetric::Int4>;
    Int2: "int2", Symmetric, within(1.0), Flat<symmetric::Int2>;
    Uint64: "uint64", Affine, (0.0, u64::MAX as f64), Flat<affine::Uint64>;
    Uint32: "uint32", Affine, (0.0, 4_294_967_295.0), Flat<affine::Uint32>;
    Uint16: "uint16", Affine, (0.0, 65535.0), Flat<affine::Uint16>;
    Uint8: "uint8", Affine, (0.0, 255.0), Flat<affine::Uint8>;
    Uint4: "uint4", Affine, (0.0, 15.0), Flat<affine::Uint4>;
    Uint2: "uint2", Affine, (0.0, 3.0), Flat<affine::Uint2>;
    Ternary: "ternary", Ternary, within(1.0), Flat<symmetric::Ternary>;
    Binary: "binary", Binary, within(1.0), Flat<symmetric::Binary>;
    Q4_0: "q4_0", Block, (0.0, 15.0), Blocks<ggml::Q4_0>, Q4_0_RULE;
    Q8_0: "q8_0", Block, within(127.0), Blocks<ggml::Q8_0>, Q8_0_RULE;
    MxFp8E4M3: "mxfp8_e4m3", Block, within(448.0), Blocks<microscaling::MxFp8E4M3>, MX_RULE;
    MxFp8E5M2: "mxfp8_e5m2", Block, within(57344.0), Blocks<microscaling::MxFp8E5M2>, MX_RULE;
    MxFp4: "mxfp4", Block, within(6.0), Blocks<microscaling::MxFp4>, MX_RULE;
    Nf4: "nf4", Float, within(1.0), Flat<nf4::Nf4>, NF4_RULE;
    Uint8Min: "uint8_min", Minimum, (0.0, 255.0), Flat<minimum::Uint8Min>;
    Uint4Min: "uint4_min", Minimum, (0.0, 15.0), Flat<minimum::Uint4Min>;
    Uint2Min: "uint2_min", Minimum, (0.0, 3.0), Flat<minimum::Uint2Min>;
}

/// How many types have codes that are symmetric integers of at most eight bits.
pub(crate) const INTEGERS: usize = {
    let (mut count, mut index) = (0, 0);
    while index < TABLE.len() {
        count += TABLE[index].integers as usize;
        index += 1;
    }
    count
};

/// Those types, the widest first and block formats last.
pub(crate) const fn integers() -> [DType; INTEGERS] {
    let mut found = [DType::Int8; INTEGERS];
    let (mut count, mut place) = (0, 0);
    while place < 16 * TABLE.len() {
        let (rank, row) = (place / TABLE.len(), &TABLE[place % TABLE.len()]);
        if row.integers && row.bits == 8 - rank % 8 && matches!(row.kind, Block) == (rank >= 8) {
            found[count] = row.dtype;
            count += 1;
        }
        place += 1;
    }
    found
}

impl DType {
    /// Every type, in the table's order.
    pub fn all() -> impl ExactSizeIterator<Item = DType> + Clone {
        TABLE.iter().map(|row| row.dtype)
    }

    /// What is known of it.
    pub fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// Its name, such as `float8_e4m3`.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The type of this name.
    ///
    /// # Errors
    /// [`Error::DType`] for an unknown name, suggesting the type that others call so, or the nearest.
    pub fn parse(name: &str) -> Result<Self> {
        let named = |name: &str| TABLE.iter().find(|row| row.name == name);
        named(name).map(|row| row.dtype).ok_or_else(|| {
            let known = TABLE.iter().map(|row| row.name);
            let own = || named(&elsewhere::bare(name)).map(|row| row.name);
            match error::unknown_or("numeric type", name, elsewhere::meant(name).or_else(own), known) {
                Error::Value(message) => Error::DType(message),
                other => other,
            }
        })
    }

    /// Bytes of `elements` packed elements of one output, without scales.
    pub fn storage_bytes(self, elements: usize) -> usize {
        self.row().format.bytes(elements, 1)
    }

    /// Whether blocks hold their own scales, one output after the other.
    pub fn is_block_format(self) -> bool {
        self.row().kind == Kind::Block
    }

    /// A magnitude up to which any numbers can be packed: all but the largest of what the type holds.
    pub(crate) fn surely_held(self) -> f64 {
        match self {
            DType::Float16 => 65504.0,
            // Scales of blocks may be in binary16.
            _ if self.is_block_format() => 65504.0,
            // Scales are in single precision, and a range is twice as wide as its numbers are large.
            _ => f64::from(f32::MAX) / 16.0,
        }
    }

    /// The granularity that is asked for, or the type's own.
    ///
    /// # Errors
    /// [`Error::DType`] for one that the type cannot have.
    pub fn granularity(self, asked: Option<Granularity>) -> Result<Granularity> {
        let own = self.row().granularity;
        match asked {
            None => Ok(own),
            Some(asked) if asked == own => Ok(own),
            Some(Granularity::Block(0)) => Err(Error::Value("a block holds at least one weight".into())),
            Some(Granularity::Unscaled) => {
                Err(Error::DType(format!("{self} needs scales; its own are a {own}")))
            }
            Some(asked) if self.is_block_format() || own == Granularity::Unscaled => {
                let has = if self.is_block_format() { "blocks of its own" } else { "no scales" };
                Err(Error::DType(format!("{self} has {has}, so its granularity cannot be \"{asked}\"")))
            }
            Some(asked) => Ok(asked),
        }
    }
}

impl Precision {
    /// The numeric type of masters and activations.
    pub fn dtype(self) -> DType {
        match self {
            Precision::Float32 | Precision::Mixed => DType::Float32,
            Precision::Float64 => DType::Float64,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DType {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::parse(name)
    }
}

impl Serialize for DType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for DType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

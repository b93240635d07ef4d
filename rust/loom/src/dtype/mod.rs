//! The numeric types that weights are held and used in: one table row each.

mod codec;
mod float16;
mod int8;

pub use codec::{Codec, Refusal};
pub use float16::{bfloat16_to_f32, f32_to_bfloat16, f32_to_float16, float16_to_f32};

use crate::cpu::{Cpu, Real};
use crate::{Error, Result, error};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::str::FromStr;

/// A numeric type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each variant is the type of that name, described by its table row")]
pub enum DType {
    Float64,
    Float32,
    Float16,
    BFloat16,
    Float8E4M3,
    Float8E5M2,
    Float4E2M1,
    Int64,
    Int32,
    Int16,
    Int8,
    Int4,
    Int2,
    Uint64,
    Uint32,
    Uint16,
    Uint8,
    Uint4,
    Uint2,
    Ternary,
    Binary,
}

/// How codes stand for numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Sign, exponent and fraction; below 16 bits times a scale.
    Float,
    /// q S with q in [-Q, Q].
    Symmetric,
    /// (q - z) S with q in [0, 2^bits - 1].
    Affine,
    /// q S with q in {-1, 0, 1}, S the mean magnitude.
    Ternary,
    /// q S with q in {-1, 1}, S the mean magnitude.
    Binary,
}

/// Which elements share a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Granularity {
    /// There is no scale.
    Unscaled,
    /// The whole parameter.
    Tensor,
    /// What makes one output.
    Channel,
}

/// What is known of a numeric type: its row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The type.
    pub dtype: DType,
    /// Its name.
    pub name: &'static str,
    /// Bits of one element.
    pub bits: usize,
    /// How codes stand for numbers.
    pub kind: Kind,
    /// Which elements share a scale unless asked otherwise.
    pub granularity: Granularity,
    /// The least and the greatest: values of a float, codes of anything else.
    pub range: (f64, f64),
    /// The fewest elements that fill whole bytes.
    pub block: usize,
    /// How it is encoded and decoded; `None` where that is not built.
    pub codec: Option<Codec>,
}

const fn row(
    dtype: DType,
    name: &'static str,
    bits: usize,
    kind: Kind,
    granularity: Granularity,
    range: (f64, f64),
    codec: Option<Codec>,
) -> Row {
    let block = if bits < 8 { 8 / bits } else { 1 };
    Row { dtype, name, bits, kind, granularity, range, block, codec }
}

const fn within(limit: f64) -> (f64, f64) {
    (-limit, limit)
}

use Granularity::{Channel, Tensor, Unscaled};
use Kind::{Affine, Binary, Float, Symmetric, Ternary};

/// The table, in the order of [`DType`]'s variants.
const TABLE: [Row; 21] = [
    row(DType::Float64, "float64", 64, Float, Unscaled, within(f64::MAX), None),
    row(DType::Float32, "float32", 32, Float, Unscaled, within(f32::MAX as f64), None),
    row(DType::Float16, "float16", 16, Float, Unscaled, within(65504.0), Some(Codec::Float16)),
    // (2 - 2^-7) 2^127
    row(
        DType::BFloat16,
        "bfloat16",
        16,
        Float,
        Unscaled,
        within(3.389_531_389_251_535_5e38),
        Some(Codec::BFloat16),
    ),
    row(DType::Float8E4M3, "float8_e4m3", 8, Float, Channel, within(448.0), None),
    row(DType::Float8E5M2, "float8_e5m2", 8, Float, Channel, within(57344.0), None),
    row(DType::Float4E2M1, "float4_e2m1", 4, Float, Channel, within(6.0), None),
    row(DType::Int64, "int64", 64, Symmetric, Tensor, within(i64::MAX as f64), None),
    row(DType::Int32, "int32", 32, Symmetric, Tensor, within(2_147_483_647.0), None),
    row(DType::Int16, "int16", 16, Symmetric, Tensor, within(32767.0), None),
    row(DType::Int8, "int8", 8, Symmetric, Channel, within(127.0), Some(Codec::Int8)),
    row(DType::Int4, "int4", 4, Symmetric, Channel, within(7.0), None),
    row(DType::Int2, "int2", 2, Symmetric, Channel, within(1.0), None),
    row(DType::Uint64, "uint64", 64, Affine, Tensor, (0.0, u64::MAX as f64), None),
    row(DType::Uint32, "uint32", 32, Affine, Tensor, (0.0, 4_294_967_295.0), None),
    row(DType::Uint16, "uint16", 16, Affine, Tensor, (0.0, 65535.0), None),
    row(DType::Uint8, "uint8", 8, Affine, Channel, (0.0, 255.0), None),
    row(DType::Uint4, "uint4", 4, Affine, Channel, (0.0, 15.0), None),
    row(DType::Uint2, "uint2", 2, Affine, Channel, (0.0, 3.0), None),
    row(DType::Ternary, "ternary", 2, Ternary, Channel, within(1.0), None),
    row(DType::Binary, "binary", 1, Binary, Channel, within(1.0), None),
];

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
    /// [`Error::DType`] for an unknown name, suggesting the nearest.
    pub fn parse(name: &str) -> Result<Self> {
        let found = TABLE.iter().find(|row| row.name == name).map(|row| row.dtype);
        found.ok_or_else(|| match error::unknown("numeric type", name, TABLE.iter().map(|row| row.name)) {
            Error::Value(message) => Error::DType(message),
            other => other,
        })
    }

    /// Bytes of `elements` packed elements, without scales.
    pub fn storage_bytes(self, elements: usize) -> usize {
        let bits = self.row().bits;
        // In two parts, so that the product with the bits cannot overflow.
        elements / 8 * bits + (elements % 8 * bits).div_ceil(8)
    }

    /// Scales of a parameter with this many channels.
    pub fn scale_count(self, channels: usize) -> usize {
        match self.row().granularity {
            Granularity::Unscaled => 0,
            Granularity::Tensor => 1,
            Granularity::Channel => channels,
        }
    }

    /// Refuses a type that weights cannot be packed as.
    ///
    /// # Errors
    /// [`Error::DType`] naming those that can be used.
    pub fn check_usable(self) -> Result<()> {
        self.codec().map(|_| ())
    }

    /// How it is encoded and decoded.
    ///
    /// # Errors
    /// [`Error::DType`] naming the types that can be used, where this one cannot.
    pub fn codec(self) -> Result<Codec> {
        self.row().codec.ok_or_else(|| {
            let usable: Vec<&str> =
                TABLE.iter().filter(|row| row.codec.is_some()).map(|row| row.name).collect();
            Error::DType(format!(
                "weights cannot be packed as {self} yet; use {}, or the network's own precision",
                usable.join(", ")
            ))
        })
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

/// Packs the parameter `name`, a row-major matrix of `channels` columns, into
/// [`storage_bytes`](DType::storage_bytes) and [`scale_count`](DType::scale_count) scales, on
/// the threads of `cpu` or on this one, with the same result. `bytes` is aligned to the codes,
/// as every [`Buffer`](crate::Buffer) is.
///
/// # Errors
/// [`Error::DType`] for a type that cannot be used, [`Error::NonFinite`] for a parameter that
/// holds NaN or infinity, [`Error::Value`] for one with a weight that the type cannot hold.
pub fn encode<T: Real>(
    dtype: DType,
    cpu: Option<&Cpu>,
    name: &str,
    data: &[T],
    channels: usize,
    bytes: &mut [u8],
    scales: &mut [f32],
) -> Result<()> {
    dtype.codec()?.encode(cpu, data, channels, bytes, scales).map_err(|refusal| match refusal {
        Refusal::NonFinite { index } => Error::NonFinite(format!(
            "parameter \"{name}\" holds {} at element {index}, so it cannot be packed as {dtype}; \
             set it to finite values first",
            data[index]
        )),
        Refusal::Overflow { index } => Error::Value(format!(
            "parameter \"{name}\" holds {:e} at element {index}, which would become infinite in {dtype}; \
             use a type of wider range, or shrink the weights",
            data[index].to_f64()
        )),
    })
}

/// Unpacks what [`encode`] made.
///
/// # Errors
/// [`Error::DType`] for a type that cannot be used.
pub fn decode<T: Real>(
    dtype: DType,
    bytes: &[u8],
    scales: &[f32],
    channels: usize,
    out: &mut [T],
) -> Result<()> {
    dtype.codec()?.decode(bytes, scales, channels, out);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Buffer;

    #[test]
    fn the_table_is_in_order_and_consistent() {
        assert_eq!(DType::all().len(), 21);
        for (index, row) in TABLE.iter().enumerate() {
            assert_eq!(row.dtype as usize, index);
            assert_eq!(row.block * row.bits % 8, 0);
            let scaled = row.granularity != Unscaled;
            assert_eq!(scaled, row.kind != Float || row.bits <= 8, "{}", row.name);
            assert_eq!(row.granularity == Channel, row.bits <= 8, "{}", row.name);
            match row.kind {
                Symmetric => {
                    let limit = (2f64.powi(row.bits as i32 - 1) - 1.0).max(1.0);
                    assert_eq!(row.range, (-limit, limit), "{}", row.name);
                }
                Affine => assert_eq!(row.range, (0.0, 2f64.powi(row.bits as i32) - 1.0), "{}", row.name),
                Float | Ternary | Binary => assert_eq!(row.range.0, -row.range.1),
            }
        }
    }

    #[test]
    fn names_go_both_ways() {
        for dtype in DType::all() {
            assert_eq!(DType::parse(dtype.name()).unwrap(), dtype);
            let text = serde_json::to_string(&dtype).unwrap();
            assert_eq!(text, format!("\"{dtype}\""));
            assert_eq!(serde_json::from_str::<DType>(&text).unwrap(), dtype);
        }
        let error = DType::parse("bfloat").unwrap_err();
        assert!(matches!(error, Error::DType(_)));
        assert!(error.to_string().contains("did you mean \"bfloat16\"?"), "{error}");
        assert!(
            serde_json::from_str::<DType>("\"int9\"")
                .unwrap_err()
                .to_string()
                .contains("unknown numeric type")
        );
    }

    #[test]
    fn storage_is_packed() {
        for (dtype, elements, bytes) in [
            (DType::Float64, 3, 24),
            (DType::BFloat16, 3, 6),
            (DType::Int8, 7, 7),
            (DType::Int4, 7, 4),
            (DType::Ternary, 9, 3),
            (DType::Binary, 9, 2),
            (DType::Binary, 0, 0),
        ] {
            assert_eq!(dtype.storage_bytes(elements), bytes, "{dtype}");
            for n in 0..40 {
                assert_eq!(dtype.storage_bytes(n), (n * dtype.row().bits).div_ceil(8));
            }
        }
        assert_eq!(DType::Int8.scale_count(5), 5);
        assert_eq!(DType::Int16.scale_count(5), 1);
        assert_eq!(DType::BFloat16.scale_count(5), 0);
    }

    #[test]
    fn a_type_without_a_codec_is_an_error_that_names_the_usable_ones() {
        let error = DType::Int4.codec().unwrap_err();
        assert!(matches!(error, Error::DType(_)));
        let message = error.to_string();
        assert!(message.contains("int4") && message.contains("float16, bfloat16, int8"), "{message}");
        assert!(DType::Int8.check_usable().is_ok());
    }

    #[test]
    fn refusals_name_the_parameter() {
        let mut bytes = Buffer::zeroed(4);
        let bytes = bytes.bytes_mut();
        let error = encode(DType::Float16, None, "weight", &[1.0f32, 1e6], 2, bytes, &mut []).unwrap_err();
        assert!(matches!(error, Error::Value(_)));
        let message = error.to_string();
        assert!(message.contains("\"weight\" holds 1e6 at element 1"), "{message}");
        let error = encode(DType::Int8, None, "weight", &[f64::NAN], 1, &mut [0], &mut [0.0]).unwrap_err();
        assert!(matches!(error, Error::NonFinite(_)));
        assert!(error.to_string().contains("\"weight\" holds NaN at element 0"), "{error}");
    }
}

//! How weights start.

use super::orthogonal::orthonormalize;
use crate::error::unknown;
use crate::random::Stream;
use crate::simd::Cpu;
use crate::{Error, Result, extents, interrupt};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};
use std::str::FromStr;

/// A rule for initial weights.
///
/// In configs a name, `"he_normal"`, or a name with parameters, `{"normal": {"std": 0.02}}`.
/// Everything is computed in `f64` from counter-based random numbers, and rounded to the
/// network's precision afterwards.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Initializer {
    /// Normal, standard deviation sqrt(2 / (fan_in + fan_out)) (Glorot and Bengio 2010).
    XavierNormal,
    /// Uniform within plus or minus sqrt(6 / (fan_in + fan_out)).
    XavierUniform,
    /// Normal, standard deviation sqrt(2 / fan_in) (He et al. 2015).
    HeNormal,
    /// Uniform within plus or minus sqrt(6 / fan_in).
    HeUniform,
    /// Normal, standard deviation sqrt(1 / fan_in) (LeCun et al. 1998).
    LecunNormal,
    /// Normal around 0.
    Normal {
        /// Standard deviation.
        std: f64,
    },
    /// Uniform in [low, high).
    Uniform {
        /// Lower end.
        low: f64,
        /// Upper end.
        high: f64,
    },
    /// Normal around 0, values beyond two standard deviations drawn again.
    TruncatedNormal {
        /// Standard deviation before the cut.
        std: f64,
    },
    /// Orthonormal rows or columns, whichever are fewer, uniformly distributed
    /// (Saxe et al. 2014; Mezzadri 2007 for the sign), times a gain.
    Orthogonal {
        /// What the orthonormal matrix is multiplied by; 1 unless given.
        gain: f64,
    },
    /// The same for each of several blocks of columns by itself: the gates of a recurrent layer.
    OrthogonalBlocks {
        /// What each orthonormal matrix is multiplied by; 1 unless given.
        gain: f64,
        /// How many blocks of equal width there are.
        blocks: usize,
    },
    /// All 0 but for one of several equal blocks of columns: the bias of a forget gate.
    ConstantBlock {
        /// The value in that block.
        value: f64,
        /// Which block, from 0.
        block: usize,
        /// How many blocks there are.
        blocks: usize,
    },
    /// All 0.
    Zeros,
    /// All 1.
    Ones,
    /// All the same.
    Constant {
        /// That value.
        value: f64,
    },
    /// The lengths of the columns of the parameter before, as it begins: of a gain that multiplies their directions.
    /// It is for layers themselves; no config has it.
    Lengths,
}

/// A parameter's name and its default; one without must be given.
type Parameter = (&'static str, Option<f64>);

/// Every name with its parameters.
const NAMES: [(&str, &[Parameter]); 14] = [
    ("xavier_normal", &[]),
    ("xavier_uniform", &[]),
    ("he_normal", &[]),
    ("he_uniform", &[]),
    ("lecun_normal", &[]),
    ("normal", &[("std", None)]),
    ("uniform", &[("low", None), ("high", None)]),
    ("truncated_normal", &[("std", None)]),
    ("orthogonal", &[("gain", Some(1.0))]),
    ("orthogonal_blocks", &[("gain", Some(1.0)), ("blocks", None)]),
    ("constant_block", &[("value", None), ("block", None), ("blocks", None)]),
    ("zeros", &[]),
    ("ones", &[]),
    ("constant", &[("value", None)]),
];

impl Initializer {
    /// The name in configs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::XavierNormal => "xavier_normal",
            Self::XavierUniform => "xavier_uniform",
            Self::HeNormal => "he_normal",
            Self::HeUniform => "he_uniform",
            Self::LecunNormal => "lecun_normal",
            Self::Normal { .. } => "normal",
            Self::Uniform { .. } => "uniform",
            Self::TruncatedNormal { .. } => "truncated_normal",
            Self::Orthogonal { .. } => "orthogonal",
            Self::OrthogonalBlocks { .. } => "orthogonal_blocks",
            Self::ConstantBlock { .. } => "constant_block",
            Self::Zeros => "zeros",
            Self::Ones => "ones",
            Self::Constant { .. } => "constant",
            Self::Lengths => "lengths",
        }
    }

    /// The initialiser of this name with these parameters.
    ///
    /// # Errors
    /// [`Error::Value`] for an unknown name (suggesting the nearest), and for parameters
    /// that are missing, unknown or out of range.
    pub fn from_parts(name: &str, parameters: &Map<String, Value>) -> Result<Self> {
        let Some((name, expected)) = NAMES.iter().find(|(known, _)| *known == name) else {
            return Err(unknown("initializer", name, NAMES.iter().map(|(known, _)| *known)));
        };
        if let Some(stray) = parameters.keys().find(|key| !expected.iter().any(|(known, _)| known == key)) {
            let known: Vec<&str> = expected.iter().map(|(known, _)| *known).collect();
            return Err(Error::Value(match known.as_slice() {
                [] => format!("initializer \"{name}\" takes no parameters, got \"{stray}\""),
                known => format!("initializer \"{name}\" has no \"{stray}\"; it takes {}", known.join(", ")),
            }));
        }
        let get = |key: &str| -> Result<f64> {
            let default = expected.iter().find(|(known, _)| *known == key).and_then(|(_, default)| *default);
            match parameters.get(key) {
                Some(value) => value.as_f64().ok_or_else(|| {
                    Error::Value(format!("{key} of initializer \"{name}\" must be a number, got {value}"))
                }),
                None => default.ok_or_else(|| {
                    Error::Value(format!(
                        "initializer \"{name}\" needs {key}, as in {{\"{name}\": {{\"{key}\": 0.02}}}}"
                    ))
                }),
            }
        };
        let count = |key: &str| -> Result<usize> {
            let number = get(key)?;
            if number < 0.0 || number.fract() != 0.0 || number > f64::from(u32::MAX) {
                return Err(Error::Value(format!(
                    "{key} of initializer \"{name}\" must be a whole number, got {number}"
                )));
            }
            Ok(number as usize)
        };
        let initializer = match *name {
            "xavier_normal" => Self::XavierNormal,
            "xavier_uniform" => Self::XavierUniform,
            "he_normal" => Self::HeNormal,
            "he_uniform" => Self::HeUniform,
            "lecun_normal" => Self::LecunNormal,
            "normal" => Self::Normal { std: get("std")? },
            "uniform" => Self::Uniform { low: get("low")?, high: get("high")? },
            "truncated_normal" => Self::TruncatedNormal { std: get("std")? },
            "orthogonal" => Self::Orthogonal { gain: get("gain")? },
            "orthogonal_blocks" => Self::OrthogonalBlocks { gain: get("gain")?, blocks: count("blocks")? },
            "constant_block" => {
                Self::ConstantBlock { value: get("value")?, block: count("block")?, blocks: count("blocks")? }
            }
            "zeros" => Self::Zeros,
            "ones" => Self::Ones,
            _ => Self::Constant { value: get("value")? },
        };
        initializer.validate()?;
        Ok(initializer)
    }

    fn parameters(&self) -> Option<Value> {
        match *self {
            Self::Normal { std } | Self::TruncatedNormal { std } => Some(json!({ "std": std })),
            Self::Uniform { low, high } => Some(json!({ "low": low, "high": high })),
            Self::Orthogonal { gain } if gain != 1.0 => Some(json!({ "gain": gain })),
            Self::OrthogonalBlocks { gain, blocks } => Some(json!({ "gain": gain, "blocks": blocks })),
            Self::ConstantBlock { value, block, blocks } => {
                Some(json!({ "value": value, "block": block, "blocks": blocks }))
            }
            Self::Constant { value } => Some(json!({ "value": value })),
            _ => None,
        }
    }

    /// Checks the parameters.
    ///
    /// # Errors
    /// [`Error::Value`] naming the parameter that is out of range.
    pub fn validate(&self) -> Result<()> {
        let problem = match *self {
            Self::Normal { std } | Self::TruncatedNormal { std } if !(std.is_finite() && std >= 0.0) => {
                format!("std must be finite and at least 0, got {std}")
            }
            Self::Uniform { low, high } if !(low.is_finite() && high.is_finite() && low <= high) => {
                format!("low and high must be finite and low at most high, got {low} and {high}")
            }
            Self::OrthogonalBlocks { blocks: 0, .. } => "blocks must be at least 1".into(),
            Self::ConstantBlock { block, blocks, .. } if block >= blocks => {
                format!("block must be less than blocks, got {block} of {blocks}")
            }
            Self::ConstantBlock { value, .. } if !value.is_finite() => {
                format!("value must be finite, got {value}")
            }
            Self::Orthogonal { gain } | Self::OrthogonalBlocks { gain, .. } if !gain.is_finite() => {
                format!("gain must be finite, got {gain}")
            }
            Self::Constant { value } if !value.is_finite() => format!("value must be finite, got {value}"),
            _ => return Ok(()),
        };
        Err(Error::Value(format!("initializer \"{}\": {problem}", self.name())))
    }

    /// Fills a row-major matrix of `rows` x `columns` (for vectors, one row).
    ///
    /// Element `i` depends on number `i` of the stream alone, but for `orthogonal`, which
    /// depends on the whole, and `truncated_normal`, whose try `t` for element `i` is normal
    /// number `i + t x out.len()`.
    ///
    /// # Errors
    /// [`Error::Value`] for parameters out of range or a fan of zero that the rule divides by; [`Error::Memory`]
    /// where orthogonal ones have no room to be made in; what [`interrupt::asking`] was answered.
    pub fn fill(
        &self,
        stream: &Stream,
        fan_in: usize,
        fan_out: usize,
        rows: usize,
        columns: usize,
        out: &mut [f64],
    ) -> Result<()> {
        if out.len() != rows * columns {
            return Err(Error::Internal(format!(
                "{} initial weights asked for a matrix of {rows} x {columns}",
                out.len()
            )));
        }
        self.draw(stream, (fan_in, fan_out), (rows, columns), |first, part| {
            out[first..][..part.len()].copy_from_slice(part);
            Ok(())
        })
    }

    /// Draws what [`fill`](Initializer::fill) fills in, part by part: `take` gets each with the number of its first
    /// element. There is never more than a part in memory, but for `orthogonal`.
    ///
    /// # Errors
    /// As [`fill`](Initializer::fill), and what `take` says.
    pub(crate) fn draw(
        &self,
        stream: &Stream,
        (fan_in, fan_out): (usize, usize),
        (rows, columns): (usize, usize),
        mut take: impl FnMut(usize, &[f64]) -> Result<()>,
    ) -> Result<()> {
        self.validate()?;
        let fan = match self {
            Self::XavierNormal | Self::XavierUniform => fan_in + fan_out,
            Self::HeNormal | Self::HeUniform | Self::LecunNormal => fan_in,
            _ => 1,
        };
        if fan == 0 {
            return Err(Error::Value(format!("initializer \"{}\" needs a layer with inputs", self.name())));
        }
        if let Self::OrthogonalBlocks { blocks, .. } | Self::ConstantBlock { blocks, .. } = *self {
            check_blocks(columns, blocks)?;
        }
        let len = rows * columns;
        if let Self::Orthogonal { gain } | Self::OrthogonalBlocks { gain, .. } = *self {
            let blocks = if let Self::OrthogonalBlocks { blocks, .. } = *self { blocks } else { 1 };
            let mut all = extents::zeros(len)?;
            orthogonal(stream, gain, (rows, columns), blocks, &mut all)?;
            return take(0, &all);
        }
        let mut part = extents::zeros(len.min(PART))?;
        for first in (0..len).step_by(PART) {
            let part = &mut part[..PART.min(len - first)];
            self.draw_part(stream, fan as f64, columns, (first, len), part)?;
            take(first, part)?;
        }
        Ok(())
    }

    /// Some of so many elements, of which each depends on its number alone.
    fn draw_part(
        &self,
        stream: &Stream,
        fan: f64,
        columns: usize,
        (first, len): (usize, usize),
        out: &mut [f64],
    ) -> Result<()> {
        match *self {
            Self::XavierNormal | Self::HeNormal => normal(stream, (2.0 / fan).sqrt(), first, out)?,
            Self::LecunNormal => normal(stream, (1.0 / fan).sqrt(), first, out)?,
            Self::Normal { std } => normal(stream, std, first, out)?,
            Self::XavierUniform | Self::HeUniform => {
                let limit = (6.0 / fan).sqrt();
                uniform(stream, -limit, limit, first, out)?;
            }
            Self::Uniform { low, high } => uniform(stream, low, high, first, out)?,
            Self::TruncatedNormal { std } => truncated_normal(stream, std, (first, len), out)?,
            Self::ConstantBlock { value, block, blocks } => {
                let width = columns / blocks;
                let of_block = block * width..(block + 1) * width;
                for (number, out) in (first..).zip(out) {
                    *out = if of_block.contains(&(number % columns)) { value } else { 0.0 };
                }
            }
            Self::Ones => out.fill(1.0),
            Self::Constant { value } => out.fill(value),
            // `orthogonal` is drawn as a whole, and lengths are known to whoever holds both parameters.
            Self::Lengths | Self::Zeros | Self::Orthogonal { .. } | Self::OrthogonalBlocks { .. } => {
                out.fill(0.0)
            }
        }
        Ok(())
    }
}

/// Elements that are drawn between two questions whether to go on, and by one task.
const PART: usize = 1 << 20;
const PIECE: usize = 1 << 12;

/// Draws elements from the `begin`th on, piece by piece, each by the number of its first element.
fn drawn(begin: usize, out: &mut [f64], draw: impl Fn(u64, &mut [f64]) + Sync) -> Result<()> {
    let pool = Cpu::global()?.pool();
    for (part, out) in out.chunks_mut(PART).enumerate() {
        interrupt::check()?;
        let begin = begin + part * PART;
        pool.for_each_chunk(out, PIECE, |piece, out| draw((begin + piece * PIECE) as u64, out));
    }
    Ok(())
}

fn normal(stream: &Stream, std: f64, first: usize, out: &mut [f64]) -> Result<()> {
    drawn(first, out, |first, out| {
        stream.fill_normal(first, out);
        for value in out {
            *value *= std;
        }
    })
}

fn uniform(stream: &Stream, low: f64, high: f64, first: usize, out: &mut [f64]) -> Result<()> {
    drawn(first, out, |first, out| {
        stream.fill_uniform_f64(first, out);
        for value in out {
            *value = low + (high - low) * *value;
        }
    })
}

fn truncated_normal(stream: &Stream, std: f64, (first, len): (usize, usize), out: &mut [f64]) -> Result<()> {
    drawn(first, out, |first, out| {
        stream.fill_normal(first, out);
        for (value, mut index) in out.iter_mut().zip(first..) {
            while value.abs() > 2.0 {
                index += len as u64;
                *value = stream.normal(index);
            }
            *value *= std;
        }
    })
}

fn check_blocks(columns: usize, blocks: usize) -> Result<()> {
    if columns.is_multiple_of(blocks) {
        return Ok(());
    }
    Err(Error::Value(format!("{columns} columns do not make {blocks} blocks of equal width")))
}

/// The orthonormal factor of a matrix of normal draws, its signs such that R has a
/// positive diagonal, which makes it uniformly distributed; one for each block of columns.
fn orthogonal(
    stream: &Stream,
    gain: f64,
    (rows, columns): (usize, usize),
    blocks: usize,
    out: &mut [f64],
) -> Result<()> {
    let width = columns / blocks;
    let (tall, wide) = (rows.max(width), rows.min(width));
    let mut factors = extents::zeros(tall * wide * blocks)?;
    drawn(0, &mut factors, |first, out| stream.fill_normal(first, out))?;
    for (block, factor) in factors.chunks_exact_mut((tall * wide).max(1)).enumerate() {
        orthonormalize(Cpu::global()?, tall, wide, factor)?;
        for (row, out) in out.chunks_exact_mut(columns.max(1)).enumerate() {
            for (column, out) in out[block * width..][..width].iter_mut().enumerate() {
                let (long, short) = if rows >= width { (row, column) } else { (column, row) };
                *out = gain * factor[long * wide + short];
            }
        }
    }
    Ok(())
}

impl FromStr for Initializer {
    type Err = Error;

    /// The initialiser of this name, its parameters at their defaults.
    fn from_str(name: &str) -> Result<Self> {
        Self::from_parts(name, &Map::new())
    }
}

impl Serialize for Initializer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.parameters() {
            None => serializer.serialize_str(self.name()),
            Some(parameters) => json!({ self.name(): parameters }).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Initializer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let parsed = match &value {
            Value::String(name) => name.parse(),
            Value::Object(map) if map.len() == 1 => match map.iter().next() {
                Some((name, Value::Object(parameters))) => Self::from_parts(name, parameters),
                _ => Err(malformed(&value)),
            },
            _ => Err(malformed(&value)),
        };
        parsed.map_err(D::Error::custom)
    }
}

fn malformed(value: &Value) -> Error {
    Error::Value(format!(
        "an initializer is a name, \"he_normal\", or a name with parameters, {{\"normal\": {{\"std\": 0.02}}}}; got {value}"
    ))
}

#[cfg(test)]
mod tests;

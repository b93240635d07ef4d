//! How weights start.

use crate::error::unknown;
use crate::random::Stream;
use crate::{Error, Result};
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
    /// [`Error::Value`] for parameters out of range or a fan of zero that the rule divides by.
    pub fn fill(
        &self,
        stream: &Stream,
        fan_in: usize,
        fan_out: usize,
        rows: usize,
        columns: usize,
        out: &mut [f64],
    ) -> Result<()> {
        self.validate()?;
        if out.len() != rows * columns {
            return Err(Error::Internal(format!(
                "{} initial weights asked for a matrix of {rows} x {columns}",
                out.len()
            )));
        }
        let fan = match self {
            Self::XavierNormal | Self::XavierUniform => fan_in + fan_out,
            Self::HeNormal | Self::HeUniform | Self::LecunNormal => fan_in,
            _ => 1,
        };
        if fan == 0 {
            return Err(Error::Value(format!("initializer \"{}\" needs a layer with inputs", self.name())));
        }
        let fan = fan as f64;
        match *self {
            Self::XavierNormal | Self::HeNormal => normal(stream, (2.0 / fan).sqrt(), out),
            Self::LecunNormal => normal(stream, (1.0 / fan).sqrt(), out),
            Self::Normal { std } => normal(stream, std, out),
            Self::XavierUniform | Self::HeUniform => {
                let limit = (6.0 / fan).sqrt();
                uniform(stream, -limit, limit, out);
            }
            Self::Uniform { low, high } => uniform(stream, low, high, out),
            Self::TruncatedNormal { std } => truncated_normal(stream, std, out),
            Self::Orthogonal { gain } => orthogonal(stream, gain, (rows, columns), 1, out),
            Self::OrthogonalBlocks { gain, blocks } => {
                check_blocks(columns, blocks)?;
                orthogonal(stream, gain, (rows, columns), blocks, out);
            }
            Self::ConstantBlock { value, block, blocks } => {
                check_blocks(columns, blocks)?;
                let width = columns / blocks;
                for row in out.chunks_exact_mut(columns.max(1)) {
                    row.fill(0.0);
                    row[block * width..(block + 1) * width].fill(value);
                }
            }
            Self::Zeros => out.fill(0.0),
            Self::Ones => out.fill(1.0),
            Self::Constant { value } => out.fill(value),
        }
        Ok(())
    }
}

fn normal(stream: &Stream, std: f64, out: &mut [f64]) {
    stream.fill_normal(out);
    for value in out {
        *value *= std;
    }
}

fn uniform(stream: &Stream, low: f64, high: f64, out: &mut [f64]) {
    stream.fill_uniform_f64(0, out);
    for value in out {
        *value = low + (high - low) * *value;
    }
}

fn truncated_normal(stream: &Stream, std: f64, out: &mut [f64]) {
    stream.fill_normal(out);
    let len = out.len() as u64;
    for (i, value) in out.iter_mut().enumerate() {
        let mut index = i as u64;
        while value.abs() > 2.0 {
            index += len;
            *value = stream.normal(index);
        }
        *value *= std;
    }
}

fn check_blocks(columns: usize, blocks: usize) -> Result<()> {
    if columns.is_multiple_of(blocks) {
        return Ok(());
    }
    Err(Error::Value(format!("{columns} columns do not make {blocks} blocks of equal width")))
}

/// The orthonormal factor of a matrix of normal draws, its signs such that R has a
/// positive diagonal, which makes it uniformly distributed; one for each block of columns.
fn orthogonal(stream: &Stream, gain: f64, (rows, columns): (usize, usize), blocks: usize, out: &mut [f64]) {
    let width = columns / blocks;
    let (tall, wide) = (rows.max(width), rows.min(width));
    let mut factors = vec![0.0; tall * wide * blocks];
    stream.fill_normal(&mut factors);
    for (block, factor) in factors.chunks_exact_mut((tall * wide).max(1)).enumerate() {
        orthonormalize(tall, wide, factor);
        for (row, out) in out.chunks_exact_mut(columns.max(1)).enumerate() {
            for (column, out) in out[block * width..][..width].iter_mut().enumerate() {
                let (long, short) = if rows >= width { (row, column) } else { (column, row) };
                *out = gain * factor[long * wide + short];
            }
        }
    }
}

/// Replaces a row-major matrix of `rows` x `columns`, rows >= columns, by the Q of its QR
/// factorisation (Householder), R's diagonal positive.
fn orthonormalize(rows: usize, columns: usize, a: &mut [f64]) {
    // Column k's reflector is 1 - v v^T scale; its v stands in the column, from row k on.
    let mut scales = vec![0.0; columns];
    let mut signs = vec![1.0; columns];
    let mut sums = vec![0.0; columns];
    for k in 0..columns {
        let norm = (k..rows).map(|i| a[i * columns + k] * a[i * columns + k]).sum::<f64>().sqrt();
        if norm == 0.0 {
            continue;
        }
        let pivot = a[k * columns + k];
        let diagonal = if pivot > 0.0 { -norm } else { norm };
        signs[k] = diagonal.signum();
        a[k * columns + k] = pivot - diagonal;
        // |v|^2 / 2 = norm (norm + |pivot|).
        scales[k] = 1.0 / (norm * (norm + pivot.abs()));
        reflect(rows, columns, a, k, k + 1..columns, scales[k], &mut sums);
    }
    // Q is the product of the reflectors applied to the first columns of the identity,
    // built from the last on; column k of the work is free once its reflector is used.
    for k in (0..columns).rev() {
        reflect(rows, columns, a, k, k + 1..columns, scales[k], &mut sums);
        let pivot = a[k * columns + k] * scales[k];
        for i in k..rows {
            let unit = if i == k { 1.0 } else { 0.0 };
            a[i * columns + k] = unit - pivot * a[i * columns + k];
        }
        for i in 0..k {
            a[i * columns + k] = 0.0;
        }
    }
    for row in a.chunks_exact_mut(columns.max(1)) {
        for (value, sign) in row.iter_mut().zip(&signs) {
            *value *= sign;
        }
    }
}

/// Applies reflector `k` to the columns in `to`, rows `k` on.
fn reflect(
    rows: usize,
    columns: usize,
    a: &mut [f64],
    k: usize,
    to: std::ops::Range<usize>,
    scale: f64,
    sums: &mut [f64],
) {
    let sums = &mut sums[to.clone()];
    sums.fill(0.0);
    for row in a.chunks_exact(columns).take(rows).skip(k) {
        let v = row[k];
        for (sum, value) in sums.iter_mut().zip(&row[to.clone()]) {
            *sum += v * value;
        }
    }
    for row in a.chunks_exact_mut(columns).take(rows).skip(k) {
        let v = row[k] * scale;
        for (value, sum) in row[to.clone()].iter_mut().zip(&*sums) {
            *value -= v * sum;
        }
    }
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
mod tests {
    use super::*;
    use crate::random::Use;
    use proptest::prelude::*;

    fn stream(seed: u64) -> Stream {
        Stream::new(seed, 0, 1, Use::Initialize)
    }

    fn filled(initializer: Initializer, rows: usize, columns: usize) -> Vec<f64> {
        let mut out = vec![f64::NAN; rows * columns];
        initializer.fill(&stream(3), rows, columns, rows, columns, &mut out).unwrap();
        out
    }

    /// Mean, variance and largest magnitude.
    fn summary(values: &[f64]) -> (f64, f64, f64) {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
        (mean, variance, values.iter().fold(0.0, |largest, x| largest.max(x.abs())))
    }

    #[test]
    fn scales_follow_the_fans() {
        let (rows, columns) = (300, 200);
        let cases = [
            (Initializer::XavierNormal, 2.0 / 500.0, f64::INFINITY),
            (Initializer::XavierUniform, 2.0 / 500.0, (6.0f64 / 500.0).sqrt()),
            (Initializer::HeNormal, 2.0 / 300.0, f64::INFINITY),
            (Initializer::HeUniform, 2.0 / 300.0, (6.0f64 / 300.0).sqrt()),
            (Initializer::LecunNormal, 1.0 / 300.0, f64::INFINITY),
            (Initializer::Normal { std: 0.3 }, 0.09, f64::INFINITY),
            // The variance of a standard normal cut at two: 1 - 4 phi(2) / (2 Phi(2) - 1).
            (Initializer::TruncatedNormal { std: 0.5 }, 0.25 * 0.773_741_3, 1.0),
        ];
        for (initializer, expected, limit) in cases {
            let (mean, variance, largest) = summary(&filled(initializer, rows, columns));
            let n = (rows * columns) as f64;
            assert!(mean.abs() < 5.0 * (expected / n).sqrt(), "{initializer:?}: mean {mean}");
            let error = 5.0 * expected * (2.0 / n).sqrt();
            assert!((variance - expected).abs() < error, "{initializer:?}: variance {variance}");
            assert!(largest <= limit, "{initializer:?}: {largest}");
            assert!(limit.is_infinite() || largest > 0.99 * limit, "{initializer:?}: {largest}");
        }
    }

    #[test]
    fn truncation_is_at_two_deviations_and_keeps_the_rest() {
        let plain = filled(Initializer::Normal { std: 1.0 }, 50, 50);
        let cut = filled(Initializer::TruncatedNormal { std: 1.0 }, 50, 50);
        let redrawn = plain.iter().zip(&cut).filter(|(a, b)| a != b).count();
        assert_eq!(redrawn, plain.iter().filter(|x| x.abs() > 2.0).count());
        assert!(redrawn > 50);
    }

    #[test]
    fn constants_are_exact_and_uniform_stays_in_its_interval() {
        assert!(filled(Initializer::Zeros, 3, 4).iter().all(|x| *x == 0.0));
        assert!(filled(Initializer::Ones, 3, 4).iter().all(|x| *x == 1.0));
        assert!(filled(Initializer::Constant { value: -2.5 }, 3, 4).iter().all(|x| *x == -2.5));
        let uniform = filled(Initializer::Uniform { low: 2.0, high: 5.0 }, 100, 100);
        assert!(uniform.iter().all(|x| (2.0..5.0).contains(x)));
        assert!((summary(&uniform).0 - 3.5).abs() < 0.05);
    }

    fn check_orthogonal(rows: usize, columns: usize, gain: f64, matrix: &[f64]) {
        let (count, length) = (rows.min(columns), rows.max(columns));
        let at = |vector: usize, i: usize| {
            if rows >= columns { matrix[i * columns + vector] } else { matrix[vector * columns + i] }
        };
        for a in 0..count {
            for b in 0..=a {
                let dot: f64 = (0..length).map(|i| at(a, i) * at(b, i)).sum();
                let expected = if a == b { gain * gain } else { 0.0 };
                assert!((dot - expected).abs() < 1e-12 * gain * gain, "{rows}x{columns} ({a}, {b}): {dot}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn orthogonal_to_rounding(rows in 1usize..40, columns in 1usize..40, seed: u64, gain in 0.1f64..3.0) {
            let mut out = vec![0.0; rows * columns];
            let initializer = Initializer::Orthogonal { gain };
            initializer.fill(&stream(seed), 1, 1, rows, columns, &mut out).unwrap();
            check_orthogonal(rows, columns, gain, &out);
        }
    }

    #[test]
    fn orthogonal_at_size() {
        for (rows, columns) in [(200, 200), (300, 60), (60, 300)] {
            check_orthogonal(
                rows,
                columns,
                1.0,
                &filled(Initializer::Orthogonal { gain: 1.0 }, rows, columns),
            );
        }
    }

    #[test]
    fn blocks_of_columns_start_by_themselves() {
        let matrix = filled(Initializer::OrthogonalBlocks { gain: 0.5, blocks: 3 }, 20, 60);
        let block = |number: usize| -> Vec<f64> {
            matrix.chunks(60).flat_map(|row| row[number * 20..][..20].to_vec()).collect()
        };
        (0..3).for_each(|number| check_orthogonal(20, 20, 0.5, &block(number)));
        assert_ne!(block(0), block(1));
        let forget = Initializer::ConstantBlock { value: 1.5, block: 1, blocks: 3 };
        assert_eq!(filled(forget, 1, 6), [0.0, 0.0, 1.5, 1.5, 0.0, 0.0]);
        let error = forget.fill(&stream(0), 1, 1, 1, 7, &mut [0.0; 7]).unwrap_err();
        assert!(error.to_string().contains("7 columns do not make 3 blocks"));
    }

    /// Q R must be the matrix that was factored, R upper triangular with a positive diagonal.
    #[test]
    fn the_orthogonal_factor_belongs_to_its_matrix() {
        let (rows, columns) = (7, 5);
        let mut matrix = vec![0.0; rows * columns];
        stream(9).fill_normal(&mut matrix);
        let mut q = matrix.clone();
        orthonormalize(rows, columns, &mut q);
        for i in 0..columns {
            for j in 0..columns {
                let r: f64 = (0..rows).map(|k| q[k * columns + i] * matrix[k * columns + j]).sum();
                match i.cmp(&j) {
                    std::cmp::Ordering::Greater => assert!(r.abs() < 1e-13, "R[{i},{j}] = {r}"),
                    std::cmp::Ordering::Equal => assert!(r > 0.0, "R[{i},{i}] = {r}"),
                    std::cmp::Ordering::Less => {}
                }
            }
        }
    }

    #[test]
    fn names_go_to_json_and_back() {
        let all = [
            (Initializer::XavierNormal, r#""xavier_normal""#),
            (Initializer::XavierUniform, r#""xavier_uniform""#),
            (Initializer::HeNormal, r#""he_normal""#),
            (Initializer::HeUniform, r#""he_uniform""#),
            (Initializer::LecunNormal, r#""lecun_normal""#),
            (Initializer::Normal { std: 0.02 }, r#"{"normal":{"std":0.02}}"#),
            (Initializer::Uniform { low: -1.0, high: 0.5 }, r#"{"uniform":{"high":0.5,"low":-1.0}}"#),
            (Initializer::TruncatedNormal { std: 0.1 }, r#"{"truncated_normal":{"std":0.1}}"#),
            (Initializer::Orthogonal { gain: 1.0 }, r#""orthogonal""#),
            (Initializer::Orthogonal { gain: 2.0 }, r#"{"orthogonal":{"gain":2.0}}"#),
            (
                Initializer::OrthogonalBlocks { gain: 1.0, blocks: 4 },
                r#"{"orthogonal_blocks":{"blocks":4,"gain":1.0}}"#,
            ),
            (
                Initializer::ConstantBlock { value: 1.0, block: 1, blocks: 4 },
                r#"{"constant_block":{"block":1,"blocks":4,"value":1.0}}"#,
            ),
            (Initializer::Zeros, r#""zeros""#),
            (Initializer::Ones, r#""ones""#),
            (Initializer::Constant { value: 3.0 }, r#"{"constant":{"value":3.0}}"#),
        ];
        for (initializer, text) in all {
            assert_eq!(serde_json::to_string(&initializer).unwrap(), text);
            assert_eq!(serde_json::from_str::<Initializer>(text).unwrap(), initializer);
        }
    }

    #[test]
    fn errors_say_what_to_do() {
        let message = |text: &str| serde_json::from_str::<Initializer>(text).unwrap_err().to_string();
        assert!(message(r#""he_norml""#).contains("did you mean \"he_normal\"?"));
        assert!(message(r#""normal""#).contains("needs std"));
        assert!(message(r#"{"normal":{"std":-1}}"#).contains("std must be"));
        assert!(message(r#"{"normal":{"std":"a"}}"#).contains("must be a number"));
        assert!(message(r#"{"normal":{"mean":1,"std":1}}"#).contains("no \"mean\"; it takes std"));
        assert!(message(r#"{"zeros":{"std":1}}"#).contains("takes no parameters"));
        assert!(message(r#"{"uniform":{"low":1,"high":0}}"#).contains("low at most high"));
        assert!(message(r#"{"orthogonal_blocks":{"blocks":0}}"#).contains("at least 1"));
        assert!(message(r#"{"orthogonal_blocks":{"blocks":1.5}}"#).contains("must be a whole number"));
        let block = r#"{"constant_block":{"value":1,"block":2,"blocks":2}}"#;
        assert!(message(block).contains("block must be less than blocks"));
        assert!(message("3").contains("is a name"));
        let error = Initializer::HeNormal.fill(&stream(0), 0, 3, 1, 0, &mut []).unwrap_err();
        assert!(error.to_string().contains("inputs"));
    }
}

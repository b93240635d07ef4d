//! How scales are found, and how weights are rounded to codes.

use crate::random::Stream;
use crate::{Error, Result};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::str::FromStr;

/// The percentile that is meant where none is named.
const USUAL_PERCENTILE: f64 = 99.9;

/// How the scale of a group of weights is found.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Calibration {
    /// By the type's own rule: from the largest magnitude, from the range, or from the mean magnitude.
    #[default]
    AbsMax,
    /// From this percentile of the magnitudes, above 0 and up to 100, where the type's rule takes the
    /// largest: what lies beyond it saturates. Unsigned integers, and types with a minimum, take a percentile of
    /// the weights on either side. The percentile is NumPy's (linear interpolation between order statistics); where it is
    /// 0 though not every weight is, the largest magnitude counts.
    Percentile(f64),
    /// So that the squared error of the group's weights is least, of the type's own scale, fractions of
    /// 1/64 to 63/64 of that for the largest magnitude (of types with a minimum, for the distance of both ends from
    /// the middle), and the least-squares scale of the best one's codes.
    /// Each weight's error counts as much as the mean square of the input that it multiplies, once that
    /// was measured.
    Mse,
}

impl fmt::Display for Calibration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Calibration::AbsMax => f.write_str("absmax"),
            Calibration::Percentile(percentile) => write!(f, "percentile({percentile})"),
            Calibration::Mse => f.write_str("mse"),
        }
    }
}

impl Calibration {
    /// Refuses a percentile that there is not.
    ///
    /// # Errors
    /// [`Error::Value`] then.
    pub(super) fn checked(self) -> Result<Self> {
        match self {
            Calibration::Percentile(percentile) if !(percentile > 0.0 && percentile <= 100.0) => {
                Err(no_percentile(&self.to_string()))
            }
            _ => Ok(self),
        }
    }
}

fn no_percentile(text: &str) -> Error {
    Error::Value(format!(
        "a percentile is a number above 0 and up to 100, as in \"percentile(99.9)\", got \"{text}\""
    ))
}

impl FromStr for Calibration {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let within = text.strip_prefix("percentile(").and_then(|rest| rest.strip_suffix(')'));
        match (text, within) {
            ("absmax", _) => Ok(Calibration::AbsMax),
            ("mse", _) => Ok(Calibration::Mse),
            ("percentile", _) => Ok(Calibration::Percentile(USUAL_PERCENTILE)),
            (_, Some(number)) => match number.trim().parse() {
                Ok(percentile) => {
                    Calibration::Percentile(percentile).checked().map_err(|_| no_percentile(text))
                }
                Err(_) => Err(no_percentile(text)),
            },
            _ => Err(Error::Value(format!(
                "unknown calibration \"{text}\"; use \"absmax\", \"percentile(99.9)\" with any percentile, \
                 or \"mse\" for the least squared error"
            ))),
        }
    }
}

/// How a weight between two numbers that codes stand for is rounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rounding {
    /// To the nearest, ties to even.
    #[default]
    Nearest,
    /// To either of the two, drawn so that the mean of many draws is the weight itself.
    Stochastic,
}

impl fmt::Display for Rounding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rounding::Nearest => "nearest",
            Rounding::Stochastic => "stochastic",
        })
    }
}

impl FromStr for Rounding {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "nearest" => Ok(Rounding::Nearest),
            "stochastic" => Ok(Rounding::Stochastic),
            _ => Err(Error::Value(format!(
                "unknown rounding \"{text}\"; use \"nearest\" or \"stochastic\" for a draw between the two \
                 numbers next to a weight"
            ))),
        }
    }
}

macro_rules! as_text {
    ($($type:ty),*) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
            }
        }
    )*};
}

as_text!(Calibration, Rounding);

/// What encoding goes by beside the packing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rule<'a> {
    /// How scales are found.
    pub calibration: Calibration,
    /// What the squared error of each row counts, for the least error; all the same where it is empty.
    pub importance: &'a [f32],
    /// What stochastic rounding draws from, element by element; to the nearest where there is none.
    pub draws: Option<Stream>,
}

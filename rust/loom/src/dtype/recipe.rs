//! How a version is made from its master: what shares a scale, how scales are found, and how weights are
//! rounded to codes.

use super::rule::{Calibration, Rounding};
use super::{DType, Granularity, Kind};
use crate::{Error, Result};

/// How a version is made from its master.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Recipe {
    /// Which elements share a scale; `None` for the type's own choice.
    pub granularity: Option<Granularity>,
    /// How scales are found.
    pub calibration: Calibration,
    /// How weights are rounded.
    pub rounding: Rounding,
}

impl From<Option<Granularity>> for Recipe {
    fn from(granularity: Option<Granularity>) -> Self {
        Self { granularity, ..Self::default() }
    }
}

impl Recipe {
    /// The same with the granularity that the type then has.
    ///
    /// # Errors
    /// [`Error::DType`] naming a type that cannot be made so: one without scales to find, one whose scale is
    /// the mean, or one whose rounding is part of its published format. [`Error::Value`] for a percentile that
    /// there is not.
    pub fn checked(self, dtype: DType) -> Result<Self> {
        self.calibration.checked()?;
        let granularity = dtype.granularity(self.granularity)?;
        let unscaled = granularity == Granularity::Unscaled;
        let refusal = match self.calibration {
            Calibration::AbsMax => None,
            _ if dtype.is_block_format() => Some("finds its scales by the rule of its published format"),
            _ if unscaled => Some("has no scales"),
            Calibration::Percentile(_) if matches!(dtype.row().kind, Kind::Ternary | Kind::Binary) => {
                Some("takes its scale from the mean magnitude, which has no percentile; \"mse\" will do")
            }
            _ => None,
        };
        if let Some(why) = refusal {
            let asked = self.calibration;
            return Err(Error::DType(format!("{dtype} {why}, so its calibration cannot be \"{asked}\"")));
        }
        if self.rounding == Rounding::Stochastic && dtype.is_block_format() {
            return Err(Error::DType(format!(
                "{dtype} rounds by the rule of its published format, so its rounding cannot be \"stochastic\""
            )));
        }
        Ok(Self { granularity: Some(granularity), ..self })
    }

    /// Whether scales and codes are those that the type has by itself.
    pub fn is_plain(&self) -> bool {
        self.calibration == Calibration::AbsMax && self.rounding == Rounding::Nearest
    }
}

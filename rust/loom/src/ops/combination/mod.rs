//! Sums of values with factors, some of which are known only when a step runs.

mod cpu;
mod gpu;

use crate::ops::StepValues;
use std::fmt;

/// The factor of one operand: `factor * rows^rows_power * scale^scale_power`, where rows are those of the
/// step's whole batch and scale is that of the loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Term {
    /// What does not change from step to step.
    pub factor: f64,
    /// 1 where it grows with the batch, -1 where it shrinks.
    pub rows_power: i8,
    /// 1 where the loss's scale multiplies it, -1 where it divides it.
    pub scale_power: i8,
}

impl Term {
    /// A factor that is always the same.
    pub fn fixed(factor: f64) -> Self {
        Self { factor, rows_power: 0, scale_power: 0 }
    }

    /// A factor for each row of the batch.
    #[must_use]
    pub fn times_rows(self) -> Self {
        Self { rows_power: 1, ..self }
    }

    /// A factor shared by the rows of the batch.
    #[must_use]
    pub fn over_rows(self) -> Self {
        Self { rows_power: -1, ..self }
    }

    /// For making a scaled gradient, where losses are.
    #[must_use]
    pub fn times_scale(self, scaled: bool) -> Self {
        Self { scale_power: i8::from(scaled), ..self }
    }

    /// For using a scaled gradient, where losses are.
    #[must_use]
    pub fn over_scale(self, scaled: bool) -> Self {
        Self { scale_power: -i8::from(scaled), ..self }
    }

    /// The factor in this step.
    pub(crate) fn value(&self, values: &StepValues) -> f64 {
        let power = |base: f64, power: i8| match power {
            0 => 1.0,
            1 => base,
            _ => 1.0 / base,
        };
        self.factor
            * power(values.batch_rows as f64, self.rows_power)
            * power(f64::from(values.loss_scale), self.scale_power)
    }

    /// The factor in this step as WGSL, where `now` is the step and `control` the verdict's memory.
    pub(crate) fn wgsl(&self) -> String {
        let power = |text: &str, power: i8| match power {
            0 => String::new(),
            1 => format!(" * {text}"),
            _ => format!(" / {text}"),
        };
        // The shortest text that reads back as the same number.
        let factor = format!("{:?}f", self.factor as f32);
        factor + &power("f32(now.batch_rows)", self.rows_power) + &power("control.scale", self.scale_power)
    }
}

/// `y = c0 x0 + c1 x1 + ...`, element by element, from left to right with fused multiply-add; then
/// clamped to `range`, where there is one. Reads one operand a term; all have the same extents.
#[derive(Clone, Debug, PartialEq)]
pub struct Combination {
    /// The factors.
    pub terms: Vec<Term>,
    /// The least and the greatest result; NaN stays NaN.
    pub range: Option<(f64, f64)>,
}

impl Combination {
    /// Without a range.
    pub fn new(terms: impl Into<Vec<Term>>) -> Self {
        Self { terms: terms.into(), range: None }
    }

    /// One operand, clamped.
    pub fn clamp(least: f64, greatest: f64) -> Self {
        Self { terms: vec![Term::fixed(1.0)], range: Some((least, greatest)) }
    }
}

impl fmt::Display for Combination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "combination")?;
        for term in &self.terms {
            write!(f, " {}", term.factor)?;
            match term.rows_power {
                0 => {}
                1 => write!(f, "*rows")?,
                _ => write!(f, "/rows")?,
            }
        }
        match self.range {
            Some((least, greatest)) => write!(f, " in {least}..{greatest}"),
            None => Ok(()),
        }
    }
}

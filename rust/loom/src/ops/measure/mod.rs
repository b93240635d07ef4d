//! How far layers are from their targets, and what that says of the step before.
//!
//! [`Measure`] sums over one value and its target, [`Collect`] brings such sums together in the memory
//! of the measures, and [`Judge`] makes figures and a decision of them there. [`MeasureMemory`] says
//! where in that memory everything is.

mod collect;
mod cpu;
mod gpu;
mod judge;
mod memory;
#[cfg(test)]
mod tests;

pub use judge::{ExplosionRule, GapMetric, Judge, LinkBudget};
pub use memory::{Action, Entry, Header, LayerFigure, MeasureMemory};

use crate::ops::combination::Term;
use std::fmt;

/// What is summed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Measured {
    /// Reads a: the squares of a alone.
    Norm,
    /// Reads a and its target t.
    Target,
    /// Reads a and a gradient g; the target is `a + factor g`.
    Gradient(Term),
}

/// The sums of a², a·t, t² and (a - t)² over all elements of a value and of its target.
///
/// Writes those four and how many elements they are over (without a batch axis); of a norm, the second to fourth are 0.
///
/// Order of sums: 4,096 elements by the 16-lane rule, those one after another in `f64`.
#[derive(Clone, Debug, PartialEq)]
pub struct Measure {
    /// What is summed.
    pub what: Measured,
    /// Elements of a step, where steps count by the last operand alone: those whose number there is not 0.
    pub of_steps: Option<usize>,
}

impl Measure {
    /// How many numbers it makes.
    pub const SUMS: usize = 5;

    /// Over all elements.
    pub fn of(what: Measured) -> Self {
        Self { what, of_steps: None }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.what {
            Measured::Norm => write!(f, "measure.norm"),
            Measured::Target => write!(f, "measure.target"),
            Measured::Gradient(_) => write!(f, "measure.gradient"),
        }
    }
}

/// Brings the sums of measures together in their memory: reads them, writes the memory.
///
/// A step's first batch replaces what is there, later ones add to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Collect {
    /// Where everything is.
    pub memory: MeasureMemory,
    /// Where the sums of each operand go.
    pub entries: Vec<Entry>,
}

impl Collect {
    /// The most operands of one, so that a [`Judge`] that collects for itself can read them, too.
    pub const MOST: usize = 10;
}

impl fmt::Display for Collect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "collect {}", self.entries.len())
    }
}

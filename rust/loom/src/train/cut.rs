//! The rows of a step, cut into shards.

use super::trainer::Trainer;
use super::{Examples, Rows};
use crate::simd::Real;
use crate::{Error, Result};
use std::ops::Range;

/// The rows of a step, as far as this process has them.
#[derive(Clone, Copy, Debug)]
pub struct StepRows<'a> {
    /// What they are rows of.
    pub examples: &'a Examples<'a>,
    /// Their numbers there, in the order of the shards.
    pub rows: &'a [u32],
    /// How many of them each shard of this process has, where each process has the rows of its own shards alone; where it
    /// is `None` every process has all rows.
    pub parts: Option<&'a [usize]>,
}

impl<'a> StepRows<'a> {
    /// All rows of a step.
    pub fn all(examples: &'a Examples<'a>, rows: &'a [u32]) -> Self {
        Self { examples, rows, parts: None }
    }
}

/// The rows of a step, cut into shards.
pub(super) struct Cut<'a> {
    pub(super) step: StepRows<'a>,
    /// Where each shard begins in the step, and where the last one ends.
    pub(super) starts: Vec<usize>,
    /// The place in the step of the first row that is here.
    pub(super) first: usize,
}

impl Cut<'_> {
    pub(super) fn shards(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// How many rows there are in all.
    pub(super) fn total(&self) -> usize {
        self.starts.last().copied().unwrap_or(0)
    }

    /// The places of a shard's rows in the step.
    pub(super) fn place(&self, shard: usize) -> Range<usize> {
        self.starts[shard]..self.starts[shard + 1]
    }

    pub(super) fn largest(&self) -> usize {
        (0..self.shards()).map(|shard| self.place(shard).len()).max().unwrap_or(0)
    }

    pub(super) fn of(&self, place: Range<usize>) -> Result<&[u32]> {
        let there = place.start.checked_sub(self.first).zip(place.end.checked_sub(self.first));
        there.and_then(|(start, end)| self.step.rows.get(start..end)).ok_or_else(|| {
            let here = self.first..self.first + self.step.rows.len();
            Error::Index(format!("rows {place:?} of a step are asked for, and rows {here:?} are here"))
        })
    }

    /// Copies the rows at these places into the trainer's run.
    pub(super) fn fill<T: Real>(&self, trainer: &mut Trainer, place: Range<usize>) -> Result<()> {
        trainer.fill::<T>(self.step.examples, Rows::At(self.of(place)?)).map(|_| ())
    }
}

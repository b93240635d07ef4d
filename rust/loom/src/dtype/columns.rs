//! Columns of a parameter that a task finds scales for, and what errors in their rows count.

use super::grouping::{Extents, Granularity};
use super::rule::Rule;

/// Columns that one task finds scales for.
pub(super) const COLUMNS: usize = 128;

/// Some columns of the rows of one group, from the column `first` on.
#[derive(Clone, Copy)]
pub(super) struct Columns<'a, T> {
    pub(super) data: &'a [T],
    /// Of the whole.
    pub(super) columns: usize,
    pub(super) first: usize,
}

impl<'a, T> Columns<'a, T> {
    /// The rows, of which each begins with its column `first`.
    #[inline(always)]
    pub(super) fn rows(self) -> impl Iterator<Item = &'a [T]> {
        self.data.chunks_exact(self.columns).map(move |row| &row[self.first..])
    }
}

/// What the squared errors of the rows of one group count.
#[derive(Clone, Copy)]
pub(super) struct Importance<'a> {
    /// Of the parameter's rows; empty where all count the same.
    of_rows: &'a [f32],
    /// The group's first row, and how many rows of it make one of the parameter.
    first: usize,
    per: usize,
}

impl<'a> Importance<'a> {
    /// Of the group of `rows` rows that begins with this one.
    pub(super) fn of(packing: &Extents, rule: &Rule<'a>, first: usize, rows: usize) -> Self {
        // A scale for the whole parameter sees it as one long column.
        let per = if packing.granularity == Granularity::Tensor { packing.channels } else { 1 };
        let found = Self { of_rows: rule.importance, first, per };
        let counts = !found.of_rows.is_empty() && (0..rows).any(|row| found.row(row) > 0.0);
        if counts { found } else { Self { of_rows: &[], ..found } }
    }

    /// Of a row of the group.
    #[inline(always)]
    pub(super) fn row(&self, row: usize) -> f64 {
        match self.of_rows.get((self.first + row) / self.per) {
            Some(importance) => f64::from(*importance),
            None => 1.0,
        }
    }
}

//! From extents to the cut that suits them.

use super::choose::{Layout, choose, choose_units, in_crowd};
use super::column_sums::ColumnSums;
use super::cut::{Cut, Limits};
use super::few_columns::MAX_COLUMNS;
use super::matrix::{Finish, Matrix, Storage, loader, right_loader};
use super::reduce;
use super::stream::{self, MOST_GROUPED_WEIGHTS, Stream, Weight, row_groups};
use super::tile::{Along, Loader};
use crate::shader::THREADS;

/// `C (+)= finish(A B + bias)`.
///
/// When C is accumulated into, what is there counts as part of the sum: it comes before the
/// bias and the finish.
#[derive(Clone, Copy, Debug)]
pub struct Problem<'a> {
    /// Rows of A and C.
    pub rows: usize,
    /// Columns of B and C.
    pub columns: usize,
    /// Columns of A and rows of B.
    pub depth: usize,
    /// A.
    pub left: Matrix,
    /// B.
    pub right: Matrix,
    /// What B's elements are stored as.
    pub storage: Storage,
    /// C, never transposed.
    pub output: Matrix,
    /// Whether C is added to.
    pub accumulate: bool,
    /// Whether one number a column is added.
    pub bias: bool,
    /// What is done to finished elements.
    pub finish: Finish<'a>,
    /// Whether the elements of A and B are rounded to binary16 before they are multiplied.
    pub mixed: bool,
}

impl Problem<'_> {
    /// The cut that suits the extents.
    pub fn choose(&self, limits: &Limits) -> Cut {
        self.choose_for(limits, false)
    }

    /// The tiles that suit the extents of a product whose summed extent is not cut in parts.
    pub(super) fn choose_whole(&self, limits: &Limits) -> Cut {
        self.choose_for(limits, true)
    }

    fn choose_for(&self, limits: &Limits, whole: bool) -> Cut {
        let extents = [self.rows, self.columns, self.depth];
        let (left, right) = self.loaders();
        let layout = Layout {
            left_transposed: self.left.transposed,
            right_transposed: self.right.transposed,
            single: left.width == 1 || right.width == 1 || self.store_width() == 1,
            few_columns: self.few_columns_will_do(limits),
            whole,
        };
        let cut = match choose_units(extents, layout, limits).filter(|_| self.mixed) {
            Some(cut) => cut,
            None => self.choose_stream(limits).unwrap_or_else(|| choose(extents, layout, limits)),
        };
        in_crowd(cut, [self.rows, self.columns], limits)
    }

    /// The weight, where the kernel that reads it as it lies can.
    pub(super) fn streamed(&self) -> Option<Weight> {
        let few = match self.rows {
            0 => false,
            1..=stream::MAX_ROWS => true,
            _ => self.rows <= stream::MOST_GROUPED_ROWS && self.columns * self.depth <= MOST_GROUPED_WEIGHTS,
        };
        if !few || self.left.transposed || self.mixed {
            return None;
        }
        let weight = Weight::new(self.storage, self.right, self.columns, self.depth)?;
        // It stores columns in fours where it makes them so.
        let stores = weight.along() == Along::Depth || self.output.in_fours(self.columns);
        stores.then_some(weight)
    }

    /// The cut of a product of few rows with a packed weight.
    fn choose_stream(&self, limits: &Limits) -> Option<Cut> {
        // Of more rows than that only those beside others were measured.
        if self.rows > stream::MAX_ROWS
            || self.storage == Storage::Float32
            || self.columns * self.depth < LEAST_STREAM
        {
            return None;
        }
        self.stream_cut(limits)
    }

    /// A cut that reads the weight as it lies, with this shape.
    pub fn stream_with(&self, shape: Stream, parts: usize, limits: &Limits) -> Option<Cut> {
        let weight = self.streamed()?;
        let fits = shape.threads as usize <= limits.threads && weight.takes(&shape, self.columns, self.depth);
        fits.then_some(Cut::Stream(shape, weight, parts))
    }

    /// The cut that reads the weight as it lies and suits the extents.
    pub(crate) fn stream_cut(&self, limits: &Limits) -> Option<Cut> {
        if self.depth == 0 {
            return None;
        }
        let weight = self.streamed()?;
        let (groups, rows) = row_groups(self.rows);
        let shape = weight.shape([rows, self.columns, self.depth], groups, limits.threads);
        let groups = self.columns.div_ceil(shape.workgroup_columns());
        let parts = (128 / groups.max(1)).min(self.depth / 1024).clamp(1, 16);
        Some(Cut::Stream(shape, weight, parts))
    }

    /// Whether the kernel for few columns can make it.
    fn few_columns_will_do(&self, limits: &Limits) -> bool {
        (1..=MAX_COLUMNS).contains(&self.columns)
            && self.depth > 0
            && !self.left.transposed
            && !self.right.transposed
            && self.right.stride == self.columns
            && self.right.offset.is_multiple_of(4)
            && limits.threads >= THREADS
    }

    /// How tiles of A and of B are loaded.
    pub(super) fn loaders(&self) -> (Loader, Loader) {
        (
            loader(self.left, !self.left.transposed, self.depth, self.rows),
            right_loader(self.right, self.storage, self.depth, self.columns),
        )
    }

    /// The cut that suits the extents, with the sums of B's columns that are made along: they go to C's buffer
    /// from element `at` on, a multiple of 4, and are added to what is there where C is. `None` where the sums
    /// are better made by themselves.
    pub fn choose_with_column_sums(&self, at: usize, limits: &Limits) -> Option<(Cut, ColumnSums)> {
        let cut = self.choose(limits);
        let (Cut::Tiles(tile, _) | Cut::Units(tile, _)) = cut else { return None };
        let (parts, chunk) = self.parts(cut);
        let (right, width) = (self.loaders().1, self.store_width());
        if self.right.transposed || right.width != width {
            return None;
        }
        let (threads, steps) = match parts {
            1 => (tile.threads() as usize, chunk / tile.step() as usize),
            // The second pass makes them: the first need not wait for what else is done to C's buffer.
            _ if self.depth > 1024 && limits.threads >= THREADS => (THREADS, 0),
            _ => (reduce::THREADS, 0),
        };
        let mut sums = ColumnSums::new(self.depth, self.columns, width, threads);
        sums.at = at;
        sums.are_hidden(self.depth, steps).then_some((cut, sums))
    }

    /// Elements of C stored together, where threads have so many side by side.
    pub(super) fn store_width(&self) -> u32 {
        if self.output.in_fours(self.columns) { 4 } else { 1 }
    }

    /// Parts of the depth that are not empty, and the products in each: a multiple of what the
    /// kernel steps by, so that parts depend on extents alone.
    pub(super) fn parts(&self, cut: Cut) -> (usize, usize) {
        let (parts, step) = match cut {
            Cut::FewRows(parts) => (parts, 128),
            Cut::Stream(_, _, parts) => (parts, Weight::STEP),
            Cut::FewColumns(_) => (1, 1),
            Cut::Tiles(tile, parts) | Cut::Units(tile, parts) => (parts, tile.step() as usize),
        };
        let chunk = self.depth.div_ceil(parts.max(1)).next_multiple_of(step).max(step);
        (self.depth.div_ceil(chunk).max(1), chunk)
    }
}

/// The fewest weights that are worth reading word by word: a product of fewer takes what a dispatch takes, and
/// the kernel's text is long to compile.
const LEAST_STREAM: usize = 1 << 11;

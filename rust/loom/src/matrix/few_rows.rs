//! A few rows against an operand that is not plain in memory, without packing it: transposed or decoded in
//! registers, sixteen columns at a time.

use super::tile::{Left, RowPanel, shape};
use crate::simd::{Isa, Kernel, LANES, Real, Vector};
use std::slice::from_raw_parts_mut;

/// The most rows for which an operand is read so.
pub(super) const FEW: usize = 8;

/// Computes up to [`FEW`] rows straight from an operand's own form.
pub trait FewRows<T>: Sync {
    /// The operand's depth and lanes.
    fn extents(&self) -> (usize, usize);

    /// Runs the panel against the operand from `k` and `column` on.
    ///
    /// # Safety
    /// As [`RowPanel::run`]; the panel's depth and columns are within the operand.
    #[allow(private_interfaces)] // for the product itself
    unsafe fn run(&self, isa: Isa, panel: RowPanel<T>, k: usize, column: usize);
}

/// A form that an operand has.
pub(super) trait Form<T: Real>: Copy + Sync {
    /// The operand's depth and lanes.
    fn extents(&self) -> (usize, usize);

    /// Computes a panel by a kernel of its own, where there is one; false where there is none.
    ///
    /// # Safety
    /// As [`FewRows::run`].
    unsafe fn panel(&self, isa: Isa, panel: RowPanel<T>, k: usize, column: usize) -> bool {
        let _ = (isa, panel, k, column);
        false
    }

    /// `count` columns at one k, at most 16; anything may follow them.
    ///
    /// # Safety
    /// They are within the operand.
    unsafe fn vector<V: Vector<Element = T>>(&self, k: usize, column: usize, count: usize) -> V;

    /// Adds the terms of `depth` k from `k` on, where `left` begins, and of `count` columns, at most 16.
    ///
    /// # Safety
    /// They are within the operand, and `left` reaches R rows of so many k.
    #[inline(always)]
    unsafe fn add<V: Vector<Element = T>, const R: usize>(
        &self,
        (k, depth): (usize, usize),
        (column, count): (usize, usize),
        left: Left<T>,
        sums: &mut [V; R],
    ) {
        for row in 0..depth {
            // SAFETY: the caller's promise.
            unsafe { left.add(row, self.vector(k + row, column, count), sums) };
        }
    }
}

impl<T: Real, F: Form<T>> FewRows<T> for F {
    fn extents(&self) -> (usize, usize) {
        Form::extents(self)
    }

    #[allow(private_interfaces)]
    unsafe fn run(&self, isa: Isa, panel: RowPanel<T>, k: usize, column: usize) {
        // SAFETY: the caller's promise.
        if unsafe { self.panel(isa, panel, k, column) } {
            return;
        }
        macro_rules! rows {
            ($($rows:literal)*) => {
                match panel.rows {
                    $($rows => T::dispatch(isa, Rows::<T, F, $rows> { panel, form: *self, k, column }),)*
                    rows => unreachable!("{rows} are not few rows"),
                }
            };
        }
        rows!(1 2 3 4 5 6 7 8);
    }
}

struct Rows<T, F, const R: usize> {
    panel: RowPanel<T>,
    form: F,
    k: usize,
    column: usize,
}

impl<T: Real, F: Form<T>, const R: usize> Kernel<T> for Rows<T, F, R> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        if const { R > shape(V::LEVEL, T::PRECISION).0 } {
            return;
        }
        let columns = self.panel.columns;
        let whole = columns / LANES * LANES;
        // SAFETY: the promise of `FewRows::run`, the only maker: these columns are in the operand and in C, and
        // C's part is ours. Whole vectors have code of their own, which keeps blocks in registers.
        unsafe {
            for first in (0..whole).step_by(LANES) {
                self.columns::<V>(first, LANES);
            }
            if whole < columns {
                self.columns::<V>(whole, columns - whole);
            }
        }
    }
}

impl<T: Real, F: Form<T>, const R: usize> Rows<T, F, R> {
    /// The sums of `count` columns, at most 16.
    ///
    /// # Safety
    /// They are in the operand and in C, whose part nobody else uses.
    #[inline(always)]
    unsafe fn columns<V: Vector<Element = T>>(&self, first: usize, count: usize) {
        let RowPanel { depth, left, c, c_row, accumulate, .. } = self.panel;
        // SAFETY: the caller's promise.
        unsafe {
            let part = |row: usize| from_raw_parts_mut(c.add(row * c_row + first), count);
            let mut sums = [V::splat(T::ZERO); R];
            if accumulate {
                for (row, sum) in sums.iter_mut().enumerate() {
                    *sum = V::load_partial(part(row));
                }
            }
            self.form.add((self.k, depth), (self.column + first, count), left, &mut sums);
            for (row, sum) in sums.into_iter().enumerate() {
                sum.store_partial(part(row));
            }
        }
    }
}

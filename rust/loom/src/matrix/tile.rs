//! The micro-kernel: a few rows of C against a block of B, sums in registers.

use super::terms::{GradualPairs, Numbers, Pairs, Terms, any_subnormal, load};
use crate::precision::Precision;
use crate::simd::{Isa, Kernel, LANES, Level, Real, Vector, array_of, dispatch_bfloat16_pairs, prefetch};
use std::hint::black_box;
use std::marker::PhantomData;
use std::slice::from_raw_parts_mut;

/// The most rows that a tile has on any instruction set.
const MAX_ROWS: usize = 12;

/// How many k ahead a tile of that many rows fetches its operands, which come from the second-level cache where they
/// were packed and from any page where they lie. Where one instruction multiplies 16 numbers twice a cycle, what the
/// machine foresees by itself comes too late; tiles of few rows load as much as they multiply, and have no room for it.
const fn ahead(level: Level, rows: usize) -> usize {
    match level {
        Level::Avx512 if rows > 6 => 8,
        _ => 0,
    }
}

/// The most rows of a tile, as fit the registers beside one vector of B, and how many vectors wide it is by its
/// number of rows: 8, 4, 2 or 1; the same for half the most rows and more, as panels of one block share their
/// width.
pub(super) const fn shape(level: Level, precision: Precision) -> (usize, [usize; MAX_ROWS + 1]) {
    match (level, precision) {
        (Level::Avx512, Precision::Float64) => (12, [4, 4, 4, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1]),
        // 12 rows by 32 columns are 24 of 32 registers. Fewer rows are made wider, for enough independent
        // sums to hide the latency of one.
        (Level::Avx512, _) => (12, [8, 8, 8, 8, 4, 4, 2, 2, 2, 2, 2, 2, 2]),
        (Level::Avx2, Precision::Float64) => (3, [1; MAX_ROWS + 1]),
        // 6 rows by 16 columns are 12 of 16 registers.
        (Level::Avx2, _) => (6, [4, 4, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]),
        (Level::Portable, _) => (4, [1; MAX_ROWS + 1]),
    }
}

/// The most rows of a tile, and the columns of a tile of `rows` rows.
pub(super) fn tile<T: Real>(isa: Isa, rows: usize) -> (usize, usize) {
    let (most, vectors) = shape(isa.level(), T::PRECISION);
    (most, vectors[rows.min(most)] * LANES)
}

/// Rows of the left operand, read one element at a time: row i at k is `a[i * row + k * depth]`.
#[derive(Clone, Copy)]
pub(super) struct Left<T> {
    pub a: *const T,
    pub row: usize,
    pub depth: usize,
}

impl<T: Real> Left<T> {
    /// The rows from `row` on.
    pub fn skip_rows(self, row: usize) -> Self {
        Self { a: self.a.wrapping_add(row * self.row), ..self }
    }

    /// The same elements, whose type is that one.
    pub fn cast<U>(self) -> Left<U> {
        Left { a: self.a.cast(), row: self.row, depth: self.depth }
    }

    /// Adds one k's terms to the sums of some columns: each row's element times the columns.
    ///
    /// # Safety
    /// There are R rows, and `k`.
    #[inline(always)]
    pub unsafe fn add<V: Vector<Element = T>, const R: usize>(self, k: usize, right: V, sums: &mut [V; R]) {
        for (i, sum) in sums.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            let left = V::splat(unsafe { *self.a.add(i * self.row + k * self.depth) });
            *sum = left.mul_add(right, *sum);
        }
    }
}

// SAFETY: addresses, of an operand that threads share.
unsafe impl<T: Sync> Sync for Left<T> {}

/// Columns of the right operand as they lie in memory, in panels as wide as a tile.
#[derive(Clone, Copy)]
pub(super) struct Right<T> {
    pub b: *const T,
    /// How far apart the k of a panel are.
    pub depth: usize,
    /// How far apart the panels begin: in place, that is a tile's width.
    pub panel: usize,
}

impl<T> Right<T> {
    /// The same elements, whose type is that one.
    pub fn cast<U>(self) -> Right<U> {
        Right { b: self.b.cast(), depth: self.depth, panel: self.panel }
    }

    /// The columns after so many panels.
    pub fn skip_panels(self, panels: usize) -> Self {
        Self { b: self.b.wrapping_add(panels * self.panel), ..self }
    }
}

/// A few rows of C: as many as a tile has, times any number of columns, over one range of k.
#[derive(Clone, Copy)]
pub(super) struct RowPanel<T> {
    pub rows: usize,
    pub columns: usize,
    pub depth: usize,
    pub left: Left<T>,
    pub c: *mut T,
    pub c_row: usize,
    /// Whether sums go on from what C holds, instead of from zero.
    pub accumulate: bool,
}

impl RowPanel<f32> {
    /// Runs the kernel for this number of rows, where every element of A and B is a word of two numbers of bfloat16, the
    /// upper half the first along k. Where not `gradual`, no term and no sum of terms may be a subnormal number.
    ///
    /// # Safety
    /// As [`run`](Self::run).
    ///
    /// # Panics
    /// Where there are no instructions for that.
    pub unsafe fn run_pairs(self, isa: Isa, right: Right<f32>, gradual: bool) {
        macro_rules! rows {
            ($($rows:literal)*) => {
                match self.rows {
                    $($rows if gradual => {
                        dispatch_bfloat16_pairs(isa, Rows::<f32, $rows, GradualPairs>::new(self, right));
                    })*
                    $($rows => dispatch_bfloat16_pairs(isa, Rows::<f32, $rows, Pairs>::new(self, right)),)*
                    rows => unreachable!("a tile of {rows} rows"),
                }
            };
        }
        rows!(1 2 3 4 5 6 7 8 9 10 11 12);
    }
}

impl<T: Real> RowPanel<T> {
    /// The same, whose elements are of that type.
    pub fn cast<U>(self) -> RowPanel<U> {
        let Self { rows, columns, depth, left, c, c_row, accumulate } = self;
        RowPanel { rows, columns, depth, left: left.cast(), c: c.cast(), c_row, accumulate }
    }

    /// Runs the kernel for this number of rows.
    ///
    /// # Safety
    /// `rows` is at most the tile's and not 0; all that the strides reach in A, B
    /// and C is within live memory, and nobody else uses C's part.
    pub unsafe fn run(self, isa: Isa, right: Right<T>) {
        macro_rules! rows {
            ($($rows:literal)*) => {
                match self.rows {
                    $($rows => T::dispatch(isa, Rows::<T, $rows, Numbers>::new(self, right)),)*
                    rows => unreachable!("a tile of {rows} rows"),
                }
            };
        }
        rows!(1 2 3 4 5 6 7 8 9 10 11 12);
    }
}

struct Rows<T, const R: usize, S> {
    panel: RowPanel<T>,
    right: Right<T>,
    terms: PhantomData<S>,
}

impl<T, const R: usize, S> Rows<T, R, S> {
    /// For [`RowPanel::run`] and [`RowPanel::run_pairs`] alone, whose callers promise what kernels rely on.
    fn new(panel: RowPanel<T>, right: Right<T>) -> Self {
        Self { panel, right, terms: PhantomData }
    }
}

impl<T: Real, const R: usize> Kernel<T> for Rows<T, R, Numbers> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        // SAFETY: the promise of `RowPanel::run`, the only maker.
        unsafe { self.widths::<V>() }
    }
}

impl<const R: usize> Kernel<f32> for Rows<f32, R, Pairs> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = f32>>(self) {
        // SAFETY: the promise of `RowPanel::run_pairs`, the only maker, which enters with instructions for pairs.
        unsafe { self.widths::<V::Float32>() }
    }
}

impl<const R: usize> Kernel<f32> for Rows<f32, R, GradualPairs> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = f32>>(self) {
        // SAFETY: as above.
        unsafe { self.widths::<V::Float32>() }
    }
}

impl<T: Real, const R: usize, S> Rows<T, R, S> {
    /// Goes over the columns by tiles of the width that is for this number of rows.
    ///
    /// # Safety
    /// As [`RowPanel::run`].
    #[inline(always)]
    unsafe fn widths<V: Vector<Element = T>>(self)
    where
        S: Terms<V>,
    {
        // SAFETY: the caller's promise. Which arm is taken is known at compile time.
        unsafe {
            if const { R <= shape(V::LEVEL, T::PRECISION).0 } {
                match const { shape(V::LEVEL, T::PRECISION).1[R] } {
                    8 => self.columns::<V, 8>(),
                    4 => self.columns::<V, 4>(),
                    2 => self.columns::<V, 2>(),
                    _ => self.columns::<V, 1>(),
                }
            }
        }
    }

    /// Goes over the columns in tiles of N vectors, then in narrower ones.
    ///
    /// # Safety
    /// As [`RowPanel::run`].
    #[inline(always)]
    unsafe fn columns<V: Vector<Element = T>, const N: usize>(self)
    where
        S: Terms<V>,
    {
        let mut at = Tile { panel: self.panel, right: self.right };
        // SAFETY: each step stays within `columns`, which the caller vouches for. Which widths are narrower is
        // said as constants, so that no code is made for the others.
        unsafe {
            while at.panel.columns >= N * LANES {
                at.compute::<V, S, R, N, false>();
                at.advance(N * LANES, self.right.panel);
            }
            if const { N > 4 } && at.panel.columns >= 4 * LANES {
                at.compute::<V, S, R, 4, false>();
                at.advance(4 * LANES, 4 * LANES);
            }
            if const { N > 2 } && at.panel.columns >= 2 * LANES {
                at.compute::<V, S, R, 2, false>();
                at.advance(2 * LANES, 2 * LANES);
            }
            while at.panel.columns > 0 {
                at.compute::<V, S, R, 1, true>();
                at.advance(LANES.min(at.panel.columns), LANES);
            }
        }
    }
}

/// Rows by vectors of C: the first of a panel's.
#[derive(Clone, Copy)]
struct Tile<T> {
    panel: RowPanel<T>,
    right: Right<T>,
}

impl<T: Real> Tile<T> {
    /// Goes on by some columns of C and so many elements of B.
    #[inline(always)]
    fn advance(&mut self, columns: usize, elements: usize) {
        self.panel.columns -= columns;
        self.panel.c = self.panel.c.wrapping_add(columns);
        self.right.b = self.right.b.wrapping_add(elements);
    }

    /// Whether C holds subnormal numbers. A pass of its own: sums that it looked at would lie in memory.
    ///
    /// # Safety
    /// As [`RowPanel::run`].
    #[inline(always)]
    unsafe fn goes_on_from_subnormal<V, const R: usize, const N: usize, const RAGGED: bool>(&self) -> bool
    where
        V: Vector<Element = T>,
    {
        let RowPanel { columns, c, c_row, .. } = self.panel;
        let mut found = false;
        for i in 0..R {
            for j in 0..N {
                // SAFETY: the caller's promise.
                let numbers = unsafe { load::<V, RAGGED>(c.add(i * c_row + j * LANES), columns.min(LANES)) };
                found |= any_subnormal(numbers);
            }
        }
        found
    }

    /// R rows by N vectors: k strictly in order, one fused multiply-add an element, or what else its terms are. Ragged,
    /// there may be fewer columns than the vector has lanes.
    ///
    /// # Safety
    /// As [`RowPanel::run`].
    #[inline(always)]
    unsafe fn compute<V, S, const R: usize, const N: usize, const RAGGED: bool>(self)
    where
        V: Vector<Element = T>,
        S: Terms<V>,
    {
        let RowPanel { columns, depth, c, c_row, accumulate, .. } = self.panel;
        let Left { a, row: a_row, depth: a_depth } = self.panel.left;
        let count = columns.min(LANES);
        // SAFETY: reads and writes what the caller vouches for; the pointers that
        // step past the end after the last round are not read from.
        unsafe {
            if const { S::FLUSHES } && accumulate && self.goes_on_from_subnormal::<V, R, N, RAGGED>() {
                return self.compute::<V, S::Gradual, R, N, RAGGED>();
            }
            let mut sums = [[V::splat(T::ZERO); N]; R];
            if accumulate {
                for (i, row) in sums.iter_mut().enumerate() {
                    for (j, sum) in row.iter_mut().enumerate() {
                        *sum = load::<V, RAGGED>(c.add(i * c_row + j * LANES), count);
                    }
                }
            }
            // The tile to the right is next; its part of C comes from far away.
            for i in 0..R {
                for j in 0..N {
                    prefetch(c.wrapping_add(i * c_row + (N + j) * LANES));
                }
            }
            // Rows in threes: the machine's addressing does one and two strides by
            // itself, so 12 rows need 4 pointers and everything stays in registers.
            // Of two pointers whose distance the compiler sees, it makes one that goes
            // from row to row, a sum that waits for the one before it.
            let threes = if const { R > 6 } { 3 * a_row } else { black_box(3 * a_row) };
            let mut a: [*const T; 4] = array_of(|i| a.wrapping_add(i * threes));
            let mut b = self.right.b;
            let rounds = const { ahead(V::LEVEL, R) };
            let (ahead_a, ahead_b) = (rounds * a_depth, rounds * self.right.depth);
            for _ in 0..depth {
                // No closure: of a ragged one it would be a call in every round.
                let mut right = [S::right::<RAGGED>(b, count); N];
                for (j, right) in right.iter_mut().enumerate().skip(1) {
                    *right = S::right::<RAGGED>(b.add(j * LANES), count);
                }
                if const { ahead(V::LEVEL, R) > 0 } {
                    prefetch(a[0].wrapping_add(ahead_a));
                    for j in 0..N {
                        prefetch(b.wrapping_add(ahead_b + j * LANES));
                    }
                }
                for (i, row) in sums.iter_mut().enumerate() {
                    let left = S::left(a[i / 3].wrapping_add(i % 3 * a_row));
                    for (sum, right) in row.iter_mut().zip(right) {
                        *sum = S::add(*sum, left, right);
                    }
                }
                for pointer in &mut a {
                    *pointer = pointer.wrapping_add(a_depth);
                }
                b = b.wrapping_add(self.right.depth);
            }
            for (i, row) in sums.into_iter().enumerate() {
                for (j, sum) in row.into_iter().enumerate() {
                    let to = c.add(i * c_row + j * LANES);
                    match RAGGED {
                        true => sum.store_partial(from_raw_parts_mut(to, count)),
                        false => sum.store_unchecked(to),
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows are spread evenly over panels, so that where there are several none has fewer than half the most.
    #[test]
    fn tiles_of_half_the_rows_and_more_are_equally_wide() {
        for level in Level::ALL {
            for precision in [Precision::Float32, Precision::Float64] {
                let (most, vectors) = shape(level, precision);
                assert!(vectors[most / 2..=most].iter().all(|&wide| wide == vectors[most]), "{level}");
            }
        }
    }
}

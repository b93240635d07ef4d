//! The micro-kernels: a few rows of C against a block of B, sums in registers.

use super::wide::{Element, Kernel, LANES, Wide};
use crate::cpu::Isa;

/// Rows of the left operand, read one element at a time: row i at k is `a[i * row + k * depth]`.
#[derive(Clone, Copy)]
pub(super) struct Left<T> {
    pub a: *const T,
    pub row: usize,
    pub depth: usize,
}

/// Columns of the right operand, read in vectors of 16.
///
/// They lie in panels as wide as a tile; inside a panel k follows k at `depth`,
/// and panel follows panel at `panel`. (In place, `panel` is the tile's width
/// and `depth` the row stride.)
#[derive(Clone, Copy)]
pub(super) struct Right<T> {
    pub b: *const T,
    pub depth: usize,
    pub panel: usize,
    /// The operand's last `columns % 16` columns, which are read as 16 from here.
    pub ragged: *const T,
    pub ragged_depth: usize,
}

impl<T> Right<T> {
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
    pub right: Right<T>,
    pub c: *mut T,
    pub c_row: usize,
    /// Whether sums go on from what C holds, instead of from zero.
    pub accumulate: bool,
}

impl<T: Element> RowPanel<T> {
    /// Runs the kernel for this number of rows.
    ///
    /// # Safety
    /// `rows` is at most the tile's and not 0; all that the strides reach in A,
    /// B (whole vectors, but for the ragged ones), `ragged` and C is within live
    /// memory, and nobody else uses C's part.
    pub unsafe fn run(self, isa: Isa) {
        macro_rules! rows {
            ($($rows:literal)*) => {
                match self.rows {
                    // SAFETY: the caller's promise.
                    $($rows => unsafe { T::enter(isa, Rows::<T, $rows>(self)) },)*
                    _ => unreachable!("a tile of {} rows", self.rows),
                }
            };
        }
        rows!(1 2 3 4 5 6 7 8 9 10 11 12);
    }
}

struct Rows<T, const R: usize>(RowPanel<T>);

impl<T: Copy, const R: usize> Kernel<T> for Rows<T, R> {
    #[inline(always)]
    unsafe fn run<W: Wide<T>>(self) {
        // SAFETY: the caller's promise. Which arm is taken is known at compile time.
        unsafe {
            if const { R <= W::ROWS } {
                match const { W::VECTORS[R] } {
                    8 => columns::<T, W, R, 8>(self.0),
                    4 => columns::<T, W, R, 4>(self.0),
                    2 => columns::<T, W, R, 2>(self.0),
                    _ => columns::<T, W, R, 1>(self.0),
                }
            }
        }
    }
}

/// Goes over the columns in tiles of N vectors, then in narrower ones.
#[inline(always)]
unsafe fn columns<T: Copy, W: Wide<T>, const R: usize, const N: usize>(panel: RowPanel<T>) {
    let mut at = Tile {
        depth: panel.depth,
        left: panel.left,
        b: panel.right.b,
        b_depth: panel.right.depth,
        c: panel.c,
        c_row: panel.c_row,
        accumulate: panel.accumulate,
    };
    let mut left = panel.columns;
    // SAFETY: each step stays within `columns`, which the caller vouches for.
    unsafe {
        while left >= N * LANES {
            tile::<T, W, R, N>(at);
            at.b = at.b.wrapping_add(panel.right.panel);
            at.c = at.c.wrapping_add(N * LANES);
            left -= N * LANES;
        }
        if N > 4 && left >= 4 * LANES {
            tile::<T, W, R, 4>(at);
            at.advance::<4>();
            left -= 4 * LANES;
        }
        if N > 2 && left >= 2 * LANES {
            tile::<T, W, R, 2>(at);
            at.advance::<2>();
            left -= 2 * LANES;
        }
        if N > 1 && left >= LANES {
            tile::<T, W, R, 1>(at);
            at.advance::<1>();
            left -= LANES;
        }
        if left > 0 {
            // Through a padded copy of this corner of C.
            let mut corner = [[W::zero(); 1]; R];
            let copy = corner.as_mut_ptr().cast::<T>();
            for i in 0..R {
                copy.add(i * LANES).copy_from_nonoverlapping(at.c.add(i * panel.c_row), left);
            }
            at.b = panel.right.ragged;
            at.b_depth = panel.right.ragged_depth;
            tile::<T, W, R, 1>(Tile { c: copy, c_row: LANES, ..at });
            for i in 0..R {
                at.c.add(i * panel.c_row).copy_from_nonoverlapping(copy.add(i * LANES), left);
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Tile<T> {
    depth: usize,
    left: Left<T>,
    b: *const T,
    b_depth: usize,
    c: *mut T,
    c_row: usize,
    accumulate: bool,
}

impl<T> Tile<T> {
    #[inline(always)]
    fn advance<const N: usize>(&mut self) {
        self.b = self.b.wrapping_add(N * LANES);
        self.c = self.c.wrapping_add(N * LANES);
    }
}

/// R rows by N vectors: k strictly in order, one fused multiply-add an element.
#[inline(always)]
unsafe fn tile<T: Copy, W: Wide<T>, const R: usize, const N: usize>(tile: Tile<T>) {
    let Tile { depth, b_depth, c_row, accumulate, .. } = tile;
    let Left { row: a_row, depth: a_depth, .. } = tile.left;
    // SAFETY: reads and writes what the caller vouches for; the pointers that
    // step past the end after the last round are not read from.
    unsafe {
        let mut sums = [[W::zero(); N]; R];
        if accumulate {
            for (i, row) in sums.iter_mut().enumerate() {
                for (j, sum) in row.iter_mut().enumerate() {
                    *sum = W::load(tile.c.add(i * c_row + j * LANES));
                }
            }
        }
        // The tile to the right is next; its part of C comes from far away.
        for i in 0..R {
            for j in 0..N {
                W::prefetch(tile.c.wrapping_add(i * c_row + (N + j) * LANES));
            }
        }
        // Rows in threes: the machine's addressing does one and two strides by
        // itself, so 12 rows need 4 pointers and everything stays in registers.
        let mut a: [*const T; 4] = std::array::from_fn(|i| tile.left.a.wrapping_add(3 * i * a_row));
        let mut b = tile.b;
        for _ in 0..depth {
            let mut right = [W::zero(); N];
            for (j, right) in right.iter_mut().enumerate() {
                *right = W::load(b.add(j * LANES));
            }
            for (i, row) in sums.iter_mut().enumerate() {
                let left = W::broadcast(a[i / 3].wrapping_add(i % 3 * a_row));
                for (sum, right) in row.iter_mut().zip(right) {
                    *sum = sum.multiply_add(left, right);
                }
            }
            for pointer in &mut a {
                *pointer = pointer.wrapping_add(a_depth);
            }
            b = b.wrapping_add(b_depth);
        }
        for (i, row) in sums.into_iter().enumerate() {
            for (j, sum) in row.into_iter().enumerate() {
                sum.store(tile.c.add(i * c_row + j * LANES));
            }
        }
    }
}

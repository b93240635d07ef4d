//! The micro-kernels: a few rows of C against a block of B, sums in registers.

use crate::simd::Isa;
use crate::simd::wide::{Element, Kernel, LANES, Wide};

/// Rows of the left operand, read one element at a time: row i at k is `a[i * row + k * depth]`.
#[derive(Clone, Copy)]
pub(super) struct Left<T> {
    pub a: *const T,
    pub row: usize,
    pub depth: usize,
}

/// Where vectors of 16 columns of the right operand come from, at one k.
pub(super) trait Vectors<T>: Copy {
    /// The columns from `16 * j` on.
    ///
    /// # Safety
    /// They are within the operand.
    unsafe fn load<W: Wide<T>>(self, j: usize) -> W;
    /// The first `count` columns, less than 16.
    ///
    /// # Safety
    /// As [`Vectors::load`].
    unsafe fn load_few<W: Wide<T>>(self, count: usize) -> W;
    /// The next k.
    fn deeper(self) -> Self;
    /// So many elements further on in memory.
    fn skip(self, elements: usize) -> Self;
}

/// Vectors that lie in memory as they are; k follows k at `depth`.
#[derive(Clone, Copy)]
pub(super) struct InMemory<T> {
    pub b: *const T,
    pub depth: usize,
}

impl<T: Copy> Vectors<T> for InMemory<T> {
    #[inline(always)]
    unsafe fn load<W: Wide<T>>(self, j: usize) -> W {
        // SAFETY: the caller's promise.
        unsafe { W::load(self.b.add(j * LANES)) }
    }

    #[inline(always)]
    unsafe fn load_few<W: Wide<T>>(self, count: usize) -> W {
        // SAFETY: the caller's promise.
        unsafe { W::load_few(self.b, count) }
    }

    #[inline(always)]
    fn deeper(self) -> Self {
        self.skip(self.depth)
    }

    #[inline(always)]
    fn skip(self, elements: usize) -> Self {
        Self { b: self.b.wrapping_add(elements), ..self }
    }
}

/// Columns of the right operand, in panels as wide as a tile.
#[derive(Clone, Copy)]
pub(super) struct Right<V> {
    pub vectors: V,
    /// How far apart the panels begin: in place, that is a tile's width.
    pub panel: usize,
}

impl<T: Copy> Right<InMemory<T>> {
    /// The columns after so many panels.
    pub fn skip_panels(self, panels: usize) -> Self {
        Self { vectors: self.vectors.skip(panels * self.panel), ..self }
    }
}

/// The last columns, fewer than 16, as one vector.
#[derive(Clone, Copy)]
struct Ragged<V> {
    vectors: V,
    count: usize,
}

impl<T, V: Vectors<T>> Vectors<T> for Ragged<V> {
    #[inline(always)]
    unsafe fn load<W: Wide<T>>(self, _: usize) -> W {
        // SAFETY: the caller's promise, for `count` columns.
        unsafe { self.vectors.load_few(self.count) }
    }

    #[inline(always)]
    unsafe fn load_few<W: Wide<T>>(self, count: usize) -> W {
        // SAFETY: as above.
        unsafe { self.vectors.load_few(count) }
    }

    #[inline(always)]
    fn deeper(self) -> Self {
        Self { vectors: self.vectors.deeper(), ..self }
    }

    #[inline(always)]
    fn skip(self, elements: usize) -> Self {
        Self { vectors: self.vectors.skip(elements), ..self }
    }
}

/// A few rows of C: as many as a tile has, times any number of columns, over one range of k.
#[derive(Clone, Copy)]
pub(super) struct RowPanel<T, R> {
    pub rows: usize,
    pub columns: usize,
    pub depth: usize,
    pub left: Left<T>,
    pub right: R,
    pub c: *mut T,
    pub c_row: usize,
    /// Whether sums go on from what C holds, instead of from zero.
    pub accumulate: bool,
}

/// Calls the kernel for this number of rows.
macro_rules! rows {
    ($panel:ident, $isa:ident: $($rows:literal)*) => {
        match $panel.rows {
            // SAFETY: the caller's promise.
            $($rows => unsafe { T::enter($isa, Rows::<T, _, $rows>($panel)) },)*
            rows => unreachable!("a tile of {rows} rows"),
        }
    };
}

impl<T: Element> RowPanel<T, Right<InMemory<T>>> {
    /// Runs the kernel for this number of rows.
    ///
    /// # Safety
    /// `rows` is at most the tile's and not 0; all that the strides reach in A, B
    /// and C is within live memory, and nobody else uses C's part.
    pub unsafe fn run(self, isa: Isa) {
        rows!(self, isa: 1 2 3 4 5 6 7 8 9 10 11 12);
    }
}

impl<T> RowPanel<T, ()> {
    /// The panel with its right operand.
    pub fn with<R>(self, right: R) -> RowPanel<T, R> {
        let Self { rows, columns, depth, left, c, c_row, accumulate, .. } = self;
        RowPanel { rows, columns, depth, left, right, c, c_row, accumulate }
    }
}

impl<T: Element, V: Vectors<T>> RowPanel<T, Right<V>> {
    /// The same for at most [`FEW`] rows and vectors from anywhere.
    ///
    /// # Safety
    /// As [`RowPanel::run`].
    pub unsafe fn run_few(self, isa: Isa) {
        rows!(self, isa: 1 2 3 4 5 6 7 8);
    }
}

struct Rows<T, V, const R: usize>(RowPanel<T, Right<V>>);

impl<T: Copy, V: Vectors<T>, const R: usize> Kernel<T> for Rows<T, V, R> {
    #[inline(always)]
    unsafe fn run<W: Wide<T>>(self) {
        // SAFETY: the caller's promise. Which arm is taken is known at compile time.
        unsafe {
            if const { R <= W::ROWS } {
                match const { W::VECTORS[R] } {
                    8 => columns::<T, V, W, R, 8>(self.0),
                    4 => columns::<T, V, W, R, 4>(self.0),
                    2 => columns::<T, V, W, R, 2>(self.0),
                    _ => columns::<T, V, W, R, 1>(self.0),
                }
            }
        }
    }
}

/// Goes over the columns in tiles of N vectors, then in narrower ones.
#[inline(always)]
unsafe fn columns<T: Copy, V: Vectors<T>, W: Wide<T>, const R: usize, const N: usize>(
    panel: RowPanel<T, Right<V>>,
) {
    let mut at = Tile {
        depth: panel.depth,
        left: panel.left,
        vectors: panel.right.vectors,
        c: panel.c,
        c_row: panel.c_row,
        accumulate: panel.accumulate,
    };
    let mut left = panel.columns;
    // SAFETY: each step stays within `columns`, which the caller vouches for.
    unsafe {
        while left >= N * LANES {
            at.compute::<W, R, N>();
            at.vectors = at.vectors.skip(panel.right.panel);
            at.c = at.c.wrapping_add(N * LANES);
            left -= N * LANES;
        }
        if N > 4 && left >= 4 * LANES {
            at.compute::<W, R, 4>();
            at.advance::<4>();
            left -= 4 * LANES;
        }
        if N > 2 && left >= 2 * LANES {
            at.compute::<W, R, 2>();
            at.advance::<2>();
            left -= 2 * LANES;
        }
        if N > 1 && left >= LANES {
            at.compute::<W, R, 1>();
            at.advance::<1>();
            left -= LANES;
        }
        if left > 0 {
            at.ragged::<W, R>(left);
        }
    }
}

/// Has R rows of fewer than 16 columns of C computed in a padded copy.
///
/// # Safety
/// C has these rows and columns, and nobody else uses them.
#[inline(always)]
unsafe fn corner<T, W: Wide<T>, const R: usize>(
    c: *mut T,
    c_row: usize,
    count: usize,
    compute: impl FnOnce(*mut T, usize),
) {
    // SAFETY: the copy has R rows of 16; the rest as the caller promises.
    unsafe {
        let mut corner = [W::zero(); R];
        let copy = corner.as_mut_ptr().cast::<T>();
        for i in 0..R {
            copy.add(i * LANES).copy_from_nonoverlapping(c.add(i * c_row), count);
        }
        compute(copy, LANES);
        for i in 0..R {
            c.add(i * c_row).copy_from_nonoverlapping(copy.add(i * LANES), count);
        }
    }
}

/// R rows by N vectors of C, and where its operands are.
#[derive(Clone, Copy)]
struct Tile<T, V> {
    depth: usize,
    left: Left<T>,
    vectors: V,
    c: *mut T,
    c_row: usize,
    accumulate: bool,
}

impl<T: Copy, V: Vectors<T>> Tile<T, V> {
    #[inline(always)]
    fn advance<const N: usize>(&mut self) {
        self.vectors = self.vectors.skip(N * LANES);
        self.c = self.c.wrapping_add(N * LANES);
    }

    /// Fewer than 16 columns, through a padded copy of this corner of C.
    ///
    /// # Safety
    /// As [`RowPanel::run`].
    #[inline(always)]
    unsafe fn ragged<W: Wide<T>, const R: usize>(self, count: usize) {
        let Self { depth, left, vectors, c, c_row, accumulate } = self;
        // SAFETY: as the caller promises.
        unsafe {
            corner::<T, W, R>(c, c_row, count, |c, c_row| {
                let vectors = Ragged { vectors, count };
                Tile { depth, left, vectors, c, c_row, accumulate }.compute::<W, R, 1>();
            });
        }
    }

    /// Whole vectors: k strictly in order, one fused multiply-add an element.
    ///
    /// # Safety
    /// As [`RowPanel::run`].
    #[inline(always)]
    unsafe fn compute<W: Wide<T>, const R: usize, const N: usize>(self) {
        let Self { depth, c, c_row, accumulate, .. } = self;
        let Left { row: a_row, depth: a_depth, .. } = self.left;
        // SAFETY: reads and writes what the caller vouches for; the pointers that
        // step past the end after the last round are not read from.
        unsafe {
            let mut sums = [[W::zero(); N]; R];
            if accumulate {
                for (i, row) in sums.iter_mut().enumerate() {
                    for (j, sum) in row.iter_mut().enumerate() {
                        *sum = W::load(c.add(i * c_row + j * LANES));
                    }
                }
            }
            // The tile to the right is next; its part of C comes from far away.
            for i in 0..R {
                for j in 0..N {
                    W::prefetch(c.wrapping_add(i * c_row + (N + j) * LANES));
                }
            }
            // Rows in threes: the machine's addressing does one and two strides by
            // itself, so 12 rows need 4 pointers and everything stays in registers.
            let mut a: [*const T; 4] = std::array::from_fn(|i| self.left.a.wrapping_add(3 * i * a_row));
            let mut vectors = self.vectors;
            for _ in 0..depth {
                let right: [W; N] = std::array::from_fn(|j| vectors.load(j));
                for (i, row) in sums.iter_mut().enumerate() {
                    let left = W::broadcast(a[i / 3].wrapping_add(i % 3 * a_row));
                    for (sum, right) in row.iter_mut().zip(right) {
                        *sum = sum.multiply_add(left, right);
                    }
                }
                for pointer in &mut a {
                    *pointer = pointer.wrapping_add(a_depth);
                }
                vectors = vectors.deeper();
            }
            for (i, row) in sums.into_iter().enumerate() {
                for (j, sum) in row.into_iter().enumerate() {
                    sum.store(c.add(i * c_row + j * LANES));
                }
            }
        }
    }
}

/// The most rows for which an operand that is not plain in memory is read
/// without being packed: decoded, or transposed, in registers.
pub(super) const FEW: usize = 8;

/// Up to [`FEW`] rows of C against an operand that lies in memory as rows
/// along k: blocks of 16 columns by 16 k are transposed in registers.
#[derive(Clone, Copy)]
pub(super) struct Transposed<T> {
    pub panel: RowPanel<T, ()>,
    pub b: *const T,
    /// How far apart the operand's columns begin.
    pub lane_stride: usize,
}

impl<T: Element> Transposed<T> {
    /// # Safety
    /// As [`RowPanel::run`].
    pub unsafe fn run(self, isa: Isa) {
        macro_rules! rows {
            ($($rows:literal)*) => {
                match self.panel.rows {
                    // SAFETY: the caller's promise.
                    $($rows => unsafe { T::enter(isa, TransposedRows::<T, $rows>(self)) },)*
                    rows => unreachable!("{rows} are not few rows"),
                }
            };
        }
        rows!(1 2 3 4 5 6 7 8);
    }
}

struct TransposedRows<T, const R: usize>(Transposed<T>);

impl<T: Element, const R: usize> Kernel<T> for TransposedRows<T, R> {
    #[inline(always)]
    unsafe fn run<W: Wide<T>>(self) {
        let Transposed { panel, b, lane_stride } = self.0;
        // SAFETY: 16 or `left` columns from `column` on are there, says the caller.
        unsafe {
            for column in (0..panel.columns).step_by(LANES) {
                let c = panel.c.add(column);
                let b = b.add(column * lane_stride);
                let left = panel.columns - column;
                if left >= LANES {
                    self.0.columns::<W, R>(b, lane_stride, LANES, c, panel.c_row);
                } else {
                    corner::<T, W, R>(c, panel.c_row, left, |c, c_row| {
                        self.0.columns::<W, R>(b, lane_stride, left, c, c_row);
                    });
                }
            }
        }
    }
}

impl<T: Element> Transposed<T> {
    /// The sums of `count` columns, at most 16; C has room for 16.
    ///
    /// # Safety
    /// As [`RowPanel::run`].
    #[inline(always)]
    unsafe fn columns<W: Wide<T>, const R: usize>(
        self,
        b: *const T,
        lane_stride: usize,
        count: usize,
        c: *mut T,
        c_row: usize,
    ) {
        let RowPanel { depth, left, accumulate, .. } = self.panel;
        // SAFETY: blocks stay within `count` columns and `depth`, for which the
        // caller vouches.
        unsafe {
            let mut sums = [W::zero(); R];
            if accumulate {
                for (i, sum) in sums.iter_mut().enumerate() {
                    *sum = W::load(c.add(i * c_row));
                }
            }
            let whole = depth / LANES * LANES;
            for k in (0..whole).step_by(LANES) {
                let mut block = [W::zero(); LANES];
                for (lane, wide) in block.iter_mut().enumerate().take(count) {
                    let from = b.add(lane * lane_stride + k);
                    W::prefetch(from.wrapping_add(2 * LANES));
                    *wide = W::load(from);
                }
                W::transpose(&mut block);
                for (i, right) in block.into_iter().enumerate() {
                    accumulate_at::<T, W, R>(&mut sums, left, k + i, right);
                }
            }
            for k in whole..depth {
                let mut right = [T::default(); LANES];
                for (lane, value) in right.iter_mut().enumerate().take(count) {
                    *value = *b.add(lane * lane_stride + k);
                }
                accumulate_at::<T, W, R>(&mut sums, left, k, W::load(right.as_ptr()));
            }
            for (i, sum) in sums.into_iter().enumerate() {
                sum.store(c.add(i * c_row));
            }
        }
    }
}

/// Adds one k's terms: each row's element times the columns.
///
/// # Safety
/// `left` reaches R rows at `k`.
#[inline(always)]
unsafe fn accumulate_at<T, W: Wide<T>, const R: usize>(sums: &mut [W; R], left: Left<T>, k: usize, right: W) {
    for (i, sum) in sums.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        unsafe {
            let left = W::broadcast(left.a.add(i * left.row + k * left.depth));
            *sum = sum.multiply_add(left, right);
        }
    }
}

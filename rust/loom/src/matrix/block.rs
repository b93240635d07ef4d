//! One rectangle of C: blocks of k, panels of rows, and what is packed on the way.

use super::blocking::Blocking;
use super::few_rows::{FEW, FewRows};
use super::panels::{PanelSource, Strided};
use super::tile::{Left, Right, RowPanel, tile};
use super::{Epilogue, Output, Start};
use crate::Buffer;
use crate::precision::Precision;
use crate::simd::{Isa, LANES, Pool, Real};
use std::cell::Cell;
use std::ops::Range;

/// So many rows, in panels, and ...
const GROUP: usize = 60;
/// ... so many columns (more, where k is short) meet while both stay in the
/// second-level cache. A multiple of every tile's width.
const CHUNK: usize = 128;
/// So many terms of [`CHUNK`] columns are decoded, or packed, for all rows of a piece that meet them at once.
const AT_ONCE: usize = 256;
/// With so few terms a product only fills C: row after row then goes fastest.
const SHALLOW: usize = 4;
/// The most rows and columns of one piece, which packs its operands by itself.
const PIECE: usize = 1024;
/// The most columns of a piece of a few rows whose right operand is read in its own form.
const OWN_FORM_PIECE: usize = 8 * PIECE;
/// The left operand is read where it is for so few columns: packing would cost more than it saves.
const IN_PLACE_COLUMNS: usize = 512;
/// For so few rows a right operand is read where it is, whatever it takes up.
const IN_PLACE_ROWS: usize = 128;
/// Elements this many bytes apart fall on the same few lines of the first-level
/// cache and drive each other out: such operands are packed sooner.
const SAME_LINES: usize = 4096;
/// A right operand that is not plain in memory is read in its own form for so
/// few rows: decoding or transposing it again for each panel of rows is then
/// still cheaper than packing.
const OWN_FORM_ROWS: usize = 2 * FEW;
/// The work that is worth a task of its own, in cycles: a few microseconds.
const TASK_CYCLES: usize = 8000;
/// Tasks for each thread, where there is work enough: they even out what else
/// the machine does.
const TASKS_PER_THREAD: usize = 4;

thread_local! {
    /// Where this thread packs panels; it only grows.
    static SCRATCH: Cell<Buffer> = Cell::new(Buffer::default());
}

/// What the operands' elements are.
#[derive(Clone, Copy)]
enum Elements {
    /// Numbers.
    Numbers,
    /// In single precision, words of two numbers of bfloat16.
    Pairs { gradual: bool },
}

/// A product, ready to be computed piece by piece.
pub(super) struct Block<'a, T> {
    isa: Isa,
    a: &'a dyn PanelSource<T>,
    b: &'a dyn PanelSource<T>,
    a_in_place: Option<Strided<'a, T>>,
    b_in_place: Option<Strided<'a, T>>,
    b_own_form: Option<&'a dyn FewRows<T>>,
    elements: Elements,
    start: Start,
    epilogue: &'a dyn Epilogue<T>,
    c: &'a Output<'a, T>,
    depth: usize,
}

/// Where the kernels find the right operand's columns.
#[derive(Clone, Copy)]
enum Columns<'a, T> {
    /// In memory or packed.
    Panels(Right<T>),
    /// In the form the operand has, which it reads itself.
    OwnForm(&'a dyn FewRows<T>),
}

impl<T: Copy> Columns<'_, T> {
    /// The columns after so many panels.
    fn skip_panels(self, panels: usize) -> Self {
        match self {
            Columns::Panels(right) => Columns::Panels(right.skip_panels(panels)),
            own => own,
        }
    }
}

/// Whether elements a stride apart share the same lines of the first-level cache.
fn collides<T>(stride: usize) -> bool {
    (stride * size_of::<T>()).is_multiple_of(SAME_LINES)
}

impl<'a, T: Real> Block<'a, T> {
    pub fn new(
        isa: Isa,
        a: &'a dyn PanelSource<T>,
        b: &'a dyn PanelSource<T>,
        start: Start,
        epilogue: &'a dyn Epilogue<T>,
        c: &'a Output<'a, T>,
    ) -> Self {
        let (m, n, depth) = (a.lanes(), b.lanes(), a.depth());
        assert_eq!(depth, b.depth(), "A[{m}, {depth}] and B[{}, {n}] do not fit each other", b.depth());
        assert_eq!((m, n), (c.rows, c.columns), "C[{}, {}] is not to hold [{m}, {n}]", c.rows, c.columns);
        let (a_in_place, b_in_place) = (a.in_place(), b.in_place());
        // What follows reads by these extents without further checks.
        assert!(a_in_place.is_none_or(|a| a.extents() == (depth, m)), "A is not what it says it is");
        assert!(b_in_place.is_none_or(|b| b.extents() == (depth, n)), "B is not what it says it is");
        let b_own_form = b.few_rows();
        assert!(b_own_form.is_none_or(|b| b.extents() == (depth, n)), "B is not what it says it is");
        let elements = Elements::Numbers;
        Self { isa, a, b, a_in_place, b_in_place, b_own_form, elements, start, epilogue, c, depth }
    }

    /// The product whose elements are words of two numbers of bfloat16, of whose products some may be subnormal.
    pub fn of_pairs(self, gradual: bool) -> Self {
        // An operand's own form is read by kernels for numbers.
        Self { elements: Elements::Pairs { gradual }, b_own_form: None, ..self }
    }

    /// Computes all pieces, spread over the pool.
    pub fn run(&self, pool: &Pool) {
        let (rows, columns) = self.cut(pool.threads());
        let (down, across) = (self.c.rows.div_ceil(rows), self.c.columns.div_ceil(columns));
        pool.run(down * across, &|task| {
            let (i, j) = (task / across * rows, task % across * columns);
            // SAFETY: the parts that tasks compute are within C and do not overlap.
            unsafe { self.compute(i..self.c.rows.min(i + rows), j..self.c.columns.min(j + columns)) };
        });
    }

    /// The extents of the pieces of C that are to be computed one by one.
    pub fn cut(&self, threads: usize) -> (usize, usize) {
        let (m, n, k) = (self.c.rows.max(1), self.c.columns.max(1), self.depth.max(1));
        let width = tile::<T>(self.isa, m).1;
        let widest = if self.b_own_form.is_some() && m <= FEW { OWN_FORM_PIECE } else { PIECE };
        let (mut rows, mut columns) = (m.min(PIECE), n.min(widest));
        if threads == 1 {
            return (rows, columns);
        }
        // Sixteen multiplications a cycle, or four elements moved.
        let cycles = (m * n / LANES * k).max((m * k + k * n + m * n) / 4);
        let wanted = (cycles / TASK_CYCLES).clamp(1, threads * TASKS_PER_THREAD);
        while m.div_ceil(rows) * n.div_ceil(columns) < wanted {
            // Codes are decoded once more for other rows.
            let narrowest = if self.b.is_packed() { 2 * width } else { width };
            if (columns > rows || self.b.is_packed()) && columns > narrowest {
                columns = columns.div_ceil(2).next_multiple_of(width);
            } else if rows > 1 {
                rows = rows.div_ceil(2);
            } else {
                break;
            }
        }
        (rows, columns)
    }

    /// Computes all pieces on the calling thread.
    pub fn run_serial(&self) {
        let (rows, columns) = self.cut(1);
        for i in (0..self.c.rows).step_by(rows) {
            for j in (0..self.c.columns).step_by(columns) {
                // SAFETY: within C, of which no other piece is computed meanwhile.
                unsafe { self.compute(i..self.c.rows.min(i + rows), j..self.c.columns.min(j + columns)) };
            }
        }
    }

    /// Computes one piece.
    ///
    /// # Safety
    /// The ranges are within C, and nobody else uses that part of C meanwhile.
    pub unsafe fn compute(&self, rows: Range<usize>, columns: Range<usize>) {
        if rows.is_empty() || columns.is_empty() {
            return;
        }
        let blocking = Blocking::of(self.isa.level());
        let some = rows.len() <= OWN_FORM_ROWS;
        let few = |stride: usize, extent: usize, most: usize| extent <= most && !collides::<T>(stride);
        let a_in_place = self.a_in_place.filter(|a| {
            a.lane_stride() == 1 || some || few(a.lane_stride(), columns.len(), IN_PLACE_COLUMNS)
        });
        let b_in_place = self.b_in_place.filter(|b| {
            let bytes = self.depth * b.depth_stride() * size_of::<T>();
            let near = rows.len() <= IN_PLACE_ROWS || bytes <= blocking.in_place_bytes;
            b.lane_stride() == 1
                && (some || (near && few(b.depth_stride(), rows.len(), blocking.in_place_rows)))
        });
        let own_form =
            if b_in_place.is_none() && a_in_place.is_some() && some { self.b_own_form } else { None };
        let most = match own_form {
            _ if self.depth <= SHALLOW => 1,
            Some(_) => FEW.min(tile::<T>(self.isa, FEW).0),
            None => tile::<T>(self.isa, rows.len()).0,
        };
        let panels = rows.len().div_ceil(most);
        // Of fewer columns than a tile has, no more are packed.
        let width = tile::<T>(self.isa, rows.len().div_ceil(panels)).1;
        let width = width.min(columns.len().next_multiple_of(LANES));
        let packed = b_in_place.is_none() && own_form.is_none();
        // What is packed in little time meets all rows at once, while it is in the second-level cache.
        let soon = self.b.is_packed() || (self.b_in_place.is_some() && rows.len() <= blocking.at_once_rows);
        let at_once = packed && a_in_place.is_some() && soon;
        let longest = blocking.depth_bytes / size_of::<T>();
        let most_deep = if at_once { AT_ONCE.min(longest) } else { longest };
        let columns_at_once = CHUNK.min(columns.len().next_multiple_of(LANES));
        let blocks = self.depth.div_ceil(most_deep).max(1);
        let deepest = self.depth.div_ceil(blocks);
        // Of no depth at all nothing is packed, and panels lie somewhere.
        let packed_block = |depth: usize| depth.max(1) * LANES;

        // Panels of the left operand lie side by side where there are lanes for several.
        let beside = (LANES / most).max(1);
        let together = (GROUP / most).next_multiple_of(beside);
        let left_blocks = together.min(panels).div_ceil(beside);
        let left_len = if a_in_place.is_some() { 0 } else { packed_block(deepest) * left_blocks };
        let packed_columns = if at_once { columns_at_once } else { columns.len().next_multiple_of(width) };
        let right_len = if packed { deepest * packed_columns } else { 0 };
        let mut scratch = SCRATCH.take();
        if scratch.len_bytes() < (left_len + right_len) * size_of::<T>() {
            scratch = Buffer::working::<T>(left_len + right_len);
        }
        let (left, right) = scratch.as_mut_slice::<T>()[..left_len + right_len].split_at_mut(left_len);

        let rows_of = |panel: usize| {
            let cut = |panel| rows.start + rows.len() * panel / panels;
            cut(panel)..cut(panel + 1)
        };
        for block in 0..blocks {
            let depth = block * deepest..self.depth.min((block + 1) * deepest);
            if let Some(a) = a_in_place.filter(|_| at_once) {
                for column in columns.clone().step_by(columns_at_once) {
                    let columns = column..columns.end.min(column + columns_at_once);
                    let right = &mut right[..depth.len() * columns_at_once];
                    self.b.pack(self.isa, depth.clone(), columns.clone(), columns_at_once, right);
                    let right = Right { b: right.as_ptr(), depth: columns_at_once, panel: width };
                    let right = Columns::Panels(right);
                    for panel in 0..panels {
                        let rows = rows_of(panel);
                        let left = a.left_at(depth.start, rows.start);
                        // SAFETY: the left operand's elements of these ranges lie in its matrix, the right
                        // one's were packed just now; this part of C is ours.
                        unsafe { self.panel(left, right, depth.clone(), rows, columns.clone()) };
                    }
                }
                continue;
            }
            let right = match (b_in_place, own_form) {
                (Some(b), _) => Columns::Panels(Right {
                    b: b.at(depth.start, columns.start),
                    depth: b.depth_stride(),
                    panel: width,
                }),
                (None, Some(own)) => Columns::OwnForm(own),
                (None, None) => {
                    Columns::Panels(self.right_packed(depth.clone(), columns.clone(), width, right))
                }
            };
            for first in (0..panels).step_by(together) {
                let group = first..panels.min(first + together);
                let block_len = packed_block(depth.len());
                if a_in_place.is_none() && !depth.is_empty() {
                    for (panel, left) in group.clone().step_by(beside).zip(left.chunks_exact_mut(block_len)) {
                        let last = group.end.min(panel + beside) - 1;
                        let rows = rows_of(panel).start..rows_of(last).end;
                        self.a.pack(self.isa, depth.clone(), rows, LANES, left);
                    }
                }
                // What is read in its own form is read once, the longer at a stretch the faster.
                let chunk = match own_form {
                    Some(_) if panels == 1 => columns.len(),
                    _ => CHUNK * (longest / depth.len().max(1)).max(1),
                };
                for column in columns.clone().step_by(chunk) {
                    let right = right.skip_panels((column - columns.start) / width);
                    let columns = column..columns.end.min(column + chunk);
                    for panel in group.clone() {
                        let rows = rows_of(panel);
                        let left = match a_in_place {
                            Some(a) => a.left_at(depth.start, rows.start),
                            None => {
                                let number = (panel - first) / beside;
                                let lane = rows.start - rows_of(first + number * beside).start;
                                Left { a: left[number * block_len + lane..].as_ptr(), row: 1, depth: LANES }
                            }
                        };
                        // SAFETY: the operands' elements of these ranges lie in their
                        // matrices or were packed just now; this part of C is ours.
                        unsafe { self.panel(left, right, depth.clone(), rows, columns.clone()) };
                    }
                }
            }
        }
        SCRATCH.set(scratch);
    }

    /// One panel of rows against some columns, and the epilogue after the last block of k.
    ///
    /// # Safety
    /// `left` and `right` reach the operands' elements of these ranges, and
    /// nobody else uses this part of C.
    unsafe fn panel(
        &self,
        left: Left<T>,
        right: Columns<'_, T>,
        depth: Range<usize>,
        rows: Range<usize>,
        columns: Range<usize>,
    ) {
        let c = |row: usize| self.c.data.wrapping_add(row * self.c.row_stride + columns.start);
        let tiles = RowPanel {
            rows: rows.len(),
            columns: columns.len(),
            depth: depth.len(),
            left,
            c: c(rows.start),
            c_row: self.c.row_stride,
            accumulate: depth.start > 0 || self.start == Start::Continue,
        };
        match right {
            Columns::Panels(right) => match (self.elements, T::PRECISION) {
                // SAFETY: the caller's promise; there are no more rows than a tile has; the elements are of this type.
                (Elements::Pairs { gradual }, Precision::Float32) => unsafe {
                    tiles.cast().run_pairs(self.isa, right.cast(), gradual);
                },
                // SAFETY: as above.
                _ => unsafe { tiles.run(self.isa, right) },
            },
            // SAFETY: the caller's promise; there are only a few rows.
            Columns::OwnForm(own) => unsafe { own.run(self.isa, tiles, depth.start, columns.start) },
        }
        if depth.end == self.depth && !self.epilogue.is_none() {
            for row in rows {
                // SAFETY: part of a row of C, and ours.
                let piece = unsafe { std::slice::from_raw_parts_mut(c(row), columns.len()) };
                self.epilogue.apply(self.isa, row, columns.start, piece);
            }
        }
    }

    /// Packs the right operand into panels of `width` columns.
    fn right_packed(
        &self,
        depth: Range<usize>,
        columns: Range<usize>,
        width: usize,
        scratch: &mut [T],
    ) -> Right<T> {
        let panel_len = depth.len() * width;
        let beside = Blocking::of(self.isa.level()).panels_beside;
        if let Some(b) = self.b_in_place.filter(|b| b.lane_stride() == 1) {
            b.pack_panels(self.isa, depth, columns, (width, beside), scratch);
        } else {
            for (panel, start) in columns.clone().step_by(width).enumerate() {
                let lanes = start..columns.end.min(start + width);
                let out = &mut scratch[panel * panel_len..(panel + 1) * panel_len];
                self.b.pack(self.isa, depth.clone(), lanes, width, out);
            }
        }
        Right { b: scratch.as_ptr(), depth: width, panel: panel_len }
    }
}

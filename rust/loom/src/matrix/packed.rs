//! A right operand that is packed once and then met by many small left ones.

use super::Start;
use super::panels::PanelSource;
use super::tile::{Left, Right, RowPanel, tile};
use crate::simd::{Cpu, Real};
use std::ops::Range;

/// B[k, n] in panels as the kernels like it, for products of a few rows that follow one another:
/// the steps of a recurrence.
///
/// Its products have the bits of [`product`](super::product).
#[derive(Clone, Copy, Debug)]
pub struct PackedRight<'a, T> {
    panels: &'a [T],
    depth: usize,
    columns: usize,
    width: usize,
}

impl<'a, T: Real> PackedRight<'a, T> {
    /// The columns of a panel, for left operands of so many rows.
    fn width(cpu: &Cpu, rows: usize) -> usize {
        let most = tile::<T>(cpu.isa(), rows).0;
        let panels = rows.div_ceil(most).max(1);
        tile::<T>(cpu.isa(), rows.div_ceil(panels)).1
    }

    /// The memory that packing B[k, n] needs, for left operands of so many rows.
    pub fn elements(cpu: &Cpu, rows: usize, depth: usize, columns: usize) -> usize {
        columns.next_multiple_of(Self::width(cpu, rows)) * depth
    }

    /// Packs an operand into memory of [`PackedRight::elements`], spread over the pool.
    ///
    /// # Panics
    /// If the memory has another extent.
    pub fn pack(cpu: &Cpu, rows: usize, source: &dyn PanelSource<T>, memory: &'a mut [T]) -> Self {
        let (depth, columns) = (source.depth(), source.lanes());
        let width = Self::width(cpu, rows);
        assert_eq!(memory.len(), Self::elements(cpu, rows, depth, columns), "memory for another operand");
        cpu.pool().for_each_chunk(memory, depth * width, |panel, memory| {
            let start = panel * width;
            source.pack(cpu.isa(), 0..depth, start..columns.min(start + width), width, memory);
        });
        Self { panels: memory, depth, columns, width }
    }

    /// C = A B, or C += A B, on the calling thread: `rows` rows of A begin `a_stride` elements
    /// apart, those of C `c_stride`.
    ///
    /// # Panics
    /// If A or C does not hold so many rows, or rows of C overlap.
    pub fn multiply(&self, cpu: &Cpu, rows: usize, a: (&[T], usize), start: Start, c: (&mut [T], usize)) {
        self.multiply_part(cpu, rows, (0..self.depth, 0..self.columns), a, start, c);
    }

    /// The same with a part of B, of these rows and these columns: A and C lie as for all of it, and of C
    /// what stands before the columns is arbitrary afterwards.
    ///
    /// # Panics
    /// As [`multiply`](Self::multiply), and where B does not have the part.
    pub fn multiply_part(
        &self,
        cpu: &Cpu,
        rows: usize,
        (depth, columns): (Range<usize>, Range<usize>),
        (a, a_stride): (&[T], usize),
        start: Start,
        (c, c_stride): (&mut [T], usize),
    ) {
        if rows == 0 || columns.is_empty() {
            return;
        }
        let inside = depth.start <= depth.end && depth.end <= self.depth && columns.end <= self.columns;
        assert!(inside, "B does not have the part");
        assert!((rows - 1) * a_stride + self.depth <= a.len(), "A does not hold {rows} rows");
        assert!((rows - 1) * c_stride + self.columns <= c.len(), "C does not hold {rows} rows");
        assert!(c_stride >= self.columns || rows == 1, "rows of C overlap");
        let isa = cpu.isa();
        let panels = rows.div_ceil(tile::<T>(isa, rows).0);
        let c = c.as_mut_ptr();
        for (number, panel) in self.panels.chunks_exact((self.depth * self.width).max(1)).enumerate() {
            let column = number * self.width;
            if column + self.width <= columns.start || column >= columns.end {
                continue;
            }
            for part in 0..panels {
                let (first, end) = (rows * part / panels, rows * (part + 1) / panels);
                let tiles = RowPanel {
                    rows: end - first,
                    columns: self.width.min(columns.end - column),
                    depth: depth.len(),
                    left: Left {
                        a: a.as_ptr().wrapping_add(first * a_stride + depth.start),
                        row: a_stride,
                        depth: 1,
                    },
                    c: c.wrapping_add(first * c_stride + column),
                    c_row: c_stride,
                    accumulate: start == Start::Continue,
                };
                // Narrower tiles follow each other within the panel.
                let narrower = tile::<T>(isa, end - first).1;
                let b = panel[depth.start * self.width..].as_ptr();
                let right = Right { b, depth: self.width, panel: narrower };
                // SAFETY: A and C hold these rows, as asserted, and C is borrowed exclusively; the
                // panel has the rows of `depth`, of `width` elements each; there are no more rows than a
                // tile has.
                unsafe { tiles.run(isa, right) };
            }
        }
    }
}

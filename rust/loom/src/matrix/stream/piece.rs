//! What a task of such a product computes, and the order in which it keeps sums.

use crate::Buffer;
use crate::dtype::decoders::Decoder;
use crate::matrix::tile::Left;
use std::marker::PhantomData;
use std::ops::Range;

/// A few rows of C, some columns wide, and the left operand's rows.
pub struct Piece {
    pub rows: usize,
    pub columns: Range<usize>,
    pub left: Left<f32>,
    pub c: *mut f32,
    pub c_row: usize,
    pub accumulate: bool,
}

impl Piece {
    /// Where the result of a row, counted from the piece's first, and a column of the operand belongs.
    #[inline(always)]
    pub fn c_at(&self, row: usize, column: usize) -> *mut f32 {
        self.c.wrapping_add(row * self.c_row + column - self.columns.start)
    }
}

/// So many floats of a buffer that only grows.
pub fn room(buffer: &mut Buffer, floats: usize) -> &mut [f32] {
    if buffer.len_bytes() < floats * size_of::<f32>() {
        *buffer = Buffer::working::<f32>(floats);
    }
    &mut buffer.as_mut_slice::<f32>()[..floats]
}

/// Which column each lane of the sums stands for.
pub struct Order<D> {
    columns: Range<usize>,
    _decoder: PhantomData<D>,
}

impl<D: Decoder> Order<D> {
    pub fn of(columns: Range<usize>) -> Self {
        Self { columns, _decoder: PhantomData }
    }

    /// Calls with each lane's number and its column, where it has one, counted from the piece's first.
    #[inline(always)]
    fn each(&self, mut with: impl FnMut(usize, Option<usize>)) {
        let group = D::VECTORS * 16;
        for first in (0..self.columns.len()).step_by(group) {
            for place in 0..group {
                let column = first + D::column(place / 16, place % 16);
                with(first + place, (column < self.columns.len()).then_some(column));
            }
        }
    }

    /// Scales in the lanes' order; zeros where there is no column.
    pub fn fill(&self, scales: &mut [f32], scale: impl Fn(usize) -> f32) {
        self.each(|lane, column| {
            scales[lane] = column.map_or(0.0, |column| scale(self.columns.start + column))
        });
    }

    /// What the sums start from.
    ///
    /// # Safety
    /// The piece is within C, and nobody else uses that part of C.
    pub unsafe fn read(&self, piece: &Piece, sums: &mut [f32]) {
        if !piece.accumulate {
            sums.fill(0.0);
            return;
        }
        let lanes = sums.len() / piece.rows;
        for (row, sums) in sums.chunks_exact_mut(lanes).enumerate() {
            // SAFETY: the caller's promise.
            let c = unsafe { piece.c.add(row * piece.c_row) };
            self.each(|lane, column| {
                // SAFETY: a column of the piece.
                sums[lane] = column.map_or(0.0, |column| unsafe { *c.add(column) });
            });
        }
    }

    /// The sums, to where they belong.
    ///
    /// # Safety
    /// The piece is within C, and nobody else uses that part of C.
    pub unsafe fn write(&self, piece: &Piece, sums: &[f32]) {
        let lanes = sums.len() / piece.rows;
        for (row, sums) in sums.chunks_exact(lanes).enumerate() {
            // SAFETY: the caller's promise.
            let c = unsafe { piece.c.add(row * piece.c_row) };
            self.each(|lane, column| {
                if let Some(column) = column {
                    // SAFETY: a column of the piece.
                    unsafe { *c.add(column) = sums[lane] };
                }
            });
        }
    }
}

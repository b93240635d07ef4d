//! Packed weights as right operands that are read from the other side: the table of an embedding, whose rows are a
//! head's outputs.

use crate::matrix::few_rows::{FewRows, Form};
use crate::matrix::panels::{PanelSource, Strided};
use crate::matrix::tile::RowPanel;
#[cfg(test)]
mod tests;

use crate::Buffer;
use crate::dtype::decoders::{BFloat16, Codes, Float16, Int8};
use crate::dtype::{BLOCK, BlockCoding, DType, Granularity, Packing, Scale, WithBlocks};
use crate::precision::Precision;
use crate::simd::{Decode, Elementwise, Isa, Kernel, LANES, Real, Sixteen, Vector, array_of, prefetch};
use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Range;

thread_local! {
    /// Where this thread keeps decoded rows; it only grows.
    static DECODED: Cell<Buffer> = Cell::new(Buffer::default());
}

/// How many elements ahead along each row of the table are fetched, ...
const AHEAD: usize = 64;
/// ... and how many blocks ahead along each of its columns.
const BLOCKS_AHEAD: usize = 24;

/// Right operand B[k, n] whose transpose is packed, row after row of the transpose.
///
/// A product with it equals, bit for bit, the product with the decoded elements.
#[derive(Clone, Copy)]
pub struct TurnedPanels<'a> {
    packing: Packing,
    bytes: &'a [u8],
    scales: &'a [f32],
}

impl<'a> TurnedPanels<'a> {
    /// `bytes` and `scales` are what the transpose, (n, k), was packed as.
    ///
    /// # Panics
    /// If there are not as many of them as that takes.
    pub fn new(packing: Packing, bytes: &'a [u8], scales: &'a [f32]) -> Self {
        assert!(
            bytes.len() >= packing.bytes() && scales.len() >= packing.scale_words(),
            "B does not hold {} x {} elements of {}",
            packing.channels,
            packing.rows,
            packing.dtype
        );
        Self { packing, bytes, scales }
    }

    /// Whether a few rows are multiplied in registers.
    fn is_read_in_place(&self) -> bool {
        let Packing { dtype, granularity, .. } = self.packing;
        match dtype {
            DType::Float16 | DType::BFloat16 => true,
            DType::Int8 => matches!(granularity, Granularity::Channel | Granularity::Tensor),
            _ => self.packing.has_blocks(),
        }
    }
}

impl<T: Real> PanelSource<T> for TurnedPanels<'_> {
    fn depth(&self) -> usize {
        self.packing.channels
    }

    fn lanes(&self) -> usize {
        self.packing.rows
    }

    fn is_packed(&self) -> bool {
        true
    }

    fn pack(&self, isa: Isa, depth: Range<usize>, lanes: Range<usize>, width: usize, out: &mut [T]) {
        assert!(depth.end <= self.packing.channels && lanes.end <= self.packing.rows);
        assert!(lanes.len() <= width && out.len() == depth.len() * width);
        let len = lanes.len() * depth.len();
        // Taken out for the duration, so that decoding may use the memory, too.
        let mut buffer = DECODED.take();
        if buffer.len_bytes() < len * size_of::<T>() {
            buffer = Buffer::working::<T>(len);
        }
        let decoded = &mut buffer.as_mut_slice::<T>()[..len];
        let from = (self.bytes, self.scales);
        self.packing.decode_tile(isa, from, lanes.clone(), depth.clone(), decoded, depth.len());
        if len > 0 {
            let turned = Strided::right_transposed(decoded, depth.len(), lanes.len());
            turned.pack(isa, 0..depth.len(), 0..lanes.len(), width, out);
        }
        DECODED.set(buffer);
    }

    fn few_rows(&self) -> Option<&dyn FewRows<T>> {
        let single = T::PRECISION == Precision::Float32;
        (single && self.is_read_in_place()).then_some(self)
    }
}

impl<T: Real> Form<T> for TurnedPanels<'_> {
    fn extents(&self) -> (usize, usize) {
        (self.packing.channels, self.packing.rows)
    }

    #[inline(always)]
    unsafe fn vector<V: Vector<Element = T>>(&self, k: usize, column: usize, count: usize) -> V {
        let mut lanes = [T::ZERO; LANES];
        let (from, rows) = ((self.bytes, self.scales), column..column + count);
        self.packing.decode_tile(Isa::portable(), from, rows, k..k + 1, &mut lanes[..count], 1);
        V::load(&lanes)
    }

    unsafe fn panel(&self, isa: Isa, panel: RowPanel<T>, k: usize, column: usize) -> bool {
        if T::PRECISION != Precision::Float32 {
            return false;
        }
        let panel = RowPanel::<f32> {
            rows: panel.rows,
            columns: panel.columns,
            depth: panel.depth,
            left: panel.left.cast(),
            c: panel.c.cast(),
            c_row: panel.c_row,
            accumulate: panel.accumulate,
        };
        let piece = Piece { of: self, isa, panel, k, column };
        match self.packing.dtype {
            DType::Float16 => piece.enter::<Float16>(),
            DType::BFloat16 => piece.enter::<BFloat16>(),
            DType::Int8 => piece.enter::<Int8>(),
            dtype => return dtype.with_blocks(piece).is_some(),
        }
        true
    }
}

/// Some rows of A against some outputs, from `k` and `column` on: within the operands and C, whose part nobody else
/// uses.
#[derive(Clone, Copy)]
struct Piece<'a> {
    of: &'a TurnedPanels<'a>,
    isa: Isa,
    panel: RowPanel<f32>,
    k: usize,
    column: usize,
}

impl Piece<'_> {
    fn enter<C: Codes>(self) {
        macro_rules! rows {
            ($($rows:literal)*) => {
                match self.panel.rows {
                    $($rows => f32::dispatch(self.isa, Turn::<C, $rows> { piece: self, codes: PhantomData }),)*
                    rows => unreachable!("{rows} are not few rows"),
                }
            };
        }
        rows!(1 2 3 4 5 6 7 8);
    }
}

impl WithBlocks for Piece<'_> {
    type Output = ();

    fn with<B: BlockCoding>(self) {
        f32::dispatch(self.isa, Spread::<B> { piece: self, coding: PhantomData });
    }
}

/// Types of whole bytes: sixteen inputs of sixteen outputs at a time, turned round in registers.
struct Turn<'a, C, const R: usize> {
    piece: Piece<'a>,
    codes: PhantomData<C>,
}

impl<C: Codes, const R: usize> Turn<'_, C, R> {
    /// Elements of a row of the table from `k` on, at most 16, zeros after them.
    ///
    /// # Safety
    /// They are there.
    #[inline(always)]
    unsafe fn numbers<V: Decode>(&self, row: usize, k: usize, count: usize, scales: V) -> V {
        let of = self.piece.of;
        // SAFETY: the caller's promise; fewer than sixteen are read from a copy.
        unsafe {
            let from = of.bytes.as_ptr().add((row * of.packing.channels + k) * C::BITS / 8);
            let number: V = if count == LANES {
                C::numbers(from)
            } else {
                let mut copy = [0u8; 4 * LANES];
                copy.as_mut_ptr().copy_from_nonoverlapping(from, count * C::BITS / 8);
                C::numbers(copy.as_ptr())
            };
            if C::SCALED { number * scales } else { number }
        }
    }

    /// The scales of sixteen inputs, or so many.
    #[inline(always)]
    fn scales<V: Decode>(&self, k: usize, count: usize) -> V {
        let TurnedPanels { packing, scales, .. } = self.piece.of;
        match packing.granularity {
            _ if !C::SCALED => V::splat(1.0),
            Granularity::Tensor => V::splat(scales[0]),
            _ => V::load_partial(&scales[k..k + count]),
        }
    }
}

impl<C: Codes, const R: usize> Kernel<f32> for Turn<'_, C, R> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = f32>>(self) {
        let columns = self.piece.panel.columns;
        let whole = columns / LANES * LANES;
        // SAFETY: the promise of `FewRows::run`: these columns and inputs are in the operands and in C, whose part
        // is ours. Whole vectors have code of their own, which keeps blocks in registers.
        unsafe {
            for first in (0..whole).step_by(LANES) {
                self.sixteen::<V::Float32>(first, LANES);
            }
            if whole < columns {
                self.sixteen::<V::Float32>(whole, columns - whole);
            }
        }
    }
}

impl<C: Codes, const R: usize> Turn<'_, C, R> {
    /// The sums of sixteen columns, or of those present.
    ///
    /// # Safety
    /// They are in the operand and in C, whose part nobody else uses.
    #[inline(always)]
    unsafe fn sixteen<V: Decode>(&self, first: usize, present: usize) {
        let RowPanel { depth, c, c_row, accumulate, .. } = self.piece.panel;
        let whole = depth / LANES * LANES;
        // SAFETY: the caller's promise.
        unsafe {
            let part = |row: usize| std::slice::from_raw_parts_mut(c.add(row * c_row + first), present);
            let mut sums = [V::splat(0.0); R];
            if accumulate {
                for (row, sum) in sums.iter_mut().enumerate() {
                    *sum = V::load_partial(part(row));
                }
            }
            for inner in (0..whole).step_by(LANES) {
                self.block(inner, LANES, first, present, &mut sums);
            }
            if whole < depth {
                self.block(whole, depth - whole, first, present, &mut sums);
            }
            for (row, sum) in sums.into_iter().enumerate() {
                sum.store_partial(part(row));
            }
        }
    }

    /// Adds the terms of `count` inputs.
    ///
    /// # Safety
    /// As [`sixteen`](Self::sixteen).
    #[inline(always)]
    unsafe fn block<V: Decode>(
        &self,
        inner: usize,
        count: usize,
        first: usize,
        present: usize,
        sums: &mut [V; R],
    ) {
        let Piece { panel, k, column, of, .. } = self.piece;
        let scales = self.scales::<V>(k + inner, count);
        let mut block = [V::splat(0.0); LANES];
        for (lane, vector) in block.iter_mut().enumerate().take(present) {
            let row = column + first + lane;
            let ahead = (row * of.packing.channels + k + inner + AHEAD) * C::BITS / 8;
            prefetch(of.bytes.as_ptr().wrapping_add(ahead));
            // SAFETY: the caller's promise.
            *vector = unsafe { self.numbers(row, k + inner, count, scales) };
        }
        V::transpose(&mut block);
        for (i, right) in block.into_iter().enumerate().take(count) {
            // SAFETY: the caller's promise.
            unsafe { panel.left.add(inner + i, right, sums) };
        }
    }
}

/// Block formats, whose blocks lie along the outputs: blocks of sixteen inputs are added to 32 outputs at a time.
struct Spread<'a, B> {
    piece: Piece<'a>,
    coding: PhantomData<B>,
}

impl<B: BlockCoding> Kernel<f32> for Spread<'_, B> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = f32>>(self) {
        let RowPanel { rows, columns, depth, c, c_row, accumulate, .. } = self.piece.panel;
        // SAFETY: the promise of `FewRows::run`: these columns and inputs are in the operands and in C, whose part
        // is ours.
        unsafe {
            if !accumulate {
                for row in 0..rows {
                    std::slice::from_raw_parts_mut(c.add(row * c_row), columns).fill(0.0);
                }
            }
            for inner in (0..depth).step_by(LANES) {
                let count = LANES.min(depth - inner);
                let mut first = 0;
                while first < columns {
                    let place = (self.piece.column + first) % BLOCK;
                    let some = (BLOCK - place).min(columns - first);
                    if count == LANES && some == BLOCK {
                        let mut row = 0;
                        while row < rows {
                            row += match rows - row {
                                1 => self.whole::<V::Float32, 1>(inner, first, row),
                                2 | 3 => self.whole::<V::Float32, 2>(inner, first, row),
                                _ => self.whole::<V::Float32, 4>(inner, first, row),
                            };
                        }
                    } else {
                        self.part::<V::Float32>(inner..inner + count, first, place, some);
                    }
                    first += some;
                }
            }
        }
    }
}

impl<B: BlockCoding> Spread<'_, B> {
    /// The block of an input that an output is in.
    #[inline(always)]
    fn block(&self, inner: usize, first: usize) -> *const u8 {
        let Piece { of, k, column, .. } = self.piece;
        let stride = of.packing.rows.div_ceil(BLOCK) * B::BYTES;
        of.bytes.as_ptr().wrapping_add((k + inner) * stride + (column + first) / BLOCK * B::BYTES)
    }

    /// Adds blocks of sixteen inputs to R rows.
    ///
    /// # Safety
    /// All of that is there.
    #[inline(always)]
    unsafe fn whole<V: Decode, const R: usize>(&self, inner: usize, first: usize, row: usize) -> usize {
        let RowPanel { left, c, c_row, .. } = self.piece.panel;
        let stride = self.piece.of.packing.rows.div_ceil(BLOCK) * B::BYTES;
        let mut block = self.block(inner, first);
        // SAFETY: the caller's promise.
        unsafe {
            let scales = B::Scale::sixteen::<V>(&Sixteen::new(block, stride)).to_array();
            let to = |i: usize, half: usize| c.add((row + i) * c_row + first + half * LANES);
            let mut sums: [[V; 2]; R] = array_of(|i| array_of(|half| V::load_unchecked(to(i, half))));
            for (input, scale) in scales.into_iter().enumerate() {
                prefetch(block.wrapping_add(BLOCKS_AHEAD * B::BYTES));
                let [lower, upper] = B::numbers::<V>(block);
                let (lower, upper) = (lower * V::splat(scale), upper * V::splat(scale));
                for (i, sum) in sums.iter_mut().enumerate() {
                    let a = V::splat(*left.a.add((row + i) * left.row + (inner + input) * left.depth));
                    *sum = [a.mul_add(lower, sum[0]), a.mul_add(upper, sum[1])];
                }
                block = block.wrapping_add(stride);
            }
            for (i, sum) in sums.into_iter().enumerate() {
                sum[0].store_unchecked(to(i, 0));
                sum[1].store_unchecked(to(i, 1));
            }
        }
        R
    }

    /// Adds parts of the blocks of some inputs, `count` outputs from `place` on, to all rows.
    ///
    /// # Safety
    /// All of that is there.
    #[inline(always)]
    unsafe fn part<V: Decode>(&self, inputs: Range<usize>, first: usize, place: usize, count: usize) {
        let RowPanel { rows, left, c, c_row, .. } = self.piece.panel;
        for inner in inputs {
            let block = self.block(inner, first);
            // SAFETY: the caller's promise.
            unsafe {
                let scale = V::splat(B::Scale::read(match B::Scale::BYTES {
                    1 => u16::from(*block),
                    _ => u16::from_le_bytes(*block.cast()),
                }));
                let mut numbers = [0.0; BLOCK];
                for (half, number) in B::numbers::<V>(block).into_iter().enumerate() {
                    (number * scale).store(&mut numbers[half * LANES..]);
                }
                for row in 0..rows {
                    let a = *left.a.add(row * left.row + inner * left.depth);
                    let to = std::slice::from_raw_parts_mut(c.add(row * c_row + first), count);
                    for (to, number) in to.iter_mut().zip(&numbers[place..]) {
                        *to = Elementwise::mul_add(a, *number, *to);
                    }
                }
            }
        }
    }
}

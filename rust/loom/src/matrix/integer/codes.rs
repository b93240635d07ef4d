//! Weights of symmetric integers as bytes, and as the panels that the kernels read.

use super::dots::Route;
use super::{COLUMNS, DEPTH_LIMIT};
use crate::dtype::{DType, Granularity, Packing, float16_to_f32};
use crate::simd::{Isa, Kernel, Real, Vector};
use crate::{Error, Result};
use std::ops::Range;

/// Inputs of a block of the block formats.
const BLOCK: usize = 32;
/// Rows of k that are turned into bytes together: a multiple of what a word of any panel holds.
const RUN: usize = 32;

/// The weight B[k, n] of a product with quantised activations.
#[derive(Clone, Copy)]
pub struct IntegerWeight<'a> {
    packing: Packing,
    bytes: &'a [u8],
    scales: &'a [f32],
}

/// Codes of a run of rows of k and some columns, zeros beyond the last.
pub(super) struct Codes([[i8; COLUMNS]; RUN]);

impl Codes {
    pub const ZERO: Self = Self([[0; COLUMNS]; RUN]);
}

impl<'a> IntegerWeight<'a> {
    /// The types that such products take.
    pub const TYPES: [DType; 7] =
        [DType::Int8, DType::Int4, DType::Int2, DType::Ternary, DType::Binary, DType::Q8_0, DType::Q4_0];

    /// Refuses types whose codes are not symmetric integers of at most eight bits.
    ///
    /// # Errors
    /// [`Error::DType`] for another type, naming those that will do.
    pub fn check_type(dtype: DType) -> Result<()> {
        if Self::TYPES.contains(&dtype) {
            return Ok(());
        }
        let names: Vec<_> = Self::TYPES.iter().map(|dtype| dtype.name()).collect();
        Err(Error::DType(format!(
            "activations=\"int8\" needs weights of symmetric integers, which {dtype} are not; use one of {}, \
             or leave the activations in float",
            names.join(", ")
        )))
    }

    /// Refuses sums that need not fit 32 bits.
    ///
    /// # Errors
    /// [`Error::Value`] for a weight of too many inputs.
    pub fn check_depth(depth: usize) -> Result<()> {
        if depth < DEPTH_LIMIT {
            return Ok(());
        }
        Err(Error::Value(format!(
            "with activations=\"int8\" a product sums at most {} inputs exactly, got {depth}; leave the \
             activations in float",
            DEPTH_LIMIT - 1
        )))
    }

    /// `bytes` and `scales` are what was packed so.
    ///
    /// # Errors
    /// As `check_type` and `check_depth`; [`Error::Internal`] for too few bytes or scales.
    pub fn new(packing: Packing, bytes: &'a [u8], scales: &'a [f32]) -> Result<Self> {
        Self::check_type(packing.dtype)?;
        Self::check_depth(packing.rows)?;
        if bytes.len() < packing.bytes() || scales.len() < packing.scale_words() {
            return Err(Error::Internal(format!("too few bytes for a weight of {}", packing.dtype)));
        }
        Ok(Self { packing, bytes, scales })
    }

    /// k and n.
    pub fn extents(&self) -> (usize, usize) {
        (self.packing.rows, self.packing.channels)
    }

    /// The code of an element.
    pub fn code(&self, k: usize, column: usize) -> i8 {
        let mut codes = Codes::ZERO;
        self.fill(k..k + 1, column..column + 1, &mut codes);
        codes.0[0][0]
    }

    /// Where the run of k that shares its scales with `k` in each column ends.
    pub fn group_end(&self, k: usize) -> usize {
        match self.packing.granularity {
            Granularity::Block(rows) => self.packing.rows.min((k / rows.max(1) + 1) * rows.max(1)),
            _ => self.packing.rows,
        }
    }

    /// The scales of some columns at `k`.
    pub(super) fn scales(&self, k: usize, columns: Range<usize>, scales: &mut [f32; COLUMNS]) {
        let own = &mut scales[..columns.len()];
        match self.packing.granularity {
            _ if self.packing.dtype.is_block_format() => {
                for (scale, column) in own.iter_mut().zip(columns) {
                    let block = self.block(k / BLOCK, column);
                    *scale = float16_to_f32(u16::from_le_bytes([block[0], block[1]]));
                }
            }
            Granularity::Tensor => own.fill(self.scales[0]),
            Granularity::Block(rows) => {
                let first = k / rows.max(1) * self.packing.channels;
                own.copy_from_slice(&self.scales[first + columns.start..first + columns.end]);
            }
            Granularity::Channel | Granularity::Unscaled => own.copy_from_slice(&self.scales[columns]),
        }
    }

    /// The bytes of a block of a column.
    fn block(&self, number: usize, column: usize) -> &'a [u8] {
        let bytes = if self.packing.dtype == DType::Q4_0 { 2 + BLOCK / 2 } else { 2 + BLOCK };
        &self.bytes[(column * self.packing.rows.div_ceil(BLOCK) + number) * bytes..][..bytes]
    }

    /// Codes of at most [`RUN`] rows of k, zeros for the rest.
    #[inline(always)]
    fn fill(&self, depth: Range<usize>, columns: Range<usize>, codes: &mut Codes) {
        for row in &mut codes.0[depth.len()..] {
            row.fill(0);
        }
        match self.packing.dtype {
            DType::Int8 => self.flat::<8>(depth, columns, codes),
            DType::Int4 => self.flat::<4>(depth, columns, codes),
            DType::Int2 | DType::Ternary => self.flat::<2>(depth, columns, codes),
            DType::Binary => self.flat::<1>(depth, columns, codes),
            _ => self.blocks(depth, columns, codes),
        }
    }

    /// Codes that are packed row after row.
    #[inline(always)]
    fn flat<const BITS: usize>(&self, depth: Range<usize>, columns: Range<usize>, codes: &mut Codes) {
        let (n, per) = (self.packing.channels, 8 / BITS);
        let extended = |byte: u8, place: usize| match BITS {
            // A bit is 1 or -1.
            1 => (byte >> place & 1) as i8 * 2 - 1,
            _ => ((byte << (8 - BITS - place * BITS)) as i8) >> (8 - BITS),
        };
        for (k, row) in depth.zip(&mut codes.0) {
            let (first, row) = (k * n + columns.start, &mut row[..columns.len()]);
            if first.is_multiple_of(per) {
                let bytes = &self.bytes[first / per..];
                for (codes, byte) in row.chunks_exact_mut(per).zip(bytes) {
                    for (place, code) in codes.iter_mut().enumerate() {
                        *code = extended(*byte, place);
                    }
                }
                let whole = row.len() / per;
                for (place, code) in row[whole * per..].iter_mut().enumerate() {
                    *code = extended(bytes[whole], place);
                }
            } else {
                for (element, code) in (first..).zip(row) {
                    *code = extended(self.bytes[element / per], element % per);
                }
            }
        }
    }

    /// Codes of the block formats.
    fn blocks(&self, depth: Range<usize>, columns: Range<usize>, codes: &mut Codes) {
        let nibbles = self.packing.dtype == DType::Q4_0;
        for (place, column) in columns.enumerate() {
            for (k, row) in depth.clone().zip(&mut codes.0) {
                let bytes = &self.block(k / BLOCK, column)[2..];
                row[place] = match (nibbles, k % BLOCK) {
                    (false, k) => bytes[k] as i8,
                    (true, k) if k < BLOCK / 2 => (bytes[k] & 15) as i8 - 8,
                    (true, k) => (bytes[k - BLOCK / 2] >> 4) as i8 - 8,
                };
            }
        }
    }

    /// Packs a range of k of at most 64 columns: word after word of the codes of `route.per()` rows of k, 64
    /// columns each, zeros where there is nothing.
    pub(super) fn pack(
        &self,
        route: Route,
        depth: Range<usize>,
        columns: Range<usize>,
        codes: &mut Codes,
        panel: &mut [i32],
    ) {
        for row in &mut codes.0 {
            row[columns.len()..].fill(0);
        }
        let isa: Isa = route.isa();
        f32::dispatch(isa, Pack { weight: self, per: route.per(), depth, columns, codes, panel });
    }
}

struct Pack<'a> {
    weight: &'a IntegerWeight<'a>,
    per: usize,
    depth: Range<usize>,
    columns: Range<usize>,
    codes: &'a mut Codes,
    panel: &'a mut [i32],
}

impl Kernel<f32> for Pack<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = f32>>(self) {
        let Self { weight, per, depth, columns, codes, panel } = self;
        for (first, panel) in depth.clone().step_by(RUN).zip(panel.chunks_mut(RUN / per * COLUMNS)) {
            weight.fill(first..depth.end.min(first + RUN), columns.clone(), codes);
            if per == 4 {
                for (words, rows) in panel.chunks_exact_mut(COLUMNS).zip(codes.0.chunks_exact(4)) {
                    for (column, word) in words.iter_mut().enumerate() {
                        let bytes = [rows[0][column], rows[1][column], rows[2][column], rows[3][column]];
                        *word = i32::from_le_bytes(bytes.map(|code| code as u8));
                    }
                }
            } else {
                for (words, rows) in panel.chunks_exact_mut(COLUMNS).zip(codes.0.chunks_exact(2)) {
                    for (column, word) in words.iter_mut().enumerate() {
                        *word = i32::from(rows[0][column]) & 0xFFFF | i32::from(rows[1][column]) << 16;
                    }
                }
            }
        }
    }
}

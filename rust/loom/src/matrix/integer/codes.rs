//! Weights of symmetric integers as bytes, and as the panels that the kernels read.

use super::block_piece::BlockRight;
use super::flat::FlatRight;
use super::route::Route;
use super::{COLUMNS, DEPTH_LIMIT};
use crate::dtype::{self, CodeOrder, DType, Granularity, Packing};
use crate::simd::{Isa, Kernel, Real, Vector};
use crate::{Error, Result};
use std::ops::Range;

/// Rows of k that are turned into bytes together: a multiple of what a word of any panel holds.
const RUN: usize = 32;

/// The weight B[k, n] of a product with quantised activations.
#[derive(Clone, Copy)]
pub struct IntegerWeight<'a> {
    pub(super) packing: Packing,
    pub(super) bytes: &'a [u8],
    scales: &'a [f32],
}

/// Codes of a run of rows of k and some columns, zeros beyond the last.
pub(super) struct Codes([[i8; COLUMNS]; RUN]);

impl Codes {
    pub const ZERO: Self = Self([[0; COLUMNS]; RUN]);
}

impl<'a> IntegerWeight<'a> {
    /// The types that such products take.
    pub const TYPES: [DType; dtype::INTEGERS] = dtype::integers();

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

    /// The weight as blocks along the inputs, where it has such, and how their codes lie.
    pub(super) fn in_blocks(&self) -> Option<(BlockRight<'_>, CodeOrder)> {
        let (packing, bytes) = (&self.packing, self.bytes);
        let order = packing.block_layout()?.order;
        packing.has_blocks().then_some((BlockRight { packing, bytes }, order))
    }

    /// The weight as rows of codes, where a few rows are multiplied with it so.
    pub(super) fn in_rows(&self) -> Option<FlatRight<'_>> {
        let flat = FlatRight { packing: &self.packing, bytes: self.bytes, scales: self.scales };
        let plain = !self.packing.dtype.is_block_format() && !self.packing.turned;
        (plain && flat.is_served()).then_some(flat)
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
        self.packing.integer_scales((self.bytes, self.scales), k, columns, own);
    }

    /// Codes of at most [`RUN`] rows of k, zeros for the rest.
    #[inline(always)]
    fn fill(&self, depth: Range<usize>, columns: Range<usize>, codes: &mut Codes) {
        for row in &mut codes.0[depth.len()..] {
            row.fill(0);
        }
        self.packing.integers(self.bytes, depth, columns, &mut codes.0);
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
                        let byte = |row: usize| rows[row][column] as u8;
                        *word = i32::from_le_bytes([byte(0), byte(1), byte(2), byte(3)]);
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

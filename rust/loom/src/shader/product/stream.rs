//! How products of few rows with a weight that is read as it lies are shared out among threads.

use super::matrix::{Matrix, Storage};
use super::tile::Along;
pub(super) use crate::dtype::BLOCK;
use crate::dtype::{DType, Granularity, Packing};
use crate::shader::THREADS;

/// The most rows that a workgroup makes.
pub const MAX_ROWS: usize = 8;
/// The most rows that are made by several workgroups each, beside other products of the same ones: each reads the
/// weight anew, but starting kernels takes longer than that.
pub const MOST_GROUPED_ROWS: usize = 32;
/// The most weights of a product for which that holds.
pub(super) const MOST_GROUPED_WEIGHTS: usize = 1 << 20;

/// How many groups rows are made in, and how many there are in each but the last.
pub(super) fn row_groups(rows: usize) -> (usize, usize) {
    let groups = rows.div_ceil(MAX_ROWS).max(1);
    (groups, rows.div_ceil(groups))
}

/// How the work is shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stream {
    /// Along what a thread's codes lie.
    pub along: Along,
    /// Threads of a workgroup.
    pub threads: u32,
    /// Threads that share a sum out.
    pub lanes: u32,
    /// Codes that a thread decodes of a load: 4, 8, 16 or 32.
    pub codes: u32,
    /// Columns of a thread whose codes lie along the depth: that often it uses what it has loaded of A.
    pub columns: u32,
    /// Loads under way together: of four rows of B each where codes lie across.
    pub unroll: u32,
}

/// Where scales and zero points come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Groups {
    /// There are none, or they lie in the blocks.
    None,
    /// One for all.
    One,
    /// One for each stored column.
    Columns,
    /// One for each stored column of so many stored rows.
    Blocks(usize),
}

/// The weight as it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weight {
    pub(super) packing: Packing,
    pub(super) matrix: Matrix,
}

impl Weight {
    /// The weight, where this kernel can read it as operand of a product that sums over `depth`.
    pub(super) fn new(storage: Storage, matrix: Matrix, columns: usize, depth: usize) -> Option<Self> {
        let rows = if matrix.transposed { columns } else { depth };
        let plain = |dtype| Packing::new(dtype, rows, matrix.stride);
        let packing = match storage {
            Storage::Float32 => plain(DType::Float32),
            Storage::Float16 => plain(DType::Float16),
            Storage::BFloat16 => plain(DType::BFloat16),
            Storage::Int8 => plain(DType::Int8),
            Storage::Packed(packing) => packing,
        };
        let weight = Self { packing, matrix };
        if packing.turned {
            return None;
        }
        let whole = matrix.offset == 0 && matrix.stride == packing.channels;
        if packing.dtype.is_block_format() {
            // Blocks lie along the inputs.
            return (whole && !matrix.transposed && packing.rows == depth).then_some(weight);
        }
        let run = if matrix.transposed { depth } else { columns };
        let fits = match weight.groups() {
            Groups::None => true,
            Groups::Blocks(rows) => whole && !matrix.transposed && rows.is_multiple_of(4),
            Groups::One | Groups::Columns => whole,
        };
        (fits && matrix.in_fours(run)).then_some(weight)
    }

    pub(super) fn groups(&self) -> Groups {
        let packing = &self.packing;
        match packing.granularity {
            _ if packing.group_words() == 0 => Groups::None,
            Granularity::Tensor => Groups::One,
            Granularity::Block(rows) if rows < packing.rows => Groups::Blocks(rows),
            _ => Groups::Columns,
        }
    }

    /// Along what codes lie side by side.
    pub(super) fn along(&self) -> Along {
        match self.matrix.transposed || self.packing.dtype.is_block_format() {
            true => Along::Depth,
            false => Along::Across,
        }
    }

    pub(super) fn bits(&self) -> usize {
        self.packing.dtype.row().bits
    }

    /// Products between which the depth may be cut.
    pub(super) const STEP: usize = 128;

    /// Whether a shape suits how the weight lies.
    pub(super) fn takes(&self, shape: &Stream, columns: usize, depth: usize) -> bool {
        let (bits, codes) = (self.bits(), shape.codes as usize);
        let words = codes * bits;
        let loads = words <= 32 || [64, 128].contains(&words) || words == 256 && bits == 64;
        let divides = |extent: usize| extent.is_multiple_of(codes);
        let run = match (self.packing.dtype.is_block_format(), self.along()) {
            (true, _) => words >= 32 && codes <= BLOCK,
            (false, Along::Across) => divides(columns) && divides(self.matrix.stride),
            (false, Along::Depth) => divides(depth) && divides(self.matrix.stride),
        };
        shape.along == self.along() && codes.is_multiple_of(4) && loads && run
    }

    /// The shape that suits the extents, where so many groups of rows are made.
    pub(super) fn shape(
        &self,
        [rows, columns, depth]: [usize; 3],
        groups: usize,
        most_threads: usize,
    ) -> Stream {
        let bits = self.bits();
        // What a sum is shared out over has to be added up: no more threads than keep the device busy.
        let wanted = match (rows, depth, groups) {
            (..=2, ..) => 1024,
            (_, ..=2048, 3..) => 128,
            (_, ..=2048, _) => 256,
            _ => 512,
        };
        let most = most_threads.clamp(32, wanted);
        let most = 1 << most.ilog2();
        let halved = |mut value: usize, fits: &dyn Fn(usize) -> bool| {
            while value > 4 && !fits(value) {
                value /= 2;
            }
            value
        };
        if self.along() == Along::Across {
            // Several rows use what is loaded of A more often, the more columns a thread has.
            let least = if rows > 2 && bits <= 8 { 8 } else { 4 };
            let codes = halved((32 / bits).clamp(least, 16), &|codes| {
                columns.is_multiple_of(codes)
                    && self.matrix.stride.is_multiple_of(codes)
                    && codes * rows <= 64
            });
            let mut wide = 8;
            while wide > 1 && columns / (wide * codes) < 128 {
                wide /= 2;
            }
            let lanes = depth.div_ceil(4).next_power_of_two().min(most / wide).max(32 / wide);
            let unroll = (128 / (codes * bits)).clamp(1, 4) / if rows > 2 { 2 } else { 1 };
            return Stream {
                along: Along::Across,
                threads: (wide * lanes) as u32,
                lanes: lanes as u32,
                codes: codes as u32,
                columns: 1,
                unroll: unroll.max(1) as u32,
            };
        }
        let codes = match self.packing.dtype.is_block_format() {
            // More would not leave the registers that several rows take.
            true if rows > 2 => 8,
            true => 64 / bits,
            false => halved((64 / bits).clamp(4, 16), &|codes| {
                depth.is_multiple_of(codes) && self.matrix.stride.is_multiple_of(codes)
            }),
        };
        let most_lanes = match (self.packing.dtype.is_block_format(), groups) {
            (true, 3..) => 64,
            (true, _) => 128,
            (false, _) => 32,
        };
        let lanes = depth.div_ceil(codes).next_power_of_two().clamp(1, most_lanes);
        let threads = THREADS.min(most);
        Stream {
            along: Along::Depth,
            threads: threads as u32,
            lanes: lanes as u32,
            codes: codes as u32,
            columns: 2,
            unroll: if rows > 2 { 1 } else { 2 },
        }
    }
}

impl Stream {
    /// Columns of C made by one workgroup.
    pub(super) fn workgroup_columns(&self) -> usize {
        let groups = self.threads / self.lanes;
        (groups * if self.along == Along::Across { self.codes } else { self.columns }) as usize
    }

    /// Elements stored together.
    pub(super) fn store_width(&self) -> u32 {
        if self.along == Along::Across { 4 } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_suit_the_weight_and_the_device() {
        for (dtype, transposed) in DType::all().flat_map(|dtype| [(dtype, false), (dtype, true)]) {
            for (rows, columns, depth) in
                [(1, 4, 1), (1, 4096, 4096), (8, 4096, 4096), (3, 36, 700), (2, 50_000, 256), (5, 8, 100_000)]
            {
                let stride = if transposed { depth } else { columns };
                let inputs = if transposed { columns } else { depth };
                let matrix = Matrix { transposed, stride, offset: 0 };
                let storage = Storage::of(Some(Packing::new(dtype, inputs, stride)));
                let Some(weight) = Weight::new(storage, matrix, columns, depth) else {
                    // Inputs that share a scale, in blocks or in groups, lie along the depth.
                    let shares = matches!(dtype.row().granularity, Granularity::Block(_));
                    let ragged = !stride.is_multiple_of(4) || transposed && shares;
                    assert!(ragged, "{dtype}: {rows}, {columns}, {depth}");
                    continue;
                };
                for limit in [256, 512, 768, 1024] {
                    let shape = weight.shape([rows, columns, depth], 1, limit);
                    assert!(weight.takes(&shape, columns, depth), "{dtype}: {shape:?}");
                    assert!(shape.threads as usize <= limit && shape.threads.is_multiple_of(shape.lanes));
                    assert!(shape.lanes.is_power_of_two(), "{dtype}: {shape:?}");
                    assert!(shape.workgroup_columns() > 0 && shape.unroll > 0);
                }
            }
        }
    }
}

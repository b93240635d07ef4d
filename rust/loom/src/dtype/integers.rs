//! Codes that are symmetric integers of at most eight bits, as products of quantised activations take them.

use super::grouping::Granularity;
use super::packing::Packing;
use std::ops::Range;

impl Packing {
    /// The integers of some columns of some rows of k, of a type whose codes are symmetric integers; to be inlined,
    /// so that it is compiled for each instruction set.
    #[inline(always)]
    pub(crate) fn integers<const N: usize>(
        &self,
        bytes: &[u8],
        depth: Range<usize>,
        columns: Range<usize>,
        codes: &mut [[i8; N]],
    ) {
        if let Some(blocks) = self.format().block_integers() {
            return blocks.codes(&self.extents(), bytes, depth, columns, (codes.as_flattened_mut(), N));
        }
        match self.dtype.row().bits {
            8 => {
                for (k, row) in depth.zip(codes) {
                    let bytes = &bytes[k * self.channels..][columns.clone()];
                    row[..columns.len()].copy_from_slice(bytemuck::cast_slice(bytes));
                }
            }
            4 => self.flat::<4, 2, N>(bytes, depth, columns, codes),
            2 => self.flat::<2, 4, N>(bytes, depth, columns, codes),
            _ => self.flat::<1, 8, N>(bytes, depth, columns, codes),
        }
    }

    /// Codes that are packed row after row, `PER` of them in a byte.
    #[inline(always)]
    fn flat<const BITS: usize, const PER: usize, const N: usize>(
        &self,
        bytes: &[u8],
        depth: Range<usize>,
        columns: Range<usize>,
        codes: &mut [[i8; N]],
    ) {
        let extended = |byte: u8, place: usize| match BITS {
            // A bit is 1 or -1.
            1 => (byte >> place & 1) as i8 * 2 - 1,
            _ => ((byte << (8 - BITS - place * BITS)) as i8) >> (8 - BITS),
        };
        for (k, row) in depth.zip(codes) {
            let (first, row) = (k * self.channels + columns.start, &mut row[..columns.len()]);
            if first.is_multiple_of(PER) {
                let bytes = &bytes[first / PER..];
                let (whole, rest) = row.as_chunks_mut::<PER>();
                // By numbers, not by iterators, of which compilers made calls, one or two a byte.
                let own = &bytes[..whole.len()];
                for number in 0..own.len() {
                    for (place, code) in whole[number].iter_mut().enumerate() {
                        *code = extended(own[number], place);
                    }
                }
                for (place, code) in rest.iter_mut().enumerate() {
                    *code = extended(bytes[whole.len()], place);
                }
            } else {
                for (element, code) in (first..).zip(row) {
                    *code = extended(bytes[element / PER], element % PER);
                }
            }
        }
    }

    /// The scales of some columns at row `k`, of such a type.
    pub(crate) fn integer_scales(
        &self,
        (bytes, own): (&[u8], &[f32]),
        k: usize,
        columns: Range<usize>,
        scales: &mut [f32],
    ) {
        if let Some(blocks) = self.format().block_integers() {
            return blocks.scales(&self.extents(), bytes, k, columns, scales);
        }
        match self.granularity {
            Granularity::Tensor => scales.fill(own[0]),
            Granularity::Block(rows) => {
                let first = k / rows.max(1) * self.channels;
                scales.copy_from_slice(&own[first + columns.start..first + columns.end]);
            }
            Granularity::Channel | Granularity::Unscaled => scales.copy_from_slice(&own[columns]),
        }
    }
}

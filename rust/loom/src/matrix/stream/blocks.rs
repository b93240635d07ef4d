//! The block formats, whose blocks of 32 inputs follow one another output by output: turned round, run by run,
//! to rows of bytes with a scale for each column, on which the kernels of types with such rows then work.

use super::kernel::Strip;
use super::piece::{Order, Piece, room};
use crate::Buffer;
use crate::dtype::decoders::{Float32, Whole};
use crate::dtype::{BLOCK, BlockCoding, CodeOrder, Packing, Scale, WithBlocks};
use crate::simd::{Decode, Isa, Kernel, Real, Vector, prefetch_second_level};
use std::marker::PhantomData;

/// Columns that are turned round together: as many as a group of the kernel has.
pub(super) const COLUMNS: usize = 128;
/// Blocks of a column that are turned round at once: far fewer columns than a group's are read side by side
/// so, which the first-level cache and the address translation would not hold.
const RUN: usize = 8;

/// Columns whose blocks are turned round by one instruction after another.
const SIDE: usize = 32;

/// A run of blocks of each of some columns.
struct Blocks<B> {
    codes: *const u8,
    /// Bytes from one column's to the next one's.
    stride: usize,
    /// Blocks and columns that there are.
    count: usize,
    present: usize,
    coding: PhantomData<B>,
}

/// Rows of codes as bytes (half as many with two codes in each where those are halves of the block; of pairs the
/// lower four bits count), and the columns' scales, for each block of rows.
struct Turned {
    codes: [[[u8; COLUMNS]; BLOCK]; RUN],
    scales: [[f32; COLUMNS]; RUN],
}

impl<B: BlockCoding> Blocks<B> {
    /// # Safety
    /// The blocks are there.
    #[inline(always)]
    unsafe fn turn<V: Decode>(&self, to: &mut Turned) {
        let of_scale = B::Scale::BYTES;
        for first in (0..self.present).step_by(SIDE) {
            let mut rows = [self.codes; SIDE];
            for (row, address) in rows.iter_mut().enumerate() {
                // Beyond the last column there is the last one.
                *address = self.codes.wrapping_add((first + row).min(self.present - 1) * self.stride);
            }
            for block in 0..self.count {
                let offset = block * B::BYTES;
                let mut scales = [0; SIDE];
                // SAFETY: the caller's promise; any address may be fetched.
                unsafe {
                    for (scale, row) in scales.iter_mut().zip(&rows) {
                        *scale = match of_scale {
                            1 => u16::from(*row.add(offset)),
                            _ => u16::from_le_bytes(*row.add(offset).cast()),
                        };
                        // This column's part of the next run.
                        prefetch_second_level(row.wrapping_add(offset + RUN * B::BYTES));
                    }
                    let codes = to.codes[block].as_mut_ptr().cast::<u8>().add(first);
                    // A byte of a pair is two rows.
                    let apart = if B::ORDER == CodeOrder::Pairs { 2 } else { 1 };
                    V::transpose_bytes(&rows, offset + of_scale, codes, apart * COLUMNS);
                    if B::ORDER == CodeOrder::Bytes {
                        V::transpose_bytes(&rows, offset + of_scale + 16, codes.add(16 * COLUMNS), COLUMNS);
                    }
                }
                // Apart, so that the compiler makes vector code of it.
                let numbers = to.scales[block][first..first + SIDE].iter_mut().zip(scales);
                numbers.for_each(|(number, scale)| *number = B::Scale::read(scale));
            }
        }
        if B::ORDER == CodeOrder::Pairs {
            for rows in to.codes[..self.count].iter_mut().flat_map(|block| block.chunks_exact_mut(2)) {
                let [even, odd] = rows else { continue };
                odd.iter_mut().zip(even).for_each(|(odd, even)| *odd = *even >> 4);
            }
        }
    }
}

/// A run of blocks of one group of columns, turned round and added: `strip.depth` rows of k.
struct Step<'a, B> {
    blocks: Blocks<B>,
    turned: &'a mut Turned,
    strip: Strip,
    rows: usize,
}

impl<B: BlockCoding> Kernel<f32> for Step<'_, B> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = f32>>(self) {
        let Self { blocks, turned, mut strip, rows } = self;
        let depth = strip.depth;
        // SAFETY: what `run`, which alone makes one of these, vouches for, is asked by [`Blocks::turn`] and
        // [`Strip::run`]; the rows turned round have as many columns as a group.
        unsafe {
            blocks.turn::<V::Float32>(turned);
            for block in 0..blocks.count {
                let there = BLOCK.min(depth - block * BLOCK);
                strip.codes = turned.codes[block].as_ptr().cast();
                strip.scales = turned.scales[block].as_ptr();
                if B::ORDER == CodeOrder::Halves {
                    let lower = Strip { depth: there.min(BLOCK / 2), ..strip };
                    lower.run::<V::Float32, B::Decoder>(rows);
                    let upper = Strip {
                        depth: there - lower.depth,
                        a: strip.a.wrapping_add(BLOCK / 2 * strip.a_depth),
                        ..strip
                    };
                    upper.run::<V::Float32, B::UpperDecoder>(rows);
                } else {
                    Strip { depth: there, ..strip }.run::<V::Float32, B::Decoder>(rows);
                }
                strip.a = strip.a.wrapping_add(BLOCK * strip.a_depth);
            }
        }
    }
}

/// A piece of a product with a block format, to be computed: it is within the operand and C, the left operand
/// has its rows, and nobody else uses that part of C.
pub(super) struct BlockPiece<'a> {
    pub isa: Isa,
    pub packing: &'a Packing,
    pub bytes: &'a [u8],
    pub piece: &'a Piece,
    pub scratch: &'a mut Buffer,
}

impl WithBlocks for BlockPiece<'_> {
    type Output = ();

    fn with<B: BlockCoding>(self) {
        // SAFETY: the promise of who made one of these.
        unsafe { run::<B>(self) }
    }
}

/// Computes a piece.
///
/// # Safety
/// The piece is within the operand and C, the left operand has its rows, and nobody else uses that part of C.
unsafe fn run<B: BlockCoding>(BlockPiece { isa, packing, bytes, piece, scratch }: BlockPiece<'_>) {
    let stride = packing.rows.div_ceil(BLOCK) * B::BYTES;
    let lanes = piece.columns.len().next_multiple_of(COLUMNS);
    let (turned_len, sums_len) = (size_of::<Turned>() / size_of::<f32>(), piece.rows * lanes);
    let (turned, sums) = room(scratch, turned_len + sums_len).split_at_mut(turned_len);
    // SAFETY: as long as it has to be, aligned to cache lines as buffers are, and numbers and bytes of any
    // bits are good.
    let turned = unsafe { &mut *turned.as_mut_ptr().cast::<Turned>() };
    let order = Order::<Whole<Float32>>::of(piece.columns.clone());
    // SAFETY: the caller's promise.
    unsafe { order.read(piece, sums) };
    for first in (0..piece.columns.len()).step_by(COLUMNS) {
        let present = COLUMNS.min(piece.columns.len() - first);
        let column = &bytes[(piece.columns.start + first) * stride..][..present * stride];
        for k in (0..packing.rows).step_by(RUN * BLOCK) {
            let depth = (RUN * BLOCK).min(packing.rows - k);
            let codes = column[k / BLOCK * B::BYTES..].as_ptr();
            let count = depth.div_ceil(BLOCK);
            let blocks = Blocks::<B> { codes, stride, count, present, coding: PhantomData };
            let strip = Strip {
                codes: std::ptr::null(),
                stride: COLUMNS,
                groups: 1,
                depth,
                a: piece.left.a.wrapping_add(k * piece.left.depth),
                a_row: piece.left.row,
                a_depth: piece.left.depth,
                scales: std::ptr::null(),
                zeros: std::ptr::null(),
                sums: sums[first..].as_mut_ptr(),
                sums_row: lanes,
                ahead: 0,
            };
            // The blocks of the columns present are there, as are the left operand's elements and the sums of
            // all lanes.
            f32::dispatch(isa, Step { blocks, turned: &mut *turned, strip, rows: piece.rows });
        }
    }
    // SAFETY: the caller's promise.
    unsafe { order.write(piece, sums) };
}

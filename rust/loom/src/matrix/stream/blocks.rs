//! The block formats, whose blocks of 32 inputs follow one another output by output: turned round, run by run,
//! to rows of bytes with a scale for each column, on which the kernels of types with such rows then work.

use super::decoders::{Float4, Nibbles, Offset};
use super::kernel::Strip;
use super::lanes::{Lanes, Plain};
use super::whole::{E4M3, E5M2, Float32, Int8, Whole};
use super::{Order, Piece, room};
use crate::Buffer;
use crate::dtype::{DType, Packing, float16_to_f32, power_of_two};
use crate::simd::{Isa, Level};

/// Columns that are turned round together: as many as a group of the kernel has.
pub(super) const COLUMNS: usize = 128;
/// Inputs of a block.
const BLOCK: usize = 32;
/// Blocks of a column that are turned round at once: far fewer columns than a group's are read side by side
/// so, which the first-level cache and the address translation would not hold.
const RUN: usize = 8;

/// Columns whose blocks are turned round by one instruction after another.
const SIDE: usize = 32;

/// A run of blocks of each of some columns.
struct Blocks {
    codes: *const u8,
    /// Bytes of a block, and from one column's to the next one's.
    bytes: usize,
    stride: usize,
    /// Blocks and columns that there are.
    count: usize,
    present: usize,
    format: DType,
}

/// Bytes of a format's scale, and of its codes.
fn extents(format: DType) -> (usize, usize) {
    match format {
        DType::Q4_0 => (2, BLOCK / 2),
        DType::Q8_0 => (2, BLOCK),
        DType::MxFp4 => (1, BLOCK / 2),
        _ => (1, BLOCK),
    }
}

/// Rows of codes as bytes (of which q4_0 has half as many, two codes in each; of mxfp4 the lower four bits
/// count), and the columns' scales, for each block of rows.
struct Turned {
    codes: [[[u8; COLUMNS]; BLOCK]; RUN],
    scales: [[f32; COLUMNS]; RUN],
}

impl Blocks {
    /// # Safety
    /// As [`Lanes`]; the blocks are there.
    #[inline(always)]
    unsafe fn turn<L: Lanes>(&self, to: &mut Turned) {
        let (of_scale, of_codes) = extents(self.format);
        for first in (0..self.present).step_by(SIDE) {
            let mut rows = [self.codes; SIDE];
            for (row, address) in rows.iter_mut().enumerate() {
                // Beyond the last column there is the last one.
                *address = self.codes.wrapping_add((first + row).min(self.present - 1) * self.stride);
            }
            for block in 0..self.count {
                let offset = block * self.bytes;
                let mut scales = [0; SIDE];
                // SAFETY: the caller's promise; any address may be fetched.
                unsafe {
                    for (scale, row) in scales.iter_mut().zip(&rows) {
                        *scale = match of_scale {
                            1 => u16::from(*row.add(offset)),
                            _ => u16::from_le_bytes(*row.add(offset).cast()),
                        };
                        // This column's part of the next run.
                        L::prefetch(row.wrapping_add(offset + RUN * self.bytes));
                    }
                    let codes = to.codes[block].as_mut_ptr().cast::<u8>().add(first);
                    // A byte of mxfp4 is two rows.
                    let apart = if self.format == DType::MxFp4 { 2 } else { 1 };
                    L::turn(&rows, offset + of_scale, codes, apart * COLUMNS);
                    if of_codes == BLOCK {
                        L::turn(&rows, offset + of_scale + 16, codes.add(16 * COLUMNS), COLUMNS);
                    }
                }
                // Apart, so that the compiler makes vector code of it.
                let numbers = to.scales[block][first..first + SIDE].iter_mut().zip(scales);
                match of_scale {
                    1 => numbers.for_each(|(number, scale)| *number = power_of_two(scale as u8)),
                    _ => numbers.for_each(|(number, scale)| *number = float16_to_f32(scale)),
                }
            }
        }
        if self.format == DType::MxFp4 {
            for rows in to.codes[..self.count].iter_mut().flat_map(|block| block.chunks_exact_mut(2)) {
                let [even, odd] = rows else { continue };
                odd.iter_mut().zip(even).for_each(|(odd, even)| *odd = *even >> 4);
            }
        }
    }
}

/// A run of blocks of one group of columns, turned round and added.
///
/// # Safety
/// As [`Blocks::turn`] and [`Strip::run`], for `depth` rows of k.
#[inline(always)]
unsafe fn step<L: Lanes>(blocks: &Blocks, turned: &mut Turned, mut strip: Strip, rows: usize) {
    let depth = strip.depth;
    // SAFETY: the caller's promise; the rows turned round have as many columns as a group.
    unsafe {
        blocks.turn::<L>(turned);
        for block in 0..blocks.count {
            let there = BLOCK.min(depth - block * BLOCK);
            strip.codes = turned.codes[block].as_ptr().cast();
            strip.scales = turned.scales[block].as_ptr();
            let whole = Strip { depth: there, ..strip };
            match blocks.format {
                DType::Q4_0 => {
                    // The lower halves of the bytes are the block's first half.
                    let lower = Strip { depth: there.min(BLOCK / 2), ..strip };
                    lower.run::<L, Nibbles<Offset, false>>(rows);
                    let upper = Strip {
                        depth: there - lower.depth,
                        a: strip.a.wrapping_add(BLOCK / 2 * strip.a_depth),
                        ..strip
                    };
                    upper.run::<L, Nibbles<Offset, true>>(rows);
                }
                DType::MxFp4 => whole.run::<L, Nibbles<Float4, false>>(rows),
                DType::MxFp8E4M3 => whole.run::<L, Whole<E4M3>>(rows),
                DType::MxFp8E5M2 => whole.run::<L, Whole<E5M2>>(rows),
                _ => whole.run::<L, Whole<Int8>>(rows),
            }
            strip.a = strip.a.wrapping_add(BLOCK * strip.a_depth);
        }
    }
}

/// [`step`] in the instruction set's own vectors.
///
/// # Safety
/// As `step`, but that the machine has `isa` needs no promise.
unsafe fn enter(isa: Isa, blocks: &Blocks, turned: &mut Turned, strip: Strip, rows: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use super::x86;
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
        unsafe fn avx512(blocks: &Blocks, turned: &mut Turned, strip: Strip, rows: usize) {
            // SAFETY: as `enter`.
            unsafe { step::<x86::Avx512>(blocks, turned, strip, rows) }
        }
        #[target_feature(enable = "avx2,fma")]
        unsafe fn avx2(blocks: &Blocks, turned: &mut Turned, strip: Strip, rows: usize) {
            // SAFETY: as `enter`.
            unsafe { step::<x86::Avx2>(blocks, turned, strip, rows) }
        }
        match isa.level() {
            // SAFETY: `isa` proves that the machine has it; the rest as `enter`.
            Level::Avx512 => return unsafe { avx512(blocks, turned, strip, rows) },
            // SAFETY: as above.
            Level::Avx2 => return unsafe { avx2(blocks, turned, strip, rows) },
            Level::Portable => {}
        }
    }
    let _ = isa;
    // SAFETY: as `enter`.
    unsafe { step::<Plain>(blocks, turned, strip, rows) }
}

/// Computes a piece.
///
/// # Safety
/// As [`Streamed::run`](super::Streamed::run), for a block format.
pub(super) unsafe fn run(isa: Isa, packing: &Packing, bytes: &[u8], piece: &Piece, scratch: &mut Buffer) {
    let format = packing.dtype;
    let (of_scale, of_codes) = extents(format);
    let block = of_scale + of_codes;
    let stride = packing.rows.div_ceil(BLOCK) * block;
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
            let codes = column[k / BLOCK * block..].as_ptr();
            let blocks =
                Blocks { codes, bytes: block, stride, count: depth.div_ceil(BLOCK), present, format };
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
            // SAFETY: the blocks of the columns present are there, as are the left operand's elements and the
            // sums of all lanes.
            unsafe { enter(isa, &blocks, turned, strip, piece.rows) };
        }
    }
    // SAFETY: the caller's promise.
    unsafe { order.write(piece, sums) };
}

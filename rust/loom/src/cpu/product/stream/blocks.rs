//! The block formats, whose blocks of 32 inputs follow one another output by output: turned round, block by
//! block, to rows of bytes with a scale for each column, on which the kernel of `int8` then works.

use super::decoders::Int8;
use super::kernel::Strip;
use super::lanes::{Lanes, Plain};
use super::{Order, Piece, room};
use crate::Buffer;
use crate::cpu::{Isa, Level};
use crate::dtype::{DType, Packing, float16_to_f32};

/// Columns that are turned round together: as many as a group of the kernel has.
pub(super) const COLUMNS: usize = 128;
/// Inputs of a block.
const BLOCK: usize = 32;
/// Blocks of a column that are fetched ahead.
const AHEAD: usize = 4;

/// A block of each of some columns.
struct Blocks {
    codes: *const u8,
    /// Bytes of a block, and from one column's to the next one's.
    bytes: usize,
    stride: usize,
    /// Columns there are.
    present: usize,
    /// Whether codes have four bits, two to a byte.
    nibbles: bool,
}

/// Rows of codes as bytes, and the columns' scales.
struct Turned {
    codes: [[i8; COLUMNS]; BLOCK],
    scales: [f32; COLUMNS],
}

impl Blocks {
    /// # Safety
    /// As [`Lanes`]; the blocks are there.
    #[inline(always)]
    unsafe fn turn<L: Lanes>(&self, to: &mut Turned) {
        let codes_bytes = self.bytes - 2;
        let mut halves = [0u16; COLUMNS];
        // SAFETY: the caller's promise.
        unsafe {
            for (column, half) in halves.iter_mut().enumerate().take(self.present) {
                let block = self.codes.add(column * self.stride);
                L::prefetch(block.wrapping_add(AHEAD * self.bytes));
                *half = u16::from_le_bytes(*block.cast());
            }
            for (scale, half) in to.scales.iter_mut().zip(halves) {
                *scale = float16_to_f32(half);
            }
            for first in (0..self.present).step_by(16) {
                let mut rows = [self.codes; 16];
                for (row, address) in rows.iter_mut().enumerate() {
                    // Beyond the last column there is the last one.
                    *address = self.codes.add((first + row).min(self.present - 1) * self.stride + 2);
                }
                for half in 0..codes_bytes / 16 {
                    let turned = L::transpose(rows.map(|row| row.wrapping_add(half * 16)));
                    for (k, bytes) in turned.iter().enumerate() {
                        if self.nibbles {
                            let low = bytes.map(|byte| (byte & 15) as i8 - 8);
                            let high = bytes.map(|byte| (byte >> 4) as i8 - 8);
                            to.codes[k][first..first + 16].copy_from_slice(&low);
                            to.codes[k + 16][first..first + 16].copy_from_slice(&high);
                        } else {
                            let codes = bytes.map(|byte| byte as i8);
                            to.codes[half * 16 + k][first..first + 16].copy_from_slice(&codes);
                        }
                    }
                }
            }
        }
    }
}

/// One block of k of one group of columns, turned round and added.
///
/// # Safety
/// As [`Blocks::turn`] and [`Strip::run`].
#[inline(always)]
unsafe fn step<L: Lanes>(blocks: &Blocks, turned: &mut Turned, mut strip: Strip, rows: usize) {
    // SAFETY: the caller's promise; the rows turned round have as many columns as a group.
    unsafe {
        blocks.turn::<L>(turned);
        strip.codes = turned.codes.as_ptr().cast();
        strip.scales = turned.scales.as_ptr();
        strip.run::<L, Int8>(rows);
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
/// As [`Streamed::run`](super::Streamed::run), for one of the formats of llama.cpp.
pub(super) unsafe fn run(isa: Isa, packing: &Packing, bytes: &[u8], piece: &Piece, scratch: &mut Buffer) {
    let nibbles = packing.dtype == DType::Q4_0;
    let block = if nibbles { 2 + BLOCK / 2 } else { 2 + BLOCK };
    let stride = packing.rows.div_ceil(BLOCK) * block;
    let lanes = piece.columns.len().next_multiple_of(COLUMNS);
    let sums = room(scratch, piece.rows * lanes);
    let order = Order {
        columns: piece.columns.clone(),
        vectors: COLUMNS / 16,
        column: |vector, lane| vector * 16 + lane,
    };
    // SAFETY: the caller's promise.
    unsafe { order.read(piece, sums) };
    let mut turned = Turned { codes: [[0; COLUMNS]; BLOCK], scales: [0.0; COLUMNS] };
    for first in (0..piece.columns.len()).step_by(COLUMNS) {
        let present = COLUMNS.min(piece.columns.len() - first);
        let column = &bytes[(piece.columns.start + first) * stride..][..present * stride];
        for k in (0..packing.rows).step_by(BLOCK) {
            let codes = column[k / BLOCK * block..].as_ptr();
            let blocks = Blocks { codes, bytes: block, stride, present, nibbles };
            let strip = Strip {
                codes: std::ptr::null(),
                stride: COLUMNS,
                groups: 1,
                depth: BLOCK.min(packing.rows - k),
                a: piece.left.a.wrapping_add(k * piece.left.depth),
                a_row: piece.left.row,
                a_depth: piece.left.depth,
                scales: std::ptr::null(),
                sums: sums[first..].as_mut_ptr(),
                sums_row: lanes,
                ahead: 0,
            };
            // SAFETY: the blocks of the columns present are there, as are the left operand's elements and the
            // sums of all lanes.
            unsafe { enter(isa, &blocks, &mut turned, strip, piece.rows) };
        }
    }
    // SAFETY: the caller's promise.
    unsafe { order.write(piece, sums) };
}

//! Rows of activations as signed bytes with a scale for each block of 32, for products with weights in such blocks.

use super::rows::code_of;
use crate::Buffer;
use crate::dtype::{BLOCK, CodeOrder};
use crate::simd::{Cpu, Kernel, Real, Vector};

/// The fewest elements that are quantised by more than one thread.
const SHARED: usize = 1 << 15;

/// Rows quantised to int8, block after block: S_g = (the block's largest magnitude) / 127, 1 where that is 0, and
/// codes a = rint(A / S_g), half to even. A block that holds NaN or infinity has the scale NaN and codes of 0.
pub(super) struct BlockRows<'a> {
    rows: usize,
    blocks: usize,
    /// For each row the scale of each block, the sum of each block's codes, and the codes, zeros after the last.
    memory: &'a [u8],
    stride: usize,
    codes: usize,
}

impl<'a> BlockRows<'a> {
    /// Quantises `rows` rows of `depth` elements into memory that grows as needed; where weights hold their codes
    /// in pairs, what stands at a block's even places comes before what stands at odd ones.
    ///
    /// # Panics
    /// If there are not so many elements.
    pub fn new(
        cpu: &Cpu,
        order: CodeOrder,
        a: &[f32],
        (rows, depth): (usize, usize),
        memory: &'a mut Buffer,
    ) -> Self {
        assert_eq!(a.len(), rows * depth, "A does not hold {rows} x {depth} elements");
        let blocks = depth.div_ceil(BLOCK);
        let codes = (2 * blocks * size_of::<i32>()).next_multiple_of(64);
        let stride = codes + (blocks * BLOCK).next_multiple_of(64);
        if memory.len_bytes() < rows * stride {
            *memory = Buffer::working::<u8>(rows * stride);
        }
        let memory = &mut memory.bytes_mut()[..rows * stride];
        let quantize = |row: usize, memory: &mut [u8]| {
            let (head, codes) = memory.split_at_mut(codes);
            let (scales, totals) = head.split_at_mut(blocks * size_of::<f32>());
            let a = &a[row * depth..(row + 1) * depth];
            f32::dispatch(cpu.isa(), Quantize { a, scales, totals, codes, apart: order == CodeOrder::Pairs });
        };
        if a.len() >= SHARED {
            cpu.pool().for_each_chunk(memory, stride.max(1), quantize);
        } else {
            memory
                .chunks_exact_mut(stride.max(1))
                .enumerate()
                .for_each(|(row, memory)| quantize(row, memory));
        }
        Self { rows, blocks, memory, stride, codes }
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Blocks of a row.
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// Where a row begins: with the scale of each block.
    #[inline(always)]
    pub fn row(&self, row: usize) -> *const u8 {
        self.memory.as_ptr().wrapping_add(row * self.stride)
    }

    /// How far after a row's beginning the sums of its blocks' codes are, a word each.
    #[inline(always)]
    pub fn totals(&self) -> usize {
        self.blocks * size_of::<f32>()
    }

    /// How far after a row's beginning its codes are.
    #[inline(always)]
    pub fn codes(&self) -> usize {
        self.codes
    }

    /// A block's scale, its codes, and their sum.
    ///
    /// # Safety
    /// There are such a row and such a block.
    #[inline(always)]
    pub unsafe fn block(&self, row: usize, block: usize) -> (f32, *const i8, i32) {
        let row = self.row(row);
        // SAFETY: the caller's promise.
        unsafe {
            let scale = row.add(block * size_of::<f32>()).cast::<f32>().read_unaligned();
            let total = row.add((self.blocks + block) * size_of::<i32>()).cast::<i32>().read_unaligned();
            (scale, row.add(self.codes + block * BLOCK).cast(), total)
        }
    }
}

/// Quantises one row.
struct Quantize<'a> {
    a: &'a [f32],
    scales: &'a mut [u8],
    totals: &'a mut [u8],
    codes: &'a mut [u8],
    apart: bool,
}

/// Quantises a block; returns its scale and the sum of its codes.
#[inline(always)]
fn quantize(a: &[f32; BLOCK], codes: &mut [u8; BLOCK]) -> (f32, i32) {
    // Bits of magnitudes are ordered as the magnitudes are, infinity and NaN above all numbers.
    let mut largest = 0u32;
    for value in a {
        largest = largest.max(value.to_bits() & 0x7FFF_FFFF);
    }
    if largest >= 0x7F80_0000 {
        codes.fill(0);
        return (f32::NAN, 0);
    }
    let scale = f32::from_bits(largest) / 127.0;
    let scale = if scale == 0.0 { 1.0 } else { scale };
    let mut total = 0;
    for (code, value) in codes.iter_mut().zip(a) {
        *code = code_of(*value, scale) as u8;
        total += i32::from(*code as i8);
    }
    (scale, total)
}

impl Kernel<f32> for Quantize<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = f32>>(self) {
        let heads = self.scales.chunks_exact_mut(4).zip(self.totals.chunks_exact_mut(4));
        let blocks = self.codes.chunks_exact_mut(BLOCK).zip(self.a.chunks(BLOCK));
        for ((scale, total), (codes, a)) in heads.zip(blocks) {
            let mut own = [0; BLOCK];
            let found = match a.try_into() {
                Ok(a) => quantize(a, &mut own),
                Err(_) => {
                    let mut padded = [0.0; BLOCK];
                    padded[..a.len()].copy_from_slice(a);
                    quantize(&padded, &mut own)
                }
            };
            scale.copy_from_slice(&found.0.to_ne_bytes());
            total.copy_from_slice(&found.1.to_ne_bytes());
            if self.apart {
                let (even, odd) = codes.split_at_mut(BLOCK / 2);
                for (pair, (even, odd)) in own.chunks_exact(2).zip(even.iter_mut().zip(odd)) {
                    (*even, *odd) = (pair[0], pair[1]);
                }
            } else {
                codes.copy_from_slice(&own);
            }
        }
    }
}

//! Rows of activations as signed bytes, for products with codes that lie row after row.

use super::rows::{Form, Quantize};
use crate::Buffer;
use crate::simd::{Isa, Real};
use std::ops::Range;

/// Rows quantised to int8: the codes and scales of [`QuantizedRows`](super::QuantizedRows) as plain bytes.
pub(super) struct PlainRows<'a> {
    rows: usize,
    depth: usize,
    /// For each row its scale in a line of its own, and the codes.
    memory: &'a [u8],
    stride: usize,
}

/// Bytes before a row's codes.
const HEAD: usize = 64;

impl<'a> PlainRows<'a> {
    /// Quantises `rows` rows of `depth` elements on the calling thread into memory that grows as needed.
    ///
    /// # Panics
    /// If there are not so many elements.
    pub fn new(isa: Isa, a: &[f32], rows: usize, depth: usize, memory: &'a mut Buffer) -> Self {
        assert_eq!(a.len(), rows * depth, "A does not hold {rows} x {depth} elements");
        let stride = (HEAD + depth).next_multiple_of(64);
        if memory.len_bytes() < rows * stride {
            *memory = Buffer::working::<u8>(rows * stride);
        }
        let memory = &mut memory.bytes_mut()[..rows * stride];
        for (memory, a) in memory.chunks_exact_mut(stride).zip(a.chunks_exact(depth.max(1))) {
            let (scale, codes) = memory.split_at_mut(HEAD);
            let found = f32::dispatch(isa, Quantize { a, codes: &mut codes[..depth], form: Form::Signed });
            scale[..4].copy_from_slice(&found.to_ne_bytes());
        }
        Self { rows, depth, memory, stride }
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Elements of a row.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// A row's scale.
    #[inline(always)]
    pub fn scale(&self, row: usize) -> f32 {
        // SAFETY: there are so many bytes for each row.
        unsafe { self.at(row).cast::<f32>().read_unaligned() }
    }

    #[inline(always)]
    fn at(&self, row: usize) -> *const u8 {
        self.memory.as_ptr().wrapping_add(row * self.stride)
    }

    /// The sum of a row's codes over a range.
    pub fn total(&self, row: usize, depth: Range<usize>) -> i32 {
        let first = row * self.stride + HEAD;
        let codes = &self.memory[first + depth.start..first + depth.end];
        codes.iter().map(|code| i32::from(*code as i8)).sum()
    }

    /// A row's codes from `k` on.
    ///
    /// # Safety
    /// There are such a row and such a code.
    #[inline(always)]
    pub unsafe fn codes(&self, row: usize, k: usize) -> *const i8 {
        self.at(row).wrapping_add(HEAD + k).cast()
    }
}

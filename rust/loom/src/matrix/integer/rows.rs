//! Rows of activations as int8 codes with a scale each.

use super::route::Route;
use crate::Buffer;
use crate::simd::{Cpu, Kernel, Real, Vector};

/// Bytes after a row that are read with its last codes, whose products are with zeros.
const BEYOND: usize = 8;

/// Rows quantised to int8, in the form that a [`Route`] multiplies them in.
pub struct QuantizedRows<'a> {
    route: Route,
    rows: usize,
    depth: usize,
    /// Rows, `stride` bytes apart: 64 bytes that begin with the scale, then codes, with 128 added or as 16 bits.
    codes: &'a [u8],
    stride: usize,
}

impl<'a> QuantizedRows<'a> {
    /// Quantises `rows` rows of `depth` elements, spread over the pool, into memory that grows as needed.
    ///
    /// A row that holds NaN or infinity has the scale NaN and codes of 0.
    ///
    /// # Panics
    /// If there are not so many elements.
    pub fn new(
        cpu: &Cpu,
        route: Route,
        a: &[f32],
        rows: usize,
        depth: usize,
        memory: &'a mut Buffer,
    ) -> Self {
        assert_eq!(a.len(), rows * depth, "A does not hold {rows} x {depth} elements");
        let width = route.code_bytes();
        let stride = (depth * width + BEYOND).next_multiple_of(64);
        // Each row's scale stands before its codes, so that both are written by the same task.
        let bytes = rows * (stride + 64);
        if memory.len_bytes() < bytes {
            *memory = Buffer::working::<u8>(bytes);
        }
        let memory = &mut memory.bytes_mut()[..bytes];
        cpu.pool().for_each_chunk(memory, stride + 64, |row, memory| {
            let (scale, codes) = memory.split_at_mut(64);
            let a = &a[row * depth..(row + 1) * depth];
            let found = f32::dispatch(
                route.isa(),
                Quantize { a, codes: &mut codes[..depth * width], form: Form::of(route) },
            );
            scale[..4].copy_from_slice(&found.to_ne_bytes());
        });
        Self { route, rows, depth, codes: memory, stride: stride + 64 }
    }

    /// Rows of `depth` codes that `fill` gathers from codes of the same [`Route`], all with one scale, on this
    /// thread; it is given a row's number and its bytes, which hold codes of 0.
    pub fn gathered(
        route: Route,
        (rows, depth): (usize, usize),
        scale: f32,
        memory: &'a mut Buffer,
        mut fill: impl FnMut(usize, &mut [u8]),
    ) -> Self {
        let width = route.code_bytes();
        let stride = (depth * width + BEYOND).next_multiple_of(64) + 64;
        if memory.len_bytes() < rows * stride {
            *memory = Buffer::working::<u8>(rows * stride);
        }
        let memory = &mut memory.bytes_mut()[..rows * stride];
        for (row, memory) in memory.chunks_exact_mut(stride).enumerate() {
            let (head, codes) = memory.split_at_mut(64);
            head[..4].copy_from_slice(&scale.to_ne_bytes());
            let codes = &mut codes[..depth * width];
            codes.fill(if width == 1 { 0x80 } else { 0 });
            fill(row, codes);
        }
        Self { route, rows, depth, codes: memory, stride }
    }

    /// A row's codes as they are multiplied: [`Route::code_bytes`] each.
    pub fn bytes(&self, row: usize) -> &[u8] {
        &self.codes[row * self.stride + 64..][..self.depth * self.route.code_bytes()]
    }

    /// Quantises rows of `depth` elements, `stride` apart, on this thread.
    pub fn alone(
        route: Route,
        (rows, depth): (usize, usize),
        (a, stride): (&[f32], usize),
        memory: &'a mut Buffer,
    ) -> Self {
        let width = route.code_bytes();
        let own = (depth * width + BEYOND).next_multiple_of(64) + 64;
        if memory.len_bytes() < rows * own {
            *memory = Buffer::working::<u8>(rows * own);
        }
        let memory = &mut memory.bytes_mut()[..rows * own];
        for (row, memory) in memory.chunks_exact_mut(own).enumerate() {
            let (head, codes) = memory.split_at_mut(64);
            let a = &a[row * stride..][..depth];
            let found = f32::dispatch(
                route.isa(),
                Quantize { a, codes: &mut codes[..depth * width], form: Form::of(route) },
            );
            head[..4].copy_from_slice(&found.to_ne_bytes());
        }
        Self { route, rows, depth, codes: memory, stride: own }
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Elements of a row.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// What they are for.
    pub fn route(&self) -> Route {
        self.route
    }

    /// A row's scale.
    pub fn scale(&self, row: usize) -> f32 {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&self.codes[row * self.stride..][..4]);
        f32::from_ne_bytes(bytes)
    }

    /// A row's codes.
    pub fn codes(&self, row: usize) -> Vec<i8> {
        let codes = &self.codes[row * self.stride + 64..][..self.depth * self.route.code_bytes()];
        match self.route.code_bytes() {
            1 => codes.iter().map(|code| (code ^ 0x80) as i8).collect(),
            _ => codes.chunks_exact(2).map(|code| code[0] as i8).collect(),
        }
    }

    /// Where a row's codes from `k` on lie; as many as there are can be read, and eight bytes more.
    pub(super) fn at(&self, row: usize, k: usize) -> *const u8 {
        self.codes[row * self.stride + 64 + k * self.route.code_bytes()..].as_ptr()
    }

    /// Bytes from one row to the next.
    pub(super) fn stride(&self) -> usize {
        self.stride
    }
}

/// The code of a number, in the lowest bits.
#[inline(always)]
pub(super) fn code_of(value: f32, scale: f32) -> u32 {
    // Adding 1.5 x 2^23 rounds to an integer, half to even, and leaves it in the lowest bits.
    const MAGIC: f32 = 12_582_912.0;
    ((value / scale).clamp(-127.0, 127.0) + MAGIC).to_bits()
}

/// Quantises one row; returns its scale.
pub(super) struct Quantize<'a> {
    pub a: &'a [f32],
    pub codes: &'a mut [u8],
    pub form: Form,
}

/// How a code is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// A signed byte.
    Signed,
    /// A byte with 128 added.
    Raised,
    /// 16 bits.
    Wide,
}

impl Form {
    /// What the kernels of a route read.
    pub fn of(route: Route) -> Self {
        if route.code_bytes() == 1 { Form::Raised } else { Form::Wide }
    }
}

impl Kernel<f32> for Quantize<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<V: Vector<Element = f32>>(self) -> f32 {
        // Bits of magnitudes are ordered as the magnitudes are, infinity and NaN above all numbers.
        let mut largest = 0u32;
        for value in self.a {
            largest = largest.max(value.to_bits() & 0x7FFF_FFFF);
        }
        let finite = largest < 0x7F80_0000;
        let scale = f32::from_bits(largest) / 127.0;
        let scale = if scale == 0.0 { 1.0 } else { scale };
        let flip = if self.form == Form::Raised { 0x80 } else { 0 };
        match (finite, self.form) {
            (false, _) => self.codes.fill(flip),
            (true, Form::Signed | Form::Raised) => {
                for (to, value) in self.codes.iter_mut().zip(self.a) {
                    *to = code_of(*value, scale) as u8 ^ flip;
                }
            }
            (true, Form::Wide) => {
                for (to, value) in self.codes.as_chunks_mut().0.iter_mut().zip(self.a) {
                    *to = (code_of(*value, scale) as u16).to_le_bytes();
                }
            }
        }
        if finite { scale } else { f32::NAN }
    }
}

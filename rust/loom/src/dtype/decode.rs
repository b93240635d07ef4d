//! Decoding of types whose elements are coded one by one: runs of a row's elements, with their scales at hand
//! and in loops so plain that the compiler makes vector code of them for every instruction set.

use super::coding::{Code, Coding, Fit};
use super::grouping::{Extents, Granularity};
use crate::simd::{Isa, Kernel, Real, Vector, prefetch};
use std::hint::black_box;
use std::marker::PhantomData;
use std::ops::Range;

/// The most elements that are decoded together.
const RUN: usize = 256;

/// Decodes a tile of rows and columns, row after row, `stride` elements from one to the next.
pub(super) fn decode<T: Real, C: Coding>(
    (packing, isa): (&Extents, Isa),
    (bytes, scales): (&[u8], &[f32]),
    (rows, columns): (Range<usize>, Range<usize>),
    out: &mut [T],
    stride: usize,
) {
    T::dispatch_single(
        isa,
        Decode::<T, C> { packing, bytes, scales, rows, columns, out, stride, coding: PhantomData },
    );
}

struct Decode<'a, T, C> {
    packing: &'a Extents,
    bytes: &'a [u8],
    scales: &'a [f32],
    rows: Range<usize>,
    columns: Range<usize>,
    out: &'a mut [T],
    stride: usize,
    coding: PhantomData<C>,
}

/// How many rows ahead codes are fetched: they lie too far apart for the machine to foresee.
const AHEAD: usize = 8;
/// Bytes that are fetched at a time.
const LINE: usize = 64;

/// Elements that are decoded by the same few vector instructions.
const SIDE: usize = 16;

/// The scales and zeros of a run's elements, by sixteens.
struct Fits {
    scales: [[f32; SIDE]; RUN / SIDE],
    low: [[u32; SIDE]; RUN / SIDE],
    high: [[u32; SIDE]; RUN / SIDE],
}

impl Fits {
    const NEW: Self = Self {
        scales: [[0.0; SIDE]; RUN / SIDE],
        low: [[0; SIDE]; RUN / SIDE],
        high: [[0; SIDE]; RUN / SIDE],
    };

    /// Those of groups of `per` words that follow each other.
    #[inline(always)]
    fn fill(&mut self, per: usize, words: &[f32], start: usize) {
        let groups = words.len() / per;
        let scales = &mut self.scales.as_flattened_mut()[start..][..groups];
        if per == 1 {
            scales.copy_from_slice(words);
            return;
        }
        for (scale, words) in scales.iter_mut().zip(words.chunks_exact(per)) {
            *scale = words[0];
        }
        for (low, words) in self.low.as_flattened_mut()[start..].iter_mut().zip(words.chunks_exact(per)) {
            *low = words[1].to_bits();
        }
        if per > 2 {
            for (high, words) in self.high.as_flattened_mut()[start..].iter_mut().zip(words.chunks_exact(per))
            {
                *high = words[2].to_bits();
            }
        }
    }

    /// One group's for all.
    #[inline(always)]
    fn fill_alike(&mut self, per: usize, words: &[f32]) {
        self.scales.as_flattened_mut().fill(words[0]);
        if per > 1 {
            self.low.as_flattened_mut().fill(words[1].to_bits());
        }
        if per > 2 {
            self.high.as_flattened_mut().fill(words[2].to_bits());
        }
    }
}

/// 32 bits from any on, zeros beyond the last byte.
#[inline(always)]
fn word(bytes: &[u8], bit: usize) -> u32 {
    let (from, shift) = (&bytes[bit / 8..], bit % 8);
    let word = match from.first_chunk::<8>() {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => from.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    };
    (word >> shift) as u32
}

impl<T: Real, C: Coding> Decode<'_, T, C> {
    /// The group of scales that a row's elements are of, but for the column, and where its rows end.
    fn group(&self, row: usize) -> (usize, usize) {
        match self.packing.granularity {
            Granularity::Block(rows) => {
                let group = row / rows.max(1);
                (group, self.packing.rows.min((group + 1) * rows.max(1)))
            }
            _ => (0, self.packing.rows),
        }
    }

    /// Fetches the codes of some columns of a row that is to be decoded, if there is one.
    #[inline(always)]
    fn fetch(&self, row: usize, column: usize, count: usize) {
        if row < self.rows.end {
            let start = (row * self.packing.channels + column) * C::BITS / 8;
            for line in 0..(count * C::BITS / 8).div_ceil(LINE) {
                prefetch(self.bytes.as_ptr().wrapping_add(start + line * LINE));
            }
        }
    }

    /// Decodes elements that follow each other, at most [`RUN`].
    #[inline(always)]
    fn run(bytes: &[u8], element: usize, fits: &Fits, out: &mut [T]) {
        let (whole, rest) = out.as_chunks_mut::<SIDE>();
        let first = whole.len();
        for (number, out) in whole.iter_mut().enumerate() {
            // Vectors are to be made of these sixteen, not of elements sixteen apart.
            let number = black_box(number);
            *out = Self::numbers(Self::codes(bytes, element + number * SIDE, SIDE), fits, number);
        }
        if !rest.is_empty() {
            let codes = Self::codes(bytes, element + first * SIDE, rest.len());
            rest.copy_from_slice(&Self::numbers(codes, fits, first)[..rest.len()]);
        }
    }

    /// So many codes from an element on, at most sixteen, then anything.
    #[inline(always)]
    fn codes(bytes: &[u8], element: usize, count: usize) -> [C::Code; SIDE] {
        let mut codes = [C::Code::default(); SIDE];
        if C::BITS < 8 {
            // Every lane shifts its own code to the lowest bits of the same word.
            let per = (32 / C::BITS).min(SIDE);
            for (number, codes) in codes.chunks_exact_mut(per).enumerate() {
                if number * per < count {
                    let word = word(bytes, (element + number * per) * C::BITS);
                    for (place, code) in codes.iter_mut().enumerate() {
                        let above = 32 - (place + 1) * C::BITS;
                        *code = C::Code::from_low((word << above >> (32 - C::BITS)) as u8);
                    }
                }
            }
            return codes;
        }
        let width = C::BITS / 8;
        let bytes = &bytes[element * width..][..count * width];
        if count == SIDE {
            C::Code::read(bytes, &mut codes);
        } else {
            C::Code::read_all(bytes, &mut codes[..count]);
        }
        codes
    }

    /// The numbers that sixteen codes stand for, with the fits of this number.
    #[inline(always)]
    fn numbers(codes: [C::Code; SIDE], fits: &Fits, number: usize) -> [T; SIDE] {
        let (scales, low, high) = (&fits.scales[number], &fits.low[number], &fits.high[number]);
        let mut numbers = [T::ZERO; SIDE];
        for (place, (out, code)) in numbers.iter_mut().zip(codes).enumerate() {
            // What a type has no words for is not even read.
            let fit = match C::WORDS {
                0 => Fit { scale: 1.0, zero: 0 },
                1 => Fit { scale: scales[place], zero: 0 },
                2 => Fit { scale: scales[place], zero: u64::from(low[place]) },
                _ => Fit { scale: scales[place], zero: u64::from(low[place]) | u64::from(high[place]) << 32 },
            };
            *out = C::number(code, fit);
        }
        numbers
    }
}

impl<T: Real, C: Coding> Kernel<T> for Decode<'_, T, C> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(mut self) {
        let channels = self.packing.channels;
        let mut fits = Fits::NEW;
        let alike = self.packing.granularity == Granularity::Tensor;
        if C::WORDS > 0 && alike {
            fits.fill_alike(C::WORDS, &self.scales[..C::WORDS]);
        }
        // Short whole rows are decoded several at a time, for which there may be no gaps between them.
        let at_once = if self.columns.len() == channels { (RUN / channels).max(1) } else { 1 };
        let mut dense = [T::ZERO; RUN];
        let out = std::mem::take(&mut self.out);
        for first in self.columns.clone().step_by(RUN) {
            let count = RUN.min(self.columns.end - first);
            let mut row = self.rows.start;
            while row < self.rows.end {
                let (group, end) = self.group(row);
                let end = end.min(self.rows.end);
                if C::WORDS > 0 && !alike {
                    let words = &self.scales[(group * channels + first) * C::WORDS..][..count * C::WORDS];
                    for start in 0..at_once.min(end - row) {
                        fits.fill(C::WORDS, words, start * count);
                    }
                }
                while row < end {
                    let some = at_once.min(end - row);
                    self.fetch(row + AHEAD, first, count);
                    let place = (row - self.rows.start) * self.stride + first - self.columns.start;
                    let out = &mut out[place..];
                    if some == 1 || self.stride == channels {
                        Self::run(self.bytes, row * channels + first, &fits, &mut out[..some * count]);
                    } else {
                        let dense = &mut dense[..some * count];
                        Self::run(self.bytes, row * channels + first, &fits, dense);
                        for (out, dense) in out.chunks_mut(self.stride).zip(dense.chunks_exact(count)) {
                            out[..count].copy_from_slice(dense);
                        }
                    }
                    row += some;
                }
            }
        }
    }
}

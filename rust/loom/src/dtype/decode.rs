//! Decoding of types whose elements are coded one by one: runs of a row's elements, with their scales at hand
//! and in loops so plain that the compiler makes vector code of them for every instruction set.

use super::codec::{Code, Coding, Fit};
use super::packing::{Granularity, Packing};
use crate::cpu::{Isa, Kernel, Real, Vector};
use std::marker::PhantomData;
use std::ops::Range;

/// The most elements that are decoded together.
const RUN: usize = 256;

/// Decodes a tile of rows and columns, row after row, `stride` elements from one to the next.
pub(super) fn decode<T: Real, C: Coding>(
    (packing, isa): (&Packing, Isa),
    (bytes, scales): (&[u8], &[f32]),
    (rows, columns): (Range<usize>, Range<usize>),
    out: &mut [T],
    stride: usize,
) {
    T::dispatch(
        isa,
        Decode::<T, C> { packing, bytes, scales, rows, columns, out, stride, coding: PhantomData },
    );
}

struct Decode<'a, T, C> {
    packing: &'a Packing,
    bytes: &'a [u8],
    scales: &'a [f32],
    rows: Range<usize>,
    columns: Range<usize>,
    out: &'a mut [T],
    stride: usize,
    coding: PhantomData<C>,
}

/// The scales and zeros of a run's elements.
struct Fits {
    scales: [f32; RUN],
    low: [u32; RUN],
    high: [u32; RUN],
}

impl Fits {
    const NEW: Self = Self { scales: [0.0; RUN], low: [0; RUN], high: [0; RUN] };

    /// Those of groups of `per` words that follow each other.
    #[inline(always)]
    fn fill(&mut self, per: usize, words: &[f32], start: usize) {
        let groups = words.len() / per;
        let (scales, low) = (&mut self.scales[start..][..groups], &mut self.low[start..][..groups]);
        match per {
            1 => scales.copy_from_slice(words),
            2 => {
                for ((scale, low), words) in scales.iter_mut().zip(low).zip(words.chunks_exact(2)) {
                    (*scale, *low) = (words[0], words[1].to_bits());
                }
            }
            _ => {
                let high = &mut self.high[start..][..groups];
                for (((scale, low), high), words) in
                    scales.iter_mut().zip(low).zip(high).zip(words.chunks_exact(per))
                {
                    (*scale, *low, *high) = (words[0], words[1].to_bits(), words[2].to_bits());
                }
            }
        }
    }

    /// One group's for all.
    #[inline(always)]
    fn fill_alike(&mut self, per: usize, words: &[f32]) {
        self.scales.fill(words[0]);
        if per > 1 {
            self.low.fill(words[1].to_bits());
        }
        if per > 2 {
            self.high.fill(words[2].to_bits());
        }
    }
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

    /// Decodes elements that follow each other, at most [`RUN`].
    #[inline(always)]
    fn run(bytes: &[u8], element: usize, fits: &Fits, out: &mut [T]) {
        let len = out.len();
        if C::BITS < 8 {
            let (per, mask) = (8 / C::BITS, ((1u32 << C::BITS) - 1) as u8);
            let skipped = element % per;
            let bytes = &bytes[element / per..][..(skipped + len).div_ceil(per)];
            let mut codes = [0u8; RUN + 8];
            for (byte, codes) in bytes.iter().zip(codes.chunks_exact_mut(per)) {
                for (place, code) in codes.iter_mut().enumerate() {
                    *code = byte >> (place * C::BITS) & mask;
                }
            }
            Self::numbers(codes[skipped..][..len].iter().map(|code| C::Code::from_low(*code)), fits, out);
        } else {
            let width = C::BITS / 8;
            let bytes = &bytes[element * width..][..len * width];
            Self::numbers(bytes.chunks_exact(width).map(C::Code::read), fits, out);
        }
    }

    #[inline(always)]
    fn numbers(codes: impl Iterator<Item = C::Code>, fits: &Fits, out: &mut [T]) {
        let len = out.len();
        let (scales, low, high) = (&fits.scales[..len], &fits.low[..len], &fits.high[..len]);
        for (place, (out, code)) in out.iter_mut().zip(codes).enumerate() {
            // What a type has no words for is not even read.
            let fit = match C::WORDS {
                0 => Fit { scale: 1.0, zero: 0 },
                1 => Fit { scale: scales[place], zero: 0 },
                2 => Fit { scale: scales[place], zero: u64::from(low[place]) },
                _ => Fit { scale: scales[place], zero: u64::from(low[place]) | u64::from(high[place]) << 32 },
            };
            *out = C::number(code, fit);
        }
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

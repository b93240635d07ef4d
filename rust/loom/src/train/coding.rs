//! Gradients that travel in fewer bits, with error feedback (Seide and others, 2014; Karimireddy and others, 2019).
//!
//! What rounding has taken away from a number is added to the same number of the next step. Numbers are coded by shard and
//! in blocks whose places are the gradient's, so that the bits are a matter of the number of shards alone, as without it.

use super::summing::unlike;
use crate::Result;
use crate::dtype::{f32_to_float16, float16_to_f32};
use crate::simd::Real;
use std::collections::HashMap;
use std::ops::Range;

/// Numbers that share a scale.
const BLOCK: usize = 256;

/// How numbers travel: a scale for each block, which is its largest magnitude, and codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Quotients by the scale, rounded to float16.
    Float16,
    /// Quotients by the scale, times 127, rounded to whole numbers, halves to even.
    Int8,
}

impl Format {
    /// By its name.
    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            "float16" => Some(Self::Float16),
            "int8" => Some(Self::Int8),
            _ => None,
        }
    }

    /// How many numbers share a scale.
    pub(super) fn block(self) -> usize {
        BLOCK
    }

    fn width(self) -> usize {
        match self {
            Self::Float16 => 2,
            Self::Int8 => 1,
        }
    }

    /// Where numbers are among the bytes of `count`; they begin with a block, and end with one or with all.
    pub(super) fn bytes_of(self, place: &Range<usize>, count: usize) -> Range<usize> {
        let bytes = |at: usize| at * self.width() + at.min(count).div_ceil(BLOCK) * size_of::<f32>();
        bytes(place.start)..bytes(place.end)
    }

    /// Codes a block, and puts in place of its numbers what is left of them.
    fn code(self, block: &mut [f32], bytes: &mut Vec<u8>) {
        let scale = block.iter().fold(0.0f32, |most, number| {
            // A block with a number that is none is none.
            if number.is_finite() && !most.is_nan() { most.max(number.abs()) } else { f32::NAN }
        });
        bytes.extend_from_slice(&scale.to_le_bytes());
        for number in block {
            let quotient = if scale > 0.0 { *number / scale } else { 0.0 };
            let found = match self {
                Self::Float16 => {
                    let code = f32_to_float16(quotient);
                    bytes.extend_from_slice(&code.to_le_bytes());
                    float16_to_f32(code) * scale
                }
                Self::Int8 => {
                    let code = (quotient * 127.0).round_ties_even() as i8;
                    bytes.extend_from_slice(&code.to_le_bytes());
                    f32::from(code) / 127.0 * scale
                }
            };
            let rest = *number - found;
            *number = if rest.is_finite() { rest } else { 0.0 };
        }
    }

    /// The numbers that bytes stand for.
    ///
    /// # Errors
    /// [`Error::State`](crate::Error::State) where they are not as many.
    pub(super) fn decoded<T: Real>(self, bytes: &[u8], count: usize) -> Result<Vec<T>> {
        if bytes.len() != self.bytes_of(&(0..count), count).len() {
            return Err(unlike());
        }
        let mut found = Vec::with_capacity(count);
        for block in bytes.chunks(BLOCK * self.width() + size_of::<f32>()) {
            let (scale, codes) = block.split_first_chunk::<4>().ok_or_else(unlike)?;
            let scale = f32::from_le_bytes(*scale);
            for code in codes.chunks_exact(self.width()) {
                let number = match *code {
                    [low, high] => float16_to_f32(u16::from_le_bytes([low, high])) * scale,
                    [code] => f32::from(code as i8) / 127.0 * scale,
                    _ => f32::NAN,
                };
                found.push(T::from_f64(f64::from(number)));
            }
        }
        Ok(found)
    }
}

/// What rounding has taken away so far, of what this process codes.
#[derive(Debug)]
pub(super) struct Coding {
    format: Format,
    /// What gradients are multiplied by.
    scale: f32,
    /// By bucket and shard.
    of_shards: HashMap<(usize, usize), Vec<f32>>,
    /// By bucket, of the slice that this process adds up.
    of_sums: HashMap<(usize, usize), Vec<f32>>,
}

impl Coding {
    pub(super) fn new(format: Format) -> Self {
        Self { format, scale: 1.0, of_shards: HashMap::new(), of_sums: HashMap::new() }
    }

    pub(super) fn format(&self) -> Format {
        self.format
    }

    /// Gradients come multiplied by this from now on, a power of two.
    pub(super) fn begin(&mut self, scale: f32) {
        let factor = scale / self.scale;
        if factor != 1.0 {
            let rests = self.of_shards.values_mut().chain(self.of_sums.values_mut());
            rests.flatten().for_each(|rest| *rest *= factor);
            self.scale = scale;
        }
    }

    /// Codes what a shard has of a bucket.
    pub(super) fn of_shard<T: Real>(&mut self, bucket: usize, shard: usize, numbers: &[T]) -> Vec<u8> {
        coded(self.format, self.of_shards.entry((bucket, shard)).or_default(), numbers)
    }

    /// Codes the sum of a slice of a bucket, which begins at `start`.
    pub(super) fn of_sum<T: Real>(&mut self, bucket: usize, start: usize, numbers: &[T]) -> Vec<u8> {
        coded(self.format, self.of_sums.entry((bucket, start)).or_default(), numbers)
    }
}

fn coded<T: Real>(format: Format, rests: &mut Vec<f32>, numbers: &[T]) -> Vec<u8> {
    rests.resize(numbers.len(), 0.0);
    let mut bytes = Vec::with_capacity(format.bytes_of(&(0..numbers.len()), numbers.len()).len() + 2);
    for (rests, numbers) in rests.chunks_mut(BLOCK).zip(numbers.chunks(BLOCK)) {
        for (rest, number) in rests.iter_mut().zip(numbers) {
            *rest += number.to_f64() as f32;
        }
        format.code(rests, &mut bytes);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::numbers;

    #[test]
    fn what_rounding_takes_away_comes_with_the_next_steps() {
        for (format, most) in [(Format::Float16, 6e-4), (Format::Int8, 4e-3)] {
            let gradient: Vec<f32> = numbers(3, 700);
            let largest = gradient.iter().fold(0.0f32, |most, it| most.max(it.abs()));
            let mut coding = Coding::new(format);
            let mut sum = vec![0.0f64; gradient.len()];
            let steps = 50;
            for _ in 0..steps {
                let found: Vec<f32> =
                    format.decoded(&coding.of_shard(0, 1, &gradient), gradient.len()).unwrap();
                for ((sum, found), number) in sum.iter_mut().zip(&found).zip(&gradient) {
                    assert!((found - number).abs() <= 2.0 * most * largest);
                    *sum += f64::from(*found);
                }
            }
            for (sum, number) in sum.iter().zip(&gradient) {
                let off = (sum - f64::from(*number) * f64::from(steps)).abs();
                assert!(off <= f64::from(most * largest) * 1.1, "{format:?} {off}");
            }
        }
    }

    #[test]
    fn slices_of_blocks_are_coded_as_in_the_whole() {
        let gradient: Vec<f32> = numbers(5, 3 * BLOCK + 7);
        for format in [Format::Float16, Format::Int8] {
            let whole = Coding::new(format).of_shard(0, 0, &gradient);
            for place in [0..BLOCK, BLOCK..3 * BLOCK, 2 * BLOCK..gradient.len(), 0..0] {
                let alone = Coding::new(format).of_shard(0, 0, &gradient[place.clone()]);
                assert_eq!(whole[format.bytes_of(&place, gradient.len())], alone);
                let found: Vec<f32> = format.decoded(&alone, place.len()).unwrap();
                assert_eq!(found.len(), place.len());
            }
            assert!(format.decoded::<f32>(&whole, 3).is_err());
        }
    }

    #[test]
    fn what_is_no_number_stays_none_and_spoils_no_later_step() {
        let mut coding = Coding::new(Format::Int8);
        let bad: Vec<f32> = format_of(&mut coding, &[1.0, f32::INFINITY]);
        assert!(bad.iter().all(|it| it.is_nan()));
        assert_eq!(format_of(&mut coding, &[1.0, -1.0]), [1.0, -1.0]);
        coding.begin(2.0);
        assert_eq!(format_of(&mut coding, &[0.0, 0.0]), [0.0, 0.0]);
    }

    fn format_of(coding: &mut Coding, gradient: &[f32]) -> Vec<f32> {
        coding.format.decoded(&coding.of_shard(0, 0, gradient), gradient.len()).unwrap()
    }
}

//! Keys and values of a session in fewer bits.

use crate::dtype::{DType, encode_q8_0, f32_to_float16, float16_to_f32, to_f32_odd};
use crate::precision::in_precision;
use crate::simd::{Decode, Elementwise, Kernel, LANES, Real, Vector, Words, prefetch_second_level};
use crate::tensor::Precision;
use crate::{Error, Result};
use std::fmt;

/// Numbers of a block of [`CacheType::Q8_0`].
const NUMBERS: usize = 32;
/// Its bytes: a scale of binary16, and a signed byte for each number.
const BYTES: usize = 34;
/// Vectors that are asked for ahead of where they are read.
const AHEAD: usize = 32;
/// Bytes that memory is asked for together.
const LINE: usize = 64;

/// What a session keeps keys and values as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CacheType {
    /// As the network computes.
    #[default]
    Full,
    /// binary16, rounded to nearest, ties to even.
    Float16,
    /// Blocks of 32 numbers of a head as [`DType::Q8_0`] packs weights; the last block of a head is filled up by zeros.
    Q8_0,
}

impl CacheType {
    /// The one that a numeric type is the name of.
    ///
    /// # Errors
    /// [`Error::Value`] for a type that keys and values are not kept in.
    pub fn of(dtype: DType) -> Result<Self> {
        match dtype {
            DType::Float16 => Ok(Self::Float16),
            DType::Q8_0 => Ok(Self::Q8_0),
            other => Err(Error::Value(format!(
                "a session keeps keys and values as float16 or q8_0, or as the network computes, not as {other}"
            ))),
        }
    }

    /// Elements of this precision that a vector of so many numbers takes.
    pub(crate) fn elements(self, precision: Precision, numbers: usize) -> usize {
        let bytes = match self {
            Self::Full => return numbers,
            Self::Float16 => 2 * numbers,
            Self::Q8_0 => BYTES * numbers.div_ceil(NUMBERS),
        };
        in_precision!(precision, T => bytes.div_ceil(size_of::<T>()))
    }

    /// Packs a vector.
    ///
    /// # Errors
    /// [`Error::NonFinite`] for numbers that are beyond what this type holds, infinite or NaN.
    pub(super) fn pack<T: Real>(self, numbers: &[T], packed: &mut [T]) -> Result<()> {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(packed);
        let fits = match self {
            Self::Full => {
                packed.copy_from_slice(numbers);
                true
            }
            Self::Float16 => numbers.iter().zip(bytes.chunks_exact_mut(2)).all(|(number, bytes)| {
                let bits = f32_to_float16(to_f32_odd(*number));
                bytes.copy_from_slice(&bits.to_le_bytes());
                number.is_finite() && bits & 0x7C00 != 0x7C00
            }),
            Self::Q8_0 => {
                numbers.chunks(NUMBERS).zip(bytes.chunks_exact_mut(BYTES)).all(|(numbers, bytes)| {
                    let mut block = [0.0; NUMBERS];
                    for (to, number) in block.iter_mut().zip(numbers) {
                        *to = number.to_f32();
                    }
                    block.iter().all(|number| number.is_finite()) && encode_q8_0(&block, bytes)
                })
            }
        };
        match fits {
            true => Ok(()),
            false => Err(Error::NonFinite(format!(
                "a key or a value is beyond what {self} holds, or NaN, so the session cannot keep it; keep keys and \
                 values as the network computes"
            ))),
        }
    }
}

impl fmt::Display for CacheType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "full",
            Self::Float16 => "float16",
            Self::Q8_0 => "q8_0",
        })
    }
}

/// Vectors as numbers again, one after the other.
pub(crate) struct Unpack<'a, T> {
    /// What they are packed as; not [`CacheType::Full`].
    pub cache: CacheType,
    /// The first vector, and how many elements it is to the next one.
    pub packed: &'a [T],
    pub stride: usize,
    /// Numbers of a vector.
    pub extent: usize,
    /// As many vectors as there is room for.
    pub numbers: &'a mut [T],
}

impl<T: Real> Kernel<T> for Unpack<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let stride = self.stride * size_of::<T>();
        let packed: &[u8] = bytemuck::cast_slice(self.packed);
        let (extent, whole) = (self.extent, self.extent / LANES * LANES);
        let bytes = self.cache.elements(T::PRECISION, extent) * size_of::<T>();
        let count = self.numbers.len() / extent;
        for vector in 0..count {
            let from = &packed[vector * stride..];
            let to = &mut self.numbers[vector * extent..][..extent];
            for line in (0..bytes).step_by(LINE) {
                prefetch_second_level(from.as_ptr().wrapping_add(AHEAD * stride + line));
            }
            for place in (0..whole).step_by(LANES) {
                sixteen::<V>(self.cache, from, place).store(&mut to[place..]);
            }
            if whole < extent {
                last::<V>(self.cache, from, whole, extent).store_partial(&mut to[whole..]);
            }
        }
    }
}

/// Sixteen numbers of a vector from `place` on, of which all are there.
#[inline(always)]
fn sixteen<V: Vector>(cache: CacheType, from: &[u8], place: usize) -> V {
    match cache {
        CacheType::Q8_0 => {
            let block = &from[place / NUMBERS * BYTES..][..BYTES];
            let scale = V::Float32::splat(float16_to_f32(u16::from_le_bytes([block[0], block[1]])));
            let codes = &block[2 + place % NUMBERS..][..LANES];
            // SAFETY: there are 16 bytes.
            let codes = unsafe { <V::Float32 as Decode>::Words::signed_bytes(codes.as_ptr()) };
            V::from_f32(V::Float32::from_integers(codes) * scale)
        }
        _ => {
            let halves = &from[2 * place..][..2 * LANES];
            // SAFETY: there are 32 bytes.
            V::from_f32(unsafe { V::Float32::float16(halves.as_ptr()) })
        }
    }
}

/// The last numbers of a vector from `place` on, fewer than sixteen.
#[inline(always)]
fn last<V: Vector>(cache: CacheType, from: &[u8], place: usize, extent: usize) -> V {
    if cache == CacheType::Q8_0 {
        // Blocks are whole.
        return sixteen(cache, from, place);
    }
    let mut filled = [0; 2 * LANES];
    let rest = &from[2 * place..2 * extent];
    filled[..rest.len()].copy_from_slice(rest);
    sixteen(cache, &filled, 0)
}

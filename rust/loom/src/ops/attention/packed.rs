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
const AHEAD: usize = 16;

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
        for (number, to) in self.numbers.chunks_exact_mut(self.extent).enumerate() {
            let from = &packed[number * stride..];
            prefetch_second_level(from.as_ptr().wrapping_add(AHEAD * stride));
            match self.cache {
                CacheType::Full => {}
                CacheType::Float16 => {
                    for (to, from) in to.chunks_mut(LANES).zip(from.chunks(2 * LANES)) {
                        store(V::from_f32(halves::<V::Float32>(from)), to);
                    }
                }
                CacheType::Q8_0 => {
                    for (to, from) in to.chunks_mut(NUMBERS).zip(from.chunks_exact(BYTES)) {
                        let scale = V::Float32::splat(float16_to_f32(u16::from_le_bytes([from[0], from[1]])));
                        for (to, codes) in to.chunks_mut(LANES).zip(from[2..].chunks_exact(LANES)) {
                            store(V::from_f32(signed_bytes::<V::Float32>(codes) * scale), to);
                        }
                    }
                }
            }
        }
    }
}

/// Writes as many lanes as there is room for.
#[inline(always)]
fn store<V: Vector>(numbers: V, to: &mut [V::Element]) {
    match to.len() >= LANES {
        true => numbers.store(to),
        false => numbers.store_partial(to),
    }
}

/// Sixteen numbers of binary16, zeros for those that are not there.
#[inline(always)]
fn halves<V: Decode>(from: &[u8]) -> V {
    let mut filled = [0; 2 * LANES];
    let from = if from.len() < filled.len() {
        filled[..from.len()].copy_from_slice(from);
        &filled
    } else {
        from
    };
    // SAFETY: there are 32 bytes.
    unsafe { V::float16(from.as_ptr()) }
}

/// Sixteen numbers of signed bytes.
#[inline(always)]
fn signed_bytes<V: Decode>(codes: &[u8]) -> V {
    assert!(codes.len() >= LANES, "a block has too few codes");
    // SAFETY: there are 16 bytes.
    V::from_integers(unsafe { V::Words::signed_bytes(codes.as_ptr()) })
}

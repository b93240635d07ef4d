//! Packed parameters for tests.

use super::{DType, Granularity, Packing, Rule};
use crate::random::{Stream, Use};
use crate::simd::{Isa, Real};
use crate::tensor::Buffer;

/// A packed parameter with how it is packed.
pub(crate) struct Sample {
    pub(crate) packing: Packing,
    bytes: Buffer,
    pub(crate) scales: Vec<f32>,
}

/// Packs a row-major matrix of `channels` columns.
pub(crate) fn sample<T: Real>(dtype: DType, data: &[T], channels: usize) -> Sample {
    sample_by(dtype, None, data, channels)
}

/// [`sample`] with scales for what is asked for.
pub(crate) fn sample_by<T: Real>(
    dtype: DType,
    granularity: Option<Granularity>,
    data: &[T],
    channels: usize,
) -> Sample {
    sample_with(dtype, granularity, &Rule::default(), data, channels)
}

/// [`sample_by`] by a rule.
pub(crate) fn sample_with<T: Real>(
    dtype: DType,
    granularity: Option<Granularity>,
    rule: &Rule<'_>,
    data: &[T],
    channels: usize,
) -> Sample {
    let granularity = dtype.granularity(granularity).unwrap();
    let packing = Packing::new(dtype, data.len() / channels, channels).with(granularity);
    let mut bytes = Buffer::zeroed(packing.bytes()).unwrap();
    let mut scales = vec![0.0; packing.scale_words()];
    packing.encode_parameter("weight", rule, None, data, bytes.bytes_mut(), &mut scales).unwrap();
    Sample { packing, bytes, scales }
}

impl Sample {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes.bytes()[..self.packing.bytes()]
    }

    pub(crate) fn decoded<T: Real>(&self) -> Vec<T> {
        let mut out = vec![T::NAN; self.packing.elements()];
        self.packing.decode(Isa::portable(), self.bytes(), &self.scales, &mut out);
        out
    }
}

/// Columns of zeros, of one number alone, too small for a normal scale, of all magnitudes at once, and of any one
/// magnitude, up to beyond what binary32 holds.
pub(crate) fn awkward(seed: u64, rows: usize, channels: usize) -> Vec<f64> {
    let (mut data, mut draws) = (vec![0.0; rows * channels], vec![0.0; (rows + 1) * channels]);
    Stream::new(seed, 0, 0, Use::Initialize).fill_normal(0, &mut data);
    Stream::new(seed, 1, 0, Use::Initialize).fill_normal(0, &mut draws);
    draws.iter_mut().for_each(|draw| *draw = (draw.abs() * 1e3).fract());
    for (index, value) in data.iter_mut().enumerate() {
        let (row, column) = (index / channels, index % channels);
        let of_column = draws[rows * channels + column];
        let part = (of_column * 1e3).fract();
        *value *= match (of_column * 5.0) as usize {
            0 => 0.0,
            1 if row != 0 => 0.0,
            1 | 2 => 10f64.powf(-45.0 + 10.0 * part),
            3 => 10f64.powf(-38.0 + 76.0 * draws[index]),
            _ => 10f64.powf(-40.0 + 79.0 * part),
        };
        if part < 0.2 {
            *value = value.abs();
        }
    }
    data
}

//! Packed parameters for tests.

use super::{DType, Granularity, Packing, Rule, encode_as};
use crate::cpu::{Isa, Real};
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
    encode_as(&packing, rule, None, "weight", data, bytes.bytes_mut(), &mut scales).unwrap();
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

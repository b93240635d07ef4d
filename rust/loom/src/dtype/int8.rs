//! int8, symmetric: w' = q S, q in [-127, 127], S = (largest magnitude) / 127 a channel.

use super::codec::Encoding;
use crate::cpu::Real;
use crate::tensor::Precision;

/// Symmetric int8 with a scale a channel.
pub(super) struct Int8;

/// The largest code, Q.
const LARGEST: f32 = 127.0;

impl Encoding for Int8 {
    const SCALED: bool = true;

    fn scale<T: Real>(largest: T) -> Option<f32> {
        let scale = (largest / T::constant(f64::from(LARGEST))).to_f32();
        if scale == 0.0 {
            // All zero, or too small for any scale: decodes to zeros.
            return Some(1.0);
        }
        // The quotient may have been rounded up so far that the largest code would decode to infinity.
        let scale = if (scale * LARGEST).is_finite() { scale } else { scale.next_down() };
        (scale * LARGEST).is_finite().then_some(scale)
    }

    #[inline(always)]
    fn encode<T: Real>(data: &[T], scales: &[f32], bytes: &mut [u8]) -> bool {
        let limit = T::constant(f64::from(LARGEST));
        // Adding 1.5 x 2^fraction rounds to an integer, half to even, and leaves it in the
        // lowest bits in two's complement.
        let magic = match T::PRECISION {
            Precision::Float32 | Precision::Mixed => T::constant(12_582_912.0),
            Precision::Float64 => T::constant(6_755_399_441_055_744.0),
        };
        for (codes, row) in bytes.chunks_exact_mut(scales.len()).zip(data.chunks_exact(scales.len())) {
            for ((code, value), scale) in codes.iter_mut().zip(row).zip(scales) {
                let quotient = (*value / T::from_f64(f64::from(*scale))).min(limit).max(-limit);
                *code = (quotient + magic).to_bits_u64() as u8;
            }
        }
        true
    }

    fn decode<T: Real>(bytes: &[u8], scales: &[f32], channels: usize, out: &mut [T]) {
        for (out, codes) in out.chunks_exact_mut(channels).zip(bytes.chunks_exact(channels)) {
            for ((out, code), scale) in out.iter_mut().zip(codes).zip(scales) {
                *out = T::from_f64(f64::from(*code as i8)) * T::from_f64(f64::from(*scale));
            }
        }
    }
}

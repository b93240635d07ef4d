//! From a parameter to packed bytes with scales, and back.
//!
//! A parameter is a row-major matrix whose columns are the output channels. Scales are
//! found in one pass, cut into columns, and codes in a second, cut into rows.

use super::float16::{BFloat16, Float16};
use super::int8::Int8;
use crate::cpu::{Cpu, Isa, Kernel, Real, Vector};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};

/// Elements that one task encodes, roughly: whole rows.
const CHUNK: usize = 1 << 14;

/// Channels that one task finds scales for.
const CHANNELS: usize = 128;

/// How one type turns numbers into codes.
pub(super) trait Encoding {
    /// Whether there is a scale a channel.
    const SCALED: bool;

    /// The scale for a channel of this largest magnitude; `None` where no code could hold it.
    fn scale<T: Real>(largest: T) -> Option<f32> {
        let _ = largest;
        None
    }

    /// Encodes whole rows; false where a code is not finite.
    fn encode<T: Real>(data: &[T], scales: &[f32], bytes: &mut [u8]) -> bool;

    /// Decodes whole rows.
    fn decode<T: Real>(bytes: &[u8], scales: &[f32], channels: usize, out: &mut [T]);
}

/// The types that can be encoded and decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codec {
    /// IEEE binary16.
    Float16,
    /// bfloat16.
    BFloat16,
    /// Symmetric int8, a scale a channel.
    Int8,
}

/// Why a parameter cannot be encoded; `index` is that of the first element concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is NaN or infinite.
    NonFinite {
        /// Flat index.
        index: usize,
    },
    /// It is finite, but would become infinite.
    Overflow {
        /// Flat index.
        index: usize,
    },
}

/// Calls the generic function of the encoding that a codec names.
macro_rules! with_encoding {
    ($codec:expr, $function:ident::<$T:ident>($($argument:expr),*)) => {
        match $codec {
            Codec::Float16 => $function::<$T, Float16>($($argument),*),
            Codec::BFloat16 => $function::<$T, BFloat16>($($argument),*),
            Codec::Int8 => $function::<$T, Int8>($($argument),*),
        }
    };
}

impl Codec {
    /// Bytes of one element.
    fn width(self) -> usize {
        match self {
            Codec::Float16 | Codec::BFloat16 => 2,
            Codec::Int8 => 1,
        }
    }

    /// Encodes a row-major matrix of `channels` columns into as many codes and, for a type with
    /// scales, a scale a channel; on the threads of `cpu` or on this one, with the same result.
    ///
    /// # Errors
    /// The first element that is not finite or would not be; `bytes` and `scales` then hold
    /// nothing of use.
    pub fn encode<T: Real>(
        self,
        cpu: Option<&Cpu>,
        data: &[T],
        channels: usize,
        bytes: &mut [u8],
        scales: &mut [f32],
    ) -> Result<(), Refusal> {
        with_encoding!(self, encode::<T>(cpu, data, channels.max(1), self.width(), bytes, scales))
    }

    /// Decodes what [`encode`](Codec::encode) made.
    pub fn decode<T: Real>(self, bytes: &[u8], scales: &[f32], channels: usize, out: &mut [T]) {
        with_encoding!(self, decode::<T>(bytes, scales, channels.max(1), out));
    }
}

fn decode<T: Real, E: Encoding>(bytes: &[u8], scales: &[f32], channels: usize, out: &mut [T]) {
    E::decode(bytes, scales, channels, out);
}

fn encode<T: Real, E: Encoding>(
    cpu: Option<&Cpu>,
    data: &[T],
    channels: usize,
    width: usize,
    bytes: &mut [u8],
    scales: &mut [f32],
) -> Result<(), Refusal> {
    debug_assert_eq!(data.len() % channels, 0);
    debug_assert_eq!(bytes.len(), data.len() * width);
    let isa = cpu.map_or(Isa::portable(), Cpu::isa);
    let refused = AtomicBool::new(false);
    let refuse = |fine: bool| {
        if !fine {
            refused.store(true, Ordering::Relaxed);
        }
    };
    if E::SCALED {
        debug_assert_eq!(scales.len(), channels);
        for_each_chunk(cpu, scales, CHANNELS, &|task, scales| {
            refuse(T::dispatch(
                isa,
                Scale::<T, E> { data, channels, first: task * CHANNELS, scales, encoding: PhantomData },
            ));
        });
    }
    let (scales, chunk) = (&*scales, (CHUNK / channels).max(1) * channels);
    for_each_chunk(cpu, bytes, chunk * width, &|task, bytes| {
        let data = &data[task * chunk..data.len().min((task + 1) * chunk)];
        refuse(T::dispatch(isa, Encode::<T, E> { data, scales, bytes, encoding: PhantomData }));
    });
    if refused.load(Ordering::Relaxed) { Err(first_refusal::<T, E>(data)) } else { Ok(()) }
}

fn for_each_chunk<A: Send>(
    cpu: Option<&Cpu>,
    data: &mut [A],
    chunk: usize,
    body: &(dyn Fn(usize, &mut [A]) + Sync),
) {
    match cpu {
        Some(cpu) if data.len() > chunk => cpu.pool().for_each_chunk(data, chunk, body),
        _ => data.chunks_mut(chunk).enumerate().for_each(|(task, piece)| body(task, piece)),
    }
}

/// Looks for the first element that was refused, once it is known that there is one.
#[cold]
fn first_refusal<T: Real, E: Encoding>(data: &[T]) -> Refusal {
    if let Some(index) = data.iter().position(|value| !value.is_finite()) {
        return Refusal::NonFinite { index };
    }
    let overflows = |value: &T| match E::SCALED {
        true => E::scale(value.abs()).is_none(),
        // Two bytes, aligned as the widest code needs.
        false => !E::encode(&[*value], &[], bytemuck::bytes_of_mut(&mut [0u16])),
    };
    Refusal::Overflow { index: data.iter().position(overflows).unwrap_or(0) }
}

/// The scales of some columns from their largest magnitudes; false where an element is not
/// finite or no scale will do.
struct Scale<'a, T, E> {
    data: &'a [T],
    channels: usize,
    /// The column of the first scale.
    first: usize,
    scales: &'a mut [f32],
    encoding: PhantomData<E>,
}

impl<T: Real, E: Encoding> Kernel<T> for Scale<'_, T, E> {
    type Output = bool;

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) -> bool {
        let mut largest = [T::ZERO; CHANNELS];
        let largest = &mut largest[..self.scales.len()];
        let mut fine = true;
        for row in self.data.chunks_exact(self.channels) {
            for (largest, value) in largest.iter_mut().zip(&row[self.first..]) {
                let magnitude = value.abs();
                fine &= magnitude < T::INFINITY;
                *largest = magnitude.max(*largest);
            }
        }
        for (scale, largest) in self.scales.iter_mut().zip(largest) {
            // Where there is no scale, any number will do: the result is refused.
            let found = E::scale(*largest);
            fine &= found.is_some();
            *scale = found.unwrap_or(1.0);
        }
        fine
    }
}

struct Encode<'a, T, E> {
    data: &'a [T],
    scales: &'a [f32],
    bytes: &'a mut [u8],
    encoding: PhantomData<E>,
}

impl<T: Real, E: Encoding> Kernel<T> for Encode<'_, T, E> {
    type Output = bool;

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) -> bool {
        E::encode(self.data, self.scales, self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Buffer;
    use proptest::prelude::*;

    const CODECS: [Codec; 3] = [Codec::Float16, Codec::BFloat16, Codec::Int8];

    /// Codes and scales.
    #[derive(Debug, PartialEq)]
    struct Packed {
        bytes: Vec<u8>,
        scales: Vec<f32>,
    }

    fn try_packed<T: Real>(
        codec: Codec,
        cpu: Option<&Cpu>,
        data: &[T],
        channels: usize,
    ) -> Result<Packed, Refusal> {
        let mut bytes = Buffer::zeroed(data.len() * codec.width());
        let mut scales = vec![0.0; if codec == Codec::Int8 { channels } else { 0 }];
        codec.encode(cpu, data, channels, bytes.bytes_mut(), &mut scales)?;
        Ok(Packed { bytes: bytes.bytes().to_vec(), scales })
    }

    fn packed<T: Real>(codec: Codec, data: &[T], channels: usize) -> Packed {
        try_packed(codec, None, data, channels).unwrap()
    }

    fn decoded<T: Real>(codec: Codec, packed: &Packed, len: usize) -> Vec<T> {
        let mut out = vec![T::NAN; len];
        let bytes = Buffer::from_slice(&packed.bytes);
        codec.decode(bytes.bytes(), &packed.scales, packed.scales.len(), &mut out);
        out
    }

    fn check_int8<T: Real>(data: &[T], channels: usize) {
        let packed = packed(Codec::Int8, data, channels);
        let (codes, scales) = (&packed.bytes, &packed.scales);
        assert_eq!((codes.len(), scales.len()), (data.len(), channels));
        let out = decoded::<T>(Codec::Int8, &packed, data.len());
        for (index, value) in data.iter().enumerate() {
            let (code, scale) = (codes[index] as i8, scales[index % channels]);
            assert_ne!(code, i8::MIN);
            let exact = value.to_f64() / f64::from(scale);
            // No other code is nearer, and of two equally near the even one is taken; a
            // quotient that rounds onto a tie in T counts as one.
            let quotient = (*value / T::from_f64(f64::from(scale))).to_f64().clamp(-127.0, 127.0);
            assert_eq!(f64::from(code), quotient.round_ties_even(), "{value} / {scale}");
            let error = (exact.clamp(-127.0, 127.0) - f64::from(code)).abs();
            assert!(error <= 0.5 + 1e-5, "{value} / {scale}");
            assert_eq!(out[index], T::from_f64(f64::from(code)) * T::from_f64(f64::from(scale)));
        }
        for (channel, scale) in scales.iter().enumerate() {
            let column = data.iter().skip(channel).step_by(channels);
            let largest = column.fold(T::ZERO, |largest, value| largest.max(value.abs()));
            if largest == T::ZERO {
                assert_eq!(*scale, 1.0);
            } else if largest.to_f64() > 1e-30 {
                let quotient = (largest / T::constant(127.0)).to_f32();
                assert!(*scale == quotient || *scale == quotient.next_down() && largest.to_f64() > 3e38);
            }
        }
        // With the scales held, a decoded code encodes to itself.
        for code in -127i8..=127 {
            let row: Vec<T> =
                scales.iter().map(|s| T::from_f64(f64::from(code)) * T::from_f64(f64::from(*s))).collect();
            let mut again = vec![0u8; channels];
            assert!(Int8::encode(&row, scales, &mut again));
            assert!(again.iter().all(|c| *c as i8 == code));
        }
    }

    proptest! {
        #[test]
        fn int8_is_the_nearest_code(
            rows in 1usize..20, channels in 1usize..40, seed: u64, exponent in -30i32..30, zero in 0usize..40,
        ) {
            let stream = crate::random::Stream::new(seed, 0, 0, crate::random::Use::Initialize);
            let mut data = vec![0.0; rows * channels];
            stream.fill_normal(&mut data);
            for (index, value) in data.iter_mut().enumerate() {
                *value *= if index % channels == zero { 0.0 } else { 2f64.powi(exponent) };
            }
            check_int8(&data, channels);
            check_int8(&data.iter().map(|x| *x as f32).collect::<Vec<_>>(), channels);
        }

        #[test]
        fn sixteen_bits_survive_a_round_trip(rows in 1usize..20, channels in 1usize..40, seed: u64) {
            let stream = crate::random::Stream::new(seed, 0, 0, crate::random::Use::Initialize);
            let mut data = vec![0.0; rows * channels];
            stream.fill_normal(&mut data);
            for codec in [Codec::Float16, Codec::BFloat16] {
                let first = packed(codec, &data, channels);
                let values = decoded::<f64>(codec, &first, data.len());
                let unit = if codec == Codec::Float16 { 2f64.powi(-11) } else { 2f64.powi(-8) };
                for (value, exact) in values.iter().zip(&data) {
                    prop_assert!((value - exact).abs() <= exact.abs() * unit + 2f64.powi(-25));
                }
                let again = packed(codec, &values, channels);
                prop_assert_eq!(&again.bytes, &first.bytes);
                let single = decoded::<f32>(codec, &first, data.len());
                let again = packed(codec, &single, channels);
                prop_assert_eq!(&again.bytes, &first.bytes);
            }
        }
    }

    #[test]
    fn ties_go_to_even() {
        let mut data: Vec<f32> = (-126..=126).map(|half| half as f32 / 2.0).collect();
        data.push(127.0);
        let packed = packed(Codec::Int8, &data, 1);
        assert_eq!(packed.scales, [1.0]);
        for (value, code) in data.iter().zip(&packed.bytes) {
            assert_eq!(f32::from(*code as i8), value.round_ties_even());
        }
    }

    #[test]
    fn extremes() {
        check_int8(&[f32::MAX, -f32::MAX, f32::MAX / 3.0, 1.0], 1);
        check_int8(&[f32::MIN_POSITIVE, -f32::MIN_POSITIVE / 2.0, 0.0, -0.0], 2);
        check_int8(&[1e-320f64, 0.0, -1e-320, 1.0], 2);
        let tiny = f32::from_bits(1);
        check_int8(&[tiny, -tiny, 0.0], 1);
        assert_eq!(decoded::<f32>(Codec::Int8, &packed(Codec::Int8, &[tiny, -tiny], 1), 2), [0.0, 0.0]);
        let largest = decoded::<f32>(Codec::Int8, &packed(Codec::Int8, &[f32::MAX], 1), 1);
        assert!(largest[0].is_finite());
        for codec in CODECS {
            let empty = packed::<f32>(codec, &[], 3);
            assert!(empty.bytes.is_empty());
        }
    }

    #[test]
    fn what_cannot_be_held_is_refused() {
        let refusal = |codec: Codec, data: &[f64]| try_packed(codec, None, data, 2).unwrap_err();
        for codec in CODECS {
            for bad in [f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                assert_eq!(refusal(codec, &[1.0, 2.0, 1e300, bad]), Refusal::NonFinite { index: 3 });
                let single = try_packed(codec, None, &[1.0f32, bad as f32], 2);
                assert_eq!(single, Err(Refusal::NonFinite { index: 1 }));
            }
            assert_eq!(refusal(codec, &[1.0, 2.0, 1e300, 1.0]), Refusal::Overflow { index: 2 });
        }
        assert_eq!(refusal(Codec::Float16, &[65519.0, 65520.0]), Refusal::Overflow { index: 1 });
        assert_eq!(refusal(Codec::BFloat16, &[3.38e38, -3.4e38]), Refusal::Overflow { index: 1 });
    }

    /// Instruction sets and thread counts make no difference.
    #[test]
    fn the_same_codes_everywhere() {
        let stream = crate::random::Stream::new(8, 0, 0, crate::random::Use::Initialize);
        for (rows, channels) in [(1, 1), (700, 61), (3, 20_000)] {
            let mut double = vec![0.0; rows * channels];
            stream.fill_normal(&mut double);
            let single: Vec<f32> = double.iter().map(|x| *x as f32).collect();
            for codec in CODECS {
                let (expected, expected_double) =
                    (packed(codec, &single, channels), packed(codec, &double, channels));
                for isa in Isa::available() {
                    for threads in [1, 3] {
                        let cpu = Cpu::with_threads(isa, threads).unwrap();
                        let cpu = Some(&cpu);
                        assert_eq!(try_packed(codec, cpu, &single, channels).unwrap(), expected);
                        assert_eq!(try_packed(codec, cpu, &double, channels).unwrap(), expected_double);
                    }
                }
            }
        }
    }
}

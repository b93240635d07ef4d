//! Encoding on a GPU, with the CPU's codes and scales to the bit.

use super::{Encode, TO_BFLOAT16, TO_FLOAT16, general};
use crate::dtype::{DType, Granularity};
use crate::ops::segment;
use crate::shader::{GpuOperation, Recorder, Shader, VersionOperands};
use crate::{Error, Result};
use std::ops::Range;

/// Neighbouring channels whose scales one workgroup finds: as many as memory is read in units of.
const CHANNELS: usize = 8;
/// Parts of a parameter start at multiples of this many weights, whatever they are packed as.
const PART: usize = 256;
/// The bits of the largest scale whose largest code does not decode to infinity.
const LARGEST_SCALE: u32 = largest_scale().to_bits();

const fn largest_scale() -> f32 {
    let mut scale = f32::MAX / 127.0;
    while !(scale * 127.0).is_finite() {
        scale = scale.next_down();
    }
    scale
}

impl GpuOperation for Encode {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        for version in recorder.versions().to_vec() {
            match (version.packing.dtype, version.packing.granularity) {
                (DType::Float16, _) => halves(recorder, &version, TO_FLOAT16)?,
                (DType::BFloat16, _) => halves(recorder, &version, TO_BFLOAT16)?,
                (DType::Int8, Granularity::Channel) => bytes(recorder, &version)?,
                _ => {
                    // The host encodes the others, before they are read.
                    if let Some(encoding) = version.packing.gpu_encoding() {
                        general::record(recorder, &version, &encoding)?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn halves(recorder: &mut Recorder<'_>, version: &VersionOperands, code: &str) -> Result<()> {
    for part in recorder.parts(version.master.elements, PART)? {
        let (first, count) = (part.start, part.len());
        Shader::new(format!("encode.{}", version.packing.dtype), include_str!("halves.wgsl"))
            .section("CODE", code)
            .control(recorder)
            .read("master", "vec4<u32>", version.master.slice(first, count)?)
            .write("codes", "vec2<u32>", version.packed.slice(first, count)?)
            .number("elements", count)
            .elements(recorder, count.div_ceil(4))?;
    }
    Ok(())
}

fn bytes(recorder: &mut Recorder<'_>, version: &VersionOperands) -> Result<()> {
    let VersionOperands { packing, master, packed } = version;
    let (dtype, channels) = (packing.dtype, packing.channels);
    let scales = packed.scales().ok_or_else(|| Error::Internal(format!("{dtype} without scales")))?;
    let width = segment::lanes(channels, CHANNELS);
    let shader = |label: String, text: &str, part: &Range<usize>| {
        Shader::new(label, text)
            .constant("LARGEST_SCALE", LARGEST_SCALE)
            .section("INT8", include_str!("int8.wgsl"))
            .number("elements", part.len())
            .number("channels", channels)
            // Of the part's first weight.
            .number("channel", part.start % channels)
    };
    let parts = recorder.parts(master.elements, PART)?;
    let largest = recorder.scratch(channels)?;
    for (number, part) in parts.iter().enumerate() {
        shader(format!("encode.{dtype} scales"), include_str!("scales.wgsl"), part)
            .constant("WIDTH", width)
            .control(recorder)
            .read("master", "u32", master.slice(part.start, part.len())?)
            // Of the parts so far.
            .write("largest", "u32", largest.clone())
            .write("scales", "u32", scales.clone())
            // Whether there were parts before, and whether this is the last one.
            .number("goes_on", number > 0)
            .number("ends", number + 1 == parts.len())
            .groups(recorder, channels.div_ceil(width))?;
    }
    for part in parts {
        shader(format!("encode.{dtype}"), include_str!("bytes.wgsl"), &part)
            .control(recorder)
            .read("master", "vec4<u32>", master.slice(part.start, part.len())?)
            .read("scales", "u32", scales.clone())
            .write("codes", "u32", packed.slice(part.start, part.len())?)
            .elements(recorder, part.len().div_ceil(4))?;
    }
    Ok(())
}

#[cfg(all(test, feature = "gpu"))]
mod tests {
    use super::*;
    use crate::dtype::Packing;
    use crate::dtype::testing::{awkward, sample};
    use crate::gpu::testing::{encoded, gpu};
    use crate::ops::testing::numbers;
    use proptest::prelude::*;

    /// Those that are encoded on a GPU.
    fn types() -> impl Iterator<Item = DType> {
        DType::all().filter(|dtype| Packing::new(*dtype, 1, 1).encodes_on_gpu())
    }

    /// The codes and scales of both devices are the same, in one part and in many.
    fn same(dtype: DType, data: &[f32], channels: usize) {
        let Some(gpu) = gpu() else { return };
        let sample = sample(dtype, data, channels);
        let (bytes, scales) = (sample.bytes(), &sample.scales);
        let in_parts = sample.packing.gpu_encoding().is_none() || dtype == DType::Int8;
        let parts = in_parts.then_some(4 * PART.max(channels.next_multiple_of(PART)));
        for limit in std::iter::once(usize::MAX).chain(parts) {
            let found = encoded(&gpu, dtype, data, channels, limit, 1).unwrap();
            for (i, (found, expected)) in found.1.iter().zip(scales).enumerate() {
                assert_eq!(found.to_bits(), expected.to_bits(), "scale {i} is {found:e}, not {expected:e}");
            }
            let differs = found.0.iter().zip(bytes).position(|(x, y)| x != y);
            if let Some(place) = differs {
                let element = place * data.len() / found.0.len();
                let scale = scales.get(element % channels);
                panic!(
                    "{dtype}: byte {place} is {}, not {}, of {:e} by {scale:?}",
                    found.0[place], bytes[place], data[element]
                );
            }
        }
    }

    proptest! {
        #![proptest_config(crate::gpu::testing::cases(24))]

        #[test]
        fn any_extents(rows in 1..40usize, channels in 1..40usize, exponent in -45..37i32, seed: u64) {
            let factor = 10f64.powi(exponent);
            let data: Vec<f32> =
                numbers::<f64>(seed, rows * channels).iter().map(|x| (x * factor) as f32).collect();
            for dtype in types() {
                if dtype != DType::Float16 || exponent < 4 {
                    same(dtype, &data, channels);
                }
            }
        }
    }

    proptest! {
        #![proptest_config(crate::gpu::testing::cases(48))]

        /// Zeros, single numbers, subnormal ones, all magnitudes together, and the largest there are.
        #[test]
        fn awkward_groups(rows in 1..40usize, channels in 1..24usize, seed: u64) {
            let data = awkward(seed, rows, channels);
            for dtype in types() {
                let limit = match dtype {
                    DType::Float16 => 6e4,
                    DType::BFloat16 => 3e38,
                    _ => f64::from(f32::MAX),
                };
                let data: Vec<f32> = data.iter().map(|x| x.clamp(-limit, limit) as f32).collect();
                same(dtype, &data, channels);
            }
        }
    }

    /// Ranges and means whose sums are infinite, and largest codes that would decode to infinity.
    #[test]
    fn the_largest_numbers() {
        let max = f32::MAX;
        let down = max.next_down();
        let rows = [
            [max, -max, max, 0.0, max, -1.0, down, 3e38, max / 2.0],
            [-max, -max, 0.0, -max, max / 3.0, -max, -down, 2e38, -max],
            [1.0, -max, 3e38, -max, -max / 255.0, -max, max, 1e-30, max / 15.0],
        ];
        for data in [rows.concat(), rows.concat().repeat(40)] {
            for dtype in types().filter(|dtype| !matches!(dtype, DType::Float16 | DType::BFloat16)) {
                same(dtype, &data, 9);
            }
        }
    }

    #[test]
    fn large_parameters() {
        for (rows, channels) in [(784, 10), (100, 512), (3, 5000), (5000, 1)] {
            let data: Vec<f32> = numbers(3, rows * channels);
            types().for_each(|dtype| same(dtype, &data, channels));
        }
    }

    /// Every 16-bit code's number, the midpoint above it, and the neighbours of both.
    #[test]
    fn every_sixteen_bit_code_and_midpoint() {
        for (dtype, shift, exponent) in [(DType::BFloat16, 16, 0xFF), (DType::Float16, 13, 143)] {
            let first = if dtype == DType::Float16 { 101 << 23 } else { 0u32 };
            let values = (first..exponent << 23).step_by(1 << (shift - 1)).flat_map(|bits| {
                let bits = [bits.saturating_sub(1), bits, bits + 1];
                bits.into_iter().flat_map(|bits| [bits, bits | 1 << 31])
            });
            // What rounds to infinity is refused.
            let fits = |x: &f32| match dtype {
                DType::Float16 => x.abs() < 65520.0,
                _ => x.to_bits() & 0x7FFF_FFFF < 0x7F7F_8000,
            };
            let values: Vec<f32> = values.map(f32::from_bits).filter(fits).collect();
            assert!(values.len() > 100_000);
            same(dtype, &values, 1);
        }
        same(DType::Float16, &[f32::from_bits(1), -f32::MIN_POSITIVE, 1e-30, 0.0, -0.0], 1);
    }

    /// Numbers at and next to ties between codes, under scales of every kind.
    #[test]
    fn ties_between_bytes() {
        let mut data = Vec::new();
        let mut seed = 1u32;
        let largest: Vec<f32> = (0..300)
            .map(|i| {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let magnitude = seed >> 1;
                match i {
                    0 => f32::MAX,
                    1 => f32::MAX.next_down(),
                    2 => 127.0,
                    3..40 => f32::from_bits(i * 41), // subnormal
                    40..50 => f32::from_bits((7 << 23) + (magnitude >> 8)), // whose scale is
                    _ => f32::from_bits(magnitude % 0x7F80_0000),
                }
            })
            .collect();
        data.extend(&largest);
        for half in 0..255 {
            for ulps in -3i32..=3 {
                data.extend(largest.iter().map(|largest| {
                    let tie = f64::from(*largest) / 127.0 * f64::from(half) / 2.0;
                    let near = f32::from_bits((tie as f32).to_bits().saturating_add_signed(ulps));
                    let near = near.min(*largest);
                    if half % 2 == 0 { near } else { -near }
                }));
            }
        }
        same(DType::Int8, &data, largest.len());
    }

    #[test]
    fn a_refused_step_leaves_the_version_as_it_was() {
        let Some(gpu) = gpu() else { return };
        for dtype in types() {
            let (bytes, scales) = encoded(&gpu, dtype, &numbers(3, 60), 6, usize::MAX, 0).unwrap();
            assert!(bytes.iter().all(|byte| *byte == 0) && scales.iter().all(|scale| *scale == 0.0));
        }
    }
}

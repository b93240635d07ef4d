//! Decoding on a GPU: a thread an element.

use super::Decode;
use crate::shader::product::Storage;
use crate::shader::{Bind, GpuOperation, Recorder, Template};
use crate::{Error, Result};

const THREADS: usize = 256;

impl GpuOperation for Decode {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (packed, result) = (recorder.read(0)?, recorder.write(0)?);
        let Some(packing) = packed.packing else {
            return Err(Error::Internal(
                "there is nothing to decode in a parameter that is not packed".into(),
            ));
        };
        let storage = Storage::of(Some(packing));
        let scales = packed.scales();
        let scale = if storage == Storage::Int8 {
            format!(" * scales[at % {}u]", packing.channels)
        } else {
            String::new()
        };
        let binding = storage.scale(1).map_or(String::new(), |word| {
            format!("@group(0) @binding(2) var<storage, read> scales: array<{word}>;\n")
        });
        let kernel = Template::new(include_str!("decode.wgsl"))
            .constant("THREADS", THREADS)
            .section("ELEMENT", if storage == Storage::Float32 { "f32" } else { "u32" })
            .section("SCALES", binding + &storage.functions("packed", "scales"))
            .section("VALUE", storage.element("packed", 1) + &scale)
            .kernel(format!("decode.{}", packing.dtype));
        let elements = result.elements;
        let mut operands = vec![Bind::Read(packed), Bind::Write(result)];
        operands.extend(scales.map(Bind::Read));
        recorder.dispatch(&kernel, &operands, &[elements as u32], elements.div_ceil(THREADS))
    }
}

#[cfg(all(test, feature = "gpu"))]
mod tests {
    use super::*;
    use crate::dtype::{DType, testing::sample};
    use crate::gpu::testing::{Packed, compare, gpu, run};
    use crate::ops::testing::{Data, Setting, numbers};

    #[test]
    fn every_type_is_decoded() {
        let Some(gpu) = gpu() else { return };
        for (rows, channels) in [(1, 1), (37, 1), (300, 1), (9, 21)] {
            let values = numbers::<f32>(4, rows * channels);
            for dtype in DType::all() {
                let sample = sample(dtype, &values, channels);
                let setting = Setting::new(1, &[&values], &[values.len()]);
                let packed = Packed::of(&sample);
                let found = run(&gpu, &Decode.into(), &setting, Some((0, packed))).unwrap();
                compare(&Decode.into(), &[Data::Real(sample.decoded::<f32>())], &found);
            }
        }
    }
}

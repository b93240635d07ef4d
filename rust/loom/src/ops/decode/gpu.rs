//! Decoding on a GPU: a thread an element.

use super::Decode;
use crate::shader::product::Storage;
use crate::shader::{GpuOperation, Recorder, Shader};
use crate::{Error, Result};

impl GpuOperation for Decode {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (packed, result) = (recorder.read(0)?, recorder.write(0)?);
        let Some(packing) = packed.packing else {
            return Err(Error::Internal(
                "there is nothing to decode in a parameter that is not packed".into(),
            ));
        };
        let storage = Storage::of(Some(packing));
        let scale = if storage == Storage::Int8 {
            format!(" * scales[at % {}u]", packing.channels)
        } else {
            String::new()
        };
        let elements = result.elements;
        let shader = Shader::new(format!("decode.{}", packing.dtype), include_str!("decode.wgsl"));
        storage
            .declare(shader, "packed", [1; 2], &packed)
            .write("y", "f32", result)
            .number("elements", elements)
            .section("VALUE", storage.element("packed", 1) + &scale)
            .elements(recorder, elements)
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

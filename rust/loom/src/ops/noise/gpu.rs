//! Normal noise on a GPU.

use super::GaussianNoise;
use crate::Result;
use crate::ops::draws::Draws;
use crate::ops::pointwise;
use crate::random::path_within;
use crate::shader::{GpuOperation, Recorder};

impl GpuOperation for GaussianNoise {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let y = recorder.write(0)?;
        let draws = Draws {
            purpose: 4,
            path: path_within(recorder.path(), self.purpose),
            features: self.features,
            functions: &[pointwise::WGSL_PRELUDE, "\n", include_str!("noise.wgsl")].concat(),
            drawn: "let numbers = vec4<f32>(normal_pair(words.xy), normal_pair(words.zw));",
            store: "y[i] = numbers[word];",
        };
        let (elements, scale) = (y.elements, self.scale);
        draws.record(recorder, "gaussian_noise", elements, |shader| {
            shader.write("y", "f32", y).real("scale", scale)
        })
    }
}

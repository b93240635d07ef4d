//! Gumbel noise on a GPU.

use super::GumbelNoise;
use crate::Result;
use crate::ops::draws::Draws;
use crate::ops::pointwise;
use crate::shader::{GpuOperation, Recorder};

impl GpuOperation for GumbelNoise {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (x, y) = (recorder.read(0)?, recorder.write(0)?);
        let draws = Draws {
            purpose: 3,
            path: recorder.path(),
            features: self.features,
            functions: &[pointwise::WGSL_PRELUDE, "\n", include_str!("gumbel.wgsl")].concat(),
            drawn: "",
            store: "y[i] = x[i] + noise_of(words[word]);",
        };
        let elements = y.elements;
        draws.record(recorder, "gumbel_noise", elements, |shader| {
            shader.read("x", "f32", x).write("y", "f32", y)
        })
    }
}

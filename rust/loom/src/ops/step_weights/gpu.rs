//! What steps count, on a GPU: a thread a row.

use super::{PooledSteps, StepWeights};
use crate::Result;
use crate::shader::{GpuOperation, Recorder, Shader};

impl GpuOperation for StepWeights {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let weights = recorder.write(0)?;
        let rows = weights.elements / self.steps;
        let counts = match self.of {
            PooledSteps::First => "select(0.0, 1.0, step == first)",
            PooledSteps::Mean => "select(0.0, 1.0 / f32(max(count, 1u)), is_real(start + step))",
            PooledSteps::Last => "select(0.0, 1.0, step + 1u == end)",
        };
        let mut shader = Shader::new(self.to_string(), include_str!("weights.wgsl"))
            .section("REAL", if self.masked { "mask[at] != 0.0" } else { "true" })
            .section("WEIGHT", counts);
        if self.masked {
            shader = shader.read("mask", "f32", recorder.read(0)?);
        }
        shader
            .write("weights", "f32", weights)
            .number("rows", rows)
            .number("steps", self.steps)
            .elements(recorder, rows)
    }
}

#[cfg(all(test, feature = "gpu"))]
mod tests {
    use super::*;
    use crate::gpu::testing::check;
    use crate::ops::testing::Setting;

    #[test]
    fn padding_does_not_count() {
        let mask: Vec<f32> =
            (0..210).map(|step| if step % 3 == 1 || step > 140 { 0.0 } else { 1.0 }).collect();
        for of in [PooledSteps::First, PooledSteps::Mean, PooledSteps::Last] {
            for masked in [false, true] {
                check(StepWeights { of, steps: 70, masked }, &Setting::new(3, &[&mask], &[210]));
            }
        }
    }
}

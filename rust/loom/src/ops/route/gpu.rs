//! Choosing experts on a GPU: a thread a step.

use super::Route;
use crate::ops::Direction;
use crate::shader::{GpuOperation, Recorder, Shader};
use crate::{Error, Result};

impl GpuOperation for Route {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let logits = recorder.read(0)?;
        let steps = logits.elements / self.experts;
        let text = match self.direction {
            Direction::Forward => include_str!("forward.wgsl"),
            Direction::InputGradient => include_str!("gradient.wgsl"),
            Direction::WeightGradient => return Err(Error::Internal("a choice has no weights".into())),
        };
        let counted = match self.normalize {
            true => {
                "for (var i = 0u; i < TOP_K; i += 1u) { sum += exp(logits[start + chosen(step, i)] - largest); }"
            }
            false => "for (var i = 0u; i < EXPERTS; i += 1u) { sum += exp(logits[start + i] - largest); }",
        };
        let shader = Shader::new(self.to_string(), text)
            .constant("EXPERTS", self.experts)
            .constant("TOP_K", self.top_k)
            .section("COUNTED", counted)
            .number("steps", steps)
            .read("logits", "f32", logits);
        let shader = match self.direction {
            Direction::Forward => {
                shader.write("gates", "f32", recorder.write(0)?).write("choices", "f32", recorder.write(1)?)
            }
            _ => shader
                .section(
                    "OTHERS",
                    if self.normalize { "0.0" } else { "-share(step, i, largest, total) * mean" },
                )
                .read("choices", "f32", recorder.read(1)?)
                .read("dgates", "f32", recorder.read(2)?)
                .write("dlogits", "f32", recorder.write(0)?),
        };
        shader.elements(recorder, steps)
    }
}

#[cfg(all(test, feature = "gpu"))]
mod tests {
    use super::*;
    use crate::gpu::testing::check;
    use crate::ops::testing::{Setting, numbers};
    use crate::simd::Cpu;

    #[test]
    fn choices_and_gradients() {
        for (steps, experts, top_k) in [(1, 1, 1), (70, 5, 2), (130, 16, 4), (3, 9, 9)] {
            for normalize in [false, true] {
                let op = |direction| Route { direction, experts, top_k, normalize };
                let logits: Vec<f32> =
                    (0..steps * experts).map(|i| ((i * 37 + i / 3) % 101) as f32 / 13.0).collect();
                let forward = Setting::new(1, &[&logits], &[steps * top_k, steps * top_k]);
                check(op(Direction::Forward), &forward);
                let found = forward.run_on(&op(Direction::Forward), Cpu::global().unwrap()).unwrap();
                let dgates: Vec<f32> = numbers(2, steps * top_k);
                let reads: [&[f32]; 3] = [&logits, found[1].real(), &dgates];
                check(op(Direction::InputGradient), &Setting::new(1, &reads, &[logits.len()]));
            }
        }
    }
}

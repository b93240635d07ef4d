//! The experts' products on a GPU: a thread an element, which reads the weights of the expert that was chosen.

use super::ExpertProduct;
use crate::Result;
use crate::ops::Direction;
use crate::shader::product::Storage;
use crate::shader::{GpuOperation, Operand, Recorder, Shader};

impl ExpertProduct {
    /// Declares the weight, and `weight_of(input, column)`.
    fn declare_weight(shader: Shader, weight: &Operand) -> Shader {
        let storage = Storage::of(weight.packing);
        let scale = if storage == Storage::Int8 { " * scales[column]" } else { "" };
        storage.declare(shader, "weight", [1; 2], weight).append(&format!(
            "fn weight_of(input: u32, column: u32) -> f32 {{\n    let at = input * EXPERTS * OUTPUTS + column;\n    \
             return {}{scale};\n}}\n",
            storage.element("weight", 1)
        ))
    }
}

impl GpuOperation for ExpertProduct {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (first, choices, third) = (recorder.read(0)?, recorder.read(1)?, recorder.read(2)?);
        let result = recorder.write(0)?;
        let (count, slots) = (result.elements, choices.elements);
        let shader = |text: &str| {
            Shader::new(self.to_string(), text)
                .constant("EXPERTS", self.experts)
                .constant("OUTPUTS", self.outputs)
                .constant("INPUTS", self.inputs)
                // Slots that share a row of x.
                .constant("SHARING", if self.spread { self.top_k } else { 1 })
                .number("count", count)
                .read("choices", "f32", choices.clone())
        };
        let shader = match self.direction {
            Direction::Forward => {
                let shader = shader(include_str!("forward.wgsl")).read("x", "f32", first);
                Self::declare_weight(shader, &third).write("y", "f32", result)
            }
            Direction::InputGradient => {
                let shader = shader(include_str!("input.wgsl")).read("dy", "f32", first);
                Self::declare_weight(shader, &third).write("dx", "f32", result)
            }
            Direction::WeightGradient => shader(include_str!("weight.wgsl"))
                .section("START", if recorder.accumulate() { "dw[i]" } else { "0.0" })
                .number("slots", slots)
                .read("x", "f32", first)
                .read("dy", "f32", third)
                .write("dw", "f32", result),
        };
        shader.elements(recorder, count)
    }
}

#[cfg(all(test, feature = "gpu"))]
mod tests {
    use super::super::cpu::tests::choices;
    use super::*;
    use crate::dtype::{DType, testing::sample};
    use crate::gpu::testing::{Packed, check, compare, gpu, run};
    use crate::ops::testing::{Data, Setting, numbers};
    use crate::simd::Cpu;

    #[test]
    fn extents_of_every_kind() {
        for (steps, experts, top_k, inputs, outputs) in [(1, 1, 1, 1, 1), (5, 4, 2, 7, 3), (40, 6, 3, 17, 33)]
        {
            for spread in [false, true] {
                let op = |direction| ExpertProduct { direction, experts, top_k, inputs, outputs, spread };
                let slots = steps * top_k;
                let choices = choices(steps, experts, top_k);
                let x: Vec<f32> = numbers(1, if spread { steps } else { slots } * inputs);
                let w: Vec<f32> = numbers(2, inputs * experts * outputs);
                let dy: Vec<f32> = numbers(3, slots * outputs);
                check(op(Direction::Forward), &Setting::new(1, &[&x, &choices, &w], &[dy.len()]));
                check(op(Direction::InputGradient), &Setting::new(1, &[&dy, &choices, &w], &[x.len()]));
                let mut setting = Setting::new(1, &[&x, &choices, &dy], &[w.len()]);
                check(op(Direction::WeightGradient), &setting);
                setting.accumulate = true;
                setting.writes = vec![Data::Real(w.clone())];
                check(op(Direction::WeightGradient), &setting);
            }
        }
    }

    #[test]
    fn packed_experts_are_decoded() {
        let Some(gpu) = gpu() else { return };
        let (steps, experts, top_k, inputs, outputs) = (4, 3, 2, 64, 5);
        let choices = choices(steps, experts, top_k);
        let w = numbers::<f32>(2, inputs * experts * outputs);
        let x = numbers::<f32>(1, steps * inputs);
        let op =
            ExpertProduct { direction: Direction::Forward, experts, top_k, inputs, outputs, spread: true };
        for dtype in DType::all() {
            let sample = sample(dtype, &w, experts * outputs);
            let plain = sample.decoded::<f32>();
            let setting = Setting::new(1, &[&x, &choices, &plain], &[steps * top_k * outputs]);
            let expected = setting.run_on(&op, Cpu::global().unwrap()).unwrap();
            let packed = Packed::of(&sample);
            let found = run(&gpu, &op.clone().into(), &setting, Some((2, packed))).unwrap();
            compare(&op.clone().into(), &expected, &found);
        }
    }
}

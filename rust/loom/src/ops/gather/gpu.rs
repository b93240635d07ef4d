//! The table look-up on a GPU, and the table's gradient with no atomic sum: each of its rows looks for
//! its own occurrences.

use super::Gather;
use crate::ops::Direction;
use crate::shader::product::Storage;
use crate::shader::{Bind, GpuOperation, Recorder, Template};
use crate::{Error, Result};

/// Threads of a workgroup.
const THREADS: usize = 256;
/// Threads of a workgroup that gathers one row's gradient, and numbers it looks at together.
const COLUMNS: usize = 64;

impl GpuOperation for Gather {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (x, second, result) = (recorder.read(0)?, recorder.read(1)?, recorder.write(0)?);
        match self.direction {
            Direction::Forward => {
                let storage = Storage::of(second.packing);
                let plain = storage == Storage::Float32;
                let scales = second.scales();
                let scale = if storage == Storage::Int8 { " * scales[i % WIDTH]" } else { "" };
                let binding = storage.scale(1).map_or(String::new(), |word| {
                    format!("@group(0) @binding(3) var<storage, read> scales: array<{word}>;\n")
                });
                let kernel = Template::new(include_str!("forward.wgsl"))
                    .constant("THREADS", THREADS)
                    .constant("WIDTH", self.width)
                    .constant("VOCABULARY", self.vocabulary)
                    .section("ELEMENT", if plain { "f32" } else { "u32" })
                    .section("SCALES", binding + &storage.functions("table", "scales"))
                    .section("VALUE", storage.element("table", 1) + scale)
                    .kernel(self.to_string());
                let elements = result.elements;
                let mut operands = vec![Bind::Read(x), Bind::Read(second), Bind::Write(result)];
                operands.extend(scales.map(Bind::Read));
                recorder.dispatch(&kernel, &operands, &[elements as u32], elements.div_ceil(THREADS))
            }
            Direction::WeightGradient => {
                let kernel = Template::new(include_str!("gradient.wgsl"))
                    .constant("THREADS", COLUMNS)
                    .constant("VOCABULARY", self.vocabulary)
                    .section("START", if recorder.accumulate() { "gradient[at]" } else { "0.0" })
                    .kernel("gather.gradient");
                let across = self.width.div_ceil(COLUMNS);
                let groups = self.vocabulary * across;
                let constants = [x.elements, self.width, across, groups].map(|extent| extent as u32);
                let operands = [Bind::Read(x), Bind::Read(second), Bind::Write(result)];
                recorder.dispatch(&kernel, &operands, &constants, groups)
            }
            Direction::InputGradient => {
                Err(Error::Internal("there is no gradient with respect to a row's number".into()))
            }
        }
    }
}

#[cfg(all(test, feature = "gpu"))]
mod tests {
    use super::*;
    use crate::dtype::{DType, testing::sample};
    use crate::gpu::testing::{Packed, check, compare, gpu, run};
    use crate::ops::testing::{Data, Setting, numbers};
    use crate::simd::Cpu;

    #[test]
    fn rows_are_found_and_their_gradients_gathered() {
        for (rows, time, vocabulary, width) in [(1, 1, 1, 1), (3, 70, 20, 70), (2, 9, 300, 3)] {
            let op = |direction| Gather { direction, time, vocabulary, width };
            let x: Vec<f32> = (0..rows * time).map(|i| (i * i % vocabulary) as f32).collect();
            let table: Vec<f32> = numbers(1, vocabulary * width);
            let dy: Vec<f32> = numbers(2, x.len() * width);
            check(op(Direction::Forward), &Setting::new(rows, &[&x, &table], &[dy.len()]));
            let mut setting = Setting::new(rows, &[&x, &dy], &[table.len()]);
            check(op(Direction::WeightGradient), &setting);
            setting.accumulate = true;
            setting.writes = vec![Data::Real(table.clone())];
            check(op(Direction::WeightGradient), &setting);
        }
    }

    #[test]
    fn packed_tables_are_decoded() {
        let Some(gpu) = gpu() else { return };
        let (vocabulary, width) = (9, 21);
        let table = numbers::<f32>(4, vocabulary * width);
        let x = [3.0f32, 8.0, 0.0, 8.0];
        for dtype in DType::all() {
            let sample = sample(dtype, &table, width);
            let plain = sample.decoded::<f32>();
            let op = Gather { direction: Direction::Forward, time: 4, vocabulary, width };
            let setting = Setting::new(1, &[&x, &plain], &[4 * width]);
            let expected = setting.run_on(&op, Cpu::global().unwrap()).unwrap();
            let packed = Packed::of(&sample);
            let found = run(&gpu, &op.clone().into(), &setting, Some((1, packed))).unwrap();
            compare(&op.into(), &expected, &found);
        }
    }
}

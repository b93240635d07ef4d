//! The table look-up on a GPU, and the table's gradient with no atomic sum: each of its rows looks for
//! its own occurrences.

use super::Gather;
use crate::ops::Direction;
use crate::shader::product::Storage;
use crate::shader::{GpuOperation, Recorder, Shader};
use crate::{Error, Result};

/// The most threads of a workgroup that gathers one row's gradient, and numbers it looks at together.
const COLUMNS: usize = 256;

impl GpuOperation for Gather {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (x, second, result) = (recorder.read(0)?, recorder.read(1)?, recorder.write(0)?);
        match self.direction {
            Direction::Forward => {
                let storage = Storage::of(second.packing);
                let scale = if storage == Storage::Int8 { " * scales[i % WIDTH]" } else { "" };
                let elements = result.elements;
                let shader = Shader::new(self.to_string(), include_str!("forward.wgsl")).read("x", "f32", x);
                storage
                    .declare(shader, "table", [1; 2], &second)
                    .write("y", "f32", result)
                    .number("elements", elements)
                    .constant("WIDTH", self.width)
                    .constant("VOCABULARY", self.vocabulary)
                    .section("VALUE", storage.element("table", 1) + scale)
                    .elements(recorder, elements)
            }
            Direction::WeightGradient => {
                let columns = self.width.next_power_of_two().clamp(64, COLUMNS);
                let across = self.width.div_ceil(columns);
                let groups = self.vocabulary * across;
                Shader::new("gather.gradient", include_str!("gradient.wgsl"))
                    .threads(columns)
                    .constant("VOCABULARY", self.vocabulary)
                    .section("START", if recorder.accumulate() { "gradient[at]" } else { "0.0" })
                    // Numbers in the whole batch.
                    .number("count", x.elements)
                    .number("width", self.width)
                    // Workgroups that share one row, and all there are.
                    .number("across", across)
                    .number("groups", groups)
                    .read("x", "f32", x)
                    .read("dy", "f32", second)
                    .write("gradient", "f32", result)
                    .groups(recorder, groups)
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
        // More numbers than a few rounds look at, and more columns than a workgroup has.
        let extents = [(1, 1, 1, 1), (3, 70, 20, 70), (2, 9, 300, 3), (5, 230, 7, 300)];
        for (rows, time, vocabulary, width) in extents {
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

//! The positional rows on a GPU: a thread an element.

use super::Positions;
use crate::Result;
use crate::ops::Direction;
use crate::shader::{GpuOperation, Recorder, Shader};

impl GpuOperation for Positions {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (x, y) = (recorder.read(0)?, recorder.write(0)?);
        let elements = y.elements;
        if self.direction != Direction::Forward {
            return Shader::new("positions.gradient", include_str!("gradient.wgsl"))
                .section("START", if recorder.accumulate() { "gradient[i]" } else { "0.0" })
                .read("dy", "f32", x)
                .write("gradient", "f32", y)
                .number("time", self.time)
                .number("width", self.width)
                .number("rows", recorder.rows())
                // Of the table.
                .number("elements", elements)
                .elements(recorder, elements);
        }
        let table = match &self.fixed {
            Some(table) => recorder.table(table.words())?,
            None => recorder.read(1)?,
        };
        Shader::new("positions", include_str!("forward.wgsl"))
            .row_places(recorder, self.positioned)
            .read("x", "f32", x)
            .read("table", "f32", table)
            .write("y", "f32", y)
            .number("time", self.time)
            .number("width", self.width)
            .number("places", self.places)
            .number("elements", elements)
            .elements(recorder, elements)
    }
}

#[cfg(all(test, feature = "gpu"))]
mod tests {
    use super::*;
    use crate::gpu::testing::check;
    use crate::ops::RowPlace;
    use crate::ops::testing::{Data, Setting, numbers};

    #[test]
    fn steps_get_their_rows_and_rows_their_gradients() {
        for (rows, time, width, places) in [(1, 1, 1, 1), (70, 5, 30, 9)] {
            let x: Vec<f32> = numbers(1, rows * time * width);
            let table: Vec<f32> = numbers(2, places * width);
            let mut op = Positions::learned(Direction::Forward, time, width, places);
            let mut setting = Setting::new(rows, &[&x, &table], &[x.len()]);
            check(op.clone(), &setting);
            setting.values.position = (places - time) as u64;
            op.positioned = true;
            check(op.clone(), &setting);
            setting.values.places =
                (0..rows).map(|row| RowPlace { sequence: 7, position: row % (places - time + 1) }).collect();
            setting.values.position = 0;
            check(op, &setting);
            check(
                Positions::sinusoidal(time, width, 10_000.0, places).unwrap(),
                &Setting::new(rows, &[&x], &[x.len()]),
            );
            let mut setting = Setting::new(rows, &[&x], &[table.len()]);
            for accumulate in [false, true] {
                setting.accumulate = accumulate;
                setting.writes = vec![Data::Real(table.clone())];
                check(Positions::learned(Direction::WeightGradient, time, width, places), &setting);
            }
        }
    }
}

//! The positional rows on a GPU: a thread an element.

use super::Positions;
use crate::Result;
use crate::ops::Direction;
use crate::shader::{Bind, GpuOperation, Recorder, Template};

/// Threads of a workgroup.
const THREADS: usize = 256;

impl GpuOperation for Positions {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (x, y) = (recorder.read(0)?, recorder.write(0)?);
        let extents = [self.time, self.width, self.places].map(|extent| extent as u32);
        let elements = y.elements;
        let groups = elements.div_ceil(THREADS);
        if self.direction != Direction::Forward {
            let kernel = Template::new(include_str!("gradient.wgsl"))
                .constant("THREADS", THREADS)
                .section("START", if recorder.accumulate() { "gradient[i]" } else { "0.0" })
                .kernel("positions.gradient");
            let constants = [extents[0], extents[1], recorder.rows() as u32, elements as u32];
            return recorder.dispatch(&kernel, &[Bind::Read(x), Bind::Write(y)], &constants, groups);
        }
        let table = match &self.fixed {
            Some(table) => recorder.table(table.words())?,
            None => recorder.read(1)?,
        };
        let kernel = Template::new(include_str!("forward.wgsl"))
            .constant("THREADS", THREADS)
            .section("POSITION", if self.positioned { "steps[constants.step].position" } else { "0u" })
            .kernel("positions");
        let constants = [extents[0], extents[1], extents[2], elements as u32];
        recorder.dispatch(&kernel, &[Bind::Read(x), Bind::Read(table), Bind::Write(y)], &constants, groups)
    }
}

#[cfg(all(test, feature = "gpu"))]
mod tests {
    use super::*;
    use crate::gpu::testing::check;
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

//! The rotary embedding on a GPU: a thread a pair, or an element that stays.

use super::{PairLayout, Rotary};
use crate::Result;
use crate::ops::Direction;
use crate::shader::{GpuOperation, Operand, Recorder, Shader, Share, THREADS};

impl GpuOperation for Rotary {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (x, y) = (recorder.read(0)?, recorder.write(0)?);
        let put = "fn put(i: u32, value: f32) {\n    y[i] = value;\n}";
        let (shader, groups) = self.shader(recorder, x, put)?;
        shader.write("y", "f32", y).groups(recorder, groups)
    }
}

impl Rotary {
    /// The kernel that turns x, and on how many workgroups it runs; `put` is the text of
    /// `fn put(i: u32, value: f32)`, which stores element i of the result.
    pub(in crate::ops) fn shader(&self, recorder: &mut Recorder<'_>, x: Operand, put: &str) -> Result<Share> {
        let table = recorder.table(self.table.words())?;
        let still = self.head_dim - 2 * self.pairs;
        let threads = x.elements / self.head_dim * (self.pairs + still);
        let [first, second] = match self.layout {
            PairLayout::Interleaved => ["2u * pair", "2u * pair + 1u"],
            PairLayout::HalfSplit => ["pair", "pair + PAIRS"],
        };
        let shader = Shader::new("rotary", include_str!("rotary.wgsl"))
            .constant("PAIRS", self.pairs)
            .constant("STILL", still)
            .section("FIRST", first)
            .section("SECOND", second)
            .section("PUT", put)
            .section("SIGN", if self.direction == Direction::Forward { "" } else { "-" })
            .row_places(recorder, self.positioned)
            .read("x", "f32", x)
            // For each place, the cosines of all pairs, then their sines.
            .read("turns", "f32", table)
            .number("time", self.time)
            .number("heads", self.heads)
            .number("places", self.places)
            // Of all heads, steps and rows.
            .number("threads", threads);
        Ok((shader, threads.div_ceil(THREADS)))
    }
}

#[cfg(all(test, feature = "gpu"))]
mod tests {
    use super::*;
    use crate::gpu::testing::check;
    use crate::ops::RowPlace;
    use crate::ops::testing::{Setting, numbers};

    #[test]
    fn every_layout_both_ways() {
        for layout in [PairLayout::Interleaved, PairLayout::HalfSplit] {
            for (rows, time, heads, head_dim) in [(1, 1, 1, 2), (2, 37, 3, 10)] {
                let x: Vec<f32> = numbers(1, rows * time * heads * head_dim);
                let mut op = Rotary::new((time, heads, head_dim), 10_000.0, 2.0, layout, 100).unwrap();
                let mut setting = Setting::new(rows, &[&x], &[x.len()]);
                check(op.clone(), &setting);
                check(op.inverse(), &setting);
                setting.values.position = 50;
                op.positioned = true;
                check(op.clone(), &setting);
                setting.values.places =
                    (0..rows).map(|row| RowPlace { sequence: 7, position: 40 * row }).collect();
                setting.values.position = 3;
                check(op, &setting);
                let op = Rotary::by_rates((time, heads, head_dim), &[0.3], 1.2, layout, 100).unwrap();
                check(op.inverse(), &setting);
                check(op, &setting);
            }
        }
    }
}

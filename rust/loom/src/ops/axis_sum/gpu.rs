//! The sum over an axis on a GPU.

use super::AxisSum;
use crate::Result;
use crate::ops::segment;
use crate::shader::{GpuOperation, Recorder, Shader, THREADS};

impl GpuOperation for AxisSum {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        // Neighbouring threads take neighbouring elements: of the axis, or beside it.
        let lanes = if self.inner == 1 { segment::lanes(self.count, THREADS) } else { 1 };
        let positions = recorder.rows() * self.outer * self.inner;
        Shader::new(self.to_string(), include_str!("axis_sum.wgsl"))
            .constant("COUNT", self.count)
            .constant("INNER", self.inner)
            .constant("LANES", lanes)
            .section("JOIN", segment::join("axis_total", "f32", lanes, "a + b"))
            .read("x", "f32", recorder.read(0)?)
            .write("y", "f32", recorder.write(0)?)
            .number("positions", positions)
            .groups(recorder, positions.div_ceil(THREADS / lanes))
    }
}

#[cfg(all(test, feature = "gpu"))]
mod tests {
    use super::*;
    use crate::gpu::testing::check;
    use crate::ops::testing::{Setting, numbers};

    #[test]
    fn extents_of_every_kind() {
        for (outer, count, inner) in
            [(1, 1, 1), (1, 10, 1), (2, 1000, 1), (1, 3, 100), (3, 256, 1), (4, 33, 7)]
        {
            for rows in [1, 67] {
                let x = numbers::<f32>(1, rows * outer * count * inner);
                check(AxisSum { outer, count, inner }, &Setting::new(rows, &[&x], &[rows * outer * inner]));
            }
        }
    }
}

//! The masked softmax on a GPU: one dispatch.

use super::{MaskedSoftmax, TimeMask};
use crate::Result;
use crate::ops::segment;
use crate::shader::{GpuOperation, Recorder, Shader, THREADS};

impl GpuOperation for MaskedSoftmax {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let time = (self.time != TimeMask::None).then_some("time");
        let fixed = if self.kept.is_empty() { "true" } else { "kept[entry] != 0u" };
        let (timely, steps) = match self.time {
            TimeMask::None => ("true", 1),
            TimeMask::Classes => ("time[row * CLASSES + entry] != 0.0", 1),
            TimeMask::Repetitions { steps } => {
                ("time[row * STEPS + repetition / (OUTER / STEPS)] != 0.0", steps)
            }
        };
        let lanes = if self.inner == 1 { segment::lanes(self.classes, THREADS) } else { 1 };
        let join = segment::join("class_largest", "f32", lanes, "max(a, b)")
            + &segment::join("class_sum", "f32", lanes, "a + b");
        let mut shader = Shader::new(self.to_string(), include_str!("masked.wgsl"))
            .constant("OUTER", self.outer)
            .constant("CLASSES", self.classes)
            .constant("INNER", self.inner)
            .constant("STEPS", steps)
            .constant("LANES", lanes)
            .section("JOIN", join)
            .section("FIXED", fixed)
            .section("TIMELY", timely)
            .reads(recorder, ["x"].into_iter().chain(time))?;
        if !self.kept.is_empty() {
            let kept: Vec<u32> = (0..self.classes).map(|class| u32::from(self.keeps(class))).collect();
            shader = shader.read("kept", "u32", recorder.table(&kept)?);
        }
        // Class axes of the whole batch.
        let positions = recorder.rows() * self.outer * self.inner;
        shader
            .write("y", "f32", recorder.write(0)?)
            .number("positions", positions)
            .groups(recorder, positions.div_ceil(THREADS / lanes))
    }
}

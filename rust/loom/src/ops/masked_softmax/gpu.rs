//! The masked softmax on a GPU: one dispatch.

use super::{MaskedSoftmax, TimeMask};
use crate::Result;
use crate::ops::operands::Operands;
use crate::ops::segment;
use crate::shader::{Bind, GpuOperation, Recorder, Template};

/// Threads of a workgroup.
const THREADS: usize = 256;

impl GpuOperation for MaskedSoftmax {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let mut operands = Operands::default();
        operands.read(recorder, "x", true)?;
        operands.read(recorder, "time", self.time != TimeMask::None)?;
        let fixed = if self.kept.is_empty() { "true" } else { "kept[entry] != 0u" };
        if !self.kept.is_empty() {
            let kept: Vec<u32> = (0..self.classes).map(|class| u32::from(self.keeps(class))).collect();
            operands.push_typed("kept", "u32", Bind::Read(recorder.table(&kept)?));
        }
        operands.write(recorder, "y", 0)?;
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
        let kernel = Template::new(include_str!("masked.wgsl"))
            .constant("THREADS", THREADS)
            .constant("OUTER", self.outer)
            .constant("CLASSES", self.classes)
            .constant("INNER", self.inner)
            .constant("STEPS", steps)
            .constant("LANES", lanes)
            .section("BINDINGS", &operands.text)
            .section("JOIN", join)
            .section("FIXED", fixed)
            .section("TIMELY", timely)
            .kernel(self.to_string());
        let positions = recorder.rows() * self.outer * self.inner;
        let groups = positions.div_ceil(THREADS / lanes);
        recorder.dispatch(&kernel, &operands.binds, &[positions as u32], groups)
    }
}

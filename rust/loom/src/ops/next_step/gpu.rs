//! Going on by the best class, on a GPU.

use super::{Choose, Recall};
use crate::Result;
use crate::shader::{GpuOperation, Recorder, Shader};

impl GpuOperation for Choose {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let wanted = self.classes.next_power_of_two().clamp(32, 1024);
        let threads = wanted.min(1 << recorder.capabilities().workgroup_threads.ilog2());
        let rows = recorder.rows();
        Shader::new("choose", include_str!("choose.wgsl"))
            .threads(threads)
            .read("y", "f32", recorder.read(0)?)
            .write("chosen", "f32", recorder.write(0)?)
            .number("classes", self.classes)
            .number("time", self.time)
            .number("capacity", self.capacity)
            .number("rows", rows)
            .groups(recorder, rows)
    }
}

impl GpuOperation for Recall {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let rows = recorder.rows();
        let text = "fn main(row: u32) {
    if row < constants.rows {
        let place = min(steps[constants.step].position, constants.capacity);
        x[row] = chosen[row * (constants.capacity + 1u) + place];
    }
}
";
        Shader::new("recall", text)
            .read("chosen", "f32", recorder.read(0)?)
            .write("x", "f32", recorder.write(0)?)
            .number("capacity", self.capacity)
            .number("rows", rows)
            .elements(recorder, rows)
    }
}

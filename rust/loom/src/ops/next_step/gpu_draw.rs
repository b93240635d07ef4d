//! Drawing a class by its score, on a GPU.

use super::{Draw, Sampling};
use crate::Result;
use crate::shader::{GpuOperation, Recorder, Shader};

impl GpuOperation for Draw {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let wanted = self.classes.next_power_of_two().clamp(32, 1024);
        let threads = wanted.min(1 << recorder.capabilities().workgroup_threads.ilog2());
        let rows = recorder.rows();
        let warmed = recorder.scratch(rows * self.classes)?;
        Shader::new("draw", include_str!("draw.wgsl"))
            .threads(threads)
            .read("y", "f32", recorder.read(0)?)
            .read("draws", "f32", recorder.read(1)?)
            .read("sampling", "f32", recorder.read(2)?)
            .write("chosen", "f32", recorder.write(0)?)
            .write("changes", "f32", recorder.write(1)?)
            .write("warmed", "f32", warmed)
            .constant("SETTINGS", Sampling::NUMBERS)
            .number("classes", self.classes)
            .number("time", self.time)
            .number("capacity", self.capacity)
            .number("rows", rows)
            .groups(recorder, rows)
    }
}

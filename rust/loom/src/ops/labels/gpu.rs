//! Indices among numbers, on a GPU.

use super::Labels;
use crate::Result;
use crate::shader::{GpuOperation, Recorder, Shader};

impl GpuOperation for Labels {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let y = recorder.write(0)?;
        let elements = y.elements;
        Shader::new("labels", include_str!("labels.wgsl"))
            .read("x", "f32", recorder.read(0)?)
            .write("y", "i32", y)
            .number("elements", elements)
            .number("total", self.total)
            .number("start", self.start)
            .number("length", self.length)
            .elements(recorder, elements)
    }
}

#[cfg(all(test, feature = "gpu"))]
mod tests {
    use super::*;
    use crate::gpu::testing::check;
    use crate::ops::testing::{Data, Setting};

    #[test]
    fn indices_are_those_of_the_cpu() {
        for rows in [1, 70] {
            let x: Vec<f32> = (0..rows * 9).map(|i| (i * 7919 % 16_777_217) as f32).collect();
            let mut setting = Setting::new(rows, &[&x], &[]);
            setting.writes = vec![Data::Index(vec![-1; rows * 3])];
            check(Labels { total: 9, start: 4, length: 3 }, &setting);
        }
    }
}

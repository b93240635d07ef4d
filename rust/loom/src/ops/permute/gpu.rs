//! Axes in another order on a GPU.

use super::Permute;
use crate::Result;
use crate::shader::{GpuOperation, Recorder, Shader};

impl GpuOperation for Permute {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let y = recorder.write(0)?;
        let count = y.elements;
        // From the last axis of the result to the first.
        let axis = |(extent, stride): (&usize, &usize)| {
            format!("    place += rest % {extent}u * {stride}u;\n    rest /= {extent}u;\n")
        };
        let axes: String = self.permuted().iter().zip(&self.strides()).rev().map(axis).collect();
        Shader::new("permute", include_str!("permute.wgsl"))
            .constant("ROW", self.extents.iter().product::<usize>())
            .section("AXES", axes)
            .read("x", "u32", recorder.read(0)?)
            .write("y", "u32", y)
            .number("count", count)
            .elements(recorder, count)
    }
}

#[cfg(all(test, feature = "gpu"))]
mod tests {
    use super::*;
    use crate::gpu::testing::check;
    use crate::ops::testing::{Setting, numbers};

    #[test]
    fn axes_change_places() {
        let x: Vec<f32> = numbers(1, 3 * 2 * 7 * 5);
        let op = Permute { extents: vec![2, 7, 5], order: vec![1, 2, 0] };
        check(op, &Setting::new(3, &[&x], &[x.len()]));
    }
}

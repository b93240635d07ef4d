//! Finding padding on a GPU, and clearing it.

use super::{KeepSteps, LengthMask, StepMask};
use crate::Result;
use crate::shader::{GpuOperation, Recorder, Shader};

/// Threads of a workgroup.
const THREADS: usize = 64;

impl GpuOperation for StepMask {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let mask = recorder.write(0)?;
        let count = mask.elements;
        Shader::new("mask", include_str!("mask.wgsl"))
            .threads(THREADS)
            .read("x", "f32", recorder.read(0)?)
            .write("mask", "f32", mask)
            .number("count", count)
            .number("width", self.width)
            // Of padding.
            .real("value", self.value)
            .elements(recorder, count)
    }
}

impl GpuOperation for LengthMask {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let mask = recorder.write(0)?;
        let count = mask.elements;
        Shader::new("length_mask", include_str!("length.wgsl"))
            .threads(THREADS)
            .read("lengths", "f32", recorder.read(0)?)
            .write("mask", "f32", mask)
            .number("count", count)
            .number("steps", self.steps)
            .elements(recorder, count)
    }
}

impl GpuOperation for KeepSteps {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let y = recorder.write(0)?;
        let count = y.elements;
        Shader::new("keep_steps", include_str!("keep.wgsl"))
            .threads(THREADS)
            .reads(recorder, ["mask", "x"])?
            .write("y", "f32", y)
            .number("count", count)
            .number("width", self.width)
            .elements(recorder, count)
    }
}

#[cfg(all(test, feature = "gpu"))]
mod tests {
    use super::*;
    use crate::gpu::testing::check;
    use crate::ops::testing::Setting;

    #[test]
    fn padding_is_found() {
        let mut x: Vec<f32> = crate::ops::testing::numbers(1, 70 * 3 * 2);
        x[9 * 3..12 * 3].fill(0.0);
        x[100 * 3..101 * 3].fill(0.0);
        check(StepMask { steps: 70, width: 3, value: 0.0 }, &Setting::new(2, &[&x], &[140]));
    }

    #[test]
    fn sequences_end_where_their_lengths_say() {
        let lengths: Vec<f32> = (0..90).map(|row| (row % 8) as f32).collect();
        check(LengthMask { steps: 7 }, &Setting::new(90, &[&lengths], &[90 * 7]));
    }

    #[test]
    fn padding_is_cleared() {
        let x: Vec<f32> = crate::ops::testing::numbers(1, 70 * 3 * 2);
        let mask: Vec<f32> = (0..140).map(|step| if step % 3 == 1 { 0.0 } else { 1.0 }).collect();
        check(KeepSteps { width: 3 }, &Setting::new(2, &[&mask, &x], &[420]));
    }
}

//! Finding padding on a GPU, and clearing it.

use super::{KeepSteps, StepMask};
use crate::Result;
use crate::shader::{Bind, GpuOperation, Recorder, Template};

/// Threads of a workgroup.
const THREADS: usize = 64;

impl GpuOperation for StepMask {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let mask = recorder.write(0)?;
        let count = mask.elements;
        let kernel = Template::new(include_str!("mask.wgsl")).constant("THREADS", THREADS).kernel("mask");
        let constants = [count as u32, self.width as u32, (self.value as f32).to_bits()];
        let operands = [Bind::Read(recorder.read(0)?), Bind::Write(mask)];
        recorder.dispatch(&kernel, &operands, &constants, count.div_ceil(THREADS))
    }
}

impl GpuOperation for KeepSteps {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (mask, x, y) = (recorder.read(0)?, recorder.read(1)?, recorder.write(0)?);
        let count = y.elements;
        let kernel =
            Template::new(include_str!("keep.wgsl")).constant("THREADS", THREADS).kernel("keep_steps");
        let constants = [count as u32, self.width as u32];
        let operands = [Bind::Read(mask), Bind::Read(x), Bind::Write(y)];
        recorder.dispatch(&kernel, &operands, &constants, count.div_ceil(THREADS))
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
    fn padding_is_cleared() {
        let x: Vec<f32> = crate::ops::testing::numbers(1, 70 * 3 * 2);
        let mask: Vec<f32> = (0..140).map(|step| if step % 3 == 1 { 0.0 } else { 1.0 }).collect();
        check(KeepSteps { width: 3 }, &Setting::new(2, &[&mask, &x], &[420]));
    }
}

//! The same on a GPU.

use super::{Shared, WholeBatch};
use crate::Result;
use crate::shader::{GpuOperation, Recorder, Shader};

impl GpuOperation for WholeBatch {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (unbiased, factor) = match self.of {
            Shared::Moments { inner } => (true, Self::unbiasing(recorder.rows() * inner)?),
            Shared::Sums => (false, 1.0),
        };
        let shader = Shader::new("whole_batch", include_str!("whole_batch.wgsl"))
            .section("UNBIASED", if unbiased { "third[i] = constants.factor * second_here[i];" } else { "" })
            .reads(recorder, ["first_here", "second_here"])?
            .write("first", "f32", recorder.write(0)?)
            .write("second", "f32", recorder.write(1)?);
        let shader = match unbiased {
            true => shader.write("third", "f32", recorder.write(2)?).real("factor", factor),
            false => shader,
        };
        shader.number("elements", self.channels).elements(recorder, self.channels)
    }
}

#[cfg(all(test, feature = "gpu"))]
mod tests {
    use super::*;
    use crate::gpu::testing::check;
    use crate::ops::testing::{Setting, numbers};

    #[test]
    fn the_device_does_the_same() {
        for channels in [1, 5, 300] {
            let (first, second) = (numbers(1, channels), numbers(2, channels));
            let reads: [&[f32]; 2] = [&first, &second];
            let op = WholeBatch { channels, of: Shared::Moments { inner: 3 } };
            check(op, &Setting::new(2, &reads, &[channels; 3]));
            check(WholeBatch { channels, of: Shared::Sums }, &Setting::new(2, &reads, &[channels; 2]));
        }
    }
}

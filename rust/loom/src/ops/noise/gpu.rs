//! Normal noise on a GPU.

use super::GaussianNoise;
use crate::Result;
use crate::ops::pointwise;
use crate::random::path_within;
use crate::shader::{Bind, GpuOperation, Recorder, Template};

/// Threads of a workgroup.
const THREADS: usize = 256;

impl GpuOperation for GaussianNoise {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let y = recorder.write(0)?;
        let kernel = Template::new(include_str!("noise.wgsl"))
            .constant("THREADS", THREADS)
            .section("FUNCTIONS", pointwise::WGSL_PRELUDE)
            .section("RANDOM", include_str!("../random.wgsl"))
            .kernel("gaussian_noise");
        let path = path_within(recorder.path(), self.purpose);
        let constants = [y.elements as u32, self.features as u32, path, (self.scale as f32).to_bits()];
        // One block more where the first is begun in the middle.
        let blocks = y.elements.div_ceil(4) + 1;
        recorder.dispatch(&kernel, &[Bind::Write(y)], &constants, blocks.div_ceil(THREADS))
    }
}

//! Gumbel noise on a GPU.

use super::GumbelNoise;
use crate::Result;
use crate::ops::pointwise;
use crate::shader::{Bind, GpuOperation, Recorder, Template};

/// Threads of a workgroup.
const THREADS: usize = 256;

impl GpuOperation for GumbelNoise {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (x, y) = (recorder.read(0)?, recorder.write(0)?);
        let kernel = Template::new(include_str!("gumbel.wgsl"))
            .constant("THREADS", THREADS)
            .section("FUNCTIONS", pointwise::WGSL_PRELUDE)
            .section("RANDOM", include_str!("../random.wgsl"))
            .kernel("gumbel_noise");
        let constants = [y.elements as u32, self.features as u32, recorder.path()];
        // One block more where the first is begun in the middle.
        let blocks = y.elements.div_ceil(4) + 1;
        recorder.dispatch(&kernel, &[Bind::Read(x), Bind::Write(y)], &constants, blocks.div_ceil(THREADS))
    }
}

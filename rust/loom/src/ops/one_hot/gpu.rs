//! One-hot targets on a GPU.

use super::OneHot;
use crate::Result;
use crate::shader::{Bind, GpuOperation, Recorder, Template};

/// Threads of a workgroup.
const THREADS: usize = 256;

impl GpuOperation for OneHot {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (labels, y) = (recorder.read(0)?, recorder.write(0)?);
        let kernel =
            Template::new(include_str!("one_hot.wgsl")).constant("THREADS", THREADS).kernel("one_hot");
        let constants = [y.elements as u32, self.classes as u32, self.inner as u32];
        let groups = y.elements.div_ceil(THREADS);
        recorder.dispatch(&kernel, &[Bind::Read(labels), Bind::Write(y)], &constants, groups)
    }
}

#[cfg(all(test, feature = "gpu"))]
mod tests {
    use super::*;
    use crate::gpu::testing::check;
    use crate::ops::testing::{Data, Setting};

    #[test]
    fn ones_stand_where_the_cpu_has_them() {
        for (rows, outer, classes, inner) in [(1, 1, 2, 1), (5, 3, 10, 4), (70, 1, 300, 1)] {
            let mut setting = Setting::<f32>::new(rows, &[], &[rows * outer * classes * inner]);
            let labels = (0..rows * outer * inner).map(|i| (i * 7 % (classes + 1)) as i32 - 1);
            setting.reads = vec![Data::Index(labels.collect())];
            check(OneHot { outer, classes, inner }, &setting);
        }
    }
}

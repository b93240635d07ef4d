//! One-hot targets on a GPU.

use super::OneHot;
use crate::Result;
use crate::shader::{GpuOperation, Recorder, Shader};

impl GpuOperation for OneHot {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let y = recorder.write(0)?;
        let elements = y.elements;
        Shader::new("one_hot", include_str!("one_hot.wgsl"))
            .read("labels", "i32", recorder.read(0)?)
            .write("y", "f32", y)
            .number("elements", elements)
            .number("classes", self.classes)
            .number("inner", self.inner)
            .elements(recorder, elements)
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

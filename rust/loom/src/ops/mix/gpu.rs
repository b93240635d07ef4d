//! Weighted sums on a GPU.

use super::{Mix, MixPart, Scale};
use crate::Result;
use crate::shader::{Bind, GpuOperation, Recorder, Template};

/// Threads of a workgroup.
const THREADS: usize = 256;

impl GpuOperation for Mix {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let y = recorder.write(0)?;
        let count = y.elements;
        let operands = [Bind::Read(recorder.read(0)?), Bind::Read(recorder.read(1)?), Bind::Write(y)];
        let constants = [count, self.branches, self.len].map(|constant| constant as u32);
        let compute = match self.part {
            MixPart::Forward => include_str!("forward.wgsl"),
            MixPart::BranchGradient => include_str!("branch_gradient.wgsl"),
            MixPart::WeightGradient => {
                let threads = self.len.next_power_of_two().clamp(32, THREADS);
                let kernel = Template::new(include_str!("weight_gradient.wgsl"))
                    .constant("THREADS", threads)
                    .kernel("mix weight gradient");
                return recorder.dispatch(&kernel, &operands, &constants, count);
            }
        };
        let kernel = Template::new(include_str!("mix.wgsl"))
            .constant("THREADS", THREADS)
            .section("COMPUTE", compute)
            .kernel("mix");
        recorder.dispatch(&kernel, &operands, &constants, count.div_ceil(THREADS))
    }
}

impl GpuOperation for Scale {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let y = recorder.write(0)?;
        let count = y.elements;
        let kernel = Template::new(include_str!("scale.wgsl")).constant("THREADS", THREADS).kernel("scale");
        let constants = [count as u32, (self.factor as f32).to_bits()];
        let operands = [Bind::Read(recorder.read(0)?), Bind::Write(y)];
        recorder.dispatch(&kernel, &operands, &constants, count.div_ceil(THREADS))
    }
}

#[cfg(all(test, feature = "gpu"))]
mod tests {
    use super::*;
    use crate::gpu::testing::check;
    use crate::ops::testing::{Setting, numbers};

    #[test]
    fn sums_agree() {
        for (rows, branches, len) in [(1, 1, 1), (3, 2, 70), (2, 9, 301)] {
            let w: Vec<f32> = numbers(1, rows * branches);
            let y: Vec<f32> = numbers(2, rows * branches * len);
            let g: Vec<f32> = numbers(3, rows * len);
            let op = |part| Mix { part, branches, len };
            check(op(MixPart::Forward), &Setting::new(rows, &[&w, &y], &[rows * len]));
            check(op(MixPart::BranchGradient), &Setting::new(rows, &[&w, &g], &[rows * branches * len]));
            check(op(MixPart::WeightGradient), &Setting::new(rows, &[&y, &g], &[rows * branches]));
            check(Scale { factor: -0.3 }, &Setting::new(rows, &[&y], &[y.len()]));
        }
    }
}

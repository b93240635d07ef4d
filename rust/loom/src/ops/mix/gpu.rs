//! Weighted sums on a GPU.

use super::{Mix, MixPart, Scale};
use crate::Result;
use crate::shader::{GpuOperation, Recorder, Shader, THREADS};

impl GpuOperation for Mix {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let y = recorder.write(0)?;
        let count = y.elements;
        let mix = |part: &str| Shader::new("mix", include_str!("mix.wgsl")).section("COMPUTE", part);
        let (shader, names) = match self.part {
            MixPart::Forward => (mix(include_str!("forward.wgsl")), ["weights", "x"]),
            MixPart::BranchGradient => (mix(include_str!("branch_gradient.wgsl")), ["weights", "x"]),
            MixPart::WeightGradient => {
                let threads = self.len.next_power_of_two().clamp(32, THREADS);
                let text = include_str!("weight_gradient.wgsl");
                (Shader::new("mix weight gradient", text).threads(threads), ["x", "gradient"])
            }
        };
        let shader = shader
            .reads(recorder, names)?
            .write("y", "f32", y)
            .number("count", count)
            .number("branches", self.branches)
            .number("len", self.len);
        match self.part {
            MixPart::WeightGradient => shader.groups(recorder, count),
            _ => shader.elements(recorder, count),
        }
    }
}

impl GpuOperation for Scale {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let y = recorder.write(0)?;
        let count = y.elements;
        Shader::new("scale", include_str!("scale.wgsl"))
            .read("x", "f32", recorder.read(0)?)
            .write("y", "f32", y)
            .number("count", count)
            .real("factor", self.factor)
            .elements(recorder, count)
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

//! The combination on a GPU.

use super::Combination;
use crate::Result;
use crate::shader::{GpuOperation, Recorder, Shader};

impl GpuOperation for Combination {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let y = recorder.write(0)?;
        let units = y.elements.div_ceil(4);
        let scaled = self.terms.iter().any(|term| term.scale_power != 0);
        let (least, greatest) = self.range.unwrap_or_default();
        let mut shader = Shader::new("combination", include_str!("combination.wgsl"))
            .flag("CLAMPS", self.range.is_some())
            .float("LEAST", least)
            .float("GREATEST", greatest);
        let mut sum = String::new();
        for (number, term) in self.terms.iter().enumerate() {
            shader = shader.read(&format!("x{number}"), "vec4<f32>", recorder.read(number)?);
            sum = match number {
                0 => format!("vec4<f32>({}) * x0[i]", term.wgsl()),
                _ => format!("fma(vec4<f32>({}), x{number}[i], {sum})", term.wgsl()),
            };
        }
        shader
            .section("SUM", sum)
            .write("y", "vec4<f32>", y)
            .when(scaled, |shader| shader.control(recorder))
            .number("units", units)
            .elements(recorder, units)
    }
}

#[cfg(all(test, feature = "gpu"))]
mod tests {
    use super::*;
    use crate::gpu::testing::check;
    use crate::ops::combination::Term;
    use crate::ops::testing::{Setting, numbers};

    #[test]
    fn any_terms() {
        for count in 1..=4usize {
            for len in [1, 7, 1024, 3001] {
                let x: Vec<Vec<f32>> = (0..count).map(|i| numbers(i as u64, len)).collect();
                let reads: Vec<&[f32]> = x.iter().map(Vec::as_slice).collect();
                let mut setting = Setting::new(1, &reads, &[len]);
                (setting.values.batch_rows, setting.values.loss_scale) = (16, 1024.0);
                let term = |i: usize| match i {
                    0 => Term::fixed(1.0),
                    1 => Term::fixed(-0.1).times_rows(),
                    2 => Term::fixed(3.0).over_rows().times_scale(true),
                    _ => Term::fixed(700.0).over_scale(true),
                };
                let op = Combination::new((0..count).map(term).collect::<Vec<_>>());
                check(op.clone(), &setting);
                check(Combination { range: Some((-0.3, 0.4)), ..op }, &setting);
            }
        }
    }
}

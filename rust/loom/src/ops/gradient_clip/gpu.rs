//! Clipping on a GPU: one dispatch a store for the norm, one for what is done with it.

use super::{ClampGradient, ClipFactor, ScaleGradient, SquaredSum, SquaredSums};
use crate::Result;
use crate::ops::segment;
use crate::shader::{GpuOperation, OFFSET_ELEMENTS, Operand, Recorder, Shader, THREADS};

/// Units of four elements that one thread squares before there is another workgroup.
const SHARE: usize = 4;

impl GpuOperation for SquaredSum {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (gradient, total) = (recorder.read(0)?, recorder.write(0)?);
        // A store without elements has a sum, too.
        let mut parts = recorder.parts(self.len, OFFSET_ELEMENTS)?;
        if parts.is_empty() {
            parts.push(0..0);
        }
        for part in parts {
            let (shader, workgroups) = squares(recorder, gradient.slice(part.start, part.len())?, &total)?;
            let shader = match (part.start, self.first) {
                (0, true) => shader.section("START", "0.0"),
                (0, false) => shader.section("START", "before[0]").read("before", "f32", recorder.read(1)?),
                _ => shader.section("START", "total[0]"),
            };
            shader.groups(recorder, workgroups)?;
        }
        Ok(())
    }
}

/// The kernel that adds the sum of squares of a gradient to `START`, with its workgroups.
fn squares(recorder: &mut Recorder<'_>, gradient: Operand, total: &Operand) -> Result<(Shader, usize)> {
    let elements = gradient.elements;
    let workgroups = elements.div_ceil(4 * THREADS * SHARE).clamp(1, THREADS);
    let shares = recorder.table(&vec![0; 1 + workgroups])?;
    let shader = Shader::new("squared_sum", include_str!("squared_sum.wgsl"))
        .section("JOIN", segment::join("join", "f32", THREADS, "a + b"))
        .read("gradient", "vec4<f32>", gradient)
        // How many workgroups are done, and 0 again in the end; then their sums' bits.
        .write("shares", "atomic<u32>", shares)
        .write("total", "f32", total.clone())
        .number("elements", elements)
        // No more than there are threads in one.
        .number("workgroups", workgroups);
    Ok((shader, workgroups))
}

impl SquaredSums {
    /// Records them: a sum for each gradient, none of which waits for another, and the sum of these. Says whether that
    /// could be done.
    ///
    /// # Errors
    /// As [`Shader::groups`].
    pub fn record(&self, recorder: &mut Recorder<'_>) -> Result<bool> {
        for len in &self.lens {
            if recorder.parts(*len, OFFSET_ELEMENTS)?.len() > 1 {
                return Ok(false);
            }
        }
        let count = self.lens.len();
        let sums = recorder.scratch(count * OFFSET_ELEMENTS)?;
        for (number, len) in self.lens.iter().enumerate() {
            let gradient = recorder.read(number)?.slice(0, *len)?;
            let sum = sums.slice(number * OFFSET_ELEMENTS, 1)?;
            let (shader, workgroups) = squares(recorder, gradient, &sum)?;
            shader.section("START", "0.0").groups(recorder, workgroups)?;
        }
        let text = "fn main() {
    var sum = sums[0];
    for (var number = 1u; number < constants.count; number += 1u) {
        sum += sums[number * APART];
    }
    total[0] = sum;
}
";
        Shader::new("squared_sums", text)
            .threads(1)
            .constant("APART", OFFSET_ELEMENTS)
            .read("sums", "f32", sums)
            .write("total", "f32", recorder.write(0)?)
            .number("count", count)
            .groups(recorder, 1)?;
        Ok(true)
    }
}

impl GpuOperation for ClipFactor {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        Shader::new("clip_factor", include_str!("clip_factor.wgsl"))
            .threads(1)
            .section("SCALE", if self.scaled { "control.scale" } else { "1.0" })
            .read("total", "f32", recorder.read(0)?)
            .write("result", "f32", recorder.write(0)?)
            .when(self.scaled, |shader| shader.control(recorder))
            .groups(recorder, 1)
    }
}

/// Runs a kernel over a gradient in units of four elements.
fn change(recorder: &mut Recorder<'_>, shader: &Shader, gradient: &Operand, len: usize) -> Result<()> {
    for part in recorder.parts(len, OFFSET_ELEMENTS)? {
        let units = part.len().div_ceil(4);
        shader
            .clone()
            .write("gradient", "vec4<f32>", gradient.slice(part.start, part.len())?)
            .number("units", units)
            .elements(recorder, units)?;
    }
    Ok(())
}

impl GpuOperation for ScaleGradient {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (clip, gradient) = (recorder.read(0)?, recorder.write(0)?);
        let shader = Shader::new("scale_gradient", include_str!("scale.wgsl")).read("clip", "f32", clip);
        change(recorder, &shader, &gradient, self.len)
    }
}

impl GpuOperation for ClampGradient {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (scale, kept) = match self.scaled {
            // An infinity of a scaled gradient says that the scale was too large, and has to stay.
            true => (" * control.scale", "0x7f7fffffu"),
            false => ("", "0x7f800000u"),
        };
        let shader = Shader::new("clamp_gradient", include_str!("clamp.wgsl"))
            .section("SCALE", scale)
            .section("CLAMPED", kept)
            .when(self.scaled, |shader| shader.control(recorder));
        change(recorder, &shader, &recorder.write(0)?, self.len)
    }
}

#[cfg(all(test, feature = "gpu"))]
mod tests {
    use super::*;
    use crate::gpu::testing::{check, compare, gpu, run, run_recorded, run_within};
    use crate::ops::testing::{Data, Setting, numbers};
    use crate::ops::{Op, Operation};
    use crate::simd::Cpu;

    /// Both devices, and the GPU again where kernels see 1,000 bytes at a time.
    fn in_parts(op: impl Operation + Into<Op> + Clone, setting: &Setting<f32>) {
        check(op.clone(), setting);
        let Some(gpu) = gpu() else { return };
        let found = run_within(&gpu, &op.clone().into(), setting, 1000).unwrap();
        compare(&op.clone().into(), &setting.run_on(&op, Cpu::global().unwrap()).unwrap(), &found);
    }

    #[test]
    fn squares_of_any_length() {
        for len in [1, 2, 63, 4096, 4099, 70_001] {
            let gradient: Vec<f32> = numbers(5, len);
            in_parts(SquaredSum { len, first: true }, &Setting::new(1, &[&gradient], &[1]));
            in_parts(SquaredSum { len, first: false }, &Setting::new(1, &[&gradient, &[0.3]], &[1]));
        }
        check(SquaredSum { len: 700_000, first: true }, &Setting::new(1, &[&numbers(6, 700_000)], &[1]));
        check(SquaredSum { len: 0, first: true }, &Setting::new(1, &[&[]], &[1]));
        for wrong in [f32::NAN, f32::INFINITY] {
            let gradient = [1.0, wrong, 2.0, 3.0, 4.0];
            check(SquaredSum { len: 5, first: true }, &Setting::new(1, &[&gradient], &[1]));
        }
    }

    #[test]
    fn sums_side_by_side_are_those_one_after_the_other() {
        let Some(gpu) = gpu() else { return };
        let lens = vec![5, 4099, 1, 0, 70_001];
        let gradients: Vec<Vec<f32>> = (7..).zip(&lens).map(|(seed, len)| numbers(seed, *len)).collect();
        let mut total: Option<f32> = None;
        for (gradient, len) in gradients.iter().zip(&lens) {
            let before = total.map(|total| [total]);
            let reads: Vec<&[f32]> =
                [&gradient[..]].into_iter().chain(before.as_ref().map(|x| &x[..])).collect();
            let op: Op = SquaredSum { len: *len, first: total.is_none() }.into();
            total = Some(run(&gpu, &op, &Setting::new(1, &reads, &[1]), None).unwrap()[0].real()[0]);
        }
        let reads: Vec<&[f32]> = gradients.iter().map(|gradient| &gradient[..]).collect();
        let sums = SquaredSums { lens };
        let all_at_once = |within: usize| {
            let mut could = false;
            let found = run_recorded(&gpu, &Setting::new(1, &reads, &[1]), None, |recorder| {
                recorder.max_binding = within;
                could = sums.record(recorder)?;
                Ok(())
            });
            (could, found.unwrap()[0].real()[0])
        };
        assert_eq!(all_at_once(1 << 20), (true, total.unwrap()));
        // Where a gradient is seen in parts, nothing is recorded.
        assert!(!all_at_once(1000).0);
    }

    #[test]
    fn the_factor_is_that_of_the_cpu() {
        for max_norm in [1.0, 4.0, 1e-6, f64::INFINITY] {
            for squares in [0.0, 16.0, 17.0, 1e-12, 1e38, f32::INFINITY, f32::NAN] {
                let mut setting = Setting::new(1, &[&[squares]], &[2]);
                setting.values.max_norm = max_norm;
                check(ClipFactor { scaled: false }, &setting);
                for scale in [1.0, 65536.0] {
                    setting.values.loss_scale = scale;
                    check(ClipFactor { scaled: true }, &setting);
                }
            }
        }
    }

    #[test]
    fn gradients_are_scaled_and_clamped() {
        for len in [1, 5, 64, 1003] {
            let mut gradient: Vec<f32> = numbers(6, len);
            for (i, wrong) in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY].into_iter().enumerate() {
                if len > 5 {
                    gradient[3 * i + 1] = wrong;
                }
            }
            for factor in [0.25, 1.0] {
                let mut setting = Setting::new(1, &[&[3.0, factor]], &[]);
                setting.writes = vec![Data::Real(gradient.clone())];
                in_parts(ScaleGradient { len }, &setting);
            }
            for limit in [0.5, 0.0, 1e30, f64::INFINITY] {
                let mut setting = Setting::new(1, &[], &[]);
                setting.writes = vec![Data::Real(gradient.clone())];
                setting.values.clip_value = limit;
                in_parts(ClampGradient { len, scaled: false }, &setting);
                setting.values.loss_scale = 4.0;
                in_parts(ClampGradient { len, scaled: true }, &setting);
            }
        }
    }
}

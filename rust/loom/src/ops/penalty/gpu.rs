//! Penalties on a GPU.

use super::{NOISE_DECAY, Penalty};
use crate::Result;
use crate::shader::{GpuOperation, OFFSET_ELEMENTS, Recorder, Shader};

impl GpuOperation for Penalty {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (master, gradient) = (recorder.read(0)?, recorder.write(0)?);
        let noise = match self.noise {
            Some(variance) => Some((variance, recorder.read(1)?)),
            None => None,
        };
        for seen in recorder.parts(self.len, OFFSET_ELEMENTS)? {
            for part in &self.parts {
                let (start, end) = (part.range.start.max(seen.start), part.range.end.min(seen.end));
                if start >= end {
                    continue;
                }
                let mut shader = Shader::new("penalty", include_str!("penalty.wgsl"))
                    .section("SCALE", if self.scaled { " * control.scale" } else { "" })
                    .read("master", "f32", master.slice(seen.start, seen.len())?)
                    .write("gradient", "f32", gradient.slice(seen.start, seen.len())?)
                    .number("start", start - seen.start)
                    .number("count", end - start)
                    .real("l1", part.l1)
                    .real("l2", 2.0 * part.l2);
                let mut drawn = "";
                if let Some((variance, noise)) = &noise {
                    drawn = "        let update = f32(steps[constants.step].optimizer_step - control.skipped);\n        \
                             added += noise[at] * constants.deviation * pow(update, constants.power);";
                    shader = shader
                        .read("noise", "f32", noise.slice(seen.start, seen.len())?)
                        .real("deviation", variance.sqrt())
                        .real("power", -0.5 * NOISE_DECAY);
                }
                shader
                    .section("NOISE", drawn)
                    .when(self.scaled || self.noise.is_some(), |shader| shader.control(recorder))
                    .elements(recorder, end - start)?;
            }
        }
        Ok(())
    }
}

#[cfg(all(test, feature = "gpu"))]
mod tests {
    use super::super::Penalized;
    use super::*;
    use crate::gpu::testing::{check, compare, gpu, run_within};
    use crate::ops::Op;
    use crate::ops::testing::{Data, Setting, numbers};
    use crate::simd::Cpu;

    #[test]
    fn parts_of_any_length() {
        for len in [1, 64, 5000] {
            let parts = vec![
                Penalized { range: 0..len / 3, l1: 0.3, l2: 0.0 },
                Penalized { range: len / 3..len, l1: 0.1, l2: 0.7 },
            ];
            for (noise, scaled) in [(None, false), (Some(0.5), true)] {
                let op = Penalty { len, parts: parts.clone(), noise, scaled };
                let mut reads = vec![numbers::<f32>(1, len)];
                reads.extend(noise.map(|_| numbers::<f32>(3, len)));
                let reads: Vec<&[f32]> = reads.iter().map(Vec::as_slice).collect();
                let mut setting = Setting::new(1, &reads, &[len]);
                setting.writes = vec![Data::Real(numbers::<f32>(2, len))];
                (setting.values.optimizer_step, setting.values.loss_scale) = (9, 8.0);
                check(op.clone(), &setting);
                let Some(gpu) = gpu() else { return };
                let found = run_within(&gpu, &Op::from(op.clone()), &setting, 1024).unwrap();
                compare(&op.clone().into(), &setting.run_on(&op, Cpu::global().unwrap()).unwrap(), &found);
            }
        }
    }
}

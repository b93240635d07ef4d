//! 16-bit activations on a GPU.

use super::{Narrow, ShortFloat, Widen};
use crate::Result;
use crate::ops::encode::{TO_BFLOAT16, TO_FLOAT16};
use crate::shader::{GpuOperation, Recorder, Shader};

impl GpuOperation for Narrow {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let x = recorder.read(0)?;
        let elements = x.elements;
        let (code, nan) = match self.format {
            ShortFloat::Float16 => (TO_FLOAT16, 0x7E00u32),
            ShortFloat::BFloat16 => (TO_BFLOAT16, 0x7FC0),
        };
        Shader::new(format!("narrow.{}", self.format), include_str!("narrow.wgsl"))
            .section("CODE", code)
            .constant("NAN", nan)
            .read("x", "vec4<u32>", x)
            .write("words", "vec2<u32>", recorder.write(0)?)
            .number("elements", elements)
            .elements(recorder, elements.div_ceil(4))
    }
}

impl GpuOperation for Widen {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let y = recorder.write(0)?;
        let elements = y.elements;
        let both = match self.format {
            ShortFloat::Float16 => "return unpack2x16float(word);",
            ShortFloat::BFloat16 => "return bitcast<vec2<f32>>(vec2<u32>(word << 16u, word & 0xffff0000u));",
        };
        Shader::new(format!("widen.{}", self.format), include_str!("widen.wgsl"))
            .section("CODE", format!("fn both(word: u32) -> vec2<f32> {{\n    {both}\n}}"))
            .read("words", "vec2<u32>", recorder.read(0)?)
            .write("y", "vec4<f32>", y)
            .number("elements", elements)
            .elements(recorder, elements.div_ceil(4))
    }
}

#[cfg(all(test, feature = "gpu"))]
mod tests {
    use super::*;
    use crate::gpu::testing::check;
    use crate::ops::testing::{Data, Setting, numbers};

    /// Numbers of all magnitudes that a float16 has, and beyond.
    #[test]
    fn codes_and_numbers_are_the_cpus() {
        for format in [ShortFloat::Float16, ShortFloat::BFloat16] {
            for len in [1, 2, 6, 7, 8, 30_001] {
                let mut x: Vec<f32> = numbers(len as u64, len);
                x.iter_mut().enumerate().for_each(|(place, x)| *x *= 10f32.powi(place as i32 % 14 - 8));
                let mut setting = Setting::<f32>::new(1, &[&x], &[0]);
                setting.writes = vec![Data::Index(vec![-1; len.div_ceil(2)])];
                let words = setting.run(&Narrow { format }).remove(0);
                check(Narrow { format }, &setting);
                let mut setting = Setting::<f32>::new(1, &[], &[len]);
                setting.reads = vec![words];
                check(Widen { format }, &setting);
            }
        }
    }

    /// What is not finite stays so: steps are judged by it.
    #[test]
    fn what_is_not_finite_stays_so() {
        let x = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30, -f32::NAN];
        for format in [ShortFloat::Float16, ShortFloat::BFloat16] {
            let mut setting = Setting::<f32>::new(1, &[&x], &[0]);
            setting.writes = vec![Data::Index(vec![0; 3])];
            check(Narrow { format }, &setting);
        }
    }
}

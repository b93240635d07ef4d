//! Activations on a GPU: the table's formulas as text.

use super::{Pointwise, WGSL_PRELUDE};
use crate::Result;
use crate::ops::Direction;
use crate::shader::{Bind, GpuOperation, Recorder, Template};

/// Threads of a workgroup.
const THREADS: usize = 256;

impl GpuOperation for Pointwise {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let saved = recorder.read(0)?;
        let out = recorder.write(0)?;
        let units = out.elements.div_ceil(4);
        let groups = units.div_ceil(THREADS);
        let template = |text: &str, function: String| {
            Template::new(text)
                .constant("THREADS", THREADS)
                .section("FUNCTION", format!("{WGSL_PRELUDE}\n{function}"))
        };
        match self.direction {
            Direction::Forward => {
                let kernel = template(include_str!("forward.wgsl"), self.activation.wgsl_value("activate"))
                    .kernel(self.to_string());
                recorder.dispatch(&kernel, &[Bind::Read(saved), Bind::Write(out)], &[units as u32], groups)
            }
            _ => {
                let kernel =
                    template(include_str!("backward.wgsl"), self.activation.wgsl_derivative("derivative"))
                        .kernel(self.to_string());
                let gradient = recorder.read(1)?;
                let operands = [Bind::Read(saved), Bind::Read(gradient), Bind::Write(out)];
                recorder.dispatch(&kernel, &operands, &[units as u32], groups)
            }
        }
    }
}

#[cfg(all(test, feature = "gpu"))]
mod tests {
    use super::*;
    use crate::gpu::testing::check;
    use crate::ops::pointwise::Activation;
    use crate::ops::testing::{Setting, numbers};

    /// What is not finite must not come out as though it were.
    #[test]
    fn infinity_and_nan_are_as_on_the_cpu() {
        let x = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1.0, f32::MAX, -f32::MAX];
        for &activation in Activation::ALL {
            check(Pointwise::forward(activation), &Setting::new(1, &[&x], &[x.len()]));
        }
    }

    #[test]
    fn every_activation_is_as_on_the_cpu() {
        for &activation in Activation::ALL {
            for len in [1, 255, 1000] {
                let x: Vec<f32> = numbers(len as u64, len).iter().map(|x: &f32| x * 4.0).collect();
                let gradient: Vec<f32> = numbers(7, len);
                let forward = Pointwise::forward(activation);
                check(forward, &Setting::new(1, &[&x], &[len]));
                check(Pointwise::backward(activation), &Setting::new(1, &[&x, &gradient], &[len]));
            }
        }
    }
}

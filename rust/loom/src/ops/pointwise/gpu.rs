//! Activations on a GPU: the table's formulas as text.

use super::{Pointwise, WGSL_PRELUDE};
use crate::Result;
use crate::ops::Direction;
use crate::shader::{GpuOperation, Recorder, Shader};

impl GpuOperation for Pointwise {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (first, out) = (recorder.read(0)?, recorder.write(0)?);
        let units = out.elements.div_ceil(4);
        let (activation, unit) = (self.activation, "vec4<f32>");
        let shader = match self.direction {
            Direction::Forward => Shader::new(self.to_string(), include_str!("forward.wgsl"))
                .section("FUNCTION", [WGSL_PRELUDE, "\n", &activation.wgsl_value("activate")].concat())
                .read("x", unit, first)
                .write("y", unit, out),
            _ => Shader::new(self.to_string(), include_str!("backward.wgsl"))
                .section("FUNCTION", [WGSL_PRELUDE, "\n", &activation.wgsl_derivative("derivative")].concat())
                .read("saved", unit, first)
                .read("dy", unit, recorder.read(1)?)
                .write("dx", unit, out),
        };
        shader.number("units", units).elements(recorder, units)
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

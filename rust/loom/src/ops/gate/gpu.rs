//! The gate on a GPU: a thread takes four elements.

use super::Gate;
use crate::Result;
use crate::ops::Direction;
use crate::ops::pointwise::{Saved, WGSL_PRELUDE};
use crate::shader::{GpuOperation, Recorder, Shader};

impl GpuOperation for Gate {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let first = recorder.write(0)?;
        let units = first.elements.div_ceil(4);
        let (text, value) = match self.direction {
            Direction::Forward => (include_str!("forward.wgsl"), self.activation.wgsl_value("activate")),
            _ => {
                let slope = self.activation.wgsl_derivative("derivative");
                (include_str!("backward.wgsl"), slope + &self.activation.wgsl_value("activate"))
            }
        };
        let unit = "vec4<f32>";
        let mut shader = Shader::new(self.to_string(), text)
            .section("FUNCTIONS", format!("{WGSL_PRELUDE}\n{value}"))
            .read("a", unit, recorder.read(0)?)
            .read("b", unit, recorder.read(1)?);
        shader = match self.direction {
            Direction::Forward => shader.write("y", unit, first),
            _ => shader
                .section("SAVED", if self.activation.saved() == Saved::Input { "gate" } else { "value" })
                .read("dy", unit, recorder.read(2)?)
                .write("da", unit, first)
                .write("db", unit, recorder.write(1)?),
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

    #[test]
    fn gates_of_any_length_both_ways() {
        for activation in [Activation::Silu, Activation::Gelu, Activation::Sigmoid] {
            for len in [1, 255, 1000] {
                let [a, b, dy] = [1, 2, 3].map(|seed| numbers::<f32>(seed, len));
                let op = |direction| Gate { direction, activation };
                check(op(Direction::Forward), &Setting::new(1, &[&a, &b], &[len]));
                check(op(Direction::InputGradient), &Setting::new(1, &[&a, &b, &dy], &[len, len]));
            }
        }
    }
}

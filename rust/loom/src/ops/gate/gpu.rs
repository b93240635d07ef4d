//! The gate on a GPU: a thread takes four elements.

use super::Gate;
use crate::Result;
use crate::ops::Direction;
use crate::ops::pointwise::{Saved, WGSL_PRELUDE};
use crate::shader::{Bind, GpuOperation, Recorder, Template};

/// Threads of a workgroup.
const THREADS: usize = 256;

impl GpuOperation for Gate {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let forward = self.direction == Direction::Forward;
        let mut operands: Vec<Bind> = Vec::new();
        for number in 0..if forward { 2 } else { 3 } {
            operands.push(Bind::Read(recorder.read(number)?));
        }
        let y = recorder.write(0)?;
        let units = y.elements.div_ceil(4);
        operands.push(Bind::Write(y));
        let (text, mut functions) = match forward {
            true => (include_str!("forward.wgsl"), String::new()),
            false => {
                operands.push(Bind::Write(recorder.write(1)?));
                (include_str!("backward.wgsl"), self.activation.wgsl_derivative("derivative"))
            }
        };
        functions += &self.activation.wgsl_value("activate");
        let kernel = Template::new(text)
            .constant("THREADS", THREADS)
            .section("SAVED", if self.activation.saved() == Saved::Input { "gate" } else { "value" })
            .section("FUNCTIONS", format!("{WGSL_PRELUDE}\n{functions}"))
            .kernel(self.to_string());
        recorder.dispatch(&kernel, &operands, &[units as u32], units.div_ceil(THREADS))
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

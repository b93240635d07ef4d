//! The sum on a GPU.

use super::Sum;
use crate::Result;
use crate::shader::{GpuOperation, Recorder, Shader};

impl GpuOperation for Sum {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let y = recorder.write(0)?;
        let elements = y.elements;
        let mut shader = Shader::new("sum", include_str!("sum.wgsl"));
        let names: Vec<String> = (0..self.operands).map(|number| format!("x{number}")).collect();
        for (number, name) in names.iter().enumerate() {
            shader = shader.read(name, "vec4<f32>", recorder.read(number)?);
        }
        shader
            .section("SUM", names.iter().map(|name| format!("{name}[i]")).collect::<Vec<_>>().join(" + "))
            .write("y", "vec4<f32>", y)
            .number("elements", elements)
            .number("accumulate", recorder.accumulate())
            .elements(recorder, elements.div_ceil(4))
    }
}

#[cfg(all(test, feature = "gpu"))]
mod tests {
    use super::*;
    use crate::gpu::testing::check;
    use crate::ops::MAX_READS;
    use crate::ops::testing::{Setting, numbers};

    #[test]
    fn any_number_of_operands() {
        for operands in 1..=MAX_READS {
            for len in [1, 7, 1024, 3001] {
                let x: Vec<Vec<f32>> = (0..operands).map(|i| numbers(i as u64, len)).collect();
                let reads: Vec<&[f32]> = x.iter().map(Vec::as_slice).collect();
                let mut setting = Setting::new(1, &reads, &[len]);
                check(Sum { operands }, &setting);
                setting.accumulate = true;
                check(Sum { operands }, &setting);
            }
        }
    }
}

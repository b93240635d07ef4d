//! The sum on a GPU.

use super::Sum;
use crate::Result;
use crate::shader::{Bind, GpuOperation, Recorder, Template};

/// Threads of a workgroup.
const THREADS: usize = 256;

impl GpuOperation for Sum {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let y = recorder.write(0)?;
        let mut operands = Vec::with_capacity(self.operands + 1);
        for number in 0..self.operands {
            operands.push(Bind::Read(recorder.read(number)?));
        }
        let declaration = |number: usize, access: &str, name: &str| {
            format!("@group(0) @binding({number}) var<storage, {access}> {name}: array<vec4<f32>>;\n")
        };
        let names: Vec<String> = (0..self.operands).map(|number| format!("x{number}")).collect();
        let mut text: String =
            names.iter().enumerate().map(|(number, name)| declaration(number, "read", name)).collect();
        text += &declaration(self.operands, "read_write", "y");
        let terms: Vec<String> = names.iter().map(|name| format!("{name}[i]")).collect();
        let kernel = Template::new(include_str!("sum.wgsl"))
            .constant("THREADS", THREADS)
            .section("OPERANDS", text)
            .section("SUM", terms.join(" + "))
            .kernel("sum");
        let constants = [y.elements as u32, u32::from(recorder.accumulate())];
        let units = y.elements.div_ceil(4);
        operands.push(Bind::Write(y));
        recorder.dispatch(&kernel, &operands, &constants, units.div_ceil(THREADS))
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

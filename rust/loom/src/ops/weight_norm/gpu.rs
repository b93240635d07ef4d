//! Weights by direction and length on a GPU: a thread a column for the sums, then a thread an element.

use super::WeightNorm;
use crate::Result;
use crate::ops::Direction;
use crate::shader::{GpuOperation, Recorder, Shader};

impl GpuOperation for WeightNorm {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (v, gain) = (recorder.read(0)?, recorder.read(1)?);
        let (matrix, vector) = (recorder.write(0)?, recorder.write(1)?);
        let forward = self.direction == Direction::Forward;
        let elements = self.rows * self.columns;
        let (other, total) = if forward { ("v", "sqrt(sum)") } else { ("dw", "sum * inverse(lengths[i])") };
        let operands = |shader: Shader, recorder: &mut Recorder<'_>| -> Result<Shader> {
            let shader = shader.read("v", "f32", v.clone());
            match forward {
                true => Ok(shader),
                false => {
                    Ok(shader.read("lengths", "f32", recorder.read(2)?).read("dw", "f32", recorder.read(3)?))
                }
            }
        };
        let sums = Shader::new(format!("{self} sums"), include_str!("sums.wgsl"))
            .section("OTHER", other)
            .section("TOTAL", total);
        operands(sums, recorder)?
            .write("sums", "f32", vector.clone())
            .number("rows", self.rows)
            .number("columns", self.columns)
            .elements(recorder, self.columns)?;
        let result = match forward {
            true => "v[i] * (gain[column] * inverse(sums[column]))",
            false => {
                "(dw[i] - v[i] * (sums[column] * inverse(lengths[column]))) * (gain[column] * inverse(lengths[column]))"
            }
        };
        let scaled = Shader::new(self.to_string(), include_str!("scaled.wgsl")).section("RESULT", result);
        operands(scaled, recorder)?
            .read("gain", "f32", gain)
            .read("sums", "f32", vector)
            .write("result", "f32", matrix)
            .number("elements", elements)
            .number("columns", self.columns)
            .elements(recorder, elements)
    }
}

//! Weights by direction and length on a GPU: for the lengths a workgroup for some outputs, whose threads share the inputs;
//! then a thread an element.

use super::{OutputLengths, WithLengths};
use crate::Result;
use crate::ops::Direction;
use crate::shader::{GpuOperation, Recorder, Shader};

/// Outputs of a workgroup: as many as lie in a line of memory.
const TOGETHER: usize = 32;

impl GpuOperation for OutputLengths {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        Shader::new("output_lengths", include_str!("lengths.wgsl"))
            .constant("TOGETHER", TOGETHER)
            .reads(recorder, ["w", "a", "b"])?
            .write("lengths", "f32", recorder.write(0)?)
            .number("inputs", self.inputs)
            .number("outputs", self.outputs)
            .number("rank", self.rank)
            .real("scale", self.scale)
            .groups(recorder, self.outputs.div_ceil(TOGETHER))
    }
}

impl GpuOperation for WithLengths {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let y = recorder.write(0)?;
        let elements = y.elements;
        let (other, value) = match self.direction {
            Direction::WeightGradient => ("dy", "x[i] * dy[i] * inverse(lengths[n])"),
            _ => ("magnitudes", "x[i] * (magnitudes[n] * inverse(lengths[n]))"),
        };
        Shader::new(format!("with_lengths.{}", self.direction), include_str!("scaled.wgsl"))
            .section("VALUE", value)
            .reads(recorder, ["x", other, "lengths"])?
            .write("y", "f32", y)
            .number("elements", elements)
            .number("outputs", self.outputs)
            .elements(recorder, elements)
    }
}

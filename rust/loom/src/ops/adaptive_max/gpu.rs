//! The maximum of adaptive windows on a GPU: a thread a window, and backward a thread an element of x, which
//! gathers from the windows over it.

use super::AdaptiveMax;
use crate::ops::Direction;
use crate::shader::{GpuOperation, Recorder, Shader};
use crate::{Error, Result};

impl GpuOperation for AdaptiveMax {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (read, written) = (recorder.read(0)?, recorder.write(0)?);
        let elements = written.elements;
        let extents = |shader: Shader| {
            let names = ["DEPTH", "HEIGHT", "WIDTH"];
            names.into_iter().enumerate().fold(shader, |shader, (axis, name)| {
                shader
                    .constant(&format!("INPUT_{name}"), self.input[axis])
                    .constant(&format!("OUTPUT_{name}"), self.output[axis])
            })
        };
        let shader = match self.direction {
            Direction::Forward => extents(Shader::new(self.to_string(), include_str!("forward.wgsl")))
                .read("x", "f32", read)
                .write("y", "f32", written)
                .write("indices", "i32", recorder.write(1)?),
            Direction::InputGradient => extents(Shader::new(self.to_string(), include_str!("gradient.wgsl")))
                .read("dy", "f32", read)
                .read("indices", "i32", recorder.read(1)?)
                .write("dx", "f32", written),
            Direction::WeightGradient => {
                return Err(Error::Internal("pooling has no weight to take a gradient of".into()));
            }
        };
        shader.number("elements", elements).elements(recorder, elements)
    }
}

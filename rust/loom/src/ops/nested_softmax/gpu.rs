//! The nested softmax on a GPU: one dispatch either way.

use super::NestedSoftmax;
use crate::ops::{Direction, segment};
use crate::shader::{GpuOperation, Recorder, Shader, THREADS};
use crate::{Error, Result};

impl GpuOperation for NestedSoftmax {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (names, result, body) = match self.direction {
            Direction::Forward => (&["x"][..], "y", include_str!("forward.wgsl")),
            Direction::InputGradient => (&["x", "dy"][..], "dx", include_str!("backward.wgsl")),
            Direction::WeightGradient => {
                return Err(Error::Internal("a softmax has no weight to take a gradient of".into()));
            }
        };
        let places: Vec<u32> =
            self.places().flat_map(|(from, length, to)| [from, length, to].map(|at| at as u32)).collect();
        let longest = self.parts.iter().copied().max().unwrap_or(1).max(self.head());
        let lanes = segment::lanes(longest, THREADS);
        let join = segment::join("largest_of", "f32", lanes, "max(a, b)")
            + &segment::join("sum_of", "f32", lanes, "a + b");
        let positions = recorder.rows() * self.outer;
        Shader::new(self.to_string(), include_str!("nested.wgsl"))
            .constant("LANES", lanes)
            .constant("SHORTLIST", self.shortlist)
            .constant("PARTS", self.parts.len())
            .constant("INPUTS", self.inputs())
            .constant("OUTPUTS", self.outputs())
            .flag("SHARED", self.shared)
            .section("JOIN", join)
            .section("BODY", body)
            .reads(recorder, names.iter().copied())?
            .write(result, "f32", recorder.write(0)?)
            .read("places", "u32", recorder.table(&places)?)
            .number("positions", positions)
            .groups(recorder, positions.div_ceil(THREADS / lanes))
    }
}

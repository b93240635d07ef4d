//! The nested softmax on a GPU: one dispatch either way.

use super::NestedSoftmax;
use crate::ops::operands::Operands;
use crate::ops::{Direction, segment};
use crate::shader::{Bind, GpuOperation, Recorder, Template};
use crate::{Error, Result};

/// Threads of a workgroup.
const THREADS: usize = 256;

impl GpuOperation for NestedSoftmax {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let mut operands = Operands::default();
        operands.read(recorder, "x", true)?;
        let body = match self.direction {
            Direction::Forward => {
                operands.write(recorder, "y", 0)?;
                include_str!("forward.wgsl")
            }
            Direction::InputGradient => {
                operands.read(recorder, "dy", true)?;
                operands.write(recorder, "dx", 0)?;
                include_str!("backward.wgsl")
            }
            Direction::WeightGradient => {
                return Err(Error::Internal("a softmax has no weight to take a gradient of".into()));
            }
        };
        let places: Vec<u32> =
            self.places().flat_map(|(from, length, to)| [from, length, to].map(|at| at as u32)).collect();
        operands.push_typed("places", "u32", Bind::Read(recorder.table(&places)?));
        let longest = self.parts.iter().copied().max().unwrap_or(1).max(self.head());
        let lanes = segment::lanes(longest, THREADS);
        let join = segment::join("largest_of", "f32", lanes, "max(a, b)")
            + &segment::join("sum_of", "f32", lanes, "a + b");
        let kernel = Template::new(include_str!("nested.wgsl"))
            .constant("THREADS", THREADS)
            .constant("LANES", lanes)
            .constant("SHORTLIST", self.shortlist)
            .constant("PARTS", self.parts.len())
            .constant("INPUTS", self.inputs())
            .constant("OUTPUTS", self.outputs())
            .flag("SHARED", self.shared)
            .section("BINDINGS", &operands.text)
            .section("JOIN", join)
            .section("BODY", body)
            .kernel(self.to_string());
        let positions = recorder.rows() * self.outer;
        let groups = positions.div_ceil(THREADS / lanes);
        recorder.dispatch(&kernel, &operands.binds, &[positions as u32], groups)
    }
}

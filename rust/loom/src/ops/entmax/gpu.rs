//! Entmax on a GPU: one dispatch either way.

use super::{Entmax, HALVINGS};
use crate::ops::operands::Operands;
use crate::ops::{Direction, segment};
use crate::shader::{GpuOperation, Recorder, Template};
use crate::{Error, Result};

/// Threads of a workgroup.
const THREADS: usize = 256;

impl GpuOperation for Entmax {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let mut operands = Operands::default();
        let body = match self.direction {
            Direction::Forward => {
                operands.read(recorder, "x", true)?;
                operands.write(recorder, "y", 0)?;
                include_str!("forward.wgsl")
            }
            Direction::InputGradient => {
                operands.read(recorder, "y", true)?;
                operands.read(recorder, "dy", true)?;
                operands.write(recorder, "dx", 0)?;
                include_str!("backward.wgsl")
            }
            Direction::WeightGradient => {
                return Err(Error::Internal("a softmax has no weight to take a gradient of".into()));
            }
        };
        let (value, slope, tau) = match self.alpha {
            2.0 => ("v", "1.0", "mean - 1.0 / count"),
            1.5 => ("v * v", "sqrt(y)", "mean - sqrt(max((1.0 - spread) / count, 0.0))"),
            _ => ("exp(log(v) * (1.0 / (ALPHA - 1.0)))", "exp(log(y) * (2.0 - ALPHA))", "below"),
        };
        let lanes = segment::lanes(self.classes, THREADS);
        let join = segment::join("class_largest", "f32", lanes, "max(a, b)")
            + &segment::join("class_sum", "f32", lanes, "a + b");
        let kernel = Template::new(include_str!("entmax.wgsl"))
            .section("BODY", body)
            .constant("THREADS", THREADS)
            .constant("CLASSES", self.classes)
            .constant("LANES", lanes)
            .constant("HALVINGS", HALVINGS)
            .float("ALPHA", self.alpha)
            .flag("CLOSED", matches!(self.alpha, 1.5 | 2.0))
            .section("BINDINGS", &operands.text)
            .section("JOIN", join)
            .section("VALUE", value)
            .section("SLOPE", slope)
            .section("TAU", tau)
            .kernel(self.to_string());
        let positions = recorder.rows() * self.outer;
        let groups = positions.div_ceil(THREADS / lanes);
        recorder.dispatch(&kernel, &operands.binds, &[positions as u32], groups)
    }
}

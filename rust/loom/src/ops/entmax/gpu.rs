//! Entmax on a GPU: one dispatch either way.

use super::{Entmax, HALVINGS};
use crate::ops::{Direction, segment};
use crate::shader::{GpuOperation, Recorder, Shader, THREADS};
use crate::{Error, Result};

impl GpuOperation for Entmax {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (names, result, body) = match self.direction {
            Direction::Forward => (&["x"][..], "y", include_str!("forward.wgsl")),
            Direction::InputGradient => (&["y", "dy"][..], "dx", include_str!("backward.wgsl")),
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
        let positions = recorder.rows() * self.outer;
        let mut shader = Shader::new(self.to_string(), include_str!("entmax.wgsl"))
            .section("BODY", body)
            .constant("CLASSES", self.classes)
            .constant("LANES", lanes)
            .constant("HALVINGS", HALVINGS)
            .float("ALPHA", self.alpha)
            .flag("CLOSED", matches!(self.alpha, 1.5 | 2.0))
            .section("JOIN", join)
            .section("VALUE", value)
            .section("SLOPE", slope)
            .reads(recorder, names.iter().copied())?
            .write(result, "f32", recorder.write(0)?)
            .number("positions", positions);
        if self.direction == Direction::Forward {
            shader = shader.section("TAU", tau);
        }
        shader.groups(recorder, positions.div_ceil(THREADS / lanes))
    }
}

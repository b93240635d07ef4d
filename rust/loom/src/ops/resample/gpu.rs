//! Resampling on a GPU: a thread gathers what makes its element, forward and backward.

use super::{Resample, Resampling};
use crate::ops::Direction;
use crate::shader::{GpuOperation, Recorder, Shader};
use crate::{Error, Result};

impl GpuOperation for Resample {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (from, to) = self.extents();
        let rule = match self.resampling {
            Resampling::Nearest => include_str!("nearest.wgsl"),
            Resampling::Linear => include_str!("linear.wgsl"),
            Resampling::Means => include_str!("means.wgsl"),
        };
        let (band, weight) = match self.direction {
            Direction::Forward => ("makers", "weight(source, place)"),
            Direction::InputGradient => ("made", "weight(place, source)"),
            Direction::WeightGradient => {
                return Err(Error::Internal("resampling has no weight to take a gradient of".into()));
            }
        };
        let y = recorder.write(0)?;
        let elements = y.elements;
        Shader::new(self.to_string(), include_str!("resample.wgsl"))
            .section("RULE", rule)
            .section("BAND", band)
            .section("WEIGHT", weight)
            .constant("INPUT", self.input)
            .constant("OUTPUT", self.output)
            .constant("FROM", from)
            .constant("TO", to)
            .constant("INNER", self.inner)
            .read("x", "f32", recorder.read(0)?)
            .write("y", "f32", y)
            .number("elements", elements)
            .elements(recorder, elements)
    }
}

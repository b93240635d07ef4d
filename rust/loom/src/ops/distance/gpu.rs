//! Squared distances on a GPU: one thread a result.

use super::Distance;
use crate::Result;
use crate::ops::Direction;
use crate::ops::bias::gpu::{share, sum_columns};
use crate::shader::{GpuOperation, Recorder, Shader};

impl GpuOperation for Distance {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let result = recorder.write(0)?;
        let points = recorder.rows() * self.outer;
        let (mut part, mut parts) = (points, 1);
        let body = match self.direction {
            Direction::Forward => include_str!("forward.wgsl"),
            Direction::InputGradient => include_str!("input.wgsl"),
            Direction::WeightGradient => {
                (part, parts) = share(points, 1, 1);
                include_str!("centroids.wgsl")
            }
        };
        let dy = (self.direction != Direction::Forward).then_some("dy");
        let accumulate = recorder.accumulate() && self.direction == Direction::WeightGradient;
        let sums = match parts {
            1 => result.clone(),
            _ => recorder.scratch(parts * result.elements)?,
        };
        let results = sums.elements;
        Shader::new(self.to_string(), include_str!("distance.wgsl"))
            .section("BODY", body)
            .reads(recorder, dy.into_iter().chain(["x", "centroids"]))?
            .write("result", "f32", sums.clone())
            .number("results", results)
            .number("features", self.features)
            .number("centroids", self.centroids)
            // What squared distances are multiplied by.
            .real("factor", self.factor)
            .when(self.direction == Direction::WeightGradient, |shader| {
                // A part's points are those whose gradients are added up together.
                let shader = shader.number("points", points).number("part", part);
                shader.number("accumulate", accumulate && parts == 1)
            })
            .elements(recorder, results)?;
        match parts {
            1 => Ok(()),
            _ => sum_columns(recorder, sums, (parts, result.elements), result, accumulate),
        }
    }
}

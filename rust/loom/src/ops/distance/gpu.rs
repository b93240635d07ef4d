//! Squared distances on a GPU: one thread a result.

use super::Distance;
use crate::Result;
use crate::ops::Direction;
use crate::ops::bias::gpu::{share, sum_columns};
use crate::ops::operands::Operands;
use crate::shader::{Bind, GpuOperation, Recorder, Template};

/// Threads of a workgroup.
const THREADS: usize = 256;

impl GpuOperation for Distance {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let mut operands = Operands::default();
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
        operands.read(recorder, "dy", self.direction != Direction::Forward)?;
        operands.read(recorder, "x", true)?;
        operands.read(recorder, "centroids", true)?;
        let accumulate = recorder.accumulate() && self.direction == Direction::WeightGradient;
        let sums = match parts {
            1 => result.clone(),
            _ => recorder.scratch(parts * result.elements)?,
        };
        let results = sums.elements;
        operands.push("result", Bind::Write(sums.clone()));
        let kernel = Template::new(include_str!("distance.wgsl"))
            .section("BODY", body)
            .constant("THREADS", THREADS)
            .section("BINDINGS", &operands.text)
            .kernel(self.to_string());
        let extents = [results, self.features, self.centroids, points, part].map(|extent| extent as u32);
        let numbers = [u32::from(accumulate && parts == 1), (self.factor as f32).to_bits()];
        let constants = [&extents[..], &numbers[..]].concat();
        recorder.dispatch(&kernel, &operands.binds, &constants, results.div_ceil(THREADS))?;
        match parts {
            1 => Ok(()),
            _ => sum_columns(recorder, sums, (parts, result.elements), result, accumulate),
        }
    }
}

//! Weighted means on a GPU.

use super::{AbsoluteSums, LEAST_SUM, MeanTarget, WeightProduct};
use crate::Result;
use crate::ops::product;
use crate::shader::product::{Finish, Matrix, Problem, Storage};
use crate::shader::{GpuOperation, Recorder, Shader};

/// Threads that share a row's sum.
const SUMMING: usize = 64;

impl GpuOperation for AbsoluteSums {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        Shader::new("sums", include_str!("sums.wgsl"))
            .threads(SUMMING)
            .read("weight", "f32", recorder.read(0)?)
            .write("sums", "f32", recorder.write(0)?)
            .number("rows", self.inputs)
            .number("columns", self.outputs)
            .groups(recorder, self.inputs)
    }
}

impl GpuOperation for WeightProduct {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let Self { inputs, outputs, groups, repeats, extent } = *self;
        let (left, right, output) = (recorder.read(0)?, recorder.read(1)?, recorder.write(0)?);
        for block in 0..groups * repeats {
            let problem = Problem {
                rows: inputs,
                columns: outputs,
                depth: extent,
                left: Matrix { offset: block / repeats * extent, ..Matrix::plain(groups * extent) },
                right: Matrix { offset: block * extent * outputs, ..Matrix::plain(outputs) },
                storage: Storage::Float32,
                output: Matrix::plain(outputs),
                accumulate: block > 0,
                bias: false,
                finish: Finish::None,
                mixed: false,
            };
            let operands = product::Operands {
                left: &left,
                right: &right,
                bias: None,
                saved: None,
                residual: None,
                output: &output,
            };
            product::record(recorder, &problem, &operands)?;
        }
        Ok(())
    }
}

impl GpuOperation for MeanTarget {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let mask = self.mask.then_some("mask");
        let real = if self.mask { "mask[index] != 0.0" } else { "true" };
        let count = recorder.rows() * self.steps * self.features;
        Shader::new("mean_target", include_str!("mean.wgsl"))
            .flag("LAST", self.last)
            .float("LEAST", LEAST_SUM)
            .section("REAL", real)
            .reads(recorder, ["sums", "weights", "x"].into_iter().chain(mask))?
            .write("y", "f32", recorder.write(0)?)
            .number("count", count)
            .number("steps", self.steps)
            .number("features", self.features)
            .elements(recorder, count)
    }
}

//! Weighted means on a GPU.

use super::{AbsoluteSums, LEAST_SUM, MeanTarget, WeightProduct};
use crate::Result;
use crate::ops::operands::Operands;
use crate::ops::product;
use crate::shader::product::{Finish, Matrix, Problem, Storage};
use crate::shader::{Bind, GpuOperation, Recorder, Template};

/// Threads of a workgroup.
const THREADS: usize = 256;
/// Threads that share a row's sum.
const SUMMING: usize = 64;

impl GpuOperation for AbsoluteSums {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let operands = [Bind::Read(recorder.read(0)?), Bind::Write(recorder.write(0)?)];
        let kernel = Template::new(include_str!("sums.wgsl")).constant("THREADS", SUMMING).kernel("sums");
        let constants = [self.inputs as u32, self.outputs as u32];
        recorder.dispatch(&kernel, &operands, &constants, self.inputs)
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
            let operands =
                product::Operands { left: &left, right: &right, bias: None, saved: None, output: &output };
            product::record(recorder, &problem, &operands)?;
        }
        Ok(())
    }
}

impl GpuOperation for MeanTarget {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let mut operands = Operands::default();
        for name in ["sums", "weights", "x"] {
            operands.read(recorder, name, true)?;
        }
        operands.read(recorder, "mask", self.mask)?;
        operands.write(recorder, "y", 0)?;
        let real = if self.mask { "mask[index] != 0.0" } else { "true" };
        let kernel = Template::new(include_str!("mean.wgsl"))
            .constant("THREADS", THREADS)
            .flag("LAST", self.last)
            .float("LEAST", LEAST_SUM)
            .section("OPERANDS", operands.text)
            .section("REAL", real)
            .kernel("mean_target");
        let count = recorder.rows() * self.steps * self.features;
        let constants = [count as u32, self.steps as u32, self.features as u32];
        recorder.dispatch(&kernel, &operands.binds, &constants, count.div_ceil(THREADS))
    }
}

//! The dense layer's products on a GPU.

use super::Product;
use crate::ops::Direction;
use crate::ops::pointwise::WGSL_PRELUDE;
use crate::shader::product::{Finish, Joined, Limits, Matrix, Operands, Problem, Storage};
use crate::shader::{GpuOperation, Operand, Recorder};
use crate::{Error, Result};
use std::ops::Range;

/// Records the dispatches of one product.
pub(in crate::ops) fn record(
    recorder: &mut Recorder<'_>,
    problem: &Problem<'_>,
    operands: &Operands<'_>,
) -> Result<()> {
    let limits = limits(recorder);
    problem.record(recorder, problem.choose(&limits), None, operands)
}

/// What the device of a recorder lets products do.
pub fn limits(recorder: &Recorder<'_>) -> Limits {
    let capabilities = recorder.capabilities();
    Limits {
        workgroup_bytes: capabilities.workgroup_storage,
        threads: capabilities.workgroup_threads,
        units: capabilities.has_matrix_units(),
        speeds: capabilities.speeds,
        crowd: recorder.crowd,
    }
}

/// The runs of a weight's rows that fit one binding: first row and number, all of them at once
/// where they fit.
fn runs(rows: usize, row_bytes: usize, max_binding: usize) -> impl Iterator<Item = (usize, usize)> {
    // Starts of runs are multiples of 256 bytes whatever a row has, down to one byte an element, or to one
    // bit where so many rows fit.
    let most = match max_binding / row_bytes.max(1) {
        fitting if fitting >= rows => rows,
        fitting if fitting >= 2048 => fitting / 2048 * 2048,
        fitting => (fitting / 256 * 256).max(256),
    };
    (0..rows).step_by(most.max(1)).map(move |first| (first, most.min(rows - first)))
}

/// Rows of a product, and which of its inputs.
#[derive(Clone, Copy)]
pub(super) struct Extent {
    rows: usize,
    first: usize,
    count: usize,
}

impl Extent {
    /// All inputs, for batches of so many rows.
    pub(super) fn whole(product: &Product, rows: usize) -> Self {
        Self { rows: rows * product.multiplier, first: 0, count: product.inputs }
    }
}

impl Product {
    /// Records the gradient of the weight from x and dy into `output`.
    pub(in crate::ops) fn record_weight_gradient(
        &self,
        recorder: &mut Recorder<'_>,
        [x, dy]: [&Operand; 2],
        output: &Operand,
        accumulate: bool,
    ) -> Result<()> {
        let rows = recorder.rows() * self.multiplier;
        let max_binding = recorder.capabilities().max_binding;
        for (first, count) in runs(self.inputs, self.outputs * 4, max_binding) {
            let problem = self.weight_gradient(rows, first..first + count, 0, accumulate);
            let output = output.slice(first * self.outputs, count * self.outputs)?;
            record(
                recorder,
                &problem,
                &Operands { left: x, right: dy, bias: None, saved: None, residual: None, output: &output },
            )?;
        }
        Ok(())
    }

    /// The gradient of these rows of the weight, from element `at` of the result on.
    fn weight_gradient(
        &self,
        rows: usize,
        inputs: Range<usize>,
        at: usize,
        accumulate: bool,
    ) -> Problem<'static> {
        Problem {
            rows: inputs.len(),
            columns: self.outputs,
            depth: rows,
            left: Matrix { offset: inputs.start, ..Matrix::transposed(self.inputs) },
            right: Matrix::plain(self.outputs),
            storage: Storage::Float32,
            output: Matrix { offset: at, ..Matrix::plain(self.outputs) },
            accumulate,
            bias: false,
            finish: Finish::None,
            mixed: self.mixed,
        }
    }

    /// Records the gradients of the weight and of the bias together, where that is offered and
    /// worth it; says whether it did.
    fn record_both_gradients(
        &self,
        recorder: &mut Recorder<'_>,
        [x, dy]: [&Operand; 2],
        accumulate: bool,
    ) -> Result<bool> {
        let Some(both) = recorder.offered_bias_gradient() else { return Ok(false) };
        let sum = &both.sum;
        if (sum.outer, sum.channels, sum.inner) != (self.multiplier, self.outputs, 1) {
            return Ok(false);
        }
        let rows = recorder.rows() * self.multiplier;
        let problem = self.weight_gradient(rows, 0..self.inputs, both.weight, accumulate);
        let Some((cut, sums)) = problem.choose_with_column_sums(both.bias, &limits(recorder)) else {
            return Ok(false);
        };
        let Some(both) = recorder.take_bias_gradient() else { return Ok(false) };
        let operands =
            Operands { left: x, right: dy, bias: None, saved: None, residual: None, output: &both.gradient };
        problem.record(recorder, cut, Some(sums), &operands)?;
        Ok(true)
    }

    /// The text of what is applied to the result.
    pub(super) fn finish_text(&self) -> Option<String> {
        self.activation.map(|a| format!("{WGSL_PRELUDE}{}", a.wgsl_value("activate")))
    }

    /// The product of a part of the inputs, of which the last brings bias and `finish`.
    pub(super) fn forward_problem<'a>(
        &self,
        Extent { rows, first, count }: Extent,
        weight: &Operand,
        accumulate: bool,
        finish: Finish<'a>,
    ) -> Problem<'a> {
        let last = first + count == self.inputs;
        Problem {
            rows,
            columns: self.outputs,
            depth: count,
            left: Matrix { offset: first, ..Matrix::plain(self.inputs) },
            right: Matrix::plain(self.outputs),
            storage: Storage::of(weight.packing),
            output: Matrix::plain(self.outputs),
            // Sums go on from run to run.
            accumulate: accumulate || first > 0,
            bias: self.bias && last,
            finish: if last { finish } else { Finish::None },
            mixed: self.mixed,
        }
    }

    /// Records what is not the gradient of a weight, with a value that is added to the finished result.
    pub(in crate::ops) fn record_with_residual(
        &self,
        recorder: &mut Recorder<'_>,
        residual: Option<&Operand>,
    ) -> Result<()> {
        match self.direction {
            Direction::Forward => self.record_forward(recorder, residual),
            Direction::InputGradient => self.record_input_gradient(recorder, residual),
            Direction::WeightGradient => {
                Err(Error::Internal("nothing is added to the gradient of a weight".into()))
            }
        }
    }

    fn record_forward(&self, recorder: &mut Recorder<'_>, residual: Option<&Operand>) -> Result<()> {
        let (x, weight, y) = (recorder.read(0)?, recorder.read(1)?, recorder.write(0)?);
        let bias = if self.bias { Some(recorder.read(2)?) } else { None };
        let rows = recorder.rows() * self.multiplier;
        let activate = self.finish_text();
        let finish = activate.as_deref().map_or(Finish::None, Finish::Activate);
        let row_bytes = row_bytes(&weight, self.outputs);
        for (first, count) in runs(self.inputs, row_bytes, recorder.capabilities().max_binding) {
            let extent = Extent { rows, first, count };
            let problem = self.forward_problem(extent, &weight, recorder.accumulate(), finish);
            let right = weight.slice(first * self.outputs, count * self.outputs)?;
            let bias = bias.as_ref();
            // The last of the runs finishes.
            let residual = residual.filter(|_| first + count == self.inputs);
            let operands = Operands { left: &x, right: &right, bias, saved: None, residual, output: &y };
            record(recorder, &problem, &operands)?;
        }
        Ok(())
    }

    /// Records the sum of the gradients that several products of one input have for it, from dy and the weight of
    /// each, with a value that is added to it, as one product; says whether it did.
    pub(in crate::ops) fn record_joint_gradient(
        products: &[&Product],
        recorder: &mut Recorder<'_>,
        factors: &[[&Operand; 2]],
        residual: Option<&Operand>,
    ) -> Result<bool> {
        let [first, ..] = products else { return Ok(false) };
        let most = recorder.capabilities().max_binding;
        let plain = |[_, weight]: &[&Operand; 2]| Storage::of(weight.packing) == Storage::Float32;
        let whole = |product: &&Product| product.inputs * product.outputs * 4 <= most;
        if !factors.iter().all(plain) || !products.iter().all(whole) {
            return Ok(false);
        }
        let extents: Vec<usize> = products.iter().map(|product| product.outputs).collect();
        let problem = Problem {
            rows: recorder.rows() * first.multiplier,
            columns: first.inputs,
            depth: first.outputs,
            left: Matrix::plain(first.outputs),
            right: Matrix::transposed(first.outputs),
            storage: Storage::Float32,
            output: Matrix::plain(first.inputs),
            accumulate: false,
            bias: false,
            finish: Finish::None,
            mixed: first.mixed,
        };
        let output = recorder.write(0)?;
        let limits = limits(recorder);
        Joined { first: problem, extents: &extents, factors }.record(recorder, &limits, residual, &output)
    }

    fn record_input_gradient(&self, recorder: &mut Recorder<'_>, residual: Option<&Operand>) -> Result<()> {
        let (dy, weight, dx) = (recorder.read(0)?, recorder.read(1)?, recorder.write(0)?);
        let rows = recorder.rows() * self.multiplier;
        let saved = if self.derivative.is_some() { Some(recorder.read(2)?) } else { None };
        let derive = self.derivative.map(|a| format!("{WGSL_PRELUDE}{}", a.wgsl_derivative("derivative")));
        let finish = derive.as_deref().map_or(Finish::None, Finish::Derivative);
        let row_bytes = row_bytes(&weight, self.outputs);
        for (first, count) in runs(self.inputs, row_bytes, recorder.capabilities().max_binding) {
            let problem = Problem {
                rows,
                columns: count,
                depth: self.outputs,
                left: Matrix::plain(self.outputs),
                right: Matrix::transposed(self.outputs),
                storage: Storage::of(weight.packing),
                output: Matrix { offset: first, ..Matrix::plain(self.inputs) },
                accumulate: recorder.accumulate(),
                bias: false,
                finish,
                mixed: self.mixed,
            };
            let right = weight.slice(first * self.outputs, count * self.outputs)?;
            let saved = saved.as_ref();
            let operands = Operands { left: &dy, right: &right, bias: None, saved, residual, output: &dx };
            record(recorder, &problem, &operands)?;
        }
        Ok(())
    }
}

/// Bytes of one row of a weight.
fn row_bytes(weight: &Operand, outputs: usize) -> usize {
    weight.packing.map_or(outputs * 4, |packing| packing.bytes().div_ceil(packing.rows.max(1)))
}

impl GpuOperation for Product {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        if self.quantized {
            return self.record_quantized(recorder);
        }
        match self.direction {
            Direction::Forward | Direction::InputGradient => self.record_with_residual(recorder, None),
            Direction::WeightGradient => {
                let (x, dy, dw) = (recorder.read(0)?, recorder.read(1)?, recorder.write(0)?);
                let accumulate = recorder.accumulate();
                if self.record_both_gradients(recorder, [&x, &dy], accumulate)? {
                    return Ok(());
                }
                self.record_weight_gradient(recorder, [&x, &dy], &dw, accumulate)
            }
        }
    }
}

#[cfg(all(test, feature = "gpu"))]
mod packed_tests;
#[cfg(all(test, feature = "gpu"))]
mod tests;

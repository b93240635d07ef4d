//! What the kernels of a direction are bound to, found by the numbers that [`Recurrent`] documents.

use super::gpu_kernel::RowKernel;
use super::{Cell, InitialState, Recurrent};
use crate::Result;
use crate::shader::{Operand, Recorder};

/// Operands and results of the loop forward, in one direction of time.
pub(super) struct ForwardOperands {
    pub(super) input: Operand,
    pub(super) weight: Operand,
    bias: Option<Operand>,
    initial: Option<Operand>,
    mask: Option<Operand>,
    left: Option<Operand>,
    y: Operand,
    before: Option<Operand>,
    saved: Option<Operand>,
    state: Option<Operand>,
}

impl ForwardOperands {
    pub(super) fn new(op: &Recurrent, recorder: &Recorder<'_>, direction: usize) -> Result<Self> {
        let directions = op.directions;
        let mut next = 2 * directions;
        let mut bias = None;
        if op.bias {
            bias = Some(recorder.read(next + direction)?);
            next += directions;
        }
        let mut read = |wanted: bool| {
            let operand = wanted.then(|| recorder.read(next)).transpose();
            next += usize::from(wanted);
            operand
        };
        let initial = read(op.initial != InitialState::Zeros)?;
        let mask = read(op.mask)?;
        let left = read(op.resumes)?;
        let write = |wanted: bool, number: usize| wanted.then(|| recorder.write(number)).transpose();
        Ok(Self {
            input: recorder.read(direction)?,
            weight: recorder.read(directions + direction)?,
            bias,
            initial,
            mask,
            left,
            y: recorder.write(0)?,
            before: write(op.keeps, 1 + direction)?,
            saved: write(op.keeps, 1 + directions + direction)?,
            state: write(op.state, if op.keeps { 1 + 2 * directions } else { 1 })?,
        })
    }

    /// Declares what a step reads beside its input and its weight, and what it writes.
    pub(super) fn declare(&self, op: &Recurrent, kernel: RowKernel) -> RowKernel {
        let kernel = match self.bias.clone() {
            Some(bias) => kernel.with(|shader| shader.read("bias", "f32", bias)),
            None => kernel,
        };
        kernel
            .mask(self.mask.clone(), op.time)
            .store("y", Some(self.y.clone()), op.output_len())
            .store("before", self.before.clone(), op.time * op.units)
            .store("saved", self.saved.clone(), op.time * op.cell.saved() * op.units)
            .store("state", self.state.clone(), op.state_len())
    }

    /// Declares what the state before the first step is made of.
    pub(super) fn start(&self, op: &Recurrent, kernel: RowKernel, direction: usize) -> RowKernel {
        let kernel = kernel.initial(op, self.initial.clone(), direction);
        let (kernel, resumed) = match self.left.clone() {
            None => (kernel, String::new()),
            Some(left) => (
                kernel.load("left", left, op.state_len()),
                format!(
                    "if steps[constants.step].position > 0u {{\n        return load_left(first, {}u + at);\n    }}",
                    direction * op.cell.states() * op.units
                ),
            ),
        };
        kernel.with(|shader| shader.section("RESUMED", resumed))
    }
}

/// Operands and results of the loop backward, in one direction of time.
pub(super) struct BackwardOperands {
    dy: Operand,
    pub(super) weight: Operand,
    before: Option<Operand>,
    saved: Operand,
    initial: Option<Operand>,
    mask: Option<Operand>,
    dx: Operand,
    share: Option<Operand>,
    state: Option<Operand>,
    cell_gradient: Option<Operand>,
}

impl BackwardOperands {
    pub(super) fn new(op: &Recurrent, recorder: &Recorder<'_>, direction: usize) -> Result<Self> {
        let directions = op.directions;
        let mut next = 1 + directions;
        let mut before = None;
        if op.cell.is_gru() {
            before = Some(recorder.read(next + direction)?);
            next += directions;
        }
        let saved = recorder.read(next + direction)?;
        next += directions;
        let mut read = |wanted: bool| {
            let operand = wanted.then(|| recorder.read(next)).transpose();
            next += usize::from(wanted);
            operand
        };
        let initial = read(op.cell == Cell::Lstm && op.initial != InitialState::Zeros)?;
        let mask = read(op.mask)?;
        let splits = op.cell.splits_gradient();
        let write = |wanted: bool, number: usize| wanted.then(|| recorder.write(number)).transpose();
        let number = if splits { 2 * directions } else { directions };
        Ok(Self {
            dy: recorder.read(0)?,
            weight: recorder.read(1 + direction)?,
            before,
            saved,
            initial,
            mask,
            dx: recorder.write(direction)?,
            share: write(splits, directions + direction)?,
            state: write(op.state, number)?,
            cell_gradient: write(op.cell_gradients, number + usize::from(op.state))?,
        })
    }

    /// Declares all of them but the weight.
    pub(super) fn declare(&self, op: &Recurrent, kernel: RowKernel, direction: usize) -> RowKernel {
        let (units, gates) = (op.units, op.cell.gates() * op.units);
        let kernel = kernel.load("dy", self.dy.clone(), op.output_len());
        let kernel = match self.before.clone() {
            Some(before) => kernel.load("before", before, op.time * units),
            None => kernel,
        };
        kernel
            .load("saved", self.saved.clone(), op.time * op.cell.saved() * units)
            .initial(op, self.initial.clone(), direction)
            .mask(self.mask.clone(), op.time)
            .store("dx", Some(self.dx.clone()), op.time * gates)
            .store("share", self.share.clone(), op.time * gates)
            .store("state", self.state.clone(), op.initial_extents().0)
            .store("cell_gradient", self.cell_gradient.clone(), op.steps_len())
    }
}

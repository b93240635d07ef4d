//! Inference.

use super::Network;
use super::lower::{Backward, Lowered};
use super::mode::Mode;
use super::ports::IndexRange;
use super::programs::ProgramKey;
use super::rows::check_rows;
use crate::ops::StepValues;
use crate::precision::in_precision;
use crate::program::{Access, Builder, Phase, Ports, Program, Run, Value};
use crate::simd::Real;
use crate::tensor::{Elements, Tensor, TensorView, check_finite};
use crate::{Error, Result, extents, interrupt};
use std::ops::Range;

/// Rows that inference takes at a time unless told otherwise.
pub const DEFAULT_BATCH: usize = 256;

/// The most bytes that larger batches of inference work in.
const MOST_MEMORY: usize = 1 << 27;

impl Network {
    /// The output for each row of `input`, dropout off.
    ///
    /// Each row's result is the same bits whatever the other rows are. Concurrent calls are fine.
    ///
    /// # Errors
    /// [`Error::Shape`] where rows do not have the network's input shape, [`Error::Value`] for
    /// no rows or non-finite input, [`Error::State`] for a network that is not built.
    pub fn predict(&self, input: TensorView<'_>) -> Result<Tensor> {
        self.predict_batched(input, DEFAULT_BATCH)
    }

    /// [`predict`](Network::predict) with at most `batch_size` rows at a time.
    ///
    /// # Errors
    /// As `predict`, and [`Error::Value`] for a batch size of zero.
    pub fn predict_batched(&self, input: TensorView<'_>, batch_size: usize) -> Result<Tensor> {
        let rows = self.rows_at_a_time(batch_size.min(input.rows()))?;
        in_precision!(self.precision, T => self.predict_rows::<T>(input, rows, Mode::default(), |_| ()))
    }

    /// Of so many rows, how many are computed at a time: on the host, whose bits are the same in any batch, no
    /// more than fit into [`MOST_MEMORY`], or into [`DEFAULT_BATCH`] rows. What a run takes stays with the
    /// network for the next call.
    fn rows_at_a_time(&self, rows: usize) -> Result<usize> {
        if rows <= DEFAULT_BATCH || !self.device.is_host() {
            return Ok(rows);
        }
        self.check_built()?;
        let key = ProgramKey::forward(Mode::default(), DEFAULT_BATCH);
        let default = self.programs.program(&key, || self.compile(&key))?;
        // What a program takes grows with its rows.
        let each = default.buffers.iter().sum::<usize>() / DEFAULT_BATCH;
        let most = (MOST_MEMORY / each.max(1)).max(DEFAULT_BATCH);
        Ok(rows.min(1 << most.ilog2()))
    }

    /// The output for each row, and each batch's run to look at.
    pub(super) fn predict_rows<T: Real>(
        &self,
        input: TensorView<'_>,
        batch_size: usize,
        mode: Mode,
        mut show: impl FnMut(&Run),
    ) -> Result<Tensor> {
        let mut shape = vec![input.rows()];
        shape.extend_from_slice(self.output_shape());
        let each = self.output_shape().len();
        let mut elements: Vec<T> = extents::room(extents::elements("the output", input.rows(), each)?)?;
        self.for_each_output::<T>(input, batch_size, mode, |run| {
            if let Some(output) = run.program().ports().output {
                elements.extend_from_slice(run.read::<T>(output));
            }
            show(run);
            Ok(())
        })?;
        Tensor::new(shape, elements)
    }

    /// Runs inference batch by batch and shows each finished run.
    pub(crate) fn for_each_output<T: Real>(
        &self,
        input: TensorView<'_>,
        batch_size: usize,
        mode: Mode,
        mut show: impl FnMut(&Run) -> Result<()>,
    ) -> Result<()> {
        self.check_inference(&input, batch_size)?;
        self.passes.note();
        let key = ProgramKey::forward(mode, batch_size.min(input.rows()));
        self.for_each_batch::<T>(
            &input,
            &key,
            |_, _| (),
            |ports| ports.output.into_iter().chain(ports.looked_at()).collect(),
            |run| show(run),
        )
    }

    /// Checks what inference is given.
    pub(super) fn check_inference(&self, input: &TensorView<'_>, batch_size: usize) -> Result<()> {
        self.check_built()?;
        self.check_input(input)?;
        if batch_size == 0 {
            return Err(Error::Value("batch_size must be at least 1".into()));
        }
        Ok(())
    }

    /// Runs programs like `key` over these rows, as many at a time as it has room for, which moves nothing;
    /// `prepare` gets each run with its rows before, `show` once the `wanted` values are there. Fewer rows at a
    /// time go to a device that has no room for so many.
    pub(super) fn for_each_batch<T: Real>(
        &self,
        input: &TensorView<'_>,
        key: &ProgramKey,
        mut prepare: impl FnMut(&mut Run, Range<usize>),
        wanted: impl Fn(&Ports) -> Vec<Value>,
        mut show: impl FnMut(&mut Run) -> Result<()>,
    ) -> Result<()> {
        let last = if key.backward { Phase::Backward } else { Phase::Forward };
        let (mut start, mut most) = (0, key.capacity);
        while start < input.rows() {
            interrupt::check()?;
            let end = input.rows().min(start.saturating_add(most));
            let key = ProgramKey { capacity: (end - start).next_power_of_two(), ..key.clone() };
            let mut work = || {
                let mut run = self.programs.lease(&key, &self.device, || self.compile(&key))?;
                run.rows = end - start;
                if let Some(port) = run.program().ports().input {
                    input.slice_rows(start..end).copy_to(run.write::<T>(port));
                }
                prepare(&mut run, start..end);
                let values = StepValues { seed: self.seed, ..StepValues::default() };
                let access = Access::Shared(&self.registry);
                let wanted = wanted(run.program().ports());
                run.execute_and_fetch(access, Phase::Forward..=last, &values, &wanted)?;
                Ok(run)
            };
            match interrupt::welcoming(&mut work) {
                Ok(mut run) => {
                    show(&mut run)?;
                    self.programs.give_back(&key, run);
                    start = end;
                }
                Err(error) => most = self.fewer_rows(error, end - start)?,
            }
        }
        Ok(())
    }

    /// How many rows to go on with after an error of a device, where it may have been too many for its memory.
    ///
    /// # Errors
    /// The error, where fewer rows would not help.
    pub(crate) fn fewer_rows(&self, error: Error, rows: usize) -> Result<usize> {
        let may_help = matches!(error, Error::Device(_)) && !self.device.is_lost() && !self.device.is_host();
        if !may_help {
            return Err(self.with_loss(error));
        }
        // What was kept for later calls makes room first.
        if self.programs.drop_idle() {
            return Ok(rows);
        }
        if rows == 1 { Err(error) } else { Ok(rows.div_ceil(2)) }
    }

    /// Lowers a forward program, and, if asked, the backward one from a given output gradient.
    pub(crate) fn compile(&self, key: &ProgramKey) -> Result<Program> {
        let mut b = Builder::new(self.precision);
        b.prepares = !key.mode.training;
        let lowered = Lowered::forward(self, &mut b, key.mode)?;
        if key.backward {
            let shape = b.shape(lowered.output).clone();
            let gradient = b.input("output gradient", shape, crate::program::Kind::Real);
            b.ports.output_gradient = Some(gradient);
            b.ports.input_gradient = {
                let skips_parameters = key.mode.input_gradient_only;
                let wanted = Backward { wants_input: true, skips_parameters, ..Backward::default() };
                lowered.backward(self, &mut b, gradient, wanted)?
            };
        }
        if !key.asked.is_empty() {
            self.keep_asked(&mut b, &key.asked)?;
        }
        b.finish(key.capacity, &self.rewrites)
    }

    /// [`compile`](Network::compile) for sequences of another length than the network's own.
    pub(crate) fn compile_session(&self, key: &ProgramKey, steps: usize) -> Result<Program> {
        // Layers that depend on the length say so here, with their place.
        self.infer_shapes_for(steps)?;
        self.compile(key)
    }

    pub(crate) fn check_built(&self) -> Result<()> {
        if self.built {
            return Ok(());
        }
        Err(Error::State("the network is not built yet; call build() once its layers are added".into()))
    }

    /// Checks an input's extents and that all of it is finite.
    pub(crate) fn check_input(&self, input: &TensorView<'_>) -> Result<()> {
        check_rows(input, &self.row_shape(), "input")?;
        check_finite(input, "input")?;
        self.check_indices(input)
    }

    /// Checks that an input is of whole numbers in range, where the network reads such.
    pub(crate) fn check_indices(&self, input: &TensorView<'_>) -> Result<()> {
        check_indices(input, self.row_shape().len().max(1), self.index_ranges())
    }

    /// The same of steps that go into a session, of which there may be any number.
    pub(super) fn check_step_indices(
        &self,
        input: &TensorView<'_>,
        ranges: Vec<IndexRange<'_>>,
    ) -> Result<()> {
        let width = (input.elements().len() / input.rows().max(1)).max(1);
        check_indices(input, width, ranges)
    }
}

/// Checks that rows of so many elements hold whole numbers in range.
fn check_indices(input: &TensorView<'_>, width: usize, ranges: Vec<IndexRange<'_>>) -> Result<()> {
    for IndexRange { name, range, limit } in ranges {
        let wrong = |x: f64| !(x >= 0.0 && x < limit as f64 && x.fract() == 0.0);
        let found = match input.elements() {
            Elements::Float32(x) => find(x, width, &range, wrong),
            Elements::Float64(x) => find(x, width, &range, wrong),
        };
        if let Some((row, x)) = found {
            let (what, who) = match name {
                Some(name) => (format!("input \"{name}\""), "it takes"),
                None => ("input".to_string(), "the network reads"),
            };
            return Err(Error::Value(format!(
                "{what} holds {x} in row {row}; {who} whole numbers from 0 to {}",
                limit - 1
            )));
        }
    }
    Ok(())
}

/// The first element within a range of every row that is `wrong`, with its row.
fn find<T: Real>(
    x: &[T],
    width: usize,
    range: &Range<usize>,
    wrong: impl Fn(f64) -> bool,
) -> Option<(usize, f64)> {
    x.chunks_exact(width).enumerate().find_map(|(row, x)| {
        x[range.clone()].iter().map(|x| x.to_f64()).find(|x| wrong(*x)).map(|x| (row, x))
    })
}

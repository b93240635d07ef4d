//! Many steps at once, for engines that take them so.

use super::Phase;
use super::run::Run;
use crate::Result;
use crate::ops::StepValues;
use crate::state::Registry;
use std::any::Any;
use std::fmt::Debug;
use std::ops::RangeInclusive;

/// One step of a frame.
#[derive(Clone, Debug)]
pub struct FrameStep {
    /// Its values.
    pub values: StepValues,
    /// Rows of its batch.
    pub rows: usize,
    /// Where they start in the frame's order.
    pub first_row: usize,
}

/// What a step has come to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Its losses, summed.
    pub loss: f32,
    /// The gradient norm, where the program has one.
    pub norm: f32,
    /// Whether it was not finite, or came after one that halted the frame.
    pub left_out: bool,
    /// Whether it was left out for the sake of the loss scale, which was halved; no error.
    pub overflowed: bool,
    /// What a look ahead at its updates has found, where it was left out for that: of a result of
    /// [`Foresight`](crate::ops::Foresight).
    pub refused: Option<u32>,
    /// Whether it exploded, and so was left out.
    pub exploded: bool,
    /// Whether the update before it was taken back for that.
    pub taken_back: bool,
    /// The loss scale after it.
    pub scale: f32,
}

/// What a frame's steps have come to.
#[derive(Debug)]
pub struct Outcomes {
    /// By step.
    pub steps: Vec<Outcome>,
    /// The outputs that were kept, one stretch a step.
    pub outputs: Vec<f32>,
    /// Header and figures of the measures, one stretch a step, where steps are judged by them.
    pub measures: Vec<f32>,
}

/// One tick of a frame of ticks.
#[derive(Clone, Debug)]
pub struct FrameTick {
    /// Where the registry's ring stands.
    pub clock: u64,
    /// Its values.
    pub values: StepValues,
}

/// Examples that an engine holds, for many epochs.
pub trait Resident: Any + Debug + Send + Sync {
    /// Rows of the examples.
    fn rows(&self) -> usize;
}

/// Runs many steps in one frame.
pub trait Frames {
    /// Copies whole arrays of 32-bit elements: inputs, targets, and weights if any. `None` where one
    /// is larger than kernels can see, or all together than the device has memory for.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) where the device was lost.
    fn resident(&self, rows: usize, arrays: &[&[u8]]) -> Result<Option<Box<dyn Resident>>>;

    /// Runs training steps one after another and waits for their outcomes.
    ///
    /// `resident` are examples that the engine holds with the rows of them that the steps take; without them
    /// the batch is in the run already, and there is one step. `kept` keeps that many elements of each
    /// step's output. With `halts`, a step that is not finite ends the frame; otherwise only that
    /// step is left out. In mixed precision, such a step is left out and halves the loss scale while that
    /// is above 1, whatever `halts` says.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) where the device cannot run a step or was lost.
    fn train(
        &self,
        run: &mut Run,
        registry: &mut Registry,
        steps: &[FrameStep],
        resident: Option<(&dyn Resident, &[u32])>,
        kept: Option<usize>,
        halts: bool,
    ) -> Result<Outcomes>;

    /// Runs a program once for each of these ticks, without waiting for them to end.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) where the device cannot run a step, naming the layer.
    fn ticks(
        &self,
        run: &mut Run,
        registry: &mut Registry,
        phases: RangeInclusive<Phase>,
        ticks: &[FrameTick],
    ) -> Result<()>;
}

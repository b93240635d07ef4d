//! What goes into many steps at once, and what they come to, for engines that take them so.

use crate::ops::StepValues;
use std::any::Any;
use std::fmt::Debug;

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

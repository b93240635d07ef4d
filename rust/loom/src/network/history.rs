//! Passes through a network, and what the newest has left to look at.

use super::programs::ProgramKey;
use crate::ops::StepValues;
use crate::program::Run;
use crate::{Error, Result};
use std::sync::atomic::{AtomicU64, Ordering};

/// The newest pass of [`forward`](crate::Network::forward) or
/// [`forward_inference`](crate::Network::forward_inference): kept for `backward`, and to be looked at.
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) key: ProgramKey,
    pub(crate) run: Run,
    /// What it brought along: on the way back draws are made once more.
    pub(crate) values: StepValues,
    /// Its number among all passes through the network.
    pub(crate) pass: u64,
    /// Whether what layers keep, such as running statistics, may have moved since.
    pub(crate) states_moved: bool,
    /// What gradients were scaled by on the newest way back; `None` before any.
    pub(crate) gradient_scale: Option<f64>,
}

/// How often anything has gone forward through a network, by whatever call, and what is left of it.
#[derive(Debug, Default)]
pub(crate) struct Passes {
    count: AtomicU64,
    /// The newest one of the manual loop.
    pub(crate) newest: Option<History>,
}

impl Passes {
    /// Counts a pass through the network; returns its number. What an older one has left is no more shown.
    pub(crate) fn note(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// [`note`](Self::note) of one that may move what layers keep.
    pub(crate) fn note_training(&mut self) {
        self.note();
        self.note_moved_states();
    }

    /// Notes that what layers keep may have moved.
    pub(crate) fn note_moved_states(&mut self) {
        if let Some(history) = &mut self.newest {
            history.states_moved = true;
        }
    }

    /// What the gradients of what layers read were scaled by while they were computed, where they were kept.
    ///
    /// # Errors
    /// [`Error::State`] where they were not.
    pub(crate) fn input_gradient_scale(&self) -> Result<f64> {
        match &self.newest {
            Some(History { key, gradient_scale, .. }) if key.mode.keeps_input_gradients => {
                gradient_scale.ok_or_else(|| Error::State("there is no gradient yet; call backward first".into()))
            }
            _ => Err(Error::State(
                "the gradients of what layers read were not kept; call forward(x, input_gradients=True), then \
                 backward"
                    .into(),
            )),
        }
    }

    /// The newest pass of the manual loop, where no other has gone through the network since.
    ///
    /// # Errors
    /// [`Error::State`] where there is none, or where a newer pass kept nothing to look at.
    pub(crate) fn shown(&self) -> Result<&Run> {
        let Some(history) = &self.newest else {
            return Err(Error::State(
                "there is no forward pass to look at; call forward(x), or forward(x, training=False), first"
                    .into(),
            ));
        };
        if history.pass != self.count.load(Ordering::Relaxed) {
            return Err(Error::State(
                "the newest pass through the network kept nothing of its layers to look at: only forward does, \
                 not predict, evaluation, sessions, training or clock mode; call forward(x, training=False) to \
                 look at what inference makes of x"
                    .into(),
            ));
        }
        Ok(&history.run)
    }
}

//! Where the time of steps goes that several processes share.

use std::time::{Duration, Instant};

/// The seconds that parts of a step take which several processes share, and what of its gradient travels. Gradients travel
/// while the backward pass goes on, so that these do not add up to the step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepTimes {
    /// All shards but the last, and the last one's forward pass.
    pub forward: f64,
    /// The last shard's backward pass; where a device runs it, asking for it.
    pub backward: f64,
    /// Waiting for gradients from the device.
    pub fetching: f64,
    /// Waiting for the others, and adding up with them.
    pub meeting: f64,
    /// Of that, adding up.
    pub adding: f64,
    /// Handing sums to the device.
    pub sending: f64,
    /// What the exchange takes beyond the backward pass.
    pub waiting: f64,
    /// The verdict and the update.
    pub updating: f64,
    /// Bytes of the gradient that are handed to the others.
    pub bytes: f64,
}

impl StepTimes {
    /// The names of the parts, with their numbers.
    pub fn named(&self) -> [(&'static str, f64); 9] {
        let Self { forward, backward, fetching, meeting, adding, sending, waiting, updating, bytes } = *self;
        [
            ("forward", forward),
            ("backward", backward),
            ("fetching", fetching),
            ("meeting", meeting),
            ("adding", adding),
            ("sending", sending),
            ("waiting", waiting),
            ("updating", updating),
            ("bytes", bytes),
        ]
    }
}

/// Notes where time goes.
#[derive(Debug, Default)]
pub(super) struct Watch(pub(super) StepTimes);

impl Watch {
    pub(super) fn fetching<R>(&mut self, work: impl FnOnce() -> R) -> R {
        noted(&mut self.0.fetching, work)
    }

    pub(super) fn meeting<R>(&mut self, work: impl FnOnce() -> R) -> R {
        noted(&mut self.0.meeting, work)
    }

    pub(super) fn sending<R>(&mut self, work: impl FnOnce() -> R) -> R {
        noted(&mut self.0.sending, work)
    }

    pub(super) fn travelled(&mut self, bytes: usize) {
        self.0.bytes += bytes as f64;
    }

    pub(super) fn added(&mut self, duration: Duration) {
        self.0.adding += duration.as_secs_f64();
    }
}

/// Adds how long some work takes.
pub(super) fn noted<R>(seconds: &mut f64, work: impl FnOnce() -> R) -> R {
    let started = Instant::now();
    let result = work();
    *seconds += started.elapsed().as_secs_f64();
    result
}

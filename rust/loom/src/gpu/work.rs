//! What is under way on a device, and how long it may take.

use super::pipeline::Pipeline;
use crate::{Error, Result};
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long a device may take over one submit unless `LOOM_GPU_TIMEOUT` says otherwise. One in software shares the
/// processors with everything else on the machine, and may take as long as these are busy.
const LIMIT: Duration = Duration::from_secs(60);

/// What a device was last given to do.
#[derive(Clone, Debug)]
pub(super) struct Work {
    pub(super) steps: usize,
    pub(super) dispatches: u64,
    /// Its last kernel.
    pub(super) last: Option<Arc<Pipeline>>,
}

/// `a frame of 8 steps and 120 dispatches, the last of them "product"`.
impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a frame of {} steps and {} dispatches", self.steps, self.dispatches)?;
        match &self.last {
            Some(last) => write!(f, ", the last of them \"{}\"", last.label()),
            None => Ok(()),
        }
    }
}

/// What is under way on a device, and how long it may take.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) limit: Mutex<Option<Duration>>,
    pub(super) outstanding: Mutex<VecDeque<wgpu::SubmissionIndex>>,
    pub(super) newest: Mutex<Option<Work>>,
    /// Held while work is submitted or waited for: of two threads that wgpu looks after finished work for at once,
    /// the one whose wait runs out may find that the other has cleared what it waits for, which is a panic there.
    pub(super) turn: Mutex<()>,
    /// Threads that wait for their turn.
    pub(super) asking: AtomicUsize,
}

impl Waiting {
    /// With the limit that the environment says, or what a device has that is software or not.
    ///
    /// # Errors
    /// [`Error::Value`] where that is no time.
    pub(super) fn new(software: bool) -> Result<Self> {
        let limit = match std::env::var("LOOM_GPU_TIMEOUT") {
            Ok(text) => seconds(&text)?,
            Err(_) => (!software).then_some(LIMIT),
        };
        Ok(Self {
            limit: Mutex::new(limit),
            outstanding: Mutex::default(),
            newest: Mutex::default(),
            turn: Mutex::default(),
            asking: AtomicUsize::new(0),
        })
    }
}

/// A limit in seconds, 0 for none.
fn seconds(text: &str) -> Result<Option<Duration>> {
    let parsed = text.trim().parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    match parsed {
        Some(limit) => Ok(Some(limit).filter(|limit| !limit.is_zero())),
        None => Err(Error::Value(format!(
            "LOOM_GPU_TIMEOUT is \"{text}\"; it must be a number of seconds, or 0 for no limit"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_seconds_and_zero_is_none() {
        assert_eq!(seconds("2.5").unwrap(), Some(Duration::from_millis(2500)));
        assert_eq!(seconds(" 0 ").unwrap(), None);
        for text in ["", "-1", "soon", "nan", "inf", "1e99"] {
            assert!(matches!(seconds(text), Err(Error::Value(message)) if message.contains(text)), "{text}");
        }
    }
}

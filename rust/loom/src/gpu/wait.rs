//! Waiting for a device, in pieces: somebody may want to end it, and a driver may never come back.

use super::Gpu;
use super::work::Work;
use crate::{Error, Result, interrupt};
use std::collections::VecDeque;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a thread looks for the end without a pause before it sleeps until then.
const MOMENT: Duration = Duration::from_micros(200);
/// How long to wait until anything else is looked at.
const PIECE: Duration = Duration::from_millis(10);
/// The same where another thread wants to submit or wait, too.
const SHORT_PIECE: Duration = Duration::from_micros(200);
/// After so long a wait that must not be ended may be, and the device is given up with it.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most submits whose end is looked for one by one.
const MOST_OUTSTANDING: usize = 256;

impl Gpu {
    /// How long the device may take over one submit before it is given up; `None` for as long as it likes.
    pub fn set_time_limit(&self, limit: Option<Duration>) {
        *self.waiting.limit.lock().unwrap_or_else(PoisonError::into_inner) = limit;
    }

    /// Sends commands to the device.
    pub(super) fn submit(&self, commands: wgpu::CommandBuffer) -> wgpu::SubmissionIndex {
        if self.faults.loses() {
            self.lose();
        }
        self.in_turn(|| {
            let index = self.queue.submit([commands]);
            // In the order in which the device gets them: who waits for the last one waits for all.
            let mut outstanding = self.waiting.outstanding.lock().unwrap_or_else(PoisonError::into_inner);
            if outstanding.len() >= MOST_OUTSTANDING {
                outstanding.pop_front();
            }
            outstanding.push_back(index.clone());
            index
        })
    }

    /// Runs what has wgpu look after finished work, one thread at a time.
    pub(super) fn in_turn<T>(&self, work: impl FnOnce() -> T) -> T {
        self.waiting.asking.fetch_add(1, Ordering::SeqCst);
        let turn = self.waiting.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.asking.fetch_sub(1, Ordering::SeqCst);
        let result = work();
        drop(turn);
        result
    }

    /// Notes what the device has been given to do.
    pub(super) fn note_work(&self, work: Work) {
        *self.waiting.newest.lock().unwrap_or_else(PoisonError::into_inner) = Some(work);
    }

    /// Waits until everything that was submitted has ended.
    ///
    /// # Errors
    /// [`Error::Device`] where the device was lost, or takes longer over one submit than it may: it is then given
    /// up. What who is asked whether to go on answers, where that is no.
    pub(super) fn wait(&self) -> Result<()> {
        self.wait_for(None)
    }

    /// [`wait`](Self::wait) until this submission has ended, whatever was submitted later; until all have where it is
    /// `None`.
    pub(super) fn wait_for(&self, submission: Option<wgpu::SubmissionIndex>) -> Result<()> {
        if !self.adapter().software && self.ends_soon(submission.as_ref())? {
            return Ok(());
        }
        self.wait_until_ended(submission, false)
    }

    /// [`wait_for`](Self::wait_for) beside another thread that submits all the while, and is never held up.
    pub(super) fn wait_beside(&self, submission: wgpu::SubmissionIndex) -> Result<()> {
        self.wait_until_ended(Some(submission), true)
    }

    fn wait_until_ended(&self, submission: Option<wgpu::SubmissionIndex>, beside: bool) -> Result<()> {
        let limit = *self.waiting.limit.lock().unwrap_or_else(PoisonError::into_inner);
        let started = Instant::now();
        let mut since = started;
        loop {
            let newest = submission.clone().or_else(|| self.outstanding(VecDeque::back));
            let asked = beside || self.waiting.asking.load(Ordering::SeqCst) > 0;
            if asked {
                // Who waits for its turn gets it.
                std::thread::sleep(SHORT_PIECE / 4);
            }
            let piece = match (beside, asked) {
                (true, _) => Duration::ZERO,
                (false, true) => SHORT_PIECE,
                (false, false) => PIECE,
            };
            match self.poll(newest, piece) {
                Ok(_) => {
                    if submission.is_none() {
                        self.waiting.outstanding.lock().unwrap_or_else(PoisonError::into_inner).clear();
                    }
                    return self.check();
                }
                Err(wgpu::PollError::Timeout) => self.check()?,
                Err(error) => {
                    self.check()?;
                    return Err(Error::Device(format!("waiting for {} failed: {error}", self.adapter())));
                }
            }
            // What ends meanwhile shows that the driver is alive.
            while let Some(oldest) = self.outstanding(VecDeque::front)
                && self.poll(Some(oldest), Duration::ZERO).is_ok()
            {
                self.waiting.outstanding.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                since = Instant::now();
            }
            if let Some(limit) = limit
                && since.elapsed() >= limit
            {
                let newest = self.waiting.newest.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let work = newest.map_or_else(|| "reading back".into(), |work| work.to_string());
                self.give_up(format!(
                    "{work} did not end within {} seconds; LOOM_GPU_TIMEOUT sets the limit",
                    limit.as_secs_f64()
                ));
                return self.check();
            }
            if interrupt::is_welcome() {
                interrupt::check()?;
            } else if started.elapsed() >= PATIENCE {
                interrupt::check().inspect_err(|_| {
                    self.give_up("it was interrupted in the middle of a frame".into());
                })?;
            }
        }
    }

    /// Looks again and again for a moment, as long as no other thread wants its turn; says whether everything up to
    /// this submission has ended. To be woken takes longer than a small network.
    pub(super) fn ends_soon(&self, submission: Option<&wgpu::SubmissionIndex>) -> Result<bool> {
        let started = Instant::now();
        while started.elapsed() < MOMENT && self.waiting.asking.load(Ordering::SeqCst) == 0 {
            let newest = submission.cloned().or_else(|| self.outstanding(VecDeque::back));
            if self.poll(newest, Duration::ZERO).is_ok() {
                if submission.is_none() {
                    self.waiting.outstanding.lock().unwrap_or_else(PoisonError::into_inner).clear();
                }
                return self.check().map(|()| true);
            }
        }
        Ok(false)
    }

    fn outstanding(
        &self,
        which: impl Fn(&VecDeque<wgpu::SubmissionIndex>) -> Option<&wgpu::SubmissionIndex>,
    ) -> Option<wgpu::SubmissionIndex> {
        which(&self.waiting.outstanding.lock().unwrap_or_else(PoisonError::into_inner)).cloned()
    }

    fn poll(
        &self,
        submission: Option<wgpu::SubmissionIndex>,
        timeout: Duration,
    ) -> std::result::Result<wgpu::PollStatus, wgpu::PollError> {
        if self.faults.hangs() {
            std::thread::sleep(timeout);
            return Err(wgpu::PollError::Timeout);
        }
        self.in_turn(|| {
            self.device.poll(wgpu::PollType::Wait { submission_index: submission, timeout: Some(timeout) })
        })
    }

    /// Takes a device for lost that may still be busy. Nobody waits for it again: it is never closed.
    fn give_up(&self, why: String) {
        if self.give_up_for(why) {
            std::mem::forget((self.device.clone(), self.queue.clone()));
        }
    }
}

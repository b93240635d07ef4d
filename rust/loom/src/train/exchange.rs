//! What processes of one training tell each other through, and how they agree that all could do their part.

use super::coding::Format;
use super::contribution::{Joint, Work};
use crate::{Error, Result};
use std::time::Duration;

/// What carries bytes between the processes of one training. Every process makes the same calls in the same order, one
/// after the other, though not from the same thread.
pub trait Exchange: Send {
    /// This process's number, from 0.
    fn rank(&self) -> usize;

    /// How many there are.
    fn ranks(&self) -> usize;

    /// Hands each process a part, in the order of their numbers; returns what each has handed this one.
    ///
    /// # Errors
    /// [`Error::State`] where a process has ended or does not answer.
    fn to_each(&mut self, parts: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>>;

    /// Hands all processes the same; returns what each has handed all.
    ///
    /// # Errors
    /// As [`to_each`](Self::to_each).
    fn to_all(&mut self, part: Vec<u8>) -> Result<Vec<Vec<u8>>>;

    /// Whether all are threads of one process, which [`join`](Self::join).
    fn shares_memory(&self) -> bool {
        false
    }

    /// Has whoever comes last work on what all have brought, in the order of their numbers; returns what this one has
    /// brought, and how long the work took.
    ///
    /// # Errors
    /// What this one has failed with; [`Error::State`] where another has, or has ended; [`Error::Internal`] where they do
    /// not share memory.
    fn join(&mut self, brought: Result<Joint>, work: &Work<'_>) -> Result<(Joint, Duration)> {
        let _ = (brought?, work);
        Err(Error::Internal("processes without common memory were to work on it".into()))
    }

    /// What this process would have all do once the step is done, in bits that whoever runs the steps gives a meaning:
    /// they travel with the step, at no cost.
    fn wish(&self) -> u8 {
        0
    }

    /// Whether each process is to hold a part of the optimizer's moments alone.
    fn splits_moments(&self) -> bool {
        false
    }

    /// Whether each process is to hold the sums of a part of the gradients alone; where it does, of the moments, too.
    fn splits_gradients(&self) -> bool {
        false
    }

    /// In how few bits gradients are to travel, where not as they are.
    fn coding(&self) -> Option<Format> {
        None
    }

    /// Tells what any process wishes, the same in all of them. A step that is left out brings nothing.
    fn hear(&mut self, _wishes: u8) {}
}

/// A single process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Exchange for Alone {
    fn rank(&self) -> usize {
        0
    }

    fn ranks(&self) -> usize {
        1
    }

    fn to_each(&mut self, parts: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        Ok(parts)
    }

    fn to_all(&mut self, part: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        Ok(vec![part])
    }
}

/// Tells all processes whether this one could do its part, with `part` for them; fails in all where one could not.
pub(super) fn agree(exchange: &mut dyn Exchange, part: Result<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
    let (mut told, failed) = match part {
        Ok(bytes) => (bytes, None),
        Err(error) => (error.to_string().into_bytes(), Some(error)),
    };
    // Behind it, so that numbers lie as they have to.
    told.extend([u8::from(failed.is_some()), exchange.wish()]);
    let mut all = exchange.to_all(told)?;
    if let Some(error) = failed {
        return Err(error);
    }
    let mut wishes = 0;
    for (rank, told) in all.iter_mut().enumerate() {
        let (wish, failed) = (told.pop().unwrap_or(0), told.pop().unwrap_or(1));
        wishes |= wish;
        if failed != 0 {
            let message = String::from_utf8_lossy(told);
            return Err(Error::State(format!("rank {rank} could not go on: {message}")));
        }
    }
    exchange.hear(wishes);
    Ok(all)
}

//! Commands of one frame that several threads record: for small kernels that takes longer than running them.

use super::Gpu;
use super::dispatch::{Dispatch, Work};
use super::pipeline::processors;
use super::unsent::{Finished, Unsent};
use crate::Result;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// The fewest dispatches that are worth threads of their own.
pub(super) const FEWEST: usize = 160;
/// Dispatches that are left for the end, which the caller submits with what comes after them: fewer than a frame submits
/// by itself.
pub(super) const LAST: usize = 16;
/// Dispatches of the first part, until which the device has nothing to do, and of the largest.
const FIRST_PART: usize = 16;
const LARGEST_PART: usize = 512;
/// The most threads: with more, parts wait for each other.
const MOST_THREADS: usize = 4;

/// Dispatches in parts, each twice as large as the one before it.
pub(super) fn parts<T>(mut all: &[T]) -> Vec<&[T]> {
    let (mut parts, mut size) = (Vec::new(), FIRST_PART);
    while !all.is_empty() {
        let (part, rest) = all.split_at(size.min(all.len()));
        parts.push(part);
        (all, size) = (rest, (2 * size).min(LARGEST_PART));
    }
    parts
}

/// What is recorded, until all that comes before it has been submitted.
struct Order {
    ready: Vec<Option<Result<Finished>>>,
    /// The part that comes next.
    next: usize,
    outcome: Result<()>,
}

impl Order {
    /// Submits whatever may be; nothing comes after what could not be recorded.
    fn submit(&mut self, gpu: &Gpu) {
        while let Some(ready) = self.ready.get_mut(self.next).and_then(Option::take) {
            self.next += 1;
            match ready {
                Ok(commands) if self.outcome.is_ok() => drop(commands.submit(gpu)),
                Err(error) if self.outcome.is_ok() => self.outcome = Err(error),
                _ => {}
            }
        }
    }
}

/// Records parts of a frame on several threads and submits them in their order, the first behind `before`.
///
/// # Errors
/// Of the first kernel that does not compile; nothing from its part on is submitted.
pub(super) fn submit(
    gpu: &Gpu,
    table: &wgpu::BindGroup,
    parts: &[&[(&Dispatch, u32)]],
    before: Option<Unsent>,
) -> Result<()> {
    let order = Order { ready: parts.iter().map(|_| None).collect(), next: 0, outcome: Ok(()) };
    let order = Mutex::new(order);
    let taken = AtomicUsize::new(0);
    let before = Mutex::new(before);
    let lock = || order.lock().unwrap_or_else(PoisonError::into_inner);
    let work = || {
        loop {
            let number = taken.fetch_add(1, Ordering::Relaxed);
            let Some(part) = parts.get(number) else { return };
            let first = match number {
                0 => before.lock().unwrap_or_else(PoisonError::into_inner).take(),
                _ => None,
            };
            let finished = record(gpu, table, part, first.unwrap_or_else(|| Unsent::new(gpu)));
            let mut order = lock();
            order.ready[number] = Some(finished);
            order.submit(gpu);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..MOST_THREADS.min(processors()).min(parts.len()) {
            scope.spawn(work);
        }
        work();
    });
    let mut order = lock();
    std::mem::replace(&mut order.outcome, Ok(()))
}

fn record(
    gpu: &Gpu,
    table: &wgpu::BindGroup,
    part: &[(&Dispatch, u32)],
    mut commands: Unsent,
) -> Result<Finished> {
    let mut pass = commands.begin_pass(table, None);
    for (dispatch, step) in part {
        if let Work::Kernel(bound) = &dispatch.work {
            bound.put(&mut pass, gpu.compiled(&bound.pipeline)?, step + dispatch.ahead);
        }
    }
    drop(pass);
    Ok(commands.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_double_and_are_all_there_is() {
        for count in [0, 1, FIRST_PART, FIRST_PART + 1, 5000] {
            let all: Vec<usize> = (0..count).collect();
            let parts = parts(&all);
            assert_eq!(parts.concat(), all);
            let whole = parts.iter().take(parts.len().saturating_sub(1)).enumerate();
            for (number, part) in whole {
                assert_eq!(part.len(), (FIRST_PART << number).min(LARGEST_PART));
            }
        }
    }
}

//! Faults that tests have a device meet: real ones come when they like.

use std::sync::atomic::{AtomicU64, Ordering};

/// What is to go wrong on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The device goes away before the submit that comes after so many.
    Loss(u64),
    /// The allocation that comes after so many is refused, and none after it.
    Allocation(u64),
    /// There is memory for so many bytes.
    Memory(u64),
    /// Nothing ends any more that is submitted after so many submits.
    Hang(u64),
}

/// What is still to come; `u64::MAX` for what is not.
#[derive(Debug)]
pub(super) struct Faults {
    loss: AtomicU64,
    allocation: AtomicU64,
    memory: AtomicU64,
    hang: AtomicU64,
}

impl Default for Faults {
    fn default() -> Self {
        let never = || AtomicU64::new(u64::MAX);
        Self { loss: never(), allocation: never(), memory: never(), hang: never() }
    }
}

/// Whether it is time: counts one down, and never comes back.
fn strikes(left: &AtomicU64) -> bool {
    let next = |left| (left != u64::MAX).then(|| if left == 0 { u64::MAX } else { left - 1 });
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) == Ok(0)
}

impl Faults {
    /// Has a fault come.
    pub(super) fn set(&self, fault: Fault) {
        let (which, value) = match fault {
            Fault::Loss(after) => (&self.loss, after),
            Fault::Allocation(after) => (&self.allocation, after),
            Fault::Memory(bytes) => (&self.memory, bytes),
            Fault::Hang(after) => (&self.hang, after),
        };
        which.store(value, Ordering::Relaxed);
    }

    /// Counts a submit that is about to come; whether the device is lost before it.
    pub(super) fn loses(&self) -> bool {
        let next = |left| (left != u64::MAX && left > 0).then(|| left - 1);
        let _ = self.hang.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        strikes(&self.loss)
    }

    /// Whether so many bytes are to be refused where so many are held.
    pub(super) fn refuses(&self, bytes: u64, held: u64) -> bool {
        strikes(&self.allocation) || held.saturating_add(bytes) > self.memory.load(Ordering::Relaxed)
    }

    /// Whether what was submitted last is never to end.
    pub(super) fn hangs(&self) -> bool {
        self.hang.load(Ordering::Relaxed) == 0
    }
}

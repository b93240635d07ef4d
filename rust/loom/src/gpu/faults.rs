//! Faults that tests have a device meet: real ones come when they like.

use super::Gpu;
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

impl Gpu {
    /// Has a fault come, so that tests see how a program copes; on this device alone.
    pub fn meet(&self, fault: Fault) {
        let (which, value) = match fault {
            Fault::Loss(after) => (&self.faults.loss, after),
            Fault::Allocation(after) => (&self.faults.allocation, after),
            Fault::Memory(bytes) => (&self.faults.memory, bytes),
            Fault::Hang(after) => (&self.faults.hang, after),
        };
        which.store(value, Ordering::Relaxed);
    }

    /// What comes before a submit.
    pub(super) fn before_submit(&self) {
        if strikes(&self.faults.loss) {
            self.lose();
        }
        let hang = &self.faults.hang;
        let next = |left| (left != u64::MAX && left > 0).then(|| left - 1);
        let _ = hang.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }

    /// Whether an allocation of so many bytes is to be refused.
    pub(super) fn refuses(&self, bytes: u64) -> bool {
        let most = self.faults.memory.load(Ordering::Relaxed);
        strikes(&self.faults.allocation) || self.allocated().saturating_add(bytes) > most
    }

    /// Whether what was submitted last is never to end.
    pub(super) fn hangs(&self) -> bool {
        self.faults.hang.load(Ordering::Relaxed) == 0
    }
}

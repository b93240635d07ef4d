//! What the pool's protocol is made of.

pub(super) use crate::simd::float_control::FloatControl;
pub(super) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
pub(super) use std::sync::{Condvar, Mutex, MutexGuard};
pub(super) use std::thread::yield_now;

use std::cell::UnsafeCell;
use std::time::{Duration, Instant};

/// A value that threads hand to each other.
pub(super) struct Slot<T>(UnsafeCell<T>);

impl<T: Copy> Slot<T> {
    pub(super) fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// # Safety
    /// No other thread uses it meanwhile.
    pub(super) unsafe fn put(&self, value: T) {
        // SAFETY: the caller says so.
        unsafe { *self.0.get() = value };
    }

    /// # Safety
    /// No other thread puts something in meanwhile.
    pub(super) unsafe fn get(&self) -> T {
        // SAFETY: the caller says so.
        unsafe { *self.0.get() }
    }
}

/// Passes time without hurting a neighbour, and says how much has passed.
pub(super) struct Watch {
    since: Option<Instant>,
    waited: Duration,
    turns: u32,
    give_way: bool,
}

impl Watch {
    pub(super) fn new(give_way: bool) -> Self {
        Self { since: None, waited: Duration::ZERO, turns: 0, give_way }
    }

    pub(super) fn turn(&mut self) -> Duration {
        self.turns += 1;
        if self.give_way {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
        // The clock is read seldom: it costs as much as several turns.
        if self.give_way || self.turns.is_multiple_of(32) {
            let since = *self.since.get_or_insert_with(Instant::now);
            self.waited = since.elapsed();
        }
        self.waited
    }
}

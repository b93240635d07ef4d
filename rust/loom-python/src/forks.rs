//! Forks of the process: they wait for a moment in which no thread is inside the engine.
//!
//! A child has its parent's memory and one of its threads. What the others were doing stays half done there,
//! and what they had locked stays locked, so that it matters where they are. A fork keeps new work out and
//! waits until the work that goes on has ended, but not for longer than [`PATIENCE`]: training may take
//! hours. A network in whose middle a thread was left cannot be used in the child, and says so.

use pyo3::prelude::*;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long a fork waits for work that goes on.
const PATIENCE: Duration = Duration::from_millis(250);
/// How long a thread sleeps that has to wait.
const NAP: Duration = Duration::from_micros(50);

/// Threads that are inside the engine.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
/// Forks that are under way.
static FORKING: AtomicUsize = AtomicUsize::new(0);
/// How many forks lie between this process and the first.
static GENERATION: AtomicUsize = AtomicUsize::new(0);
/// The thread that forked, by Python's number of it: the only one that goes on in the child.
static SURVIVOR: AtomicU64 = AtomicU64::new(0);
/// Whether the newest fork left a thread inside the engine.
static LEFT_INSIDE: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// How many calls of this thread are inside the engine, one in the other.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

fn depth() -> usize {
    DEPTH.with(Cell::get)
}

/// A call that is inside the engine: with a network locked, or without the GIL.
pub struct Inside(());

impl Inside {
    /// Enters, once no fork is under way; before anything is locked that another thread may want.
    pub fn enter() -> Self {
        while depth() == 0 {
            INSIDE.fetch_add(1, Ordering::SeqCst);
            if FORKING.load(Ordering::SeqCst) == 0 {
                break;
            }
            INSIDE.fetch_sub(1, Ordering::SeqCst);
            // Whoever forks needs the GIL for it.
            Python::attach(|py| py.detach(|| std::thread::sleep(NAP)));
        }
        DEPTH.with(|depth| depth.set(depth.get() + 1));
        Self(())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.with(|depth| depth.set(depth.get() - 1));
        if depth() == 0 {
            INSIDE.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Keeps threads out of the engine and waits for those inside, the caller's own calls apart.
#[pyfunction]
pub fn before_fork(py: Python<'_>) {
    FORKING.fetch_add(1, Ordering::SeqCst);
    let own = usize::from(depth() > 0);
    let until = Instant::now() + PATIENCE;
    py.detach(|| {
        while INSIDE.load(Ordering::SeqCst) > own && Instant::now() < until {
            std::thread::sleep(NAP);
        }
    });
}

/// Lets them in again.
#[pyfunction]
pub fn after_fork_in_parent() {
    FORKING.fetch_sub(1, Ordering::SeqCst);
}

/// Begins anew in the child, where only the `thread` of this number goes on.
#[pyfunction]
pub fn after_fork_in_child(thread: u64) {
    let own = usize::from(depth() > 0);
    LEFT_INSIDE.store(INSIDE.swap(own, Ordering::SeqCst) > own, Ordering::SeqCst);
    SURVIVOR.store(thread, Ordering::SeqCst);
    GENERATION.fetch_add(1, Ordering::SeqCst);
    FORKING.store(0, Ordering::SeqCst);
    loom::process::forked_off();
}

/// What a network has outlived.
pub struct Lineage {
    generation: AtomicUsize,
    /// Whether a fork left a thread in its middle.
    torn: AtomicBool,
}

impl Lineage {
    /// Of a network that is made now.
    pub fn new() -> Self {
        Self { generation: AtomicUsize::new(GENERATION.load(Ordering::SeqCst)), torn: AtomicBool::new(false) }
    }

    /// Whether the network can be used in this process; `is_free` says whether nobody has it locked. Where
    /// it was being trained by a thread that did not survive the fork, `trained_by` is cleared.
    pub fn is_whole(&self, is_free: impl FnOnce() -> bool, trained_by: &AtomicU64) -> bool {
        let now = GENERATION.load(Ordering::SeqCst);
        if self.generation.load(Ordering::SeqCst) == now {
            return !self.torn.load(Ordering::SeqCst);
        }
        if LEFT_INSIDE.load(Ordering::SeqCst) && !is_free() {
            if depth() > 0 {
                // Perhaps locked by the call that this one is inside of; asked again from outside.
                return true;
            }
            self.torn.store(true, Ordering::SeqCst);
        }
        let trainer = trained_by.load(Ordering::SeqCst);
        if trainer != 0 && trainer != SURVIVOR.load(Ordering::SeqCst) {
            trained_by.store(0, Ordering::SeqCst);
        }
        self.generation.store(now, Ordering::SeqCst);
        !self.torn.load(Ordering::SeqCst)
    }
}

//! Processes that were forked off: a child has its parent's memory, but neither its threads nor its devices.

use std::sync::atomic::{AtomicUsize, Ordering};

static FORKS: AtomicUsize = AtomicUsize::new(0);

/// Tells loom that this process was forked off another. To be called in the child before anything else of
/// loom; the Python package does so by itself.
///
/// From then on pools start threads of their own where they are used, and GPUs that the parent has opened are
/// as though they were lost: drivers do not survive a fork.
pub fn forked_off() {
    FORKS.fetch_add(1, Ordering::SeqCst);
}

/// How many forks lie between this process and the first; what was made under another number is another
/// process's.
pub(crate) fn generation() -> usize {
    FORKS.load(Ordering::Relaxed)
}

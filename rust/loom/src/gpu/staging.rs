//! Memory of the host by which bytes come from a device and go there, kept for the next time: making it takes longer than
//! using it.

use crate::shader::Allocation;
use std::sync::mpsc::Receiver;

/// The most pieces that are kept.
pub(super) const MOST_SPARE: usize = 64;

/// The most bytes of a piece that is kept by those who read now and then.
pub(super) const MOST_KEPT: u64 = 1 << 20;

/// Whether a buffer can be read or written, once that is known.
pub(super) type Mapped = Receiver<std::result::Result<(), wgpu::BufferAsyncError>>;

/// Memory that was sent by, and is there for the next time once the device has copied it.
#[derive(Debug)]
pub(super) struct Idle {
    pub(super) staging: Allocation,
    /// The copy from it.
    pub(super) submission: Option<wgpu::SubmissionIndex>,
    pub(super) mapped: Mapped,
}

/// The smallest that has so many bytes, and not more than twice as many.
pub(super) fn best_fit<A>(held: &[A], bytes: u64, size: impl Fn(&A) -> u64) -> Option<usize> {
    let fits = |held: &A| (bytes..=(2 * bytes).max(16)).contains(&size(held));
    let fitting = held.iter().enumerate().filter(|(_, held)| fits(held));
    fitting.min_by_key(|(_, held)| size(held)).map(|(place, _)| place)
}

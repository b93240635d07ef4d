//! What tasks work in, memory that threads keep from call to call and that only grows, and how many tasks
//! work is worth.

use crate::Buffer;
use crate::simd::LANES;
use bytemuck::Pod;
use std::cell::Cell;
use std::thread::LocalKey;

/// The work that is worth a task of its own, in vectors of multiplications: a few microseconds.
const TASK_WORK: usize = 8000;
/// Tasks for each thread, where there is work enough: they even out what else the machine does.
const TASKS_PER_THREAD: usize = 4;

/// How many tasks work of so many multiplications is worth.
pub(super) fn tasks_worth(multiplications: usize, threads: usize) -> usize {
    match threads {
        1 => 1,
        _ => (multiplications / LANES / TASK_WORK).clamp(1, threads * TASKS_PER_THREAD),
    }
}

thread_local! {
    /// Packed weights, decoded.
    pub(super) static DECODED: Cell<Buffer> = Cell::new(Buffer::default());
    /// What all tasks of a call read: weights made ready, sums of chunks.
    pub(super) static ELEMENTS: Cell<Buffer> = Cell::new(Buffer::default());
    /// Where tasks of a call find elements.
    pub(super) static OFFSETS: Cell<Buffer> = Cell::new(Buffer::default());
    /// What one task works in.
    pub(super) static TASK: Cell<Buffer> = Cell::new(Buffer::default());
}

/// Lends `len` elements of arbitrary content.
pub(super) fn lend<T: Pod, R>(
    memory: &'static LocalKey<Cell<Buffer>>,
    len: usize,
    body: impl FnOnce(&mut [T]) -> R,
) -> R {
    let mut buffer = memory.take();
    if buffer.len_bytes() < len * size_of::<T>() {
        // The old one goes first, so that both are never there together.
        drop(std::mem::take(&mut buffer));
        buffer = Buffer::working::<T>(len);
    }
    let result = body(&mut buffer.as_mut_slice::<T>()[..len]);
    memory.set(buffer);
    result
}

/// A destination that tasks write disjoint parts of.
#[derive(Clone, Copy)]
pub(super) struct Shared<T>(*mut T);

// SAFETY: it gives out an address only; who writes there answers for it.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// Of this memory.
    pub fn new(memory: &mut [T]) -> Self {
        Self(memory.as_mut_ptr())
    }

    /// The address of an element.
    pub fn at(&self, index: usize) -> *mut T {
        self.0.wrapping_add(index)
    }
}

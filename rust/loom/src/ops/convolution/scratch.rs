//! Working memory that threads keep from call to call; it only grows.

use crate::Buffer;
use bytemuck::Pod;
use std::cell::Cell;
use std::thread::LocalKey;

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

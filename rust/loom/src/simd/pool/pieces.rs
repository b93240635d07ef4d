//! A slice that tasks share, each its own piece.

use std::marker::PhantomData;

/// A mutable slice that tasks take disjoint pieces of.
pub(super) struct Pieces<'a, T> {
    data: *mut T,
    len: usize,
    chunk: usize,
    _borrow: PhantomData<&'a mut [T]>,
}

// SAFETY: it stands for the exclusive borrow it was made from; sharing it only
// lets threads take pieces, each of which `piece` hands to one caller only.
unsafe impl<T: Send> Sync for Pieces<'_, T> {}

impl<'a, T> Pieces<'a, T> {
    pub(super) fn new(data: &'a mut [T], chunk: usize) -> Self {
        let (len, chunk) = (data.len(), chunk.max(1));
        Self { data: data.as_mut_ptr(), len, chunk, _borrow: PhantomData }
    }

    pub(super) fn count(&self) -> usize {
        self.len.div_ceil(self.chunk)
    }

    /// # Safety
    /// No other call has the same index while the piece is in use. Past `count()`
    /// pieces are empty.
    #[allow(clippy::mut_from_ref)] // the caller promises that pieces do not overlap
    pub(super) unsafe fn piece(&self, index: usize) -> &mut [T] {
        let start = (index * self.chunk).min(self.len);
        let len = self.chunk.min(self.len - start);
        // SAFETY: within the borrowed slice, as start + len <= self.len; pieces of
        // different indices do not overlap.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(start), len) }
    }
}

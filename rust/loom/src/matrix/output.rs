//! Where a product goes, and what it starts from.

use std::marker::PhantomData;

/// What the sums start from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// From zero: what C held does not matter.
    Zero,
    /// From what C holds: the product is added, term by term.
    Continue,
}

/// The result, C[m, n], row after row with any distance between rows.
pub struct Output<'a, T> {
    pub(super) data: *mut T,
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) row_stride: usize,
    _borrow: PhantomData<&'a mut [T]>,
}

// SAFETY: it stands for the exclusive borrow it was made from.
unsafe impl<T: Send> Send for Output<'_, T> {}
// SAFETY: shared, it gives out addresses only; the product sees to it that tasks
// write disjoint parts.
unsafe impl<T: Send> Sync for Output<'_, T> {}

impl<'a, T> Output<'a, T> {
    /// C[m, n] with no gap between rows.
    ///
    /// # Panics
    /// If `data` does not hold m times n elements.
    pub fn new(data: &'a mut [T], m: usize, n: usize) -> Self {
        assert_eq!(data.len(), m.saturating_mul(n), "C does not hold {m} x {n} elements");
        Self::strided(data, m, n, n)
    }

    /// C[m, n] whose rows begin `row_stride` elements apart.
    ///
    /// # Panics
    /// If rows overlap, or the last lies beyond the end of `data`.
    pub fn strided(data: &'a mut [T], m: usize, n: usize, row_stride: usize) -> Self {
        assert!(row_stride >= n || m <= 1, "rows of {n} elements overlap at a distance of {row_stride}");
        let end = if m == 0 { 0 } else { (m - 1).saturating_mul(row_stride).saturating_add(n) };
        assert!(end <= data.len(), "C[{m}, {n}] does not fit {} elements", data.len());
        Self { data: data.as_mut_ptr(), rows: m, columns: n, row_stride, _borrow: PhantomData }
    }
}

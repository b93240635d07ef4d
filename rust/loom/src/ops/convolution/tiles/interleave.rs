//! Rows turned into columns: from channel after channel to all channels of a place side by side.

use crate::cpu::{Isa, Kernel, LANES, Real, Vector};

/// Sixteen rows of the same length, turned so that each place's sixteen elements lie side by side.
pub(in super::super) struct Interleave<T> {
    /// Rows; a null pointer stands for zeros.
    pub rows: [*const T; LANES],
    pub len: usize,
    /// A vector for each place, and from one to the next.
    pub to: *mut T,
    pub to_place: usize,
}

impl<T: Real> Interleave<T> {
    /// Writes them.
    ///
    /// # Safety
    /// Every row is good for `len` elements, and nobody else uses the destination.
    pub unsafe fn run(self, isa: Isa) {
        T::dispatch(isa, Interleaving(self));
    }
}

struct Interleaving<T>(Interleave<T>);

impl<T: Real> Kernel<T> for Interleaving<T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let Interleave { rows, len, to, to_place } = self.0;
        for first in (0..len).step_by(LANES) {
            let count = LANES.min(len - first);
            let mut block = [V::splat(T::ZERO); LANES];
            for (vector, row) in block.iter_mut().zip(rows) {
                if !row.is_null() {
                    // SAFETY: elements of the row, by the promise of `Interleave::run`.
                    *vector = V::load_partial(unsafe { std::slice::from_raw_parts(row.add(first), count) });
                }
            }
            V::transpose(&mut block);
            for (place, vector) in block.into_iter().enumerate().take(count) {
                // SAFETY: a place of the destination.
                unsafe { vector.store_unchecked(to.add((first + place) * to_place)) };
            }
        }
    }
}

//! Rows turned into columns: from channel after channel to all channels of a place side by side.

use crate::simd::{Isa, Kernel, LANES, Real, Vector};

/// Sixteen channels, each in runs of the same length, turned so that each place's sixteen elements lie
/// side by side.
pub(in super::super) struct Interleave<T> {
    /// Where the channels start; a null pointer stands for zeros.
    pub rows: [*const T; LANES],
    /// Elements of a run.
    pub len: usize,
    /// The runs, and from one to the next.
    pub runs: usize,
    pub from_run: usize,
    /// A vector for each place, and from one to the next, and from one run's to the next's.
    pub to: *mut T,
    pub to_place: usize,
    pub to_run: usize,
}

impl<T: Real> Interleave<T> {
    /// Writes them.
    ///
    /// # Safety
    /// Every channel is good for all runs of `len` elements, and nobody else uses the destination.
    pub unsafe fn run(self, isa: Isa) {
        T::dispatch(isa, Interleaving(self));
    }
}

struct Interleaving<T>(Interleave<T>);

impl<T: Real> Kernel<T> for Interleaving<T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let Interleave { rows, len, runs, from_run, to, to_place, to_run } = self.0;
        // Runs that follow on each other are one, whose vectors go to several places' rows.
        let (pieces, piece) = if len == from_run { (1, len * runs) } else { (runs, len) };
        let (mut run, mut column) = (0, 0);
        for index in 0..pieces {
            for first in (0..piece).step_by(LANES) {
                let count = LANES.min(piece - first);
                let mut block = [V::splat(T::ZERO); LANES];
                for (vector, row) in block.iter_mut().zip(rows) {
                    if !row.is_null() {
                        let from = row.wrapping_add(index * from_run + first);
                        // SAFETY: elements of the channel, by the promise of `Interleave::run`.
                        *vector = V::load_partial(unsafe { std::slice::from_raw_parts(from, count) });
                    }
                }
                V::transpose(&mut block);
                for vector in block.into_iter().take(count) {
                    // SAFETY: a place of the destination.
                    unsafe { vector.store_unchecked(to.add(run * to_run + column * to_place)) };
                    column += 1;
                    if column == len {
                        (run, column) = (run + 1, 0);
                    }
                }
            }
        }
    }
}

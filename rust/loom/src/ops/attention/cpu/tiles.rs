//! What passes of attention over tiles share: the tasks they are cut into, what those work in, who sees whom.

use crate::matrix::{PanelSource, Strided};
use crate::ops::Args;
use crate::ops::attention::{Attention, BLOCK, FixedMask};
use crate::ops::element_loops::map;
use crate::simd::{Cpu, Isa, Kernel, Real, Vector};
use crate::tensor::Buffer;
use std::cell::Cell;
use std::marker::PhantomData;

/// Queries of one head that are taken together: their weights over a block fit the first-level cache.
pub(super) const TILE: usize = 48;

/// Calls `body` with each of `0..parts`, several to a task where each takes but few multiply-adds.
pub(super) fn run_parts(cpu: &Cpu, parts: usize, multiply_adds: usize, body: impl Fn(usize) + Sync) {
    /// Worth a task: a few microseconds.
    const TASK: usize = 1 << 17;
    let together = (TASK / multiply_adds.max(1)).clamp(1, parts.max(1));
    cpu.pool().run(parts.div_ceil(together), &|task| {
        (task * together..parts.min((task + 1) * together)).for_each(&body);
    });
}

thread_local! {
    /// What a task works in; it only grows.
    static SCRATCH: Cell<Buffer> = Cell::new(Buffer::default());
}

/// Hands `then` this many elements of the thread's own memory, whatever they hold.
pub(super) fn with_scratch<T: Real>(elements: usize, then: impl FnOnce(&mut [T])) {
    let mut scratch = SCRATCH.take();
    if scratch.len_bytes() < elements * size_of::<T>() {
        scratch = Buffer::working::<T>(elements);
    }
    then(&mut scratch.as_mut_slice::<T>()[..elements]);
    SCRATCH.set(scratch);
}

/// Cuts the next `len` elements off.
pub(super) fn take<'a, T>(rest: &mut &'a mut [T], len: usize) -> &'a mut [T] {
    let (taken, left) = std::mem::take(rest).split_at_mut(len);
    *rest = left;
    taken
}

/// A result that tasks fill together, each its own places.
pub(super) struct Shared<'a, T> {
    data: *mut T,
    len: usize,
    _borrow: PhantomData<&'a mut [T]>,
}

// SAFETY: it stands for the exclusive borrow it was made from, whose elements may be sent.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T: Copy> Shared<'a, T> {
    pub(super) fn new(data: &'a mut [T]) -> Self {
        Self { data: data.as_mut_ptr(), len: data.len(), _borrow: PhantomData }
    }

    /// Writes some elements from `at` on.
    ///
    /// # Safety
    /// No other task writes any of these places.
    pub(super) unsafe fn write(&self, at: usize, elements: &[T]) {
        assert!(at + elements.len() <= self.len, "a result ends before {}", at + elements.len());
        // SAFETY: within the borrowed slice, and nobody else writes there.
        unsafe { self.data.add(at).copy_from_nonoverlapping(elements.as_ptr(), elements.len()) };
    }
}

/// Writes the transpose of `count` keys' heads from `first` on, (head_dim, [`BLOCK`]), for a product
/// to read in place.
pub(super) fn turn<T: Real>(
    isa: Isa,
    heads: &[T],
    stride: usize,
    head_dim: usize,
    count: usize,
    turned: &mut [T],
) {
    let heads = Strided::new(heads, head_dim, count, 1, stride);
    heads.pack(isa, 0..head_dim, 0..count, BLOCK, turned);
}

/// `y = x * factor`.
pub(super) struct Scale<'a, T> {
    pub(super) x: &'a [T],
    pub(super) y: &'a mut [T],
    pub(super) factor: T,
}

impl<T: Real> Kernel<T> for Scale<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let factor = V::splat(self.factor);
        map(self.x, self.y, |x: V| x * factor);
    }
}

/// Who sees whom, in one row of the batch.
#[derive(Clone, Copy)]
pub(super) struct Sight<'a, T> {
    pub(super) op: &'a Attention,
    /// The place of the first query.
    pub(super) position: usize,
    /// Keys that are there.
    pub(super) present: usize,
    /// The number of the sequence that each key is of, 0 for padding; empty where all are of one.
    pub(super) padding: &'a [T],
}

impl<'a, T: Real> Sight<'a, T> {
    pub(super) fn of(op: &'a Attention, args: &Args<'_>, row: usize, padding: &'a [T]) -> Self {
        let (position, present) = if op.cached {
            // The cache's owner sees to it that there is room.
            let position = args.values.position_of(row).min(op.keys.saturating_sub(op.queries));
            (position, op.keys.min(position + op.queries))
        } else {
            (0, op.keys)
        };
        let padding = if padding.is_empty() { padding } else { &padding[row * op.keys..][..op.keys] };
        Self { op, position, present, padding }
    }

    /// The keys that some query of `queries` may see, but for masks.
    pub(super) fn range(&self, queries: std::ops::Range<usize>) -> std::ops::Range<usize> {
        let first = self.op.sight(self.position + queries.start, self.present).start;
        let last = self.op.sight(self.position + queries.end - 1, self.present).end;
        first..last.max(first)
    }

    /// Hides, by minus infinity, the scores of those among the keys from `first` on that `query` does not see.
    #[inline(always)]
    pub(super) fn hide(&self, query: usize, first: usize, scores: &mut [T]) {
        let place = self.position + query;
        let seen = self.op.sight(place, self.present);
        let end = first + scores.len();
        let (from, to) = (seen.start.clamp(first, end) - first, seen.end.clamp(first, end) - first);
        let (from, to) = (from.min(to), to);
        scores[..from].fill(-T::INFINITY);
        scores[to..].fill(-T::INFINITY);
        if let Some(mask) = &self.op.fixed {
            hide_masked(mask, place, first, &mut scores[from..to], from);
        }
        if !self.padding.is_empty() {
            let own = self.padding.get(place).copied();
            for (score, sequence) in scores[from..to].iter_mut().zip(&self.padding[first + from..]) {
                if *sequence == T::ZERO || own.is_some_and(|own| own != *sequence) {
                    *score = -T::INFINITY;
                }
            }
        }
    }
}

/// Hides the scores that a mask forbids; `scores` are those of the keys from `first + skip` on.
fn hide_masked<T: Real>(mask: &FixedMask, place: usize, first: usize, scores: &mut [T], skip: usize) {
    for (i, score) in scores.iter_mut().enumerate() {
        if !mask.allows(place, first + skip + i) {
            *score = -T::INFINITY;
        }
    }
}

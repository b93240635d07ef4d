//! Which weights a step of training leaves out.

use crate::ops::attention::{Attention, BLOCK, QUAD};
use crate::ops::{Args, Dropout};
use crate::random::{Stream, Use, path_within};
use crate::simd::Real;

/// Keys whose blocks are drawn together.
const DRAW: usize = 16;

/// What is drawn for one row of the batch.
#[derive(Clone, Copy)]
pub(super) struct Drops<T> {
    seed: u64,
    pass: u64,
    path: u32,
    /// Of the blocks of a head, the number of the row's first.
    first: u64,
    keys: usize,
    threshold: u32,
    factor: T,
}

impl<T: Real> Drops<T> {
    /// Nothing where nothing is dropped.
    pub(super) fn of(op: &Attention, args: &Args<'_>, row: usize) -> Option<Self> {
        let blocks = op.queries.div_ceil(QUAD) as u64 * op.keys as u64;
        (op.dropout > 0.0).then(|| Self {
            seed: args.values.seed,
            pass: args.values.pass_number(),
            path: args.path,
            first: (args.values.row_offset + row as u64).wrapping_mul(blocks),
            keys: op.keys,
            threshold: Dropout::threshold_of(op.dropout),
            factor: T::from_f64(1.0 / (1.0 - op.dropout)),
        })
    }

    /// The draws of a head.
    pub(super) fn of_head(&self, head: usize) -> HeadDrops<T> {
        let path = path_within(self.path, head as u32);
        HeadDrops { of: *self, stream: Stream::new(self.seed, self.pass, path, Use::Dropout) }
    }
}

/// What is drawn for one head of one row.
#[derive(Clone, Copy)]
pub(super) struct HeadDrops<T> {
    of: Drops<T>,
    stream: Stream,
}

/// The words of four queries over a block of keys.
pub(super) struct Drawn<T> {
    drops: HeadDrops<T>,
    /// Which four, and the first key.
    place: Option<(usize, usize)>,
    words: [[u32; BLOCK]; QUAD],
}

impl<T: Real> Drawn<T> {
    pub(super) fn new(drops: HeadDrops<T>) -> Self {
        Self { drops, place: None, words: [[0; BLOCK]; QUAD] }
    }

    /// Zeroes what belongs to weights that are left out, of one query and the keys from `first` on, and divides the
    /// rest by the share of those that stay.
    #[inline(always)]
    pub(super) fn leave_out(&mut self, query: usize, first: usize, elements: &mut [T]) {
        let Drops { first: start, keys, threshold, factor, .. } = self.drops.of;
        let place = (query / QUAD, first);
        if self.place != Some(place) {
            self.place = Some(place);
            let block = start.wrapping_add((place.0 * keys + first) as u64);
            for from in (0..elements.len()).step_by(DRAW) {
                let drawn = self.drops.stream.blocks::<DRAW>(block.wrapping_add(from as u64) as u32);
                for (words, drawn) in self.words.iter_mut().zip(&drawn) {
                    words[from..][..DRAW].copy_from_slice(drawn);
                }
            }
        }
        for (element, word) in elements.iter_mut().zip(&self.words[query % QUAD]) {
            // Selected, not multiplied: of an infinity that is left out there stays nothing.
            *element = if *word < threshold { T::ZERO } else { *element * factor };
        }
    }
}

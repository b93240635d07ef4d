//! From scores to weights, and from weights to their gradients.

use super::drops::{Drawn, HeadDrops};
use super::tiles::Sight;
use crate::ops::attention::{Attention, BLOCK, NOTHING};
use crate::ops::element_loops::{lane_sums2, load, map_inline, store, update};
use crate::simd::{Elementwise, Kernel, LANES, Level, Math, Real, Vector, array_of, prefetch_second_level};
use std::ops::Range;

/// Holds scores between plus and minus a cap, where there is one.
#[inline(always)]
fn limit<V: Vector>(cap: Option<f64>, scores: &mut [V::Element]) {
    if let Some(cap) = cap {
        map_inline!(scores, |x: V| (x * V::constant(1.0 / cap)).tanh() * V::constant(cap));
    }
}

/// Adds one number to each of some others, up to the end of either.
#[inline(always)]
fn add<T: Real>(numbers: &[T], sums: &mut [T]) {
    for (sum, number) in sums.iter_mut().zip(numbers) {
        *sum += *number;
    }
}

/// What a task's queries add to their scores, by distance: as its last query sees the keys from the first one of its
/// first block on, and so on back to its first query.
#[derive(Clone, Copy)]
pub(super) struct Biases<'a, T> {
    /// One for each distance; empty where nothing is added.
    pub all: &'a [T],
    /// The key and the query of the first.
    pub from: (usize, usize),
}

impl<'a, T> Biases<'a, T> {
    /// What a query adds for the keys from `key` on.
    #[inline(always)]
    fn of(&self, query: usize, key: usize) -> &'a [T] {
        let Self { all, from: (first, last) } = *self;
        if all.is_empty() { all } else { &all[key - first + (last - query)..] }
    }
}

/// Turns the scores of a tile of queries over one block of keys into weights, and makes what the
/// queries have gathered so far fit them.
pub(super) struct Weigh<'a, T> {
    pub sight: &'a Sight<'a, T>,
    /// The queries, one row of scores each, [`BLOCK`] apart.
    pub queries: Range<usize>,
    /// The first key, and how many were scored.
    pub keys: (usize, usize),
    pub scores: &'a mut [T],
    /// The largest score each query has met, and the sum of its weights.
    pub largest: &'a mut [T],
    pub totals: &'a mut [T],
    /// Sums of weighted values, (queries, head_dim).
    pub gathered: &'a mut [T],
    /// Which weights are left out, if any are.
    pub drops: Option<HeadDrops<T>>,
    /// What is added to scores.
    pub biases: Biases<'a, T>,
}

impl<T: Real> Kernel<T> for Weigh<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let (first, count) = self.keys;
        // The places up to a whole vector are there; what they hold is hidden.
        let whole = count.next_multiple_of(LANES);
        let Attention { head_dim, soft_cap, .. } = *self.sight.op;
        let mut drawn = self.drops.map(Drawn::new);
        for (i, query) in self.queries.enumerate() {
            let scores = &mut self.scores[i * BLOCK..][..whole];
            add(self.biases.of(query, first), &mut scores[..count]);
            limit::<V>(soft_cap, &mut scores[..count]);
            self.sight.hide(query, first, &mut scores[..count]);
            scores[count..].fill(-T::INFINITY);
            let before = self.largest[i];
            let mut most = V::splat(-T::INFINITY);
            for scores in scores.chunks_exact(LANES) {
                most = V::load(scores).max(most);
            }
            let largest = Elementwise::max(most.reduce_max(), before);
            if largest == -T::INFINITY {
                // The query has yet to see a key.
                scores.fill(T::ZERO);
                continue;
            }
            let shift = V::splat(largest);
            let mut sums = V::splat(T::ZERO);
            for scores in scores.chunks_exact_mut(LANES) {
                let weight = (V::load(scores) - shift).exp();
                sums = sums + weight;
                weight.store(scores);
            }
            let sum = sums.reduce_sum();
            if before == largest {
                self.totals[i] += sum;
            } else if before == -T::INFINITY {
                self.totals[i] = sum;
            } else {
                let fade = Math::exp(before - largest);
                self.totals[i] = self.totals[i] * fade + sum;
                let fade = V::splat(fade);
                update(&mut self.gathered[i * head_dim..][..head_dim], |x: V| x * fade);
            }
            self.largest[i] = largest;
            if let Some(drawn) = &mut drawn {
                drawn.leave_out(query, first, scores);
            }
        }
    }
}

/// Scores of a few queries over the keys of a block, without turning the keys first: the bits of the product.
pub(super) struct Score<'a, T> {
    /// The queries, one after the other.
    pub q: &'a [T],
    pub head_dim: usize,
    /// The first key's head, and how far it is to the next one's.
    pub k: &'a [T],
    pub stride: usize,
    /// How many keys there are.
    pub keys: usize,
    /// Their values, which are wanted next.
    pub v: &'a [T],
    /// One row for each query, [`BLOCK`] apart.
    pub scores: &'a mut [T],
}

impl<T: Real> Score<'_, T> {
    /// Scores sixteen keys from `first` on, or the `present`, for R queries from `query` on: turned round sixteen
    /// elements at a time in registers.
    #[inline(always)]
    fn sixteen<V: Vector<Element = T>, const R: usize>(
        &mut self,
        query: usize,
        first: usize,
        present: usize,
    ) {
        let (d, whole) = (self.head_dim, self.head_dim / LANES * LANES);
        let q: [&[T]; R] = array_of(|i| &self.q[(query + i) * d..][..d]);
        let mut sums = [V::splat(T::ZERO); R];
        for part in (0..whole).step_by(LANES) {
            let mut block = [V::splat(T::ZERO); LANES];
            for (key, vector) in block.iter_mut().enumerate() {
                let key = first + key.min(present - 1);
                let at = key * self.stride + part;
                *vector = V::load(&self.k[at..]);
                if query == 0 {
                    // The keys themselves where nobody has asked for them, at the beginning.
                    if key + KEYS_AHEAD < self.keys {
                        prefetch_second_level(self.k.as_ptr().wrapping_add(at + KEYS_AHEAD * self.stride));
                    }
                    prefetch_second_level(self.v.as_ptr().wrapping_add(at));
                }
            }
            V::transpose(&mut block);
            for (place, keys) in block.into_iter().enumerate() {
                for (sum, q) in sums.iter_mut().zip(q) {
                    *sum = V::splat(q[part + place]).mul_add(keys, *sum);
                }
            }
        }
        for place in whole..d {
            let mut keys = [T::ZERO; LANES];
            for (key, element) in keys.iter_mut().enumerate() {
                *element = self.k[(first + key.min(present - 1)) * self.stride + place];
            }
            for (sum, q) in sums.iter_mut().zip(q) {
                *sum = V::splat(q[place]).mul_add(V::load(&keys), *sum);
            }
        }
        for (i, sum) in sums.into_iter().enumerate() {
            // Up to a whole vector there is room.
            sum.store(&mut self.scores[(query + i) * BLOCK + first..]);
        }
    }

    /// [`sixteen`](Self::sixteen) for all queries.
    #[inline(always)]
    fn all<V: Vector<Element = T>>(&mut self, first: usize, present: usize) {
        let queries = self.q.len() / self.head_dim;
        let mut query = 0;
        while query < queries {
            query += match queries - query {
                1 => {
                    self.sixteen::<V, 1>(query, first, present);
                    1
                }
                2 => {
                    self.sixteen::<V, 2>(query, first, present);
                    2
                }
                3 => {
                    self.sixteen::<V, 3>(query, first, present);
                    3
                }
                _ => {
                    self.sixteen::<V, 4>(query, first, present);
                    4
                }
            };
        }
    }
}

impl<T: Real> Kernel<T> for Score<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(mut self) {
        let whole = self.keys / LANES * LANES;
        for first in (0..whole).step_by(LANES) {
            self.all::<V>(first, LANES);
        }
        if whole < self.keys {
            self.all::<V>(whole, self.keys - whole);
        }
    }
}

/// What a few queries gather from the values of a block: the bits of the product.
pub(super) struct Gather<'a, T> {
    /// One row of weights for each query, [`BLOCK`] apart, ...
    pub weights: &'a [T],
    /// ... and what it has gathered, one after the other.
    pub gathered: &'a mut [T],
    pub head_dim: usize,
    /// The first key's values, how far it is to the next one's, and how many keys there are.
    pub v: &'a [T],
    pub stride: usize,
    pub keys: usize,
    /// The keys that are wanted next: the first one's head, and how many there are.
    pub next: (&'a [T], usize),
}

/// So many vectors as lie one behind the other; the last one may end before.
#[inline(always)]
fn vectors<V: Vector, const S: usize>(from: &[V::Element]) -> [V; S] {
    let mut vectors = [V::splat(V::Element::ZERO); S];
    for (vector, from) in vectors.iter_mut().zip(from.chunks(LANES)) {
        *vector = load(from);
    }
    vectors
}

impl<T: Real> Gather<'_, T> {
    /// S vectors of the heads of R queries from `query` on, from `place` on; of the last, one that may end before.
    #[allow(
        clippy::needless_range_loop,
        reason = "iterators that are not inlined pass all sums through memory"
    )]
    #[inline(always)]
    fn part<V: Vector<Element = T>, const R: usize, const S: usize>(&mut self, query: usize, place: usize) {
        let d = self.head_dim;
        let whole = d - place >= S * LANES;
        let mut sums = [[V::splat(T::ZERO); S]; R];
        for (i, sums) in sums.iter_mut().enumerate() {
            *sums = vectors(&self.gathered[(query + i) * d + place..][..(S * LANES).min(d - place)]);
        }
        let weights: [&[T]; R] = array_of(|i| &self.weights[(query + i) * BLOCK..][..self.keys]);
        for key in 0..self.keys {
            let at = key * self.stride + place;
            let v: [V; S] = match whole {
                true => vectors(&self.v[at..][..S * LANES]),
                false => [load(&self.v[at..][..d - place]); S],
            };
            if query == 0 && key < self.next.1 {
                for line in (0..S * LANES * size_of::<T>()).step_by(64) {
                    prefetch_second_level(
                        self.next.0.as_ptr().wrapping_add(at).cast::<u8>().wrapping_add(line),
                    );
                }
            }
            for i in 0..R {
                let weight = V::splat(weights[i][key]);
                for j in 0..S {
                    sums[i][j] = weight.mul_add(v[j], sums[i][j]);
                }
            }
        }
        for (i, sums) in sums.into_iter().enumerate() {
            let to = &mut self.gathered[(query + i) * d + place..][..(S * LANES).min(d - place)];
            for (j, sum) in sums.into_iter().enumerate() {
                store(sum, &mut to[j * LANES..]);
            }
        }
    }

    /// Whole heads of R queries, S vectors at a time, so that their sums need not wait for each other.
    #[inline(always)]
    fn rows<V: Vector<Element = T>, const R: usize, const S: usize>(&mut self, query: usize) -> usize {
        let whole = self.head_dim / (S * LANES) * (S * LANES);
        for place in (0..whole).step_by(S * LANES) {
            self.part::<V, R, S>(query, place);
        }
        for place in (whole..self.head_dim).step_by(LANES) {
            self.part::<V, R, 1>(query, place);
        }
        R
    }
}

impl<T: Real> Kernel<T> for Gather<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(mut self) {
        let queries = self.gathered.len() / self.head_dim;
        let mut query = 0;
        while query < queries {
            // With registers enough values are read once.
            query += match (queries - query, const { matches!(V::LEVEL, Level::Avx512) }) {
                (1, _) => self.rows::<V, 1, 4>(query),
                (2, true) => self.rows::<V, 2, 4>(query),
                (2, false) => self.rows::<V, 2, 2>(query),
                (3, true) => self.rows::<V, 3, 4>(query),
                (3, false) => self.rows::<V, 3, 2>(query),
                (_, true) => self.rows::<V, 4, 4>(query),
                (_, false) => self.rows::<V, 4, 2>(query),
            };
        }
    }
}

/// How many keys ahead are fetched: heads of one key lie apart from those of the next, which a processor does not see
/// by itself.
const KEYS_AHEAD: usize = 32;

/// What queries have gathered, divided by the sums of their weights, and the logarithms of the sums.
pub(super) struct Finish<'a, T> {
    pub head_dim: usize,
    pub largest: &'a mut [T],
    pub totals: &'a [T],
    pub gathered: &'a mut [T],
}

impl<T: Real> Kernel<T> for Finish<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let rows = self.gathered.chunks_exact_mut(self.head_dim);
        for ((largest, total), row) in self.largest.iter_mut().zip(self.totals).zip(rows) {
            let nothing = *total == T::ZERO;
            let share = V::splat(if nothing { T::ZERO } else { T::ONE / *total });
            update(row, |x: V| x * share);
            *largest = if nothing { T::from_f64(NOTHING) } else { *largest + Math::ln(*total) };
        }
    }
}

/// `mean = sum(dy y)` of each query's head.
pub(super) struct Means<'a, T> {
    pub head_dim: usize,
    pub dy: &'a [T],
    pub y: &'a [T],
    pub means: &'a mut [T],
}

impl<T: Real> Kernel<T> for Means<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let rows = self.dy.chunks_exact(self.head_dim).zip(self.y.chunks_exact(self.head_dim));
        for (mean, (dy, y)) in self.means.iter_mut().zip(rows) {
            *mean = lane_sums2(dy, y, |dy: V, y| dy * y).reduce_sum();
        }
    }
}

/// Turns a tile of scores into weights again, and the products of dy and v into gradients of the scores.
pub(super) struct Slopes<'a, T> {
    pub sight: &'a Sight<'a, T>,
    pub queries: Range<usize>,
    pub keys: (usize, usize),
    pub scores: &'a mut [T],
    pub slopes: &'a mut [T],
    /// Logarithms of the sums of weights, and the means of [`Means`].
    pub logs: &'a [T],
    pub means: &'a [T],
    /// Which weights are left out, if any are.
    pub drops: Option<HeadDrops<T>>,
    /// What is added to scores.
    pub biases: Biases<'a, T>,
    /// For each distance the sum of the gradients of scores, in the order of `biases`; empty where nobody wants it.
    pub sums: &'a mut [T],
}

impl<T: Real> Kernel<T> for Slopes<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let (first, count) = self.keys;
        let whole = count.next_multiple_of(LANES);
        let soft_cap = self.sight.op.soft_cap;
        let mut drawn = self.drops.map(Drawn::new);
        for (i, query) in self.queries.enumerate() {
            let scores = &mut self.scores[i * BLOCK..][..whole];
            add(self.biases.of(query, first), &mut scores[..count]);
            limit::<V>(soft_cap, &mut scores[..count]);
            self.sight.hide(query, first, &mut scores[..count]);
            let slopes = &mut self.slopes[i * BLOCK..][..whole];
            if let Some(drawn) = &mut drawn {
                drawn.leave_out(query, first, slopes);
            }
            let (log, mean) = (V::splat(self.logs[i]), V::splat(self.means[i]));
            for (scores, slopes) in scores.chunks_exact_mut(LANES).zip(slopes.chunks_exact_mut(LANES)) {
                let score = V::load(scores);
                let weight = (score - log).exp();
                let mut slope = weight * (V::load(slopes) - mean);
                if let Some(cap) = soft_cap {
                    let share = score * V::constant(1.0 / cap);
                    slope = slope * (V::splat(T::ONE) - share * share);
                }
                // A hidden key's weight is zero, and so is its slope, were the mean infinite.
                let seen = weight.gt(V::splat(T::ZERO));
                weight.store(scores);
                V::select(seen, slope, weight).store(slopes);
            }
            if !self.sums.is_empty() {
                let (key, last) = self.biases.from;
                add(&slopes[..count], &mut self.sums[first - key + (last - query)..]);
            }
            if let Some(drawn) = &mut drawn {
                drawn.leave_out(query, first, scores);
            }
        }
    }
}

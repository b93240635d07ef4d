//! Attention by plain loops: the order of every sum, one number at a time.

use super::{Attention, BLOCK, NOTHING, PositionBias};
use crate::ops::StepValues;
use crate::ops::testing::lane_sum;
use crate::random::{Stream, Use, path_within};
use crate::simd::{Math, Real};

/// What a gradient is computed from, beside q, k and v.
pub(super) struct Saved<'a, T> {
    pub y: &'a [T],
    pub logs: &'a [T],
    pub dy: &'a [T],
}

/// The draws of one row of a batch.
pub(super) struct Draws<'a> {
    pub values: &'a StepValues,
    pub path: u32,
    pub row: usize,
}

/// What says who sees whom, and how well.
pub(super) struct Sight<'a, T> {
    pub padding: &'a [bool],
    /// The bias's.
    pub table: &'a [T],
}

impl Attention {
    /// What a weight, or the gradient of one, becomes where some are left out.
    fn drop_out<T: Real>(&self, draws: &Draws<'_>, [head, query, key]: [usize; 3], x: T) -> T {
        let path = path_within(draws.path, head as u32);
        let stream = Stream::new(draws.values.seed, draws.values.pass_number(), path, Use::Dropout);
        let row = draws.values.row_offset as usize + draws.row;
        let block = (row * self.queries.div_ceil(4) + query / 4) * self.keys + key;
        let word = stream.word((block * 4 + query % 4) as u64);
        let dropped = f64::from(word) < self.dropout * 2f64.powi(32);
        if self.dropout == 0.0 {
            x
        } else if dropped {
            T::ZERO
        } else {
            x * T::from_f64(1.0 / (1.0 - self.dropout))
        }
    }

    fn score<T: Real>(&self, q: &[T], k: &[T], bias: T) -> T {
        let scale = T::from_f64(self.scale);
        let score = q.iter().zip(k).fold(T::ZERO, |sum, (q, k)| (*q * scale).mul_add(*k, sum));
        let score = if self.bias.is_some() { score + bias } else { score };
        let Some(cap) = self.soft_cap else { return score };
        Math::tanh(score * T::from_f64(1.0 / cap)) * T::from_f64(cap)
    }

    /// What the gradient of a score is multiplied by.
    fn cap_slope<T: Real>(&self, score: T) -> T {
        let Some(cap) = self.soft_cap else { return T::ONE };
        let share = score * T::from_f64(1.0 / cap);
        T::ONE - share * share
    }

    /// One row forward: the output and the logarithms of the sums.
    pub(super) fn forward_reference<T: Real>(
        &self,
        position: usize,
        q: &[T],
        k: &[T],
        v: &[T],
        Sight { padding, table }: &Sight<'_, T>,
        draws: &Draws<'_>,
    ) -> (Vec<T>, Vec<T>) {
        let d = self.head_dim;
        let present = if self.cached { position + self.queries } else { self.keys };
        let mut y = vec![T::ZERO; q.len()];
        let mut logs = vec![T::ZERO; self.queries * self.heads];
        for (at, y) in y.chunks_exact_mut(d).enumerate() {
            let (query, head) = (at / self.heads, at % self.heads);
            let place = if self.cached { position + query } else { query };
            let of = |x: &'_ [T], key: usize| -> Vec<T> {
                x[(key * self.key_value_heads + head / self.group()) * d..][..d].to_vec()
            };
            let (mut largest, mut total) = (-T::INFINITY, T::ZERO);
            for block in (0..present).step_by(BLOCK) {
                let keys = block..present.min(block + BLOCK);
                let scores: Vec<T> = keys
                    .clone()
                    .map(|key| match self.sees(place, present, key, padding) {
                        true => {
                            let bias = self.bias_of(table, [head, place, key]);
                            self.score(&q[at * d..][..d], &of(k, key), bias)
                        }
                        false => -T::INFINITY,
                    })
                    .collect();
                let before = largest;
                largest =
                    scores.iter().fold(largest, |most, score| if *score > most { *score } else { most });
                if largest == -T::INFINITY {
                    continue;
                }
                let fade = if before == -T::INFINITY { T::ZERO } else { Math::exp(before - largest) };
                let weights: Vec<T> = scores.iter().map(|score| Math::exp(*score - largest)).collect();
                total = total * fade + lane_sum(weights.iter().copied());
                let kept: Vec<T> = keys
                    .clone()
                    .zip(&weights)
                    .map(|(key, weight)| self.drop_out(draws, [head, query, key], *weight))
                    .collect();
                for (i, y) in y.iter_mut().enumerate() {
                    *y *= fade;
                    for (key, weight) in keys.clone().zip(&kept) {
                        *y = weight.mul_add(of(v, key)[i], *y);
                    }
                }
            }
            let share = if total == T::ZERO { T::ZERO } else { T::ONE / total };
            y.iter_mut().for_each(|y| *y *= share);
            logs[at] = if total == T::ZERO { T::from_f64(NOTHING) } else { largest + Math::ln(total) };
        }
        (y, logs)
    }

    /// One row backward: dq, dk, dv and what it adds to the gradient of the table.
    pub(super) fn backward_reference<T: Real>(
        &self,
        q: &[T],
        k: &[T],
        v: &[T],
        saved: &Saved<'_, T>,
        Sight { padding, table }: &Sight<'_, T>,
        draws: &Draws<'_>,
    ) -> [Vec<T>; 4] {
        let d = self.head_dim;
        let scale = T::from_f64(self.scale);
        let (mut dq, mut dk, mut dv) =
            (vec![T::ZERO; q.len()], vec![T::ZERO; k.len()], vec![T::ZERO; v.len()]);
        let mut dtable = vec![T::ZERO; table.len()];
        for head in 0..self.heads {
            let mut sums = vec![T::ZERO; self.keys + self.queries];
            for query in 0..self.queries {
                let at = query * self.heads + head;
                let part = at * d..(at + 1) * d;
                let (q, dy, y) = (&q[part.clone()], &saved.dy[part.clone()], &saved.y[part.clone()]);
                let mean = lane_sum(dy.iter().zip(y).map(|(dy, y)| *dy * *y));
                for key in 0..self.keys {
                    let other = (key * self.key_value_heads + head / self.group()) * d;
                    let other = other..other + d;
                    if !self.sees(query, self.keys, key, padding) {
                        continue;
                    }
                    let bias = self.bias_of(table, [head, query, key]);
                    let score = self.score(q, &k[other.clone()], bias);
                    let weight = Math::exp(score - saved.logs[at]);
                    let slope =
                        dy.iter().zip(&v[other.clone()]).fold(T::ZERO, |sum, (dy, v)| dy.mul_add(*v, sum));
                    let slope = self.drop_out(draws, [head, query, key], slope);
                    let kept = self.drop_out(draws, [head, query, key], weight);
                    let slope = weight * (slope - mean) * self.cap_slope(score);
                    sums[key + self.queries - 1 - query] += slope;
                    for i in 0..d {
                        let (mine, theirs) = (part.start + i, other.start + i);
                        dv[theirs] = kept.mul_add(dy[i], dv[theirs]);
                        dk[theirs] = slope.mul_add(q[i] * scale, dk[theirs]);
                        dq[mine] = slope.mul_add(k[theirs], dq[mine]);
                    }
                }
            }
            if let Some(PositionBias::Buckets(buckets)) = &self.bias {
                for (sum, bucket) in sums.iter().zip(buckets.rows().0) {
                    dtable[*bucket as usize * self.heads + head] += *sum;
                }
            }
        }
        dq.iter_mut().for_each(|dq| *dq *= scale);
        [dq, dk, dv, dtable]
    }
}

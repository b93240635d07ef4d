//! Attention by plain loops: the order of every sum, one number at a time.

use super::{Attention, BLOCK, NOTHING};
use crate::ops::testing::lane_sum;
use crate::simd::{Math, Real};

/// What a gradient is computed from, beside q, k and v.
pub(super) struct Saved<'a, T> {
    pub y: &'a [T],
    pub logs: &'a [T],
    pub dy: &'a [T],
}

impl Attention {
    fn score<T: Real>(&self, q: &[T], k: &[T]) -> T {
        let scale = T::from_f64(self.scale);
        let score = q.iter().zip(k).fold(T::ZERO, |sum, (q, k)| (*q * scale).mul_add(*k, sum));
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
        padding: &[bool],
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
                        true => self.score(&q[at * d..][..d], &of(k, key)),
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
                for (i, y) in y.iter_mut().enumerate() {
                    *y *= fade;
                    for (key, weight) in keys.clone().zip(&weights) {
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

    /// One row backward: dq, dk and dv.
    pub(super) fn backward_reference<T: Real>(
        &self,
        q: &[T],
        k: &[T],
        v: &[T],
        saved: &Saved<'_, T>,
        padding: &[bool],
    ) -> [Vec<T>; 3] {
        let d = self.head_dim;
        let scale = T::from_f64(self.scale);
        let (mut dq, mut dk, mut dv) =
            (vec![T::ZERO; q.len()], vec![T::ZERO; k.len()], vec![T::ZERO; v.len()]);
        for head in 0..self.heads {
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
                    let score = self.score(q, &k[other.clone()]);
                    let weight = Math::exp(score - saved.logs[at]);
                    let slope =
                        dy.iter().zip(&v[other.clone()]).fold(T::ZERO, |sum, (dy, v)| dy.mul_add(*v, sum));
                    let slope = weight * (slope - mean) * self.cap_slope(score);
                    for i in 0..d {
                        let (mine, theirs) = (part.start + i, other.start + i);
                        dv[theirs] = weight.mul_add(dy[i], dv[theirs]);
                        dk[theirs] = slope.mul_add(q[i] * scale, dk[theirs]);
                        dq[mine] = slope.mul_add(k[theirs], dq[mine]);
                    }
                }
            }
        }
        dq.iter_mut().for_each(|dq| *dq *= scale);
        [dq, dk, dv]
    }
}

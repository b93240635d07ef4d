//! The weights of attention, which the fused operation never holds, for looking at them.

use super::{Attention, PositionBias};
use crate::simd::Real;

impl Attention {
    /// Whether the query at `place` sees a key, where so many are `present`; `padding` says of each step
    /// whether it is real, and is empty where all are.
    pub(crate) fn sees(&self, place: usize, present: usize, key: usize, padding: &[bool]) -> bool {
        self.sight(place, present).contains(&key)
            && self.fixed.as_ref().is_none_or(|mask| mask.allows(place, key))
            && (padding.is_empty() || padding[key] && padding[place])
    }

    /// What the distance of a query and a key adds to their score.
    pub(super) fn bias_of<T: Real>(&self, table: &[T], [head, query, key]: [usize; 3]) -> T {
        match &self.bias {
            None => T::ZERO,
            Some(PositionBias::Slopes(slopes)) => {
                T::from_f64(-slopes[head]) * T::from_usize(key.abs_diff(query))
            }
            Some(PositionBias::Buckets(buckets)) => {
                let (rows, zero) = buckets.rows();
                table[rows[zero + key - query] as usize * self.heads + head]
            }
        }
    }

    /// The weights of one row, (heads, queries, keys), of queries that stand at their own places: each query's
    /// sum to 1, or are all zero where it sees nothing. `table` is the bias's, where it has one.
    ///
    /// They are summed in double precision, so they are those of the fused operation up to its rounding.
    pub(crate) fn weights<T: Real>(&self, q: &[T], k: &[T], padding: &[bool], table: &[T]) -> Vec<T> {
        let (d, group) = (self.head_dim, self.group());
        let mut weights = Vec::with_capacity(self.heads * self.queries * self.keys);
        for (head, query) in
            (0..self.heads).flat_map(|head| (0..self.queries).map(move |query| (head, query)))
        {
            let asking = &q[(query * self.heads + head) * d..][..d];
            let scores: Vec<f64> = (0..self.keys)
                .map(|key| {
                    if !self.sees(query, self.keys, key, padding) {
                        return f64::NEG_INFINITY;
                    }
                    let answering = &k[(key * self.key_value_heads + head / group) * d..][..d];
                    let products = asking.iter().zip(answering).map(|(q, k)| q.to_f64() * k.to_f64());
                    let bias = self.bias_of(table, [head, query, key]).to_f64();
                    let score = products.sum::<f64>() * self.scale + bias;
                    self.soft_cap.map_or(score, |cap| cap * libm::tanh(score / cap))
                })
                .collect();
            let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let share = |score: &f64| if largest.is_finite() { libm::exp(score - largest) } else { 0.0 };
            let total: f64 = scores.iter().map(share).sum();
            weights
                .extend(scores.iter().map(|score| T::from_f64(share(score) / total.max(f64::MIN_POSITIVE))));
        }
        weights
    }
}

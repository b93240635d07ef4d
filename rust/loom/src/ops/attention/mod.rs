//! Fused scaled dot-product attention: memory grows with the sequence, not with its square.
//!
//! Keys are taken in blocks of `BLOCK`, counted from the first, and each query keeps a running
//! maximum and sum of its weights (Milakov and Gimelshein 2018; Dao et al. 2022). What is kept for
//! the gradient is the output and the logarithm of each sum; the weights are computed again.

mod bias;
mod cache;
mod cpu;
mod gpu;
mod mask;
mod packed;
#[cfg(test)]
mod reference;
mod spans;
#[cfg(test)]
mod tests;
mod weights;

pub use bias::{Buckets, PositionBias};
pub use cache::{CacheAppend, Keep, Kept};
pub use mask::FixedMask;
pub use packed::CacheType;
pub(crate) use packed::Unpack;
pub(in crate::ops) use spans::Spans;

use super::Direction;
use crate::tensor::Precision;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Keys whose weights are summed before they join a query's running sum.
pub(crate) const BLOCK: usize = 128;

/// Queries of neighbouring places that draw their words together.
pub(crate) const QUAD: usize = 4;

/// Stands for the logarithm of a sum over no key: every weight computed with it is zero.
pub(crate) const NOTHING: f64 = f32::MAX as f64;

/// Attention of `heads` query heads over `key_value_heads` heads of keys and values, for each row:
/// query head h looks at head h / (heads / key_value_heads).
///
/// - forward reads q (queries, heads, head_dim), k and v (keys, key_value_heads, head_dim), the
///   padding (keys,) if there is one, and the table of the bias (buckets, heads) if it has one, and writes y like
///   q and the logarithms of the sums (queries, heads);
/// - input gradient reads q, k, v, y, the logarithms, dy, and padding and table as above, and
///   writes dq, dk, dv and, with `table_gradient`, what each row of the batch adds to the table's gradient.
///
/// With `cached`, k and v are caches with room for `keys`, of which the session's position + queries
/// are there, and query i stands at position + i; otherwise query i stands at i. There is no gradient
/// through a cache. A cache of another [`CacheType`] holds the heads of each step packed, for processors alone; a block
/// is computed with the numbers that they stand for.
///
/// Order of sums: the score of q and k is that of a product over head_dim, q having been multiplied by
/// `scale`, plus what the bias adds; with a `soft_cap` it is then `cap tanh(score (1 / cap))`. Over the keys of a block the weights exp(score - maximum) are summed by the 16-lane rule;
/// at each block, what was there (the sum, and y) is multiplied by exp(old maximum - new) before
/// the block's is added, y key by key. So a query's result depends on nothing but what it sees. In
/// the gradient, dq is a product over the keys, times `scale`; dk and dv are products over
/// (query heads, queries); a capped score's gradient is multiplied by `1 - (score (1 / cap))^2`. Of the table the
/// gradients of scores are summed over the queries for each distance, and these sums over the distances of a bucket.
///
/// With `dropout` values are gathered by weights of which each is left out with that probability, and the others
/// divided by `1 - dropout`; the sums stay those of all. Words come from the generator keyed by (seed, pass, path of the
/// layer and then the head, dropout): word i of block `(row x fours + f) x keys + key` is that of query `4 f + i`, where
/// a row has `fours` times four queries, the last of them filled up, and is counted from the start of the step's
/// global batch. So the backward pass draws what the forward pass has drawn.
#[derive(Clone, Debug)]
pub struct Attention {
    /// Forward or input gradient.
    pub direction: Direction,
    /// Length of the sequence that asks.
    pub queries: usize,
    /// Length of the sequence that is looked at, or the room in the cache.
    pub keys: usize,
    /// Heads of the queries; a multiple of the heads of keys and values.
    pub heads: usize,
    /// Heads of the keys and values.
    pub key_value_heads: usize,
    /// Extent of a head.
    pub head_dim: usize,
    /// Multiplies the queries; 1 / sqrt(head_dim) as a rule.
    pub scale: f64,
    /// Scores become `cap tanh(score / cap)`, before any is hidden.
    pub soft_cap: Option<f64>,
    /// Whether queries see no key after their own place.
    pub causal: bool,
    /// Queries see keys nearer than this only: the last `window` where causal, and as many ahead where not.
    pub window: Option<usize>,
    /// Which query may see which key, by their places.
    pub fixed: Option<Arc<FixedMask>>,
    /// Whether an operand says of each step the number of the sequence that it is of, from 1 on, and 0 of padding:
    /// what is padding is not seen and, where queries are the same steps, these see their own sequence alone.
    pub padding: bool,
    /// Whether k and v are a session's caches.
    pub cached: bool,
    /// What those hold keys and values as.
    pub cache: CacheType,
    /// What is added to scores by the distance of places; queries and keys are then steps of one sequence.
    pub bias: Option<PositionBias>,
    /// Whether the gradient of the bias's table is wanted.
    pub table_gradient: bool,
    /// Probability with which a weight is left out; 0 where all stay.
    pub dropout: f64,
    /// Whether a device may round the operands of its products to binary16, where it has matrix units for them.
    pub mixed: bool,
}

impl Attention {
    /// Full attention of one sequence over another.
    pub fn new(
        (queries, keys): (usize, usize),
        (heads, key_value_heads): (usize, usize),
        head_dim: usize,
    ) -> Self {
        Self {
            direction: Direction::Forward,
            queries,
            keys,
            heads,
            key_value_heads,
            head_dim,
            scale: 1.0 / (head_dim as f64).sqrt(),
            soft_cap: None,
            causal: false,
            window: None,
            fixed: None,
            padding: false,
            cached: false,
            cache: CacheType::Full,
            bias: None,
            table_gradient: false,
            dropout: 0.0,
            mixed: false,
        }
    }

    /// Whether the bias has a table.
    pub(crate) fn has_table(&self) -> bool {
        matches!(self.bias, Some(PositionBias::Buckets(_)))
    }

    /// Elements from one head of a key to the next one's.
    pub(crate) fn kept(&self, precision: Precision) -> usize {
        self.cache.elements(precision, self.head_dim)
    }

    /// Values that the forward pass reads.
    pub(crate) fn reads(&self) -> usize {
        3 + usize::from(self.padding)
    }

    /// Query heads that share a head of keys and values.
    pub(crate) fn group(&self) -> usize {
        self.heads / self.key_value_heads
    }

    /// The keys, of `present`, that the query at `place` may see as far as causality and window go.
    pub(crate) fn sight(&self, place: usize, present: usize) -> Range<usize> {
        let first = self.window.map_or(0, |window| (place + 1).saturating_sub(window));
        let last = match (self.causal, self.window) {
            (true, _) => place + 1,
            (false, Some(window)) => place.saturating_add(window),
            (false, None) => present,
        };
        first.min(present)..last.min(present)
    }
}

impl fmt::Display for Attention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attention.{} {}x{}", self.direction, self.queries, self.keys)?;
        write!(f, " heads {}/{}x{}", self.heads, self.key_value_heads, self.head_dim)?;
        if let Some(cap) = self.soft_cap {
            write!(f, " cap {cap}")?;
        }
        if self.causal {
            write!(f, " causal")?;
        }
        if let Some(window) = self.window {
            write!(f, " window {window}")?;
        }
        for (set, name) in
            [(self.fixed.is_some(), "mask"), (self.padding, "padding"), (self.cached, "cached")]
        {
            if set {
                write!(f, " {name}")?;
            }
        }
        if self.cache != CacheType::Full {
            write!(f, " {}", self.cache)?;
        }
        if let Some(bias) = &self.bias {
            write!(f, " {bias}")?;
        }
        if self.dropout > 0.0 {
            write!(f, " dropout {}", self.dropout)?;
        }
        Ok(())
    }
}

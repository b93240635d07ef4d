//! Keeping keys and values for the calls to come.

use super::CacheType;
use crate::Result;
use crate::ops::{Args, Operation, Rotary};
use crate::simd::Real;
use std::fmt;

/// Writes the steps of a session's call behind those of its earlier calls.
///
/// Reads x (time, features), writes places position .. position + time of a cache
/// (capacity, features), or as many elements as these take when they are packed, and leaves the others as they
/// are; what has no room is dropped.
#[derive(Clone, Debug)]
pub struct CacheAppend {
    /// Steps of this call.
    pub time: usize,
    /// Steps there is room for.
    pub capacity: usize,
    /// Elements of a step.
    pub features: usize,
    /// What they are kept as.
    pub cache: CacheType,
    /// Elements of a step that are packed together: those of a head.
    pub head_dim: usize,
}

impl CacheAppend {
    /// Keeps steps as they are.
    pub fn new(time: usize, capacity: usize, features: usize) -> Self {
        Self { time, capacity, features, cache: CacheType::Full, head_dim: features }
    }
}

/// What a call leaves for its attention and for the calls to come, each part made of one value and into one place,
/// none of which another part reads: several steps for a device that does better to make them as one.
#[derive(Clone, Debug)]
pub struct Keep {
    /// The parts.
    pub parts: Vec<Kept>,
}

/// One value, rotated, kept in a cache, or both.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Turns it.
    pub rotary: Option<Rotary>,
    /// Writes it behind what earlier calls have left.
    pub append: Option<CacheAppend>,
}

impl Keep {
    /// The most steps of a layer that are made as one: queries, keys and values, and where two are kept.
    pub const MOST: usize = 4;
}

impl fmt::Display for CacheAppend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cache_append {}/{}x{}", self.time, self.capacity, self.features)?;
        if self.cache != CacheType::Full {
            write!(f, " {}", self.cache)?;
        }
        Ok(())
    }
}

impl Operation for CacheAppend {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let (x, cache) = (args.read::<T>(0), args.write::<T>(0));
        let heads = self.features / self.head_dim;
        let kept = self.cache.elements(T::PRECISION, self.head_dim);
        let step = heads * kept;
        for (row, x) in x.chunks_exact(self.time * self.features).enumerate() {
            let position = args.values.position_of(row).min(self.capacity);
            let count = self.time.min(self.capacity - position);
            let start = (args.values.sequence_of(row) * self.capacity + position) * step;
            let (x, cache) = (&x[..count * self.features], &mut cache[start..][..count * step]);
            if self.cache == CacheType::Full {
                cache.copy_from_slice(x);
                continue;
            }
            for (x, cache) in x.chunks_exact(self.head_dim).zip(cache.chunks_exact_mut(kept)) {
                self.cache.pack(x, cache)?;
            }
        }
        Ok(())
    }
}

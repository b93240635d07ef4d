//! Keeping keys and values for the calls to come.

use crate::Result;
use crate::ops::{Args, Operation};
use crate::simd::Real;
use std::fmt;

/// Writes the steps of a session's call behind those of its earlier calls.
///
/// Reads x (time, features), writes places position .. position + time of a cache
/// (capacity, features), and leaves the others as they are; what has no room is dropped.
#[derive(Clone, Debug)]
pub struct CacheAppend {
    /// Steps of this call.
    pub time: usize,
    /// Steps there is room for.
    pub capacity: usize,
    /// Elements of a step.
    pub features: usize,
}

impl fmt::Display for CacheAppend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cache_append {}/{}x{}", self.time, self.capacity, self.features)
    }
}

impl Operation for CacheAppend {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let (x, cache) = (args.read::<T>(0), args.write::<T>(0));
        let position = (args.values.position as usize).min(self.capacity);
        let len = self.time.min(self.capacity - position) * self.features;
        let rows = x.chunks_exact(self.time * self.features);
        for (x, cache) in rows.zip(cache.chunks_exact_mut(self.capacity * self.features)) {
            cache[position * self.features..][..len].copy_from_slice(&x[..len]);
        }
        Ok(())
    }
}

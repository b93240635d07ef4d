//! Keeping keys and values for the calls to come.

use crate::Result;
use crate::ops::{Args, Operation, Rotary};
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
        write!(f, "cache_append {}/{}x{}", self.time, self.capacity, self.features)
    }
}

impl Operation for CacheAppend {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let (x, cache) = (args.read::<T>(0), args.write::<T>(0));
        let extent = self.capacity * self.features;
        for (row, x) in x.chunks_exact(self.time * self.features).enumerate() {
            let position = args.values.position_of(row).min(self.capacity);
            let len = self.time.min(self.capacity - position) * self.features;
            let start = args.values.sequence_of(row) * extent + position * self.features;
            cache[start..][..len].copy_from_slice(&x[..len]);
        }
        Ok(())
    }
}

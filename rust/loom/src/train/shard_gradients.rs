//! The gradients of the shards that one process computes: where they lie, and how they are added up there.
//!
//! A gradient is as large as all weights. What it takes is memory's speed, so it is copied only where a sum has to wait
//! for another one, by all threads, and into memory that an earlier shard has used: new pages would cost more than
//! the sums.

use super::buckets::{Bucket, Summed};
use super::spare::Spare;
use super::summing::{CHUNK, Node, add, halves, spread};
use crate::Result;
use crate::network::Network;
use crate::simd::{Cpu, Real};
use crate::tensor::Buffer;

/// Shards, one after the other, whose gradients come to lie in the same place.
pub(super) trait Shards<T> {
    /// Computes a shard; whether it has a gradient.
    ///
    /// # Errors
    /// Those of a step.
    fn compute(&mut self, shard: usize) -> Result<bool>;

    /// A copy of the newest gradient.
    fn copy(&mut self) -> Vec<T>;

    /// Adds the newest gradient to a sum.
    fn add_to(&mut self, sum: &mut [T]);

    /// Takes back a vector that is not needed any more.
    fn give(&mut self, vector: Vec<T>);
}

/// The sum over a part of the tree, of what its shards come to, one after the other; `None` where none has any.
///
/// # Errors
/// Those of [`Shards::compute`].
pub(super) fn sum_of<T: Real>(cpu: &Cpu, node: Node, shards: &mut impl Shards<T>) -> Result<Option<Vec<T>>> {
    if node.1 == 1 {
        return Ok(shards.compute(node.0)?.then(|| shards.copy()));
    }
    let [left, right] = halves(node);
    let Some(mut sum) = sum_of(cpu, left, shards)? else { return sum_of(cpu, right, shards) };
    if right.1 == 1 {
        if shards.compute(right.0)? {
            shards.add_to(&mut sum);
        }
    } else if let Some(other) = sum_of(cpu, right, shards)? {
        cpu.pool().for_each_chunk(&mut sum, CHUNK, |number, sum| add(sum, &other[number * CHUNK..]));
        shards.give(other);
    }
    Ok(Some(sum))
}

/// Copies gradients, in the order of the buckets, into a vector of their own.
pub(super) fn flat<T: Real>(
    cpu: &Cpu,
    gradients: &[Buffer],
    buckets: &[Bucket],
    spare: &mut Spare,
) -> Vec<T> {
    let mut all = spare.take(buckets.last().map_or(0, |bucket| bucket.place.end));
    for_each_store(buckets, &mut all, |store, place| {
        let from = gradients[store].as_slice::<T>();
        cpu.pool().for_each_chunk(place, CHUNK, |number, place| {
            place.copy_from_slice(&from[number * CHUNK..][..place.len()]);
        });
    });
    all
}

/// Adds gradients to a vector in the order of the buckets.
pub(super) fn add_flat<T: Real>(cpu: &Cpu, gradients: &[Buffer], buckets: &[Bucket], sum: &mut [T]) {
    for_each_store(buckets, sum, |store, place| {
        let from = gradients[store].as_slice::<T>();
        cpu.pool().for_each_chunk(place, CHUNK, |number, place| add(place, &from[number * CHUNK..]));
    });
}

/// Goes over a vector in the order of the buckets, with the stores whose places these are.
fn for_each_store<T>(buckets: &[Bucket], mut all: &mut [T], mut body: impl FnMut(usize, &mut [T])) {
    for bucket in buckets {
        for (store, len) in bucket.stores.iter().zip(&bucket.lengths) {
            let (place, rest) = all.split_at_mut(*len);
            body(*store, place);
            all = rest;
        }
    }
}

/// What a bucket's stores have as gradients, one behind the other.
pub(super) fn bucket_gradient<T: Real>(network: &Network, bucket: &Bucket) -> Vec<T> {
    let mut gradient = Vec::with_capacity(bucket.place.len());
    for store in &bucket.stores {
        gradient.extend_from_slice(network.registry.gradients[*store].as_slice::<T>());
    }
    gradient
}

/// Makes the network's gradients, where they lie, what sums before them come to with them, the nearest one first.
pub(super) fn add_before<T: Real>(cpu: &Cpu, network: &mut Network, buckets: &[Bucket], lefts: &[Vec<T>]) {
    for_each_gradient(network, buckets, |gradient, at| add_lefts(cpu, gradient, lefts, at));
}

/// Makes a gradient, which begins at a place in the order of the buckets, what sums before it come to with it, the
/// nearest one first.
pub(super) fn add_lefts<T: Real>(cpu: &Cpu, gradient: &mut [T], lefts: &[Vec<T>], at: usize) {
    if lefts.is_empty() {
        return;
    }
    cpu.pool().for_each_chunk(gradient, CHUNK, |number, gradient| {
        for left in lefts {
            for (sum, left) in gradient.iter_mut().zip(&left[at + number * CHUNK..]) {
                *sum = *left + *sum;
            }
        }
    });
}

/// Makes the network's gradient what all of the buckets' numbers, one behind the other, say.
pub(super) fn take_flat<T: Real>(cpu: &Cpu, network: &mut Network, buckets: &[Bucket], all: &[T]) {
    for_each_gradient(network, buckets, |gradient, at| {
        cpu.pool().for_each_chunk(gradient, CHUNK, |number, gradient| {
            gradient.copy_from_slice(&all[at + number * CHUNK..][..gradient.len()]);
        });
    });
}

/// Changes the network's gradients, each with where it begins in the order of the buckets.
fn for_each_gradient<T: Real>(
    network: &mut Network,
    buckets: &[Bucket],
    mut body: impl FnMut(&mut [T], usize),
) {
    let registry = &mut network.registry;
    for bucket in buckets {
        let mut at = bucket.place.start;
        for (store, len) in bucket.stores.iter().zip(&bucket.lengths) {
            body(registry.gradients[*store].as_mut_slice::<T>(), at);
            at += len;
        }
    }
    registry.forget_device_gradients();
}

/// Makes the network's gradient what the buckets have come to.
///
/// # Errors
/// [`Error::State`](crate::Error::State) where lengths differ.
pub(super) fn take_sums<T: Real>(network: &mut Network, buckets: &[Bucket], summed: &[Summed]) -> Result<()> {
    let registry = &mut network.registry;
    for (bucket, slices) in buckets.iter().zip(summed) {
        let splits = registry.splits_gradients;
        let stores: Vec<usize> =
            bucket.stores.iter().copied().filter(|store| !splits || registry.owns(*store)).collect();
        let mut held: Vec<Buffer> =
            stores.iter().map(|store| std::mem::take(&mut registry.gradients[*store])).collect();
        let outcome = spread::<T>(slices, &mut held);
        for (store, buffer) in stores.into_iter().zip(held) {
            registry.gradients[store] = buffer;
        }
        outcome?;
    }
    registry.forget_device_gradients();
    Ok(())
}

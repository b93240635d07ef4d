//! Sums over the shards of a step, in one tree over their places, whoever has computed them.

use crate::simd::{Cpu, Real};
use crate::tensor::Buffer;
use crate::{Error, Result};
use std::borrow::Cow;
use std::ops::Range;

/// How many numbers a thread adds up at a time.
pub(super) const CHUNK: usize = 1 << 14;

/// The part of `count` things that number `index` of `parts` has.
pub(super) fn share(count: usize, parts: usize, index: usize) -> Range<usize> {
    count * index / parts..count * (index + 1) / parts
}

/// A part of the tree: its first shard, and how many there are.
pub(super) type Node = (usize, usize);

pub(super) fn halves((first, count): Node) -> [Node; 2] {
    [(first, count / 2), (first + count / 2, count - count / 2)]
}

/// The largest parts of a tree that shards of this range alone make up, in their order: what whoever has computed these
/// can add up without the others.
pub(super) fn cover(node: Node, range: &Range<usize>) -> Vec<Node> {
    let (first, count) = node;
    if range.is_empty() || count == 0 || first >= range.end || first + count <= range.start {
        return Vec::new();
    }
    if range.start <= first && first + count <= range.end {
        return vec![node];
    }
    halves(node).into_iter().flat_map(|half| cover(half, range)).collect()
}

pub(super) fn add<T: Real>(sum: &mut [T], other: &[T]) {
    for (sum, other) in sum.iter_mut().zip(other) {
        *sum += *other;
    }
}

/// Parts of the tree that are summed up already, by processes that have computed all of their shards.
#[derive(Debug, Default)]
pub(super) struct Parts<'a, T: Clone>(pub(super) Vec<(Node, Cow<'a, [T]>)>);

impl<T: Real> Parts<'_, T> {
    fn find(&self, node: Node) -> Option<&[T]> {
        self.0.iter().find(|(known, _)| *known == node).map(|(_, numbers)| &**numbers)
    }

    /// The sum over all shards.
    ///
    /// # Errors
    /// [`Error::State`] where a process has sent numbers of another length.
    pub(super) fn sum(&self, cpu: &Cpu, shards: usize, sum: &mut [T]) -> Result<()> {
        if self.0.iter().any(|(_, numbers)| numbers.len() != sum.len()) {
            return Err(unlike());
        }
        cpu.pool().for_each_chunk(sum, CHUNK, |number, sum| {
            if !self.gather((0, shards), number * CHUNK, sum) {
                sum.fill(T::ZERO);
            }
        });
        Ok(())
    }

    /// Puts the sum over a part, from one place on, into `sum`; whether there is any.
    pub(super) fn gather(&self, node: Node, at: usize, sum: &mut [T]) -> bool {
        if let Some(numbers) = self.find(node) {
            sum.copy_from_slice(&numbers[at..at + sum.len()]);
            return true;
        }
        if node.1 <= 1 {
            return false;
        }
        let [left, right] = halves(node);
        if !self.gather(left, at, sum) {
            return self.gather(right, at, sum);
        }
        if let Some(numbers) = self.find(right) {
            add(sum, &numbers[at..at + sum.len()]);
            return true;
        }
        let mut other = vec![T::ZERO; sum.len()];
        if self.gather(right, at, &mut other) {
            add(sum, &other);
        }
        true
    }
}

/// Numbers as bytes hold them, without a copy where they lie as they have to.
pub(super) fn numbers<T: bytemuck::Pod>(bytes: &[u8]) -> Cow<'_, [T]> {
    match bytemuck::try_cast_slice(bytes) {
        Ok(numbers) => Cow::Borrowed(numbers),
        Err(_) => Cow::Owned(bytemuck::pod_collect_to_vec(bytes)),
    }
}

/// Puts slices of a flat vector, one behind the other, into the buffers that it is cut into.
///
/// # Errors
/// [`Error::State`] where their lengths differ.
pub(super) fn spread<T: Real>(slices: &[Vec<u8>], buffers: &mut [Buffer]) -> Result<()> {
    let count: usize = slices.iter().map(|slice| slice.len() / size_of::<T>()).sum();
    if count != buffers.iter().map(|buffer| buffer.as_slice::<T>().len()).sum::<usize>() {
        return Err(unlike());
    }
    let mut places = buffers.iter_mut().map(|buffer| buffer.as_mut_slice::<T>());
    let mut place: &mut [T] = &mut [];
    for slice in slices {
        let slice = numbers::<T>(slice);
        let mut left = &slice[..];
        while !left.is_empty() {
            if place.is_empty() {
                let Some(next) = places.next() else { break };
                place = next;
                continue;
            }
            let count = left.len().min(place.len());
            let (now, later) = std::mem::take(&mut place).split_at_mut(count);
            now.copy_from_slice(&left[..count]);
            (left, place) = (&left[count..], later);
        }
    }
    Ok(())
}

/// What processes of one training are told where they do not fit together.
pub(super) fn unlike() -> Error {
    Error::State("the processes of a training have networks of different sizes".into())
}

#[cfg(test)]
mod tests {
    use super::super::shard_gradients::{Shards, sum_of};
    use super::*;

    fn plain(values: &[Option<f32>]) -> Option<f32> {
        match values {
            [] => None,
            [one] => *one,
            _ => {
                let (left, right) = values.split_at(values.len() / 2);
                match (plain(left), plain(right)) {
                    (Some(left), Some(right)) => Some(left + right),
                    (left, right) => left.or(right),
                }
            }
        }
    }

    /// Shards that have one value each, three times.
    struct Values<F> {
        of: F,
        newest: Option<f32>,
    }

    impl<F: Fn(usize) -> Option<f32>> Shards<f32> for Values<F> {
        fn compute(&mut self, shard: usize) -> Result<bool> {
            self.newest = (self.of)(shard);
            Ok(self.newest.is_some())
        }

        fn copy(&mut self) -> Vec<f32> {
            vec![self.newest.unwrap(); 3]
        }

        fn add_to(&mut self, sum: &mut [f32]) {
            sum.iter_mut().for_each(|sum| *sum += self.newest.unwrap());
        }

        fn give(&mut self, _: Vec<f32>) {}
    }

    #[test]
    fn whoever_computes_shards_the_sum_has_the_same_bits() {
        let cpu = Cpu::global().unwrap();
        for shards in 1..12usize {
            for empty in 0..=shards {
                let value = |shard: usize| (shard != empty).then(|| 1.0 / (3.0 + shard as f32 * 1e3));
                let all: Vec<_> = (0..shards).map(value).collect();
                let expected = plain(&all).unwrap_or(0.0);
                for ranks in 1..=shards {
                    let mut parts = Parts::default();
                    for rank in 0..ranks {
                        for node in cover((0, shards), &share(shards, ranks, rank)) {
                            let sum = sum_of(cpu, node, &mut Values { of: value, newest: None }).unwrap();
                            parts.0.extend(sum.map(|sum| (node, Cow::Owned(sum))));
                        }
                    }
                    let mut sum = [7.0f32; 3];
                    parts.sum(cpu, shards, &mut sum).unwrap();
                    assert_eq!(sum.map(f32::to_bits), [expected.to_bits(); 3], "{shards} {empty} {ranks}");
                }
            }
        }
    }

    #[test]
    fn slices_are_spread_over_buffers_of_any_lengths() {
        let mut buffers: Vec<Buffer> =
            [2, 0, 3, 4].map(|count| Buffer::from_slice(&vec![0.0f32; count]).unwrap()).into();
        let slices: Vec<Vec<u8>> = [0..4, 4..4, 4..9]
            .map(|range| range.flat_map(|number: u8| f32::from(number).to_le_bytes()).collect())
            .into();
        spread::<f32>(&slices, &mut buffers).unwrap();
        let found: Vec<f32> = buffers.iter().flat_map(|buffer| buffer.as_slice::<f32>().to_vec()).collect();
        assert_eq!(found, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        assert!(spread::<f32>(&slices[..1], &mut buffers).is_err());
    }
}

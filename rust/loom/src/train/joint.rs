//! Gradients that threads of one process add up together: each brings what it has of a bucket in memory that all see, and
//! whoever comes last adds up all of it and writes the sum to where each wants it, in one pass over memory.

use super::buckets::{Bucket, Sums, hand_over};
use super::contribution::Joint;
use super::exchange::Exchange;
use super::own::Own;
use super::shard_gradients::bucket_gradient;
use super::summing::{Node, Parts, numbers, unlike};
use super::times::Watch;
use super::trainer::Trainer;
use super::units::Unit;
use crate::Result;
use crate::network::Network;
use crate::simd::{Cpu, Real};
use crate::state::{Fetch, Landed, Outbound, PIECE_BYTES, State};

/// The bytes of a sum that are made before they are written: with what they are made of, they stay in the nearest cache.
const BLOCK_BYTES: usize = 1 << 13;

/// A bucket on its way to the others.
pub(super) struct Leaving<T> {
    sums: Sums<T>,
    /// The part of the tree that is on its way from a device.
    coming: Option<(Node, Box<dyn Fetch>)>,
    into: Box<dyn Outbound>,
}

/// Numbers that the host has made.
#[derive(Debug)]
struct Made<T>(Vec<T>);

impl<T: Real> Landed for Made<T> {
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

impl<T: Real> Leaving<T> {
    /// Waits for what comes from a device.
    fn ready(self) -> Result<Joint> {
        let made = |(node, sum)| (node, Box::new(Made(sum)) as Box<dyn Landed>);
        let mut sums: Vec<(Node, Box<dyn Landed>)> = self.sums.into_iter().map(made).collect();
        if let Some((node, fetch)) = self.coming {
            sums.push((node, fetch.land()?));
        }
        Ok(Joint { sums, into: self.into })
    }
}

/// Adds up what all have brought of so many numbers, and hands each the sum over all shards.
fn add_up<T: Real>(all: &[Joint], shards: usize, count: usize) -> Result<()> {
    let cpu = Cpu::global()?;
    let sums = all.iter().flat_map(|joint| &joint.sums);
    let parts = Parts(sums.map(|(node, sum)| (*node, numbers::<T>(sum.bytes()))).collect());
    if parts.0.iter().any(|(_, numbers)| numbers.len() != count) {
        return Err(unlike());
    }
    let (piece, block) = (PIECE_BYTES / size_of::<T>(), BLOCK_BYTES / size_of::<T>());
    cpu.pool().run(count.div_ceil(piece), &|number| {
        let mut sum = vec![T::ZERO; block];
        let end = ((number + 1) * piece).min(count);
        for at in (number * piece..end).step_by(block) {
            let sum = &mut sum[..block.min(end - at)];
            if !parts.gather((0, shards), at, sum) {
                sum.fill(T::ZERO);
            }
            let bytes = bytemuck::cast_slice(sum);
            all.iter().for_each(|joint| joint.into.put(at * size_of::<T>(), bytes));
        }
    });
    Ok(())
}

/// Exchanges all buckets of a step, which `make` hands over one after the other, while those before are added up.
/// Returns what `make` returns, which is its own error alone where it has handed over all.
///
/// # Errors
/// What `make` fails with before it has handed over all, in every thread; [`crate::Error::State`] where a thread has ended.
pub(super) fn exchange_joint<T: Real, R>(
    exchange: &mut dyn Exchange,
    (shards, buckets): (usize, &[Bucket]),
    watch: &mut Watch,
    make: impl FnOnce(&mut dyn FnMut(Leaving<T>)) -> Result<R>,
) -> Result<Result<R>> {
    // What fails here after the others have their sums, they are told with the next bucket, or with all of the step.
    let mut failed = None;
    let mut left = buckets.iter();
    let take = |leaving: Result<Leaving<T>>| {
        let Some(bucket) = left.next() else { return Err(unlike()) };
        let brought = match failed.take() {
            Some(error) => Err(error),
            None => watch.fetching(|| leaving.and_then(Leaving::ready)),
        };
        let count = bucket.place.len();
        let work = |all: &[Joint]| add_up::<T>(all, shards, count);
        let (Joint { sums, into }, adding) = watch.meeting(|| exchange.join(brought, &work))?;
        watch.added(adding);
        drop(sums);
        failed = watch.sending(|| into.send()).err();
        watch.travelled(count * size_of::<T>());
        Ok(())
    };
    let made = hand_over((buckets.len(), buckets.len()), take, make)?;
    match (failed, made) {
        (Some(error), _) => Ok(Err(error)),
        (None, Some(made)) => Ok(made),
        (None, None) => Err(unlike()),
    }
}

impl Trainer {
    /// Hands over the gradients of all buckets, which a device makes and copies without a pause.
    pub(super) fn send_joint<T: Real>(
        &mut self,
        network: &mut Network,
        buckets: &[Bucket],
        own: Own<T>,
        states: Option<&[State]>,
        send: &mut dyn FnMut(Leaving<T>),
    ) -> Result<Vec<Unit<T>>> {
        let Own { sums, last, mut units } = own;
        // With it goes the memory that gradients pass through.
        self.waiting(network)?;
        for bucket in buckets {
            let mut sums: Sums<T> =
                sums.iter().map(|(node, sum)| (*node, sum[bucket.place.clone()].to_vec())).collect();
            let mut coming = None;
            if let Some(last) = &last {
                self.backward_part(network, bucket, &last.values)?;
                self.add_part_aside(network, std::slice::from_ref(bucket), last.aside)?;
                match network.registry.begin_fetch(&bucket.stores)? {
                    Some(fetch) => coming = Some((last.node, fetch)),
                    None => sums.push((last.node, bucket_gradient(network, bucket))),
                }
            }
            let into = network.registry.begin_send(&bucket.stores)?;
            send(Leaving { sums, coming, into });
        }
        if let (Some(last), Some(unit)) = (&last, units.last_mut()) {
            self.release_aside(network, last.aside)?;
            self.keep(network, unit, &last.values, states)?;
        }
        sums.into_iter().for_each(|(_, sum)| self.spare.give(sum));
        Ok(units)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::train::summing::{cover, share};
    use crate::train::{Attendant, Meeting};
    use std::sync::{Arc, Mutex};

    /// Numbers that somebody has sent.
    #[derive(Clone, Debug, Default)]
    struct Place(Arc<Mutex<Vec<u8>>>);

    impl Outbound for Place {
        fn put(&self, at: usize, bytes: &[u8]) {
            self.0.lock().unwrap()[at..at + bytes.len()].copy_from_slice(bytes);
        }

        fn send(self: Box<Self>) -> Result<()> {
            Ok(())
        }
    }

    /// More numbers than one thread adds up, and than are added at a time.
    const COUNT: usize = 3 * PIECE_BYTES / 4 + 77;

    fn number(shard: usize, place: usize) -> f32 {
        1.0 / (3.0 + shard as f32 * 1e3 + place as f32)
    }

    fn joint(shards: usize, ranks: usize, rank: usize, into: &Place) -> Joint {
        let own = share(shards, ranks, rank);
        let sums = cover((0, shards), &own).into_iter().map(|node| {
            let of = |shard| ((shard, 1), (0..COUNT).map(|place| number(shard, place)).collect());
            let parts = Parts((0..shards).map(of).collect());
            let mut sum = vec![0.0f32; COUNT];
            assert!(parts.gather(node, 0, &mut sum));
            (node, Box::new(Made(sum)) as Box<dyn Landed>)
        });
        into.0.lock().unwrap().resize(COUNT * 4, 1);
        Joint { sums: sums.collect(), into: Box::new(into.clone()) }
    }

    #[test]
    fn each_gets_the_sum_that_one_alone_comes_to() {
        let mut found: Vec<Vec<u8>> = Vec::new();
        for ranks in [1, 2, 3, 5] {
            let meeting = Arc::new(Meeting::new(ranks));
            let places: Vec<Place> = (0..ranks).map(|_| Place::default()).collect();
            std::thread::scope(|scope| {
                for (rank, place) in places.iter().enumerate() {
                    let mut own = Attendant { meeting: meeting.clone(), rank };
                    scope.spawn(move || {
                        for _ in 0..3 {
                            let brought = joint(5, ranks, rank, place);
                            own.join(Ok(brought), &|all| add_up::<f32>(all, 5, COUNT)).unwrap();
                        }
                    });
                }
            });
            found.extend(places.iter().map(|place| place.0.lock().unwrap().clone()));
        }
        let first = f32::from_le_bytes(found[0][..4].try_into().unwrap());
        let [a, b, c, d, e] = [0, 1, 2, 3, 4].map(|shard| number(shard, 0));
        assert_eq!(first, (a + b) + (c + (d + e)));
        assert!(found.iter().all(|bytes| *bytes == found[0]));
    }

    #[test]
    fn who_fails_says_so_and_the_others_are_told_who() {
        let meeting = Arc::new(Meeting::new(2));
        let mut own = Attendant { meeting: meeting.clone(), rank: 0 };
        let mut other = Attendant { meeting, rank: 1 };
        let failing = std::thread::spawn(move || {
            other.join(Err(Error::Device("it was lost".into())), &|_| Ok(())).unwrap_err()
        });
        let told = own.join(Ok(joint(2, 2, 0, &Place::default())), &|_| Ok(())).unwrap_err();
        assert!(
            matches!(&told, Error::State(why) if why.contains("rank 1 could not go on: it was lost")),
            "{told}"
        );
        assert!(matches!(failing.join().unwrap(), Error::Device(_)));
    }
}

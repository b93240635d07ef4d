//! Gradients on their way between the processes of a training: in buckets of neighbouring layers, which leave as soon as
//! the backward pass has made them, while earlier layers still go backwards.

use super::coding::Coding;
use super::exchange::{Exchange, agree};
use super::split::owners;
use super::summing::{Node, Parts, share, unlike};
use super::times::Watch;
use super::units::{Reader, put_numbers};
use crate::Result;
use crate::program::{Phase, Place, Program};
use crate::simd::{Cpu, Real};
use crate::state::Registry;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::mpsc;

/// Bytes from which on a bucket leaves. Smaller ones wait for each other longer than they travel, larger ones leave less
/// of the backward pass to hide behind. Not measured yet on a network that is worth it.
pub(super) const BUCKET_BYTES: usize = 4 << 20;

/// The most buckets, of a large network: each is asked for by itself.
const MOST_BUCKETS: usize = 32;

/// Buckets that wait while others travel.
const MOST_WAITING: usize = 2;

/// The gradients of neighbouring layers.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    /// The steps of the program after which they are whole, those of the buckets before aside.
    pub(super) steps: Range<usize>,
    /// The stores, in the order in which they become whole.
    pub(super) stores: Vec<usize>,
    /// How many elements each of these has.
    pub(super) lengths: Vec<usize>,
    /// Where their elements are in the gradient of all buckets.
    pub(super) place: Range<usize>,
}

/// The buckets of a program, in the order in which its backward pass makes them.
pub(super) fn buckets(program: &Program, registry: &Registry) -> Vec<Bucket> {
    let element = program.precision().size();
    let mut whole: Vec<(usize, usize)> = Vec::new();
    for (number, step) in program.steps().iter().enumerate() {
        if !(Phase::Backward..=Phase::Exchange).contains(&step.phase) {
            continue;
        }
        for value in &step.writes {
            if let Place::Gradient(parameter) = program.value(program.owner(*value)).place {
                whole.retain(|(store, _)| *store != parameter.store);
                whole.push((parameter.store, number));
            }
        }
    }
    let all: usize = whole.iter().map(|(store, _)| registry.stores()[*store].len() * element).sum();
    let enough = BUCKET_BYTES.max(all / MOST_BUCKETS);
    let mut found: Vec<Bucket> = Vec::new();
    let (mut begin, mut at) = (0, 0);
    let mut held: Vec<usize> = Vec::new();
    let mut from = 0;
    for (index, (store, number)) in whole.iter().enumerate() {
        held.push(*store);
        at += registry.stores()[*store].len();
        let last = index + 1 == whole.len();
        // A step may make several at once.
        let together = whole.get(index + 1).is_some_and(|(_, next)| next == number);
        if last || (!together && (at - from) * element >= enough) {
            let end = if last { program.steps().len() } else { number + 1 };
            let stores = std::mem::take(&mut held);
            let lengths = stores.iter().map(|store| registry.stores()[*store].len()).collect();
            found.push(Bucket { steps: begin..end, stores, lengths, place: from..at });
            (begin, from) = (end, at);
        }
    }
    if found.is_empty() {
        let steps = 0..program.steps().len();
        found.push(Bucket { steps, stores: Vec::new(), lengths: Vec::new(), place: 0..0 });
    }
    found
}

/// How the gradients of a step travel.
#[derive(Clone, Debug)]
pub(super) struct Route {
    pub(super) shards: usize,
    /// Whether each process gets the sums of what it updates alone.
    pub(super) split: bool,
    /// Which elements of each bucket each process adds up.
    places: Vec<Vec<Places>>,
}

type Places = Vec<Range<usize>>;

/// A bucket's sums over the shards that this process has computed.
pub(super) type Sums<T> = Vec<(Node, Vec<T>)>;

/// What a bucket has come to: its sum over all shards, in slices one behind the other; of what is this process's where
/// gradients are split.
pub(super) type Summed = Vec<Vec<u8>>;

impl Route {
    /// By slices, of whole blocks where numbers are coded in such; or where gradients are `split`, by the stores that each
    /// process updates.
    pub(super) fn new(
        buckets: &[Bucket],
        registry: &Registry,
        ranks: usize,
        (shards, split, block): (usize, bool, usize),
    ) -> Self {
        let places = buckets.iter().map(|bucket| places_of(bucket, registry, ranks, split, block)).collect();
        Self { shards, split, places }
    }
}

fn places_of(bucket: &Bucket, registry: &Registry, ranks: usize, split: bool, block: usize) -> Vec<Places> {
    let count = bucket.place.len();
    if !split {
        let slice = |rank| {
            let blocks = share(count.div_ceil(block), ranks, rank);
            let slice = (blocks.start * block).min(count)..(blocks.end * block).min(count);
            vec![slice]
        };
        return (0..ranks).map(slice).collect();
    }
    let owners = owners(registry, ranks);
    let mut found = vec![Vec::new(); ranks];
    let mut at = 0;
    for store in &bucket.stores {
        let len = registry.stores()[*store].len();
        found[owners[*store]].push(at..at + len);
        at += len;
    }
    found
}

fn count_of(places: &Places) -> usize {
    places.iter().map(ExactSizeIterator::len).sum()
}

/// One bucket, and how the processes add it up.
struct Lot<'a> {
    number: usize,
    /// The elements of the bucket.
    count: usize,
    places: &'a [Places],
    shards: usize,
    split: bool,
}

impl Lot<'_> {
    /// Exchanges a bucket: each process adds up its slice over all shards, and hands that to all.
    fn exchange<T: Real>(
        &self,
        exchange: &mut dyn Exchange,
        sums: Result<Sums<T>>,
        mut coding: Option<&mut Coding>,
    ) -> Result<Summed> {
        let cpu = Cpu::global()?;
        let (rank, ranks) = (exchange.rank(), exchange.ranks());
        let (sums, failed) = match sums {
            Ok(sums) => (sums, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let coded: Vec<Vec<u8>> = match &mut coding {
            Some(coding) => {
                sums.iter().map(|((shard, _), sum)| coding.of_shard(self.number, *shard, sum)).collect()
            }
            None => Vec::new(),
        };
        let format = coding.as_ref().map(|coding| coding.format());
        let for_rank = |rank: usize| {
            let places = &self.places[rank];
            let count = count_of(places);
            let mut bytes = Vec::with_capacity(8 + sums.len() * (24 + count * size_of::<T>()));
            bytes.extend_from_slice(&(sums.len() as u64).to_le_bytes());
            for (number, ((first, shards), sum)) in sums.iter().enumerate() {
                for number in [*first as u64, *shards as u64] {
                    bytes.extend_from_slice(&number.to_le_bytes());
                }
                if let (Some(format), Some(coded)) = (format, coded.get(number)) {
                    let parts: Vec<u8> = places
                        .iter()
                        .flat_map(|place| coded[format.bytes_of(place, sum.len())].to_vec())
                        .collect();
                    put_numbers(&mut bytes, &parts);
                    continue;
                }
                bytes.extend_from_slice(&(count as u64).to_le_bytes());
                for place in places {
                    bytes.extend_from_slice(bytemuck::cast_slice(&sum[place.clone()]));
                }
            }
            bytes
        };
        let parts: Vec<Vec<u8>> = (0..ranks).map(for_rank).collect();
        drop((sums, coded));
        let came = exchange.to_each(parts)?;
        let own = count_of(&self.places[rank]);
        let add_up = || -> Result<Vec<T>> {
            if let Some(error) = failed {
                return Err(error);
            }
            let mut held = Parts::default();
            for part in &came {
                let mut from = Reader(part);
                for _ in 0..from.whole()? {
                    let node = (from.whole()? as usize, from.whole()? as usize);
                    let values = match format {
                        Some(format) => Cow::Owned(format.decoded(&from.numbers::<u8>()?, own)?),
                        None => from.numbers()?,
                    };
                    held.0.push((node, values));
                }
            }
            let mut slice = vec![T::ZERO; own];
            held.sum(cpu, self.shards, &mut slice)?;
            Ok(slice)
        };
        let sum = add_up();
        drop(came);
        if self.split {
            let (told, sum) = match sum {
                Ok(sum) => (Ok(Vec::new()), sum),
                Err(error) => (Err(error), Vec::new()),
            };
            agree(exchange, told)?;
            return Ok(vec![bytemuck::cast_slice(&sum).to_vec()]);
        }
        let told = sum.map(|slice| {
            if let Some(coding) = coding {
                let start = self.places[rank].first().map_or(0, |place| place.start);
                return coding.of_sum(self.number, start, &slice);
            }
            // With room for what is told beside it.
            let mut bytes = Vec::with_capacity(slice.len() * size_of::<T>() + 2);
            bytes.extend_from_slice(bytemuck::cast_slice(&slice));
            bytes
        });
        let mut summed = agree(exchange, told)?;
        if let Some(format) = format {
            for (bytes, places) in summed.iter_mut().zip(self.places) {
                *bytes = bytemuck::cast_slice(&format.decoded::<T>(bytes, count_of(places))?).to_vec();
            }
        }
        Ok(summed)
    }
}

/// Exchanges all buckets of a step, which `make` hands over one after the other; where there are several, those before
/// travel meanwhile. Returns what they have come to, and what `make` returns, which is its own error alone where it has
/// handed over all.
///
/// # Errors
/// What `make` fails with before it has handed over all, in every process; [`Error::State`] where a process has ended.
pub(super) fn exchange_all<T: Real, R>(
    exchange: &mut dyn Exchange,
    route: &Route,
    (mut coding, watch): (Option<&mut Coding>, &mut Watch),
    make: impl FnOnce(&mut dyn FnMut(Sums<T>)) -> Result<R>,
) -> Result<(Vec<Summed>, Result<R>)> {
    let count = route.places.len();
    let lot = |number: usize| Lot {
        number,
        count: route.places[number].iter().map(count_of).sum(),
        places: &route.places[number],
        shards: route.shards,
        split: route.split,
    };
    if count == 1 || exchange.ranks() == 1 {
        let mut done: Result<Vec<Summed>> = Ok(Vec::with_capacity(count));
        let made = make(&mut |sums| {
            if let Ok(all) = &mut done {
                let (lot, coding) = (lot(all.len()), coding.as_deref_mut());
                watch.travelled(lot.count * size_of::<T>());
                match watch.meeting(|| lot.exchange(exchange, Ok(sums), coding)) {
                    Ok(summed) => all.push(summed),
                    Err(error) => done = Err(error),
                }
            }
        });
        let mut done = done?;
        return match made {
            Err(error) if done.len() < count => {
                done.push(lot(done.len()).exchange::<T>(exchange, Err(error), None)?);
                Err(unlike())
            }
            made => Ok((done, made)),
        };
    }
    let mut done = Vec::with_capacity(count);
    let take = |sums: Result<Sums<T>>| {
        let (lot, coding) = (lot(done.len()), coding.as_deref_mut());
        watch.travelled(lot.count * size_of::<T>());
        done.push(watch.meeting(|| lot.exchange(exchange, sums, coding))?);
        Ok(())
    };
    // Who computes faster than gradients travel waits, so that few buckets take memory.
    match hand_over((count, MOST_WAITING), take, make)? {
        Some(made) => Ok((done, made)),
        None => Err(unlike()),
    }
}

/// Hands so many things over, which `make` makes one after the other, to `take` in a thread of its own; no more of them
/// than `waiting` wait there. Returns what `make` returns; None where that is an error before all were made, which
/// `take` is told in the place of the next one.
///
/// # Errors
/// What `take` fails with.
pub(super) fn hand_over<I: Send, R>(
    (count, waiting): (usize, usize),
    mut take: impl FnMut(Result<I>) -> Result<()> + Send,
    make: impl FnOnce(&mut dyn FnMut(I)) -> Result<R>,
) -> Result<Option<Result<R>>> {
    let (sender, receiver) = mpsc::sync_channel(waiting);
    std::thread::scope(|scope| {
        let taking = scope.spawn(move || -> Result<()> {
            for _ in 0..count {
                let Ok(made) = receiver.recv() else { return Err(unlike()) };
                take(made)?;
            }
            Ok(())
        });
        let mut sent = 0;
        let made = make(&mut |made| {
            sent += 1;
            // Who has met an error takes no more of them.
            let _ = sender.send(Ok(made));
        });
        let made = match made {
            Err(error) if sent < count => {
                let _ = sender.send(Err(error));
                None
            }
            made => Some(made),
        };
        match taking.join() {
            Ok(taken) => taken.map(|()| made),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

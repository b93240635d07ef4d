//! Optimizer moments, and gradients, that processes hold in parts: stages 1 and 2 of ZeRO (Rajbhandari and others, 2020).
//!
//! Each store of weights has one process that holds its moments and updates its masters, which it then hands to the
//! others. An update goes by what is of its store alone, so that the bits are those of a process that has everything.

use super::exchange::{Exchange, agree};
use super::fault::{Fault, describe_store};
use super::landing::{self, Before, Fate};
use super::states::take_on_states;
use super::summing::unlike;
use super::units::{Reader, put_numbers};
use crate::network::Network;
use crate::ops::{Op, SquaredSum, StepValues};
use crate::precision::in_precision;
use crate::program::{Access, Phase, Place, Program, Run, Value};
use crate::simd::{Cpu, Real};
use crate::state::Registry;
use crate::tensor::Buffer;
use crate::{Error, Result};
use std::ops::Range;

/// Bytes of weights from which on they travel, so that little more than that is held twice.
const PIECE_BYTES: usize = 16 << 20;

/// The process that each store belongs to: the largest stores first, each to whoever has least.
pub(super) fn owners(registry: &Registry, ranks: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..registry.stores.len()).collect();
    order.sort_by_key(|store| std::cmp::Reverse(registry.stores[*store].len()));
    let (mut held, mut owners) = (vec![0; ranks], vec![0; order.len()]);
    for store in order {
        let least = (0..ranks).min_by_key(|rank| held[*rank]).unwrap_or(0);
        held[least] += registry.stores[store].len();
        owners[store] = least;
    }
    owners
}

impl Network {
    /// Drops the moments that other processes hold.
    pub fn split_moments(&mut self, rank: usize, ranks: usize) {
        if self.registry.owned.is_some() || ranks < 2 {
            return;
        }
        let owned: Vec<bool> = owners(&self.registry, ranks).into_iter().map(|owner| owner == rank).collect();
        for (moments, _) in self.registry.moments.iter_mut().zip(&owned).filter(|(_, owned)| !**owned) {
            moments.iter_mut().for_each(|moment| *moment = Buffer::default());
        }
        self.registry.owned = Some(owned);
    }

    /// Has the next training hold this process's moments alone from its first step on, and its gradients where `gradients`
    /// says so: there need never be room for all.
    pub fn split_at_once(&mut self, rank: usize, ranks: usize, gradients: bool) {
        self.registry.to_split = Some((rank, ranks, gradients)).filter(|_| ranks > 1);
    }

    /// Brings all moments together again, in every process or in the first alone; nothing where they were not split.
    ///
    /// # Errors
    /// [`Error::State`] where a process has ended.
    pub fn gather_moments(&mut self, exchange: &mut dyn Exchange, everywhere: bool) -> Result<()> {
        let Some(owned) = self.registry.owned.clone() else { return Ok(()) };
        let (rank, ranks) = (exchange.rank(), exchange.ranks());
        let own = self.registry.moments.iter().zip(&owned).filter(|(_, owned)| **owned);
        let bytes: Vec<u8> =
            own.flat_map(|(moments, _)| moments.iter()).flat_map(Buffer::bytes).copied().collect();
        let came = if everywhere {
            exchange.to_all(bytes)?
        } else {
            let mut parts = vec![Vec::new(); ranks];
            parts[0] = bytes;
            exchange.to_each(parts)?
        };
        if !everywhere && rank != 0 {
            return Ok(());
        }
        let element = self.precision.size();
        let owners = owners(&self.registry, ranks);
        let Registry { stores, moments, .. } = &mut self.registry;
        let mut rests: Vec<&[u8]> = came.iter().map(Vec::as_slice).collect();
        for (store, owner) in owners.into_iter().enumerate() {
            for moment in &mut moments[store] {
                let (bytes, rest) =
                    rests[owner].split_at_checked(stores[store].len() * element).ok_or_else(unlike)?;
                if owner != rank {
                    *moment = Buffer::zeroed(bytes.len())?;
                    moment.bytes_mut().copy_from_slice(bytes);
                }
                rests[owner] = rest;
            }
        }
        self.registry.owned = None;
        self.registry.splits_gradients = false;
        self.registry.reach.clear();
        self.registry.complete_gradients(element)
    }
}

/// Makes room for the gradients that these steps write, where it was let go of.
pub(super) fn make_room(registry: &mut Registry, program: &Program, steps: &Range<usize>) -> Result<()> {
    let element = program.precision().size();
    for step in program.steps().get(steps.clone()).unwrap_or_default() {
        for value in &step.writes {
            if let Place::Gradient(parameter) = program.value(program.owner(*value)).place {
                let size = registry.stores[parameter.store].len() * element;
                let gradient = &mut registry.gradients[parameter.store];
                if gradient.len_bytes() != size {
                    *gradient = Buffer::zeroed(size)?;
                }
            }
        }
    }
    Ok(())
}

/// Lets go of gradients that have been handed to those who update by them.
pub(super) fn let_go(registry: &mut Registry, stores: &[usize]) {
    for store in stores {
        if registry.splits_gradients && !registry.owns(*store) {
            registry.gradients[*store] = Buffer::default();
        }
    }
}

/// The verdict over gradients that processes hold in parts: each looks at its own, and what is of all is put together in
/// the order in which a process that has everything would.
pub(super) fn judge<T: Real>(
    network: &mut Network,
    run: &mut Run,
    values: &StepValues,
    exchange: &mut dyn Exchange,
) -> Result<()> {
    let program = run.program().clone();
    let cpu = Cpu::global()?;
    let sums: Vec<(usize, usize, Value)> = program
        .steps()
        .iter()
        .enumerate()
        .filter(|(_, step)| step.phase == Phase::Verdict && matches!(step.op, Op::SquaredSum(_)))
        .filter_map(|(number, step)| {
            let store =
                step.reads.iter().find_map(|value| match program.value(program.owner(*value)).place {
                    Place::Gradient(parameter) => Some(parameter.store),
                    _ => None,
                });
            Some((number, store?, *step.writes.first()?))
        })
        .collect();
    let all = program.steps().len();
    let verdict = |network: &mut Network, run: &mut Run, part: Range<usize>| {
        let access = Access::Exclusive(&mut network.registry);
        run.execute_part(access, Phase::Verdict..=Phase::Verdict, values, part)
    };
    let (Some(first), Some(last)) = (sums.first(), sums.last()) else {
        return verdict(network, run, 0..all);
    };
    let outcome = verdict(network, run, 0..first.0);
    let told = outcome.map(|()| {
        let mut bytes = Vec::new();
        for (_, store, _) in sums.iter().filter(|(_, store, _)| network.registry.owns(*store)) {
            let chunks = SquaredSum::chunks(cpu, network.registry.gradients[*store].as_slice::<T>());
            put_numbers(&mut bytes, &chunks);
        }
        bytes
    });
    let came = agree(exchange, told)?;
    let owners = owners(&network.registry, exchange.ranks());
    let mut from: Vec<Reader<'_>> = came.iter().map(|bytes| Reader(bytes)).collect();
    let mut total: Option<T> = None;
    for (_, store, _) in &sums {
        total = Some(SquaredSum::join(total, &from[owners[*store]].numbers::<T>()?));
    }
    if let Some(total) = total {
        run.write::<T>(last.2)[0] = total;
    }
    verdict(network, run, last.0 + 1..all)
}

/// What [`landing::land`] does where each process updates what is its own.
pub(super) fn land(
    network: &mut Network,
    run: &mut Run,
    values: &StepValues,
    exchange: &mut dyn Exchange,
) -> Result<Fate> {
    if let Some(fault) = take_on_states(network, run, values)? {
        return Ok(Fate::Refused(fault));
    }
    let found = in_precision!(network.precision, T =>
        landing::is_certain::<T>(&mut network.registry, run, values));
    let certain =
        agree(exchange, found.map(|certain| vec![u8::from(certain)]))?.iter().all(|told| told == &[1]);
    if !certain {
        network.registry.reach.clear();
    }
    let before = match certain {
        true => None,
        false => {
            let stores = 0..network.registry.stores.len();
            Some(Before::of(&mut network.registry, stores)?)
        }
    };
    match update_and_share(network, run, values, exchange) {
        Ok(None) => {
            if certain {
                landing::note_reach(&mut network.registry, &run.program().clone());
            }
            Ok(Fate::Landed)
        }
        other => {
            if let Some(before) = before {
                before.put_back(&mut network.registry, false);
            }
            other.map(|fault| fault.map_or(Fate::Landed, Fate::Refused))
        }
    }
}

/// Updates the stores that are this process's, and takes the others from theirs.
fn update_and_share(
    network: &mut Network,
    run: &mut Run,
    values: &StepValues,
    exchange: &mut dyn Exchange,
) -> Result<Option<Fault>> {
    let program = run.program().clone();
    let outcome =
        run.execute(Access::Exclusive(&mut network.registry), Phase::Update..=Phase::Update, values);
    let mut stores: Vec<usize> = landing::updated(&program).map(|(_, _, store)| store).collect();
    stores.sort_unstable();
    stores.dedup();
    let odd = stores
        .iter()
        .filter(|store| network.registry.owns(**store))
        .find_map(|store| landing::odd_store(network, *store).map(|fault| (*store, fault.what)));
    let told = match odd {
        Some((store, what)) => [&(store as u64).to_le_bytes()[..], what.as_bytes()].concat(),
        None => Vec::new(),
    };
    for told in agree(exchange, outcome.map(|()| told))? {
        if let Some((store, what)) = told.split_first_chunk::<8>() {
            let layer = describe_store(network, u64::from_le_bytes(*store) as usize);
            return Ok(Some(Fault { layer, what: String::from_utf8_lossy(what).into_owned() }));
        }
    }
    let owners = owners(&network.registry, exchange.ranks());
    for stores in pieces(&network.registry, &stores) {
        let mut bytes = Vec::new();
        for store in stores.iter().filter(|store| network.registry.owns(**store)) {
            bytes.extend_from_slice(network.registry.stores[*store].float_bytes(None)?);
        }
        let came = exchange.to_all(bytes)?;
        let mut rests: Vec<&[u8]> = came.iter().map(Vec::as_slice).collect();
        for &store in stores {
            let owner = owners[store];
            let count = network.registry.stores[store].float_bytes(None)?.len();
            let (bytes, rest) = rests[owner].split_at_checked(count).ok_or_else(unlike)?;
            if !network.registry.owns(store) {
                let master = network.registry.stores[store].master_buffer_mut()?;
                master.bytes_mut().copy_from_slice(bytes);
            }
            rests[owner] = rest;
        }
    }
    let access = Access::Exclusive(&mut network.registry);
    match run.execute(access, Phase::Commit..=Phase::Commit, values) {
        Err(error @ (Error::NonFinite(_) | Error::Value(_))) => {
            let fault =
                landing::updated(&program).find_map(|(_, _, store)| landing::refused_version(network, store));
            fault.map_or(Err(error), |fault| Ok(Some(fault)))
        }
        outcome => outcome.map(|()| None),
    }
}

/// Stores in pieces that travel together: several small ones, or a large one.
fn pieces<'a>(registry: &Registry, stores: &'a [usize]) -> Vec<&'a [usize]> {
    let (mut found, mut rest) = (Vec::new(), stores);
    while !rest.is_empty() {
        let (mut count, mut bytes) = (0, 0);
        while count < rest.len() && (count == 0 || bytes < PIECE_BYTES) {
            bytes += registry.stores[rest[count]].len() * size_of::<f32>();
            count += 1;
        }
        let (piece, others) = rest.split_at(count);
        found.push(piece);
        rest = others;
    }
    found
}

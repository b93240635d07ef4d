//! Calls of one kernel that wait for nothing of each other, as one dispatch.
//!
//! A dispatch costs the host and the device microseconds, whatever it computes, and between two of them the device runs
//! dry: a tick of a mesh calls the same small kernel for each of its cells, and a step of training multiplies, adds up
//! and updates for layer after layer what fills no device alone.

use super::Gpu;
use super::dispatch::Dispatch;
use super::leveling::{Order, Touched};
use crate::Result;
use crate::shader::{Accelerator, Allocation, Bind, KernelCall, Numbers, OFFSET_ELEMENTS, Operand, Recorded};
use std::collections::HashMap;

/// The most calls of one dispatch.
const MOST: usize = 256;

/// Which calls are joined.
#[derive(Clone, Copy, Debug)]
struct Joining {
    /// The fewest calls that are worth a kernel of their own.
    fewest: usize,
    /// Workgroups from which on a call takes so long that starting it does not count.
    large: usize,
    /// Whether calls may have numbers of their own.
    unlike: bool,
}

impl Joining {
    fn on(gpu: &Gpu) -> Self {
        match gpu.joins_all() {
            true => Self { fewest: 2, large: 4096, unlike: true },
            // An adapter in software takes long to compile, and starts kernels for nothing.
            false => Self { fewest: 4, large: 64, unlike: false },
        }
    }

    /// With what a call can be made at once, where that pays.
    fn kind(self, recorded: &Recorded) -> Option<Alike<'_>> {
        let KernelCall { kernel, operands, constants, groups } = call(recorded)?;
        if kernel.stays() || groups.iter().map(|groups| *groups as usize).product::<usize>() >= self.large {
            return None;
        }
        // Lists with numbers of their own have workgroups in one dimension.
        let own = self.unlike && groups[1] == 1 && constants.len() < OFFSET_ELEMENTS;
        Some(Alike {
            source: kernel.source(),
            written: operands.iter().map(|bind| bind.is_written()).collect(),
            same: (!own).then_some((constants, *groups)),
        })
    }
}

/// What calls have in common that are made at once.
#[derive(PartialEq, Eq, Hash)]
struct Alike<'a> {
    /// The kernel's text: what it is called may tell of extents.
    source: &'a str,
    written: Vec<bool>,
    /// Their numbers and workgroups, where these have to be the same.
    same: Option<(&'a [u32], [u32; 2])>,
}

/// The calls of a list that can be made at once, as far as they do not wait for each other: those of each kind, in their
/// order.
pub(super) fn groups(gpu: &Gpu, recorded: &[Recorded]) -> Vec<Vec<usize>> {
    let joining = Joining::on(gpu);
    let mut groups: Vec<_> = by_kind(joining, recorded.iter()).into_values().collect();
    groups.retain(|places| places.len() >= joining.fewest);
    groups.sort_unstable();
    groups
}

/// How many calls with the same numbers each call is made with at once, where calls wait for others like them.
pub(super) fn crowds(gpu: &Gpu, recorded: &[Recorded]) -> Vec<usize> {
    let joining = Joining::on(gpu);
    let touched: Vec<Touched> = recorded.iter().map(Touched::by).collect();
    let levels = Order::of(&touched).levels(&groups(gpu, recorded));
    let mut crowds = vec![1; recorded.len()];
    for places in by_kind(joining, recorded).into_values() {
        let same = |place: &usize| {
            let numbers = call(&recorded[*place]).map(|call| (&call.constants, call.groups));
            (levels[*place], numbers)
        };
        let mut count: HashMap<_, usize> = HashMap::new();
        places.iter().for_each(|place| *count.entry(same(place)).or_default() += 1);
        places.iter().for_each(|place| crowds[*place] = count[&same(place)]);
    }
    crowds
}

fn by_kind<'a>(
    joining: Joining,
    recorded: impl IntoIterator<Item = &'a Recorded>,
) -> HashMap<Alike<'a>, Vec<usize>> {
    let mut alike: HashMap<Alike<'_>, Vec<usize>> = HashMap::new();
    for (place, recorded) in recorded.into_iter().enumerate() {
        if let Some(kind) = joining.kind(recorded) {
            alike.entry(kind).or_default().push(place);
        }
    }
    alike
}

/// What was recorded, each with its level and in their order, as dispatches.
///
/// # Errors
/// [`Error::Device`](crate::Error::Device) where there is no memory for their numbers.
pub(super) fn dispatches(gpu: &Gpu, leveled: Vec<(usize, Recorded)>) -> Result<Vec<Dispatch>> {
    let joining = Joining::on(gpu);
    let mut all = Vec::with_capacity(leveled.len());
    for level in leveled.chunk_by(|one, next| one.0 == next.0) {
        // The places of calls that are made by the dispatch at the first of them.
        let mut at_first: HashMap<usize, Dispatch> = HashMap::new();
        let mut is_made = vec![false; level.len()];
        for (kind, places) in by_kind(joining, level.iter().map(|(_, recorded)| recorded)) {
            let calls = places.into_iter().filter_map(|place| Some((place, call(&level[place].1)?)));
            // One array more is for their numbers.
            let room = MOST.min(gpu.arrayed_operands() / (1 + kind.written.len()));
            for part in of_like_sizes(calls.collect(), room.max(1)) {
                if part.len() < joining.fewest {
                    continue;
                }
                let calls: Vec<KernelCall> = part.iter().map(|(_, call)| (*call).clone()).collect();
                if reads_and_writes(&calls) {
                    continue;
                }
                let Some(dispatch) = joined(gpu, &calls, room)? else { continue };
                let places = part.iter().map(|(place, _)| *place);
                at_first.insert(places.clone().min().unwrap_or(0), dispatch);
                places.for_each(|place| is_made[place] = true);
            }
        }
        for (place, (_, recorded)) in level.iter().enumerate() {
            match at_first.remove(&place) {
                Some(dispatch) => all.push(dispatch),
                None if is_made[place] => {}
                None => all.push(Dispatch::new(gpu, recorded.clone(), 0)),
            }
        }
    }
    Ok(all)
}

/// These calls in parts of at most so many, in each of which the grid that holds the largest for all is not mostly
/// workgroups that have nothing to do.
fn of_like_sizes(mut calls: Vec<(usize, &KernelCall)>, most: usize) -> Vec<Vec<(usize, &KernelCall)>> {
    /// Workgroups with nothing to do that cost less than another dispatch.
    const IDLE: usize = 1024;
    calls.sort_by_key(|(place, call)| (std::cmp::Reverse(size(call)), *place));
    let mut parts: Vec<Vec<(usize, &KernelCall)>> = Vec::new();
    let (mut largest, mut busy) = (0, 0);
    for (place, call) in calls {
        let fits =
            |part: &Vec<_>| part.len() < most && (part.len() + 1) * largest <= 2 * (busy + size(call)) + IDLE;
        match parts.last_mut().filter(|part| fits(part)) {
            Some(part) => part.push((place, call)),
            None => {
                (largest, busy) = (size(call), 0);
                parts.push(vec![(place, call)]);
            }
        }
        busy += size(call);
    }
    parts
}

/// These calls of a kernel as one dispatch; `None` where its text does not allow it.
fn joined(gpu: &Gpu, calls: &[KernelCall], room: usize) -> Result<Option<Dispatch>> {
    let first = &calls[0];
    let same = calls.iter().all(|call| call.constants == first.constants && call.groups == first.groups);
    let numbers = if same { Numbers::Same } else { Numbers::Own };
    // As many lists as a power of two, so that few kernels serve many numbers of calls.
    let lists = calls.len().next_power_of_two().min(room);
    let Some(kernel) = first.kernel.repeated(lists, numbers) else { return Ok(None) };
    let table = match same {
        true => None,
        false => Some(numbers_of(gpu, calls)?),
    };
    Ok(Some(Dispatch::repeated(gpu, (&kernel, lists), calls, table.as_deref())))
}

/// How many workgroups each of these calls has, and its numbers, each where an operand may begin.
fn numbers_of(gpu: &Gpu, calls: &[KernelCall]) -> Result<Vec<Operand>> {
    let mut words = vec![0; calls.len() * OFFSET_ELEMENTS];
    for (call, words) in calls.iter().zip(words.chunks_exact_mut(OFFSET_ELEMENTS)) {
        words[0] = call.groups[0];
        words[1..=call.constants.len()].copy_from_slice(&call.constants);
    }
    let memory = gpu.storage("numbers of joined calls", 4 * words.len() as u64)?;
    gpu.upload(&memory, 0, bytemuck::cast_slice(&words));
    let number = |(place, call): (usize, &KernelCall)| {
        Operand::new(&memory, place * OFFSET_ELEMENTS, 1 + call.constants.len())
    };
    Ok(calls.iter().enumerate().map(number).collect())
}

/// The workgroups of a call.
fn size(call: &KernelCall) -> usize {
    call.groups.iter().map(|groups| *groups as usize).product()
}

fn call(recorded: &Recorded) -> Option<&KernelCall> {
    match recorded {
        Recorded::Kernel(call) => Some(call),
        Recorded::Host(_) => None,
    }
}

/// Whether one of these calls reads a part of a buffer of which another one writes another part, which no dispatch may.
fn reads_and_writes(calls: &[KernelCall]) -> bool {
    let all = || calls.iter().flat_map(|call| &call.operands);
    let allocation = |bind: &Bind| bind.operand().allocation().clone();
    let written: Vec<Allocation> = all().filter(|bind| bind.is_written()).map(allocation).collect();
    all().filter(|bind| !bind.is_written()).any(|read| {
        let read = read.operand().allocation();
        written.iter().any(|written| written.is(read))
    })
}

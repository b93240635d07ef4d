//! Calls of one kernel that wait for nothing of each other, as one dispatch.
//!
//! A dispatch costs the host and the device microseconds, whatever it computes: a tick of a mesh calls the same small
//! kernel for each of its cells.

use super::Gpu;
use super::dispatch::Dispatch;
use crate::shader::{Allocation, Bind, Kernel, KernelCall, Recorded};
use std::collections::HashMap;

/// The fewest calls that are worth a kernel of their own.
const FEWEST: usize = 4;
/// The most calls of one dispatch.
const MOST: usize = 256;
/// Workgroups from which on a call takes so long that starting it does not count.
const LARGE: usize = 64;

/// What calls have in common that are made at once.
#[derive(PartialEq, Eq, Hash)]
struct Alike {
    kernel: Kernel,
    constants: Vec<u32>,
    groups: [u32; 2],
    written: Vec<bool>,
}

/// What was recorded, each with its level and in their order, as dispatches.
pub(super) fn dispatches(gpu: &Gpu, leveled: Vec<(usize, Recorded)>) -> Vec<Dispatch> {
    let mut all = Vec::with_capacity(leveled.len());
    for level in leveled.chunk_by(|one, next| one.0 == next.0) {
        let mut alike: HashMap<Alike, Vec<usize>> = HashMap::new();
        for (place, (_, recorded)) in level.iter().enumerate() {
            if let Some(kind) = kind(recorded) {
                alike.entry(kind).or_default().push(place);
            }
        }
        // The places of calls that are made by the dispatch at the first of them.
        let mut at_first: HashMap<usize, Dispatch> = HashMap::new();
        let mut is_made = vec![false; level.len()];
        for (kind, places) in alike {
            let room = MOST.min(gpu.arrayed_operands() / kind.written.len().max(1));
            for places in places.chunks(room.max(1)).filter(|places| places.len() >= FEWEST) {
                // As many lists as a power of two, so that few kernels serve many numbers of calls.
                let lists = places.len().next_power_of_two().min(room);
                let calls: Vec<KernelCall> =
                    places.iter().filter_map(|place| call(&level[*place].1)).cloned().collect();
                if reads_and_writes(&calls) {
                    continue;
                }
                let Some(kernel) = kind.kernel.repeated(lists) else { continue };
                at_first.insert(places[0], Dispatch::repeated(gpu, (&kernel, lists), &calls));
                places.iter().for_each(|place| is_made[*place] = true);
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
    all
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

/// With what a call can be made at once, where that pays.
fn kind(recorded: &Recorded) -> Option<Alike> {
    let KernelCall { kernel, operands, constants, groups } = call(recorded)?;
    let [width, height] = groups.map(|groups| groups as usize);
    let written = operands.iter().map(|bind| bind.is_written()).collect();
    let alike = || Alike { kernel: kernel.clone(), constants: constants.clone(), groups: *groups, written };
    (width * height < LARGE).then(alike)
}

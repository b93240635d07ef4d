//! Which values of a run may lie in the same memory on a device that runs steps side by side.
//!
//! The host runs one step after the other, and memory is handed on as soon as its value was read for the last
//! time (`plan`). A device has whatever does not wait for each other run at once, which steps no longer do where one
//! writes what another one still reads. So memory is handed on only where the step that writes next comes later
//! whatever memory there is; what is computed again comes no earlier than the gradient that asks for it.
//!
//! A driver puts a barrier before whatever writes memory that was in use, and so between steps that would run
//! side by side. Steps over large values fill a device by themselves; small values have memory of their own while
//! there is plenty.

use super::memory::Region;
use super::plan::shared_out;
use super::{Place, Program, Unit, Value, units};
use crate::ops::Op;
use std::collections::HashMap;

/// Elements of values of which one alone fills a device.
pub(crate) const LARGE: usize = 1 << 21;

/// When a value's memory is in use: the first and the last of all who touch it.
type Span = Option<(usize, usize)>;

/// Shares of memory, each of values that are not needed at the same time.
#[derive(Debug)]
pub(crate) struct Sharing {
    /// Which share a value has, by the value that owns the memory.
    shares: Vec<Option<usize>>,
    /// The elements of each share.
    pub(crate) elements: Vec<usize>,
    /// The largest value of each.
    pub(crate) largest: Vec<Value>,
}

impl Sharing {
    /// Shares for as many rows as the program may hold, of which a device makes products of up to `most_rows` rows
    /// together. Small values have memory of their own where no more than `plenty` elements are needed then.
    pub(crate) fn new(program: &Program, most_rows: usize, plenty: usize) -> Self {
        let joined = |rows| units(program, (0..program.steps.len()).collect(), rows, most_rows);
        let full = joined(program.capacity);
        // Fewer rows may be joined where more are not.
        let orders = [
            spans(program, &one_by_one(program), |place| place),
            spans(program, &joined(1), |place| place),
            spans(program, &full, |place| place),
            {
                let levels = levels(program, &full);
                spans(program, &full, |place| levels[place])
            },
        ];
        let elements = |index: usize| program.values[index].len(program.capacity);
        let mut values: Vec<usize> =
            (0..program.values.len()).filter(|index| has_memory(program.values[*index].place)).collect();
        // The largest first: smaller ones then fit in where none of these is needed. In the order of time a few numbers
        // of a norm would keep the memory that a large value before them had.
        values.sort_by_key(|index| (std::cmp::Reverse(elements(*index)), orders[0][*index]));
        let whole: usize = values.iter().map(|index| elements(*index)).sum();
        // Who keeps activations in 16 bits has asked for memory.
        let spares = program.steps.iter().any(|step| matches!(step.op, Op::Narrow(_)));
        let least = if whole > plenty || spares { 0 } else { LARGE };
        // Whoever looks from outside does so after the run.
        let alone = |index: usize| program.values[index].pinned || elements(index) < least;
        let after = |one: usize, other: usize| {
            orders.iter().all(|spans| match (spans[one], spans[other]) {
                (Some((_, last)), Some((first, _))) => last < first,
                _ => false,
            })
        };
        let apart = |one: usize, other: usize| {
            !alone(one) && !alone(other) && (after(one, other) || after(other, one))
        };
        let mut made = Self { shares: vec![None; program.values.len()], elements: vec![], largest: vec![] };
        for (share, held) in shared_out(&values, elements, apart).into_iter().enumerate() {
            let Some(first) = held.first() else { continue };
            made.elements.push(elements(*first));
            made.largest.push(Value(*first as u32));
            held.iter().for_each(|index| made.shares[*index] = Some(share));
        }
        made
    }

    /// The share in which a value lies that owns its memory; `None` for one that has none.
    pub(crate) fn of(&self, owner: Value) -> Option<usize> {
        self.shares.get(owner.index()).copied().flatten()
    }

    /// Whether no step overwrites what another one still reads where they run in this order.
    pub(crate) fn keeps(&self, program: &Program, units: &[Unit]) -> bool {
        let mut order: Vec<(usize, usize)> = Vec::new();
        let now = spans(program, units, |place| place);
        let planned = spans(program, &one_by_one(program), |place| place);
        for (index, share) in self.shares.iter().enumerate() {
            if let (Some(share), Some(_)) = (share, now[index]) {
                order.push((*share, index));
            }
        }
        order.sort_by_key(|(share, index)| (*share, planned[*index]));
        order.windows(2).all(|pair| match pair {
            [(one_share, one), (share, other)] if one_share == share => {
                now[*one].map(|(_, last)| last) < now[*other].map(|(first, _)| first)
            }
            _ => true,
        })
    }
}

fn has_memory(place: Place) -> bool {
    matches!(place, Place::Buffer(buffer) if buffer != usize::MAX)
}

fn one_by_one(program: &Program) -> Vec<Unit> {
    (0..program.steps.len()).map(Unit::alone).collect()
}

/// When each value's memory is in use, where the unit at a place runs at this time.
fn spans(program: &Program, units: &[Unit], time: impl Fn(usize) -> usize) -> Vec<Span> {
    let mut spans: Vec<Span> = vec![None; program.values.len()];
    for (place, unit) in units.iter().enumerate() {
        let now = time(place);
        for number in &unit.members {
            let step = &program.steps[*number];
            for value in step.reads.iter().chain(&step.writes) {
                let span = &mut spans[program.owner(*value).index()];
                let (first, last) = span.unwrap_or((now, now));
                *span = Some((first.min(now), last.max(now)));
            }
        }
    }
    spans
}

/// After how many others each unit can run at the earliest, were every value in memory of its own.
pub(super) fn levels(program: &Program, units: &[Unit]) -> Vec<usize> {
    // The first levels at which memory may be read, and written, again.
    let mut free: HashMap<Region, (usize, usize)> = HashMap::new();
    units
        .iter()
        .map(|unit| {
            let steps = || unit.members.iter().map(|number| &program.steps[*number]);
            let touched: Vec<(Region, bool)> = steps().flat_map(|step| program.touched(step)).collect();
            let waits = touched.iter().map(|(region, written)| {
                let (read, write) = free.get(region).copied().unwrap_or_default();
                if *written { write } else { read }
            });
            let asked = steps().filter_map(|step| step.after).map(|value| {
                let region = Region::Own(program.owner(value));
                free.get(&region).map_or(0, |(read, _)| *read)
            });
            let level = waits.chain(asked).max().unwrap_or(0);
            for (region, written) in touched {
                let (read, write) = free.entry(region).or_default();
                *write = (*write).max(level + 1);
                if written {
                    *read = (*read).max(level + 1);
                }
            }
            level
        })
        .collect()
}

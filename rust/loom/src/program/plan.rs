//! Assigns buffers to values: a buffer is used again once its value was read for the last time.

use super::{Kind, Program};
use crate::program::{Place, Value};
use std::cmp::Reverse;

/// Pieces of memory, each with the values that lie in it one after the other.
pub(super) type Shares = Vec<Vec<usize>>;

/// Shares memory out among values, as they come: each gets the smallest piece that is large enough and apart from all that lies
/// in it, or else the largest, to be grown.
pub(super) fn shared_out(
    values: &[usize],
    size: impl Fn(usize) -> usize,
    apart: impl Fn(usize, usize) -> bool,
) -> Shares {
    let mut shares: Shares = Vec::new();
    let mut sizes: Vec<usize> = Vec::new();
    for index in values.iter().copied() {
        let wanted = size(index);
        let share = (0..shares.len())
            .filter(|share| shares[*share].iter().all(|held| apart(*held, index)))
            .min_by_key(|share| (sizes[*share] < wanted, sizes[*share].abs_diff(wanted)))
            .unwrap_or(shares.len());
        if share == shares.len() {
            shares.push(Vec::new());
            sizes.push(0);
        }
        shares[share].push(index);
        sizes[share] = sizes[share].max(wanted);
    }
    shares
}

/// Gives every temporary value a buffer.
///
/// A step's results never share a buffer with its operands. Pinned values and
/// ports keep theirs for the whole run.
pub(super) fn assign_buffers(program: &mut Program) {
    pin_ports(program);
    let uses = uses(program);
    // Pinned values nobody writes are the caller's: they exist before the first step. Others
    // that nobody writes were fused away.
    let has_buffer = |index: &usize| matches!(program.values[*index].place, Place::Buffer(_));
    let given =
        (0..program.values.len()).filter(|index| program.values[*index].pinned && uses[*index].is_none());
    let written = program.steps.iter().flat_map(|step| &step.writes);
    let written = written.map(|value| program.owner(*value).index());
    let mut values: Vec<usize> = Vec::new();
    for index in given.chain(written).filter(has_buffer) {
        if !values.contains(&index) {
            values.push(index);
        }
    }
    let span = |index: usize| {
        let (first, last) = uses[index].unwrap_or_default();
        (first, if program.values[index].pinned { usize::MAX } else { last })
    };
    let apart = |one: usize, other: usize| {
        let ((first, last), (start, end)) = (span(one), span(other));
        last < start || end < first
    };
    let in_time = shared_out(&values, |index| bytes(program, index), apart);
    let order = values.clone();
    // In the order of time a few numbers of a norm may keep the buffer that a large value before them had; where the largest
    // come first, smaller ones fit in where none of these is needed.
    values.sort_by_key(|index| Reverse(bytes(program, *index)));
    let mut by_size = shared_out(&values, |index| bytes(program, index), apart);
    by_size.sort_by_key(|held| order.iter().position(|index| held.contains(index)));
    let total = |plan: &Shares| plan.iter().map(|held| largest(program, held)).sum::<usize>();
    let plan = if total(&by_size) < total(&in_time) { by_size } else { in_time };
    for (number, held) in plan.into_iter().enumerate() {
        program.buffers.push(largest(program, &held));
        for index in held {
            program.values[index].place = Place::Buffer(number);
        }
    }
}

/// Bytes of a buffer of these values.
fn largest(program: &Program, held: &[usize]) -> usize {
    held.iter().map(|index| bytes(program, *index)).max().unwrap_or(0)
}

fn pin_ports(program: &mut Program) {
    let values: Vec<Value> = program.ports.values().collect();
    for value in values {
        let owner = program.owner(value);
        program.values[owner.index()].pinned = true;
    }
}

/// From which step to which each value (by owner of the memory) is needed; `None` for one that nobody writes.
fn uses(program: &Program) -> Vec<Option<(usize, usize)>> {
    let mut uses: Vec<Option<(usize, usize)>> = vec![None; program.values.len()];
    for (number, step) in program.steps.iter().enumerate() {
        for value in &step.writes {
            let first = &mut uses[program.owner(*value).index()];
            *first = Some(first.map_or((number, number), |(first, _)| (first, number)));
        }
        for value in &step.reads {
            if let Some((_, last)) = &mut uses[program.owner(*value).index()] {
                *last = number;
            }
        }
    }
    uses
}

fn bytes(program: &Program, index: usize) -> usize {
    let info = &program.values[index];
    let element = match info.kind {
        Kind::Real => program.precision.size(),
        Kind::Index => size_of::<i32>(),
    };
    info.len(program.capacity) * element
}

//! Assigns buffers to values: a buffer is used again once its value was read for the last time.

use super::{Kind, Program};
use crate::program::{Place, Value};
use std::cmp::Reverse;

/// Gives every temporary value a buffer.
///
/// A step's results never share a buffer with its operands. Pinned values and
/// ports keep theirs for the whole run.
pub(super) fn assign_buffers(program: &mut Program) {
    pin_ports(program);
    let uses = uses(program);
    // Pinned values nobody writes are the caller's: they exist before the first step. Others
    // that nobody writes were fused away.
    let mut values: Vec<usize> = (0..program.values.len())
        .filter(|index| {
            let info = &program.values[*index];
            matches!(info.place, Place::Buffer(_)) && (info.pinned || uses[*index].is_some())
        })
        .collect();
    // The largest first: smaller ones then fit in where none of these is needed. In the order of time a few numbers of a
    // norm would keep the buffer that a large value before them had.
    values.sort_by_key(|index| (Reverse(bytes(program, *index)), uses[*index]));
    let mut buffers: Vec<Vec<usize>> = Vec::new();
    for index in values {
        let pinned = |index: usize| program.values[index].pinned;
        let apart = |held: &usize| match (uses[*held], uses[index]) {
            (Some((first, last)), Some((start, end))) => !pinned(*held) && (last < start || end < first),
            _ => false,
        };
        // Later ones are smaller.
        let free =
            (0..buffers.len()).rev().find(|buffer| !pinned(index) && buffers[*buffer].iter().all(apart));
        match free {
            Some(buffer) => buffers[buffer].push(index),
            None => buffers.push(vec![index]),
        }
    }
    // In the order in which they are first used.
    buffers.sort_by_key(|held| held.iter().map(|index| (uses[*index], *index)).min());
    for (number, held) in buffers.into_iter().enumerate() {
        program.buffers.push(held.iter().map(|index| bytes(program, *index)).max().unwrap_or(0));
        for index in held {
            program.values[index].place = Place::Buffer(number);
        }
    }
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

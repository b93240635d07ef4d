//! Assigns buffers to values: a buffer is used again once its value was read for the last time.

use super::{Kind, Program};
use crate::program::{Place, Value};

/// Gives every temporary value a buffer.
///
/// A step's results never share a buffer with its operands. Pinned values and
/// ports keep theirs for the whole run.
pub(super) fn assign_buffers(program: &mut Program) {
    pin_ports(program);
    let last_use = last_uses(program);
    let mut free: Vec<usize> = Vec::new();
    let mut assigned: Vec<Option<usize>> = vec![None; program.values.len()];

    // Pinned values nobody writes are the caller's: they exist before the first step. Others
    // that nobody writes were fused away.
    for (index, assigned) in assigned.iter_mut().enumerate() {
        let value = Value(index as u32);
        let written = program.steps.iter().any(|step| step.writes.contains(&value));
        let info = &program.values[index];
        if matches!(info.place, Place::Buffer(_)) && info.pinned && !written {
            *assigned = Some(new_buffer(program, index));
        }
    }
    for step in 0..program.steps.len() {
        for position in 0..program.steps[step].writes.len() {
            let index = program.owner(program.steps[step].writes[position]).index();
            if !matches!(program.values[index].place, Place::Buffer(_)) || assigned[index].is_some() {
                continue;
            }
            let bytes = bytes(program, index);
            assigned[index] = Some(match best_fit(&free, &program.buffers, bytes) {
                Some(position) => {
                    let buffer = free.swap_remove(position);
                    program.buffers[buffer] = program.buffers[buffer].max(bytes);
                    buffer
                }
                None => new_buffer(program, index),
            });
        }
        for (index, last) in last_use.iter().enumerate() {
            if *last == Some(step)
                && !program.values[index].pinned
                && let Some(buffer) = assigned[index]
            {
                free.push(buffer);
            }
        }
    }
    for (index, buffer) in assigned.into_iter().enumerate() {
        if let (Place::Buffer(place), Some(buffer)) = (&mut program.values[index].place, buffer) {
            *place = buffer;
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

/// The step after which each value (by owner of the memory) is needed no more.
fn last_uses(program: &Program) -> Vec<Option<usize>> {
    let mut last = vec![None; program.values.len()];
    for (number, step) in program.steps.iter().enumerate() {
        for value in step.reads.iter().chain(&step.writes) {
            last[program.owner(*value).index()] = Some(number);
        }
    }
    last
}

fn bytes(program: &Program, index: usize) -> usize {
    let info = &program.values[index];
    let element = match info.kind {
        Kind::Real => program.precision.size(),
        Kind::Index => size_of::<i32>(),
    };
    info.len(program.capacity) * element
}

fn new_buffer(program: &mut Program, index: usize) -> usize {
    program.buffers.push(bytes(program, index));
    program.buffers.len() - 1
}

/// The smallest free buffer that is large enough, or else the largest, to be grown.
fn best_fit(free: &[usize], sizes: &[usize], bytes: usize) -> Option<usize> {
    let fitting = (0..free.len()).filter(|&i| sizes[free[i]] >= bytes).min_by_key(|&i| sizes[free[i]]);
    fitting.or_else(|| (0..free.len()).max_by_key(|&i| sizes[free[i]]))
}

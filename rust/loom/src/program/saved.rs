//! Activations that the backward pass reads are kept in 16 bits until then.
//!
//! What an activation's last reader of the forward pass leaves is rounded, and made numbers again before its first
//! reader of the backward pass. So the forward pass computes what it would have, and gradients are those at rounded
//! activations, as they are where a framework's forward pass computes with such.

use super::{Kind, Phase, Place, Program, Step, Value, ValueInfo, Write};
use crate::ops::{Direction, Narrow, Op, ShortFloat, Widen};
use std::collections::{HashMap, HashSet};

/// Rows of fewer elements stay as they are: there is nothing to save.
const LEAST: usize = 32;
/// Readers that are further apart than so many steps each have the numbers made for them.
const NEAR: usize = 24;

/// An activation that waits for the backward pass.
struct Saved {
    value: Value,
    /// After which step it is rounded.
    after: usize,
    /// The steps that read it later, those that are near each other together.
    readers: Vec<Vec<usize>>,
}

/// Rounds what waits for the backward pass.
pub(super) fn narrow(program: &mut Program, format: ShortFloat) {
    let saved = waiting(program);
    let made_later: HashSet<Value> = program
        .steps
        .iter()
        .filter(|step| step.phase >= Phase::Loss)
        .flat_map(|step| &step.writes)
        .map(|value| program.owner(*value))
        .collect();
    // What is there no earlier than a step of the backward pass is to run: a gradient that it reads.
    let asked_by = |program: &Program, reader: &Step| {
        let gradient = reader.reads.iter().find(|value| made_later.contains(&program.owner(**value)));
        reader.after.or(gradient.copied())
    };
    let mut rounded: HashMap<usize, Vec<Step>> = HashMap::new();
    let mut restored: HashMap<usize, Vec<Step>> = HashMap::new();
    // What a step reads in the place of an activation.
    let mut instead: HashMap<(usize, Value), Value> = HashMap::new();
    for Saved { value, after, readers } in saved {
        let info = program.value(value).clone();
        let words = define(
            program,
            ValueInfo {
                label: "saved",
                shape: info.shape.len().div_ceil(2).into(),
                kind: Kind::Index,
                place: Place::Buffer(usize::MAX),
                ..info.clone()
            },
        );
        let maker = &program.steps[after];
        let step = Step {
            op: Narrow { format }.into(),
            reads: vec![value],
            writes: vec![words],
            write: Write::Set,
            after: None,
            ..maker.clone()
        };
        rounded.entry(after).or_default().push(step);
        for together in readers {
            let Some(first) = together.first().copied() else { continue };
            let numbers = define(program, ValueInfo { place: Place::Buffer(usize::MAX), ..info.clone() });
            let reader = &program.steps[first];
            let step = Step {
                op: Widen { format }.into(),
                reads: vec![words],
                writes: vec![numbers],
                write: Write::Set,
                after: asked_by(program, reader),
                ..reader.clone()
            };
            restored.entry(first).or_default().push(step);
            together.into_iter().for_each(|reader| {
                instead.insert((reader, value), numbers);
            });
        }
    }
    let steps = std::mem::take(&mut program.steps);
    for (number, mut step) in steps.into_iter().enumerate() {
        program.steps.extend(restored.remove(&number).unwrap_or_default());
        let mut reads = std::mem::take(&mut step.reads);
        for read in &mut reads {
            let owner = program.owner(*read);
            let Some(numbers) = instead.get(&(number, owner)).copied() else { continue };
            *read = if *read == owner {
                numbers
            } else {
                let seen = program.value(*read).clone();
                define(program, ValueInfo { place: Place::Alias(numbers), ..seen })
            };
        }
        program.steps.push(Step { reads, ..step });
        program.steps.extend(rounded.remove(&number).unwrap_or_default());
    }
}

fn define(program: &mut Program, info: ValueInfo) -> Value {
    program.values.push(info);
    Value((program.values.len() - 1) as u32)
}

/// The activations that wait for the backward pass, as they come.
fn waiting(program: &Program) -> Vec<Saved> {
    let ports: HashSet<Value> = program.ports.values().map(|port| program.owner(port)).collect();
    let mut makers: HashMap<Value, Vec<(usize, usize)>> = HashMap::new();
    let mut readers: HashMap<Value, Vec<usize>> = HashMap::new();
    let mut exact: HashSet<Value> = HashSet::new();
    for (number, step) in program.steps.iter().enumerate() {
        for (result, value) in step.writes.iter().enumerate() {
            makers.entry(program.owner(*value)).or_default().push((number, result));
        }
        for (operand, value) in step.reads.iter().enumerate() {
            let owner = program.owner(*value);
            readers.entry(owner).or_default().push(number);
            if counts(&step.op, operand) {
                exact.insert(owner);
            }
        }
    }
    let saved = |(index, info): (usize, &ValueInfo)| {
        let value = Value(index as u32);
        let [(made, result)] = makers.get(&value)?[..] else { return None };
        let maker = &program.steps[made];
        let fits = matches!(info.place, Place::Buffer(_))
            && info.kind == Kind::Real
            && info.per_row
            && !info.pinned
            && info.shape.len() >= LEAST
            && maker.phase == Phase::Forward
            && maker.write == Write::Set
            && is_activation(&maker.op, result)
            && !ports.contains(&value)
            && !exact.contains(&value);
        if !fits {
            return None;
        }
        let is_later = |number: &usize| program.steps[*number].phase >= Phase::Backward;
        let (mut later, before): (Vec<usize>, Vec<usize>) =
            readers.get(&value)?.iter().copied().partition(is_later);
        later.dedup();
        let after = before.last().copied().unwrap_or(made);
        let readers: Vec<Vec<usize>> =
            later.chunk_by(|one, next| next - one <= NEAR).map(<[usize]>::to_vec).collect();
        (!readers.is_empty()).then_some(Saved { value, after, readers })
    };
    program.values.iter().enumerate().filter_map(saved).collect()
}

/// Whether a result of an operation is an activation: numbers whose last places gradients do not depend on, and no
/// statistics, masks or whole numbers.
fn is_activation(op: &Op, result: usize) -> bool {
    match op {
        Op::Product(op) => op.direction == Direction::Forward,
        // The input gradient is a transposed convolution's forward pass.
        Op::Convolution(op) => op.direction != Direction::WeightGradient,
        Op::Attention(op) => op.direction == Direction::Forward && result == 0,
        Op::Normalize(_) | Op::ChannelNormalize(_) | Op::Pool(_) | Op::AdaptiveMax(_) => result == 0,
        Op::BiasAdd(_)
        | Op::Combination(_)
        | Op::Concat(_)
        | Op::Dropout(_)
        | Op::Entmax(_)
        | Op::ExpertProduct(_)
        | Op::Gate(_)
        | Op::Gather(_)
        | Op::GaussianNoise(_)
        | Op::MaskedSoftmax(_)
        | Op::Mix(_)
        | Op::NestedSoftmax(_)
        | Op::Permute(_)
        | Op::Pointwise(_)
        | Op::Positions(_)
        | Op::Prelu(_)
        | Op::Recurrent(_)
        | Op::Resample(_)
        | Op::Rotary(_)
        | Op::Scale(_)
        | Op::Slice(_)
        | Op::Softmax(_)
        | Op::Sum(_) => true,
        _ => false,
    }
}

/// Whether an operation takes an operand for whole numbers, or for what says who counts.
fn counts(op: &Op, operand: usize) -> bool {
    match op {
        Op::Gather(_) => operand == 0,
        // Who is masked, and which experts are chosen.
        Op::ExpertProduct(_) | Op::MaskedSoftmax(_) => operand > 0,
        Op::Route(_) | Op::StepWeights(_) | Op::LengthMask(_) | Op::StepMask(_) | Op::Labels(_) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Pointwise;
    use crate::ops::pointwise::Activation;
    use crate::program::{Builder, Rewrites};
    use crate::tensor::{Precision, Shape};

    /// A chain of `depth` exponentials and their derivatives.
    fn chain(depth: usize, width: usize, format: Option<ShortFloat>) -> Program {
        let mut b = Builder::new(Precision::Float32);
        b.saved_activations = format;
        let mut x = b.input("input", Shape::from(width), Kind::Real);
        b.ports.input = Some(x);
        let mut made = Vec::new();
        for _ in 0..depth {
            x = b.apply(Pointwise::forward(Activation::Tanh), &[x], "y", Shape::from(width));
            made.push(x);
        }
        b.ports.output = Some(x);
        b.set_phase(Phase::Backward);
        for y in made.into_iter().rev() {
            x = b.apply(Pointwise::backward(Activation::Tanh), &[y, x], "dy", Shape::from(width));
        }
        b.ports.input_gradient = Some(x);
        b.finish(4, &Rewrites::none()).unwrap()
    }

    /// Each is rounded behind its last reader and made numbers again before the first of the backward pass, and
    /// takes half of the memory in between; but for the output, which is a port.
    #[test]
    fn activations_wait_in_half_of_their_memory() {
        let (depth, width) = (40, 1024);
        let whole = chain(depth, width, None);
        let saved = chain(depth, width, Some(ShortFloat::Float16));
        let count = |program: &Program, name: &str| {
            program.steps.iter().filter(|step| step.op.to_string() == name).count()
        };
        assert_eq!(count(&saved, "narrow float16"), depth - 1);
        assert_eq!(count(&saved, "widen float16"), depth - 1);
        assert!(
            saved.run_bytes() * 10 < whole.run_bytes() * 6,
            "{} of {}",
            saved.run_bytes(),
            whole.run_bytes()
        );
        for (number, step) in saved.steps.iter().enumerate() {
            if let Op::Widen(_) = step.op {
                let reader = &saved.steps[number + 1];
                assert_eq!(reader.reads[0], step.writes[0]);
                assert_eq!(step.after, Some(reader.reads[1]));
            }
        }
    }

    #[test]
    fn small_rows_stay_as_they_are() {
        let saved = chain(4, LEAST - 1, Some(ShortFloat::BFloat16));
        assert!(!saved.steps.iter().any(|step| matches!(step.op, Op::Narrow(_))));
    }
}

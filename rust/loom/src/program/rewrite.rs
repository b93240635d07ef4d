//! The table of rewrites: steps that may be fused where nothing else reads,
//! pins or contributes to the value between them, and nothing they are moved past
//! touches the memory they touch.
//!
//! On the CPU a fused step gives the same bits as the steps it replaces.

use super::{Program, Step, Write};
use crate::ops::{Direction, Op, ProductUpdate};
use crate::program::{Place, Value};

/// Which rewrites are applied; all of them by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rewrites {
    /// A bias is added where a product or a convolution writes its result.
    pub bias: bool,
    /// An activation is applied where a product or a convolution writes its result.
    pub activation: bool,
    /// An activation's derivative is applied where a product or a pooling writes the gradient of its input.
    pub derivative: bool,
    /// A weight's gradient goes into its update row by row, where nothing else needs it or adds to it: no
    /// clipping, no accumulation, no other layer that uses the weight. Only for batches of at most
    /// [`MOST_UPDATED_ROWS`] rows.
    pub update: bool,
}

/// Past this many rows the product is what takes the time, and the update gains nothing by
/// keeping the product's operands longer.
pub const MOST_UPDATED_ROWS: usize = 128;

impl Default for Rewrites {
    fn default() -> Self {
        Self { bias: true, activation: true, derivative: true, update: true }
    }
}

impl Rewrites {
    /// No rewrite: the program as layers and trainers lowered it.
    pub fn none() -> Self {
        Self { bias: false, activation: false, derivative: false, update: false }
    }
}

/// Applies the rewrites, each to all steps, in an order in which one prepares the next.
pub(super) fn apply(program: &mut Program, rewrites: &Rewrites) {
    if rewrites.bias {
        fuse_pairs(program, fuse_bias);
    }
    if rewrites.activation {
        fuse_pairs(program, fuse_activation);
    }
    if rewrites.derivative {
        fuse_pairs(program, fuse_derivative);
    }
    if rewrites.update && program.capacity <= MOST_UPDATED_ROWS {
        fuse_updates(program);
    }
}

/// Merges every store's update with the product that makes its weight's gradient.
fn fuse_updates(program: &mut Program) {
    let mut update = 0;
    while update < program.steps.len() {
        if let Some((producer, offset)) = sole_gradient(program, update) {
            let made = program.steps.remove(producer);
            update -= 1;
            let step = &mut program.steps[update];
            if let (Op::Product(product), Op::Update(rule)) = (made.op, step.op.clone()) {
                step.op = ProductUpdate { product, update: rule, offset }.into();
                step.reads = [&made.reads[..2], &step.reads[..]].concat();
            }
        }
        update += 1;
    }
}

/// The product that alone contributes to the gradient of its parameter, for an update that alone
/// reads the store's gradients and that it can as well stand at; and where that parameter starts.
fn sole_gradient(program: &Program, update: usize) -> Option<(usize, usize)> {
    let step = &program.steps[update];
    let whole = *step.reads.first()?;
    let (Op::Update(rule), Place::Gradient(_)) = (&step.op, program.value(whole).place) else { return None };
    let others = || program.steps.iter().enumerate().filter(|(number, _)| *number != update);
    if others().any(|(_, step)| program.looks_at(step, whole)) {
        return None;
    }
    let mut products = others().filter(|(_, step)| {
        matches!(&step.op, Op::Product(product) if product.direction == Direction::WeightGradient)
            && program.changes(step, whole)
    });
    let (producer, product) = products.next()?;
    if products.next().is_some() || product.write != Write::First || producer > update {
        return None;
    }
    // Whatever adds to it or changes it in its place needs it where it is stored: other layers that use the
    // parameter, by any operation, and clamping.
    let gradient = *product.writes.first()?;
    if others().any(|(number, step)| number != producer && program.changes(step, gradient)) {
        return None;
    }
    let mut passed = program.steps[producer + 1..update].iter();
    if passed.any(|passed| !program.commute(product, passed))
        || product.reads.iter().any(|operand| program.takes(step, *operand))
    {
        return None;
    }
    match program.value(gradient).place {
        Place::Gradient(weight) => Some((producer, *rule.offsets.get(weight.parameter?)?)),
        _ => None,
    }
}

/// What a producer and its only reader become: an operation and its operands, where they can be fused.
type Fuse = fn(producer: &Step, reader: &Step) -> Option<(Op, Vec<Value>)>;

/// A reader that can join the producer of what it reads.
struct Pair {
    reader: usize,
    /// What is decoded for the reader between the two, in order.
    decodes: Vec<usize>,
    op: Op,
    reads: Vec<Value>,
}

/// Replaces a producer and the only reader of its result by one step, wherever
/// `fuse` gives one. The fused step stands where the producer stood.
fn fuse_pairs(program: &mut Program, fuse: Fuse) {
    let mut producer = 0;
    while producer < program.steps.len() {
        if let Some(Pair { reader, decodes, op, reads }) = pair(program, producer, fuse) {
            let consumed = program.steps.remove(reader);
            // What only the reader needed so far is decoded before the step that now reads it.
            for number in decodes {
                let decode = program.steps.remove(number);
                program.steps.insert(producer, decode);
                producer += 1;
            }
            let step = &mut program.steps[producer];
            step.op = op;
            step.reads = reads;
            step.writes = consumed.writes;
        }
        producer += 1;
    }
}

/// What step `producer` and the only reader of its result become, where the reader can as well
/// stand at the producer's place.
fn pair(program: &Program, producer: usize, fuse: Fuse) -> Option<Pair> {
    let reader = sole_reader(program, producer)?;
    let steps = &program.steps;
    let (op, reads) = fuse(&steps[producer], &steps[reader])?;
    let is_decode = |number: &usize| {
        let step = &steps[*number];
        matches!(step.op, Op::Decode(_))
            && step.phase == steps[producer].phase
            && step.writes.iter().any(|made| reads.contains(made))
    };
    let (decodes, passed): (Vec<usize>, Vec<usize>) = (producer + 1..reader).partition(is_decode);
    let decodes_pass = decodes.iter().all(|decode| {
        let before = passed.iter().filter(|number| *number < decode);
        before.chain([&producer]).all(|number| program.commute(&steps[*decode], &steps[*number]))
    });
    let reader_passes = passed.iter().all(|number| program.commute(&steps[reader], &steps[*number]));
    let in_place = reads.iter().any(|operand| program.takes(&steps[reader], *operand));
    (decodes_pass && reader_passes && !in_place).then_some(Pair { reader, decodes, op, reads })
}

/// The step that alone reads the only result of step `producer`, unless the result is
/// needed elsewhere.
fn sole_reader(program: &Program, producer: usize) -> Option<usize> {
    let step = &program.steps[producer];
    let [result] = step.writes[..] else { return None };
    let is_port = || program.ports.values().any(|port| program.owner(port) == result);
    if step.write != Write::Set || program.values[result.index()].pinned || is_port() {
        return None;
    }
    let mut readers = (0..program.steps.len()).filter(|&i| program.looks_at(&program.steps[i], result));
    let reader = readers.next()?;
    let aliased = program
        .values
        .iter()
        .enumerate()
        .any(|(i, _)| i != result.index() && program.owner(Value(i as u32)) == result);
    let reads_once = program.steps[reader].reads.iter().filter(|value| **value == result).count() == 1;
    let found = &program.steps[reader];
    (readers.next().is_none()
        && reads_once
        && !aliased
        && found.phase == step.phase
        && found.write == Write::Set)
        .then_some(reader)
}

fn fuse_bias(producer: &Step, reader: &Step) -> Option<(Op, Vec<Value>)> {
    let (Op::BiasAdd(add), [sum, bias]) = (&reader.op, &reader.reads[..]) else { return None };
    let mut op = producer.op.clone();
    let (held, fits) = match &mut op {
        Op::Product(product) => {
            let fits = product.direction == Direction::Forward && product.activation.is_none();
            (&mut product.bias, fits && (add.channels, add.inner) == (product.outputs, 1))
        }
        Op::Convolution(convolution) => {
            let channels = match convolution.direction {
                Direction::Forward => convolution.outputs,
                // The input gradient is a transposed convolution's forward pass.
                Direction::InputGradient => convolution.inputs,
                Direction::WeightGradient => return None,
            };
            let fits = convolution.activation.is_none() && (add.outer, add.channels) == (1, channels);
            (&mut convolution.bias, fits)
        }
        _ => return None,
    };
    if *held || !fits || sum != producer.writes.first()? {
        return None;
    }
    *held = true;
    let mut reads = producer.reads.clone();
    reads.push(*bias);
    Some((op, reads))
}

fn fuse_activation(producer: &Step, reader: &Step) -> Option<(Op, Vec<Value>)> {
    let Op::Pointwise(pointwise) = &reader.op else { return None };
    let activation = pointwise.forward_activation()?;
    let mut op = producer.op.clone();
    match &mut op {
        Op::Product(product) if product.direction == Direction::Forward && product.activation.is_none() => {
            product.activation = Some(activation);
        }
        Op::Convolution(convolution)
            if convolution.direction != Direction::WeightGradient && convolution.activation.is_none() =>
        {
            convolution.activation = Some(activation);
        }
        _ => return None,
    }
    Some((op, producer.reads.clone()))
}

fn fuse_derivative(producer: &Step, reader: &Step) -> Option<(Op, Vec<Value>)> {
    let Op::Pointwise(pointwise) = &reader.op else { return None };
    let mut op = producer.op.clone();
    let (direction, derivative) = match &mut op {
        Op::Product(product) => (product.direction, &mut product.derivative),
        Op::Pool(pool) => (pool.direction, &mut pool.derivative),
        _ => return None,
    };
    let fits = direction == Direction::InputGradient
        && derivative.is_none()
        && pointwise.forward_activation().is_none();
    let [saved, gradient] = reader.reads[..] else { return None };
    // Where somebody derives at a gradient, what the producer writes may be the other operand.
    if !fits || gradient != *producer.writes.first()? {
        return None;
    }
    *derivative = Some(pointwise.activation);
    let mut reads = producer.reads.clone();
    reads.push(saved);
    Some((op, reads))
}

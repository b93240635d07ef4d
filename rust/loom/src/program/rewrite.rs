//! The table of rewrites: steps that may be fused where nothing else reads,
//! pins or contributes to the value between them.
//!
//! On the CPU a fused step gives the same bits as the steps it replaces.

use super::{Phase, Place, Program, Step, TargetValue, Value, Write};
use crate::ops::{Direction, Op, ProductUpdate};

/// Which rewrites are applied; all of them by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rewrites {
    /// A bias is added where a product or a convolution writes its result.
    pub bias: bool,
    /// An activation is applied where a product or a convolution writes its result.
    pub activation: bool,
    /// An activation's derivative is applied where a product or a pooling writes the gradient of its input.
    pub derivative: bool,
    /// A weight's gradient goes into its update row by row, where nothing else needs it: no clipping,
    /// no accumulation. Only for batches of at most [`MOST_UPDATED_ROWS`] rows.
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

/// The product that alone makes the gradient of its parameter, for an update that alone reads the
/// store's gradients; and where that parameter starts.
fn sole_gradient(program: &Program, update: usize) -> Option<(usize, usize)> {
    let step = &program.steps[update];
    let (Op::Update(rule), Place::Gradient(whole)) = (&step.op, program.value(*step.reads.first()?).place)
    else {
        return None;
    };
    let of_store =
        |value: &Value| matches!(program.value(*value).place, Place::Gradient(p) if p.store == whole.store);
    let others = program.steps.iter().enumerate().filter(|(number, _)| *number != update);
    if others.clone().any(|(_, step)| step.reads.iter().any(of_store)) {
        return None;
    }
    // Clamping changes gradients in their place, and so without reading them.
    let is_made = |step: &Step| step.phase <= Phase::Backward;
    if others.clone().any(|(_, step)| !is_made(step) && step.writes.iter().any(of_store)) {
        return None;
    }
    let mut products = others.filter(|(_, step)| {
        matches!(&step.op, Op::Product(product) if product.direction == Direction::WeightGradient)
            && step.writes.iter().any(of_store)
    });
    let (producer, product) = products.next()?;
    if products.next().is_some() || product.write != Write::First {
        return None;
    }
    match program.value(*product.writes.first()?).place {
        Place::Gradient(weight) => Some((producer, *rule.offsets.get(weight.parameter?)?)),
        _ => None,
    }
}

/// What a producer and its only reader become: an operation and its operands, where they can be fused.
type Fuse = fn(producer: &Step, reader: &Step) -> Option<(Op, Vec<Value>)>;

/// Replaces a producer and the only reader of its result by one step, wherever
/// `fuse` gives one. The fused step stands where the producer stood.
fn fuse_pairs(program: &mut Program, fuse: Fuse) {
    let mut producer = 0;
    while producer < program.steps.len() {
        if let Some((reader, op, reads)) = sole_reader(program, producer).and_then(|reader| {
            let (op, reads) = fuse(&program.steps[producer], &program.steps[reader])?;
            Some((reader, op, reads))
        }) {
            let consumed = program.steps.remove(reader);
            // What only the reader needed so far is decoded before the step that now reads it.
            for number in producer + 1..reader {
                let step = &program.steps[number];
                if matches!(step.op, Op::Decode(_)) && step.writes.iter().any(|made| reads.contains(made)) {
                    let decode = program.steps.remove(number);
                    program.steps.insert(producer, decode);
                    producer += 1;
                }
            }
            let step = &mut program.steps[producer];
            step.op = op;
            step.reads = reads;
            step.writes = consumed.writes;
        }
        producer += 1;
    }
}

/// The step that alone reads the only result of step `producer`, unless the result is
/// needed elsewhere or something between the two writes what the reader writes.
fn sole_reader(program: &Program, producer: usize) -> Option<usize> {
    let step = &program.steps[producer];
    let [result] = step.writes[..] else { return None };
    if step.write != Write::Set || program.values[result.index()].pinned || is_port(program, result) {
        return None;
    }
    let same_memory = |value: &Value| program.owner(*value) == program.owner(result);
    let mut readers = (0..program.steps.len()).filter(|&i| program.steps[i].reads.iter().any(same_memory));
    let reader = readers.next()?;
    let aliased = program
        .values
        .iter()
        .enumerate()
        .any(|(i, _)| i != result.index() && program.owner(Value(i as u32)) == result);
    (readers.next().is_none() && !aliased && program.steps[reader].phase == step.phase).then_some(reader)
}

fn is_port(program: &Program, value: Value) -> bool {
    let ports = &program.ports;
    let named = [ports.output, ports.output_gradient, ports.input_gradient, ports.row_losses];
    named.into_iter().flatten().any(|port| program.owner(port) == value)
        || ports.layers.iter().any(|(_, layer)| {
            [Some(layer.input), layer.preactivation, Some(layer.output)]
                .into_iter()
                .flatten()
                .any(|port| program.owner(port) == value)
        })
        || ports.targets.iter().any(|(_, target)| {
            let (TargetValue::Value(port) | TargetValue::Gradient(port, _)) = target;
            program.owner(*port) == value
        })
}

fn fuse_bias(producer: &Step, reader: &Step) -> Option<(Op, Vec<Value>)> {
    let Op::BiasAdd(_) = reader.op else { return None };
    let mut op = producer.op.clone();
    match &mut op {
        Op::Product(product) if product.direction == Direction::Forward && !product.bias => {
            product.bias = true
        }
        // The input gradient is a transposed convolution's forward pass.
        Op::Convolution(convolution)
            if convolution.direction != Direction::WeightGradient && !convolution.bias =>
        {
            convolution.bias = true;
        }
        _ => return None,
    }
    let mut reads = producer.reads.clone();
    reads.push(reader.reads[1]);
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
    // The other operand may be what the producer writes only if somebody derives from a gradient.
    if !fits || gradient != *producer.writes.first()? {
        return None;
    }
    *derivative = Some(pointwise.activation);
    let mut reads = producer.reads.clone();
    reads.push(saved);
    Some((op, reads))
}

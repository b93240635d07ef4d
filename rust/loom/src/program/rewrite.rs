//! The table of rewrites: steps that may be fused where nothing else reads,
//! pins or contributes to the value between them.
//!
//! On the CPU a fused step gives the same bits as the steps it replaces.

use super::{Program, Step, Value, Write};
use crate::ops::{Direction, Op};

/// Which rewrites are applied; all of them by default.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rewrites {
    /// A bias is added where a product or a convolution writes its result.
    pub bias: bool,
    /// An activation is applied where a product or a convolution writes its result.
    pub activation: bool,
}

impl Default for Rewrites {
    fn default() -> Self {
        Self { bias: true, activation: true }
    }
}

impl Rewrites {
    /// No rewrite: the program as layers and trainers lowered it.
    pub fn none() -> Self {
        Self { bias: false, activation: false }
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
}

fn fuse_bias(producer: &Step, reader: &Step) -> Option<(Op, Vec<Value>)> {
    let Op::BiasAdd(_) = reader.op else { return None };
    let mut op = producer.op.clone();
    match &mut op {
        Op::Product(product) if product.direction == Direction::Forward && !product.bias => {
            product.bias = true
        }
        Op::Convolution(convolution) if convolution.direction == Direction::Forward && !convolution.bias => {
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
            if convolution.direction == Direction::Forward && convolution.activation.is_none() =>
        {
            convolution.activation = Some(activation);
        }
        _ => return None,
    }
    Some((op, producer.reads.clone()))
}

//! The machine: every instruction goes over a block of elements that stays in the nearest cache.

use super::graph::{Binary, Node, Unary};
use super::{Evaluate, Instruction, MOST_INPUTS, Program, Repeated};
use crate::ops::pointwise::{self, Arithmetic};
use crate::ops::{Args, MAX_READS, Operation};
use crate::simd::{Elementwise, Isa, Kernel, LANES, Math, Real, Vector};
use crate::{Buffer, Result};
use std::cell::Cell;

/// Vectors of a register.
const VECTORS: usize = 16;
/// Elements of a register.
const BLOCK: usize = VECTORS * LANES;
/// Elements that one task takes, as of activations.
const CHUNK: usize = 1 << 13;

/// Elements of a block.
type Register<T> = [[T; LANES]; VECTORS];

thread_local! {
    /// The registers of a thread, kept from call to call.
    static REGISTERS: Cell<Buffer> = Cell::new(Buffer::default());
}

/// Lends `count` registers of arbitrary content.
fn with_registers<T: Real>(count: usize, body: impl FnOnce(&mut [Register<T>])) {
    let mut buffer = REGISTERS.take();
    if buffer.len_bytes() < count * size_of::<Register<T>>() {
        drop(std::mem::take(&mut buffer));
        buffer = Buffer::working::<T>(count * BLOCK);
    }
    let (vectors, _) = buffer.as_mut_slice::<T>().as_chunks_mut::<LANES>();
    let (registers, _) = vectors.as_chunks_mut::<VECTORS>();
    body(&mut registers[..count]);
    REGISTERS.set(buffer);
}

impl Operation for Evaluate {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let isa = args.cpu.isa();
        let mut reads: [&[T]; MAX_READS] = [&[]; MAX_READS];
        let count = self.program.reads.len();
        (0..count).for_each(|number| reads[number] = args.read::<T>(number));
        let results: [&mut [T]; MOST_INPUTS] = std::array::from_fn(|number| args.write::<T>(number));
        args.cpu.pool().for_each_chunks(results, CHUNK, |task, results| {
            with_registers(self.program.registers, |registers| {
                let start = task * CHUNK;
                let reads = &reads[..count];
                T::dispatch(isa, Machine { isa, op: self, reads, start, results, registers });
            });
        });
        Ok(())
    }
}

/// The elements from `start` on.
struct Machine<'a, T> {
    isa: Isa,
    op: &'a Evaluate,
    reads: &'a [&'a [T]],
    start: usize,
    results: [&'a mut [T]; MOST_INPUTS],
    registers: &'a mut [Register<T>],
}

impl<T: Real> Kernel<T> for Machine<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let Self { isa, op, reads, start, mut results, registers } = self;
        let Program { code, constants, results: places, .. } = &*op.program;
        for (register, value) in registers[reads.len()..].iter_mut().zip(constants) {
            register.as_flattened_mut().fill(T::from_f64(*value));
        }
        for ((register, read), repeated) in registers.iter_mut().zip(reads).zip(&op.repeated) {
            if let (Some(Repeated { block: 0, count: 1, .. }), [value]) = (repeated, read) {
                register.as_flattened_mut().fill(*value);
            }
        }
        let len = results[0].len();
        for at in (0..len).step_by(BLOCK) {
            let count = BLOCK.min(len - at);
            let vectors = count.div_ceil(LANES);
            for ((register, read), repeated) in registers.iter_mut().zip(reads).zip(&op.repeated) {
                let register = &mut register.as_flattened_mut()[..vectors * LANES];
                match repeated {
                    None => register[..count].copy_from_slice(&read[start + at..start + at + count]),
                    Some(Repeated { block: 0, count: 1, .. }) => continue,
                    Some(repeated) => repeat(read, *repeated, start + at, &mut register[..count]),
                }
                // What is beyond the end is computed with, too.
                register[count..].fill(T::ZERO);
            }
            for instruction in code {
                step::<V>(isa, &op.program, instruction, registers, vectors);
            }
            for (result, place) in results.iter_mut().zip(places) {
                result[at..at + count].copy_from_slice(&registers[*place].as_flattened()[..count]);
            }
        }
    }
}

/// The elements of a repeated operand that belong to those from `start` on.
#[inline(always)]
fn repeat<T: Real>(read: &[T], repeated: Repeated, start: usize, to: &mut [T]) {
    let Repeated { block, count, inner } = repeated;
    let mut at = 0;
    while at < to.len() {
        let (place, left) = (start + at, to.len() - at);
        let (base, place) = match place.checked_div(block) {
            None => (0, place),
            Some(number) => (number * count, place - number * block),
        };
        let from = place / inner % count;
        at += if inner == 1 && count > 1 {
            let len = left.min(count - from);
            to[at..at + len].copy_from_slice(&read[base + from..base + from + len]);
            len
        } else {
            let len = left.min(inner - place % inner);
            to[at..at + len].fill(read[base + from]);
            len
        };
    }
}

/// Does one instruction.
#[inline(always)]
fn step<V: Vector>(
    isa: Isa,
    program: &Program,
    instruction: &Instruction,
    registers: &mut [Register<V::Element>],
    vectors: usize,
) {
    let Instruction { node, operands, to } = *instruction;
    let mut pass = Pass { registers, operands, to, vectors };
    let truth = |mask| V::select(mask, V::constant(1.0), V::constant(0.0));
    match node {
        // Sums are made between programs.
        Node::Input(_) | Node::Constant(_) | Node::Sum(..) | Node::Mean(..) => {}
        Node::Unary(function, _) => match function {
            Unary::Negative => pass.one(|a: V| -a),
            Unary::Exp => pass.one(|a: V| Math::exp(a)),
            Unary::ExpM1 => pass.one(|a: V| Math::exp_m1(a)),
            Unary::Ln => pass.one(|a: V| a.ln()),
            Unary::Ln1p => pass.one(|a: V| Math::ln_1p(a)),
            Unary::Sqrt => pass.one(|a: V| Elementwise::sqrt(a)),
            Unary::Abs => pass.one(|a: V| Elementwise::abs(a)),
            Unary::Sign => pass.one(|a: V| a.sign()),
            Unary::Erf => pass.one(|a: V| Math::erf(a)),
            Unary::Sin => pass.one(|a: V| turns(a).sin_cos_turns().0),
            Unary::Cos => pass.one(|a: V| turns(a).sin_cos_turns().1),
        },
        Node::Binary(function, ..) => match function {
            Binary::Add => pass.two(|a: V, b| a + b),
            Binary::Subtract => pass.two(|a: V, b| a - b),
            Binary::Multiply => pass.two(|a: V, b| a * b),
            Binary::Divide => pass.two(|a: V, b| a / b),
            Binary::Power => pass.two(|a: V, b| {
                let power = Math::exp(b * a.ln());
                V::select(Elementwise::eq(b, V::constant(0.0)), V::constant(1.0), power)
            }),
            // NaN of either stays.
            Binary::Maximum => pass.two(|a: V, b| V::select(a.gt(b), a, V::select(b.ge(a), b, a + b))),
            Binary::Minimum => pass.two(|a: V, b| V::select(a.lt(b), a, V::select(b.le(a), b, a + b))),
            Binary::Greater => pass.two(|a: V, b| truth(a.gt(b))),
            Binary::GreaterEqual => pass.two(|a: V, b| truth(a.ge(b))),
            Binary::Equal => pass.two(|a: V, b| truth(Elementwise::eq(a, b))),
            Binary::NotEqual => pass.two(|a: V, b| truth(V::not(Elementwise::eq(a, b)))),
        },
        Node::Select(..) => pass
            .three(|condition: V, yes, no| V::select(Elementwise::eq(condition, V::constant(0.0)), no, yes)),
        Node::Apply(number, _) => {
            let activation = program.graph.activations[number];
            if let Ok([x, y]) = pass.registers.get_disjoint_mut([operands[0], to]) {
                let (x, y) = (&x[..vectors], &mut y[..vectors]);
                pointwise::forward(isa, activation, x.as_flattened(), y.as_flattened_mut());
            }
        }
        Node::Derive(number, ..) => {
            let activation = program.graph.activations[number];
            let [saved, gradient, _] = operands;
            if let Ok([saved, dy, dx]) = pass.registers.get_disjoint_mut([saved, gradient, to]) {
                let (saved, dy, dx) = (&saved[..vectors], &dy[..vectors], &mut dx[..vectors]);
                let dx = dx.as_flattened_mut();
                pointwise::backward(isa, activation, saved.as_flattened(), dy.as_flattened(), dx);
            } else if let Ok([saved, dx]) = pass.registers.get_disjoint_mut([saved, to]) {
                // What it is made from is the gradient, too.
                dx.copy_from_slice(saved);
                let (saved, dx) = (&saved[..vectors], &mut dx[..vectors]);
                pointwise::derive_in_place(isa, activation, saved.as_flattened(), dx.as_flattened_mut());
            }
        }
    }
}

/// An angle in whole turns.
#[inline(always)]
fn turns<V: Vector>(angle: V) -> V {
    angle * V::constant(1.0 / std::f64::consts::TAU)
}

/// One pass over a block.
struct Pass<'a, T> {
    registers: &'a mut [Register<T>],
    operands: [usize; 3],
    to: usize,
    vectors: usize,
}

impl<T: Real> Pass<'_, T> {
    #[inline(always)]
    fn one<V: Vector<Element = T>>(&mut self, f: impl Fn(V) -> V) {
        let [a, ..] = self.operands;
        for i in 0..self.vectors.min(VECTORS) {
            f(V::load(&self.registers[a][i])).store(&mut self.registers[self.to][i]);
        }
    }

    #[inline(always)]
    fn two<V: Vector<Element = T>>(&mut self, f: impl Fn(V, V) -> V) {
        let [a, b, _] = self.operands;
        for i in 0..self.vectors.min(VECTORS) {
            let (a, b) = (V::load(&self.registers[a][i]), V::load(&self.registers[b][i]));
            f(a, b).store(&mut self.registers[self.to][i]);
        }
    }

    #[inline(always)]
    fn three<V: Vector<Element = T>>(&mut self, f: impl Fn(V, V, V) -> V) {
        let [a, b, c] = self.operands;
        for i in 0..self.vectors.min(VECTORS) {
            let (a, b) = (V::load(&self.registers[a][i]), V::load(&self.registers[b][i]));
            let c = V::load(&self.registers[c][i]);
            f(a, b, c).store(&mut self.registers[self.to][i]);
        }
    }
}

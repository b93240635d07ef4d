//! Kernels of the nested softmax.

use super::NestedSoftmax;
use crate::ops::element_loops::{TRANSCENDENTAL, lane_sums_inline, load, map_inline, rows_per_task, store};
use crate::ops::reduced_axis::{ReducedAxis, SideBySide};
use crate::ops::{Args, Direction, Operation};
use crate::simd::{Kernel, LANES, Math, Real, Vector};
use crate::{Error, Result};

impl Operation for NestedSoftmax {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let isa = args.cpu.isa();
        let positions = rows_per_task(self.inputs(), TRANSCENDENTAL);
        let (inputs, outputs) = (positions * self.inputs(), positions * self.outputs());
        let (x, result) = (args.read::<T>(0), args.write::<T>(0));
        match self.direction {
            Direction::Forward => args.cpu.pool().for_each_chunk(result, outputs, |task, y| {
                let x = &x[task * inputs..];
                T::dispatch(isa, Forward { op: self, x, y });
            }),
            Direction::InputGradient => {
                let dy = args.read::<T>(1);
                args.cpu.pool().for_each_chunk(result, inputs, |task, dx| {
                    let (x, dy) = (&x[task * inputs..], &dy[task * outputs..]);
                    T::dispatch(isa, Backward { op: self, x, dy, dx });
                });
            }
            Direction::WeightGradient => {
                return Err(Error::Internal("a softmax has no weight to take a gradient of".into()));
            }
        }
        Ok(())
    }
}

/// The largest logit and the factor by which `exp(logit - largest)` becomes a probability.
#[derive(Clone, Copy)]
struct Scale<T> {
    largest: T,
    share: T,
}

impl<T: Real> Scale<T> {
    #[inline(always)]
    fn of<V: Vector<Element = T>>(x: &[T]) -> Self {
        let axis = SideBySide { classes: x.len() };
        let largest: V = axis.largest(x);
        let total = lane_sums_inline!(x, |x: V| (x - largest).exp()).reduce_sum();
        Self { largest: largest.to_array()[0], share: T::ONE / total }
    }

    #[inline(always)]
    fn each<V: Vector<Element = T>>(self, x: V) -> V {
        (x - V::splat(self.largest)).exp() * V::splat(self.share)
    }

    #[inline(always)]
    fn one(self, x: T) -> T {
        Math::exp(x - self.largest) * self.share
    }
}

/// Whole positions.
struct Forward<'a, T> {
    op: &'a NestedSoftmax,
    x: &'a [T],
    y: &'a mut [T],
}

impl<T: Real> Kernel<T> for Forward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let op = self.op;
        let positions = self.x.chunks_exact(op.inputs()).zip(self.y.chunks_exact_mut(op.outputs()));
        for (x, y) in positions {
            let head = Scale::of::<V>(&x[..op.head()]);
            map_inline!(x[..op.shortlist] => y[..op.shortlist], |x: V| head.each(x));
            for (part, (from, length, to)) in op.places().enumerate() {
                let logits = &x[from..from + length];
                let mut scale = Scale::of::<V>(logits);
                scale.share *= head.one(x[op.shortlist + part]);
                let y = &mut y[to..to + length];
                if !op.shared || part == 0 {
                    map_inline!(logits => y, |x: V| scale.each(x));
                    continue;
                }
                for (x, y) in logits.chunks(LANES).zip(y.chunks_mut(LANES)) {
                    store(load::<V>(y) + scale.each(load::<V>(x)), y);
                }
            }
        }
    }
}

/// Whole positions.
struct Backward<'a, T> {
    op: &'a NestedSoftmax,
    x: &'a [T],
    dy: &'a [T],
    dx: &'a mut [T],
}

impl<T: Real> Kernel<T> for Backward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let op = self.op;
        let operands = self.x.chunks_exact(op.inputs()).zip(self.dy.chunks_exact(op.outputs()));
        for ((x, dy), dx) in operands.zip(self.dx.chunks_exact_mut(op.inputs())) {
            let head = Scale::of::<V>(&x[..op.head()]);
            let (words, listed) = (&x[..op.shortlist], &dy[..op.shortlist]);
            // The mean of the head's gradients, which are dy's for the shortlist and each part's own mean.
            let mut mean = lane_sums_inline!(words, listed, |x: V, dy| head.each(x) * dy).reduce_sum();
            for (part, (from, length, to)) in op.places().enumerate() {
                let (logits, dy) = (&x[from..from + length], &dy[to..to + length]);
                let scale = Scale::of::<V>(logits);
                let own = lane_sums_inline!(logits, dy, |x: V, dy| scale.each(x) * dy).reduce_sum();
                let gate = head.one(x[op.shortlist + part]);
                let gated = Scale { share: scale.share * gate, ..scale };
                let own_lanes = V::splat(own);
                map_inline!(logits, dy => dx[from..from + length], |x: V, dy| gated.each(x) * (dy - own_lanes));
                dx[op.shortlist + part] = own;
                mean += gate * own;
            }
            let mean_lanes = V::splat(mean);
            map_inline!(words, listed => dx[..op.shortlist], |x: V, dy| head.each(x) * (dy - mean_lanes));
            for (x, dx) in x[op.shortlist..op.head()].iter().zip(&mut dx[op.shortlist..op.head()]) {
                *dx = head.one(*x) * (*dx - mean);
            }
        }
    }
}

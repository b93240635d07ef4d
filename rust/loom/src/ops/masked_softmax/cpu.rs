//! Kernel of the masked softmax.

use super::{MaskedSoftmax, TimeMask};
use crate::Result;
use crate::ops::element_loops::{TRANSCENDENTAL, load, rows_per_task, store};
use crate::ops::reduced_axis::{Apart, ReducedAxis, SideBySide};
use crate::ops::{Args, Operation};
use crate::simd::{Kernel, LANES, Real, Vector};

impl Operation for MaskedSoftmax {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let isa = args.cpu.isa();
        let block = self.classes * self.inner;
        let blocks = rows_per_task(block, TRANSCENDENTAL);
        let x = args.read::<T>(0);
        let mask: &[T] = if self.time == TimeMask::None { &[] } else { args.read(1) };
        let y = args.write::<T>(0);
        args.cpu.pool().for_each_chunk(y, blocks * block, |task, y| {
            let first = task * blocks;
            let x = &x[first * block..][..y.len()];
            T::dispatch(isa, Forward { op: self, x, mask, y, first });
        });
        Ok(())
    }
}

/// Whole blocks of (classes, inner), the first of them block `first` of the batch.
struct Forward<'a, T> {
    op: &'a MaskedSoftmax,
    x: &'a [T],
    mask: &'a [T],
    y: &'a mut [T],
    first: usize,
}

impl<T: Real> Kernel<T> for Forward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let MaskedSoftmax { outer, classes, inner, .. } = *self.op;
        let block = classes * inner;
        let blocks = self.x.chunks_exact(block).zip(self.y.chunks_exact_mut(block));
        for (number, (x, y)) in blocks.enumerate() {
            let (row, repetition) = ((self.first + number) / outer, (self.first + number) % outer);
            let kept = |class: usize| {
                self.op.keeps(class)
                    && match self.op.time {
                        TimeMask::None => true,
                        TimeMask::Classes => self.mask[row * classes + class] != T::ZERO,
                        TimeMask::Repetitions { steps } => {
                            self.mask[row * steps + repetition / (outer / steps)] != T::ZERO
                        }
                    }
            };
            let lines = x.chunks_exact(inner).zip(y.chunks_exact_mut(inner));
            for (class, (x, y)) in lines.enumerate() {
                if kept(class) {
                    y.copy_from_slice(x);
                } else {
                    y.fill(-T::INFINITY);
                }
            }
            if inner == 1 {
                forward::<V>(SideBySide { classes }, y);
                continue;
            }
            for start in (0..inner).step_by(LANES) {
                let count = LANES.min(inner - start);
                forward::<V>(Apart { classes, inner, start, count }, y);
            }
        }
    }
}

/// In place, over logits that are minus infinity where they are masked.
#[inline(always)]
fn forward<V: Vector>(axis: impl ReducedAxis<V>, y: &mut [V::Element]) {
    let (zero, one) = (V::splat(V::Element::ZERO), V::splat(V::Element::ONE));
    let least = V::splat(-V::Element::INFINITY);
    let largest = axis.largest(y);
    // Where nothing is left there is nothing to subtract either.
    let largest = V::select(largest.eq(least), zero, largest);
    let mut sums = axis.sums();
    for step in 0..axis.steps() {
        let part = &mut y[axis.part(step)];
        let power = (load::<V>(part) - largest).exp();
        store(power, part);
        axis.add(&mut sums, step, power);
    }
    let total = axis.total(sums);
    let share = V::select(total.eq(zero), zero, one / total);
    for step in 0..axis.steps() {
        let part = &mut y[axis.part(step)];
        store(load::<V>(part) * share, part);
    }
}

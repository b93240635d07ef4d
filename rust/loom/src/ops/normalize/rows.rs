//! Kernels of the normalisation within rows.

use super::{Normalize, no_weight};
use crate::Result;
use crate::ops::element_loops::{PASS, first, lane_sums, load, rows_per_task, store};
use crate::ops::{Args, Direction, Operation};
use crate::simd::{Kernel, LANES, Real, Vector};
use std::ops::Range;

impl Operation for Normalize {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let (isa, extent) = (args.cpu.isa(), self.extent());
        let sets = rows_per_task(extent, PASS);
        let result = args.write::<T>(0);
        match self.direction {
            Direction::Forward => {
                let x = args.read::<T>(0);
                let gain = if self.gain { args.read::<T>(1) } else { &[] };
                let bias = if self.bias { args.read::<T>(1 + usize::from(self.gain)) } else { &[] };
                let (inverse, mean) = (args.write::<T>(1), args.write::<T>(2));
                // Without a mean the same numbers go nowhere.
                let pool = args.cpu.pool();
                let part = |task: usize, y: &mut [T], inverse: &mut [T], mean: &mut [T]| {
                    let x = &x[task * sets * extent..][..y.len()];
                    let first = task * sets;
                    T::dispatch(isa, Forward { op: self, x, y, inverse, mean, gain, bias, first });
                };
                if self.centred {
                    pool.for_each_chunk3((result, sets * extent), (inverse, sets), (mean, sets), part);
                } else {
                    pool.for_each_chunk2((result, sets * extent), (inverse, sets), |task, y, inverse| {
                        part(task, y, inverse, &mut []);
                    });
                }
            }
            Direction::InputGradient => {
                let (dy, x, inverse) = (args.read::<T>(0), args.read::<T>(1), args.read::<T>(2));
                let mean = if self.centred { args.read::<T>(3) } else { &[] };
                let gain = if self.gain { args.read::<T>(3 + usize::from(self.centred)) } else { &[] };
                args.cpu.pool().for_each_chunk(result, sets * extent, |task, dx| {
                    let part = task * sets * extent..task * sets * extent + dx.len();
                    let (dy, x, first) = (&dy[part.clone()], &x[part], task * sets);
                    T::dispatch(isa, Backward { op: self, dy, x, inverse, mean, gain, dx, first });
                });
            }
            Direction::WeightGradient => return Err(no_weight(self)),
        }
        Ok(())
    }
}

/// Gains or biases of some elements of a line: a set of channels side by side from `channel` on, or that
/// channel's plane. `otherwise` where there are none.
#[inline(always)]
fn of_line<V: Vector>(
    values: &[V::Element],
    inner: usize,
    channel: usize,
    part: &Range<usize>,
    otherwise: V::Element,
) -> V {
    if values.is_empty() {
        V::splat(otherwise)
    } else if inner == 1 {
        load(&values[channel + part.start..channel + part.end])
    } else {
        V::splat(values[channel])
    }
}

/// The lines of a set: how many, and of how many elements.
#[inline(always)]
fn lines(op: &Normalize) -> (usize, usize) {
    if op.inner == 1 { (1, op.extent()) } else { (op.set_channels(), op.inner) }
}

/// Whole sets, the first of them set `first` of the batch.
struct Forward<'a, T> {
    op: &'a Normalize,
    x: &'a [T],
    y: &'a mut [T],
    inverse: &'a mut [T],
    mean: &'a mut [T],
    gain: &'a [T],
    bias: &'a [T],
    first: usize,
}

impl<T: Real> Kernel<T> for Forward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let op = self.op;
        let extent = op.extent();
        let count = T::from_usize(extent);
        let (lines, line) = lines(op);
        let sets = self.x.chunks_exact(extent).zip(self.y.chunks_exact_mut(extent));
        for (set, (x, y)) in sets.enumerate() {
            let mean = if op.centred { lane_sums(x, |x: V| x).reduce_sum() / count } else { T::ZERO };
            let mean_lanes = V::splat(mean);
            let squares = lane_sums(x, |x: V| {
                let difference = x - mean_lanes;
                difference * difference
            });
            let variance = squares.reduce_sum() / count;
            let inverse = T::ONE / (variance + T::from_f64(op.epsilon)).sqrt();
            self.inverse[set] = inverse;
            if op.centred {
                self.mean[set] = mean;
            }
            let inverse = V::splat(inverse);
            let first_channel = (self.first + set) % op.groups * op.set_channels();
            for (number, (x, y)) in x.chunks_exact(line).zip(y.chunks_exact_mut(line)).enumerate() {
                debug_assert!(number < lines);
                for start in (0..line).step_by(LANES) {
                    let part = start..(start + LANES).min(line);
                    let channel = first_channel + number;
                    let gain = of_line::<V>(self.gain, op.inner, channel, &part, T::ONE);
                    let bias = of_line::<V>(self.bias, op.inner, channel, &part, T::ZERO);
                    let normal = (load::<V>(&x[part.clone()]) - mean_lanes) * inverse;
                    store(normal.mul_add(gain, bias), &mut y[part]);
                }
            }
        }
    }
}

/// Whole sets, the first of them set `first` of the batch.
struct Backward<'a, T> {
    op: &'a Normalize,
    dy: &'a [T],
    x: &'a [T],
    /// Of all sets.
    inverse: &'a [T],
    /// Of all sets.
    mean: &'a [T],
    gain: &'a [T],
    dx: &'a mut [T],
    first: usize,
}

impl<T: Real> Kernel<T> for Backward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let op = self.op;
        let extent = op.extent();
        let count = T::from_usize(extent);
        let (_, line) = lines(op);
        let operands = self.dy.chunks_exact(extent).zip(self.x.chunks_exact(extent));
        for (set, ((dy, x), dx)) in operands.zip(self.dx.chunks_exact_mut(extent)).enumerate() {
            let set = self.first + set;
            let mean = V::splat(if op.centred { self.mean[set] } else { T::ZERO });
            let inverse = V::splat(self.inverse[set]);
            let first_channel = set % op.groups * op.set_channels();
            let (mut sum, mut product) = (T::ZERO, T::ZERO);
            for (number, (dy, x)) in dy.chunks_exact(line).zip(x.chunks_exact(line)).enumerate() {
                let (mut sums, mut products) = (V::splat(T::ZERO), V::splat(T::ZERO));
                for start in (0..line).step_by(LANES) {
                    let part = start..(start + LANES).min(line);
                    let gain = of_line::<V>(self.gain, op.inner, first_channel + number, &part, T::ONE);
                    let dy = load::<V>(&dy[part.clone()]) * gain;
                    let normal = (load::<V>(&x[part.clone()]) - mean) * inverse;
                    sums = sums + first(part.len(), dy);
                    products = products + first(part.len(), dy * normal);
                }
                sum += sums.reduce_sum();
                product += products.reduce_sum();
            }
            let shift = V::splat(if op.centred { sum / count } else { T::ZERO });
            let slope = V::splat(product / count);
            let parts = dy.chunks_exact(line).zip(x.chunks_exact(line)).zip(dx.chunks_exact_mut(line));
            for (number, ((dy, x), dx)) in parts.enumerate() {
                for start in (0..line).step_by(LANES) {
                    let part = start..(start + LANES).min(line);
                    let gain = of_line::<V>(self.gain, op.inner, first_channel + number, &part, T::ONE);
                    let dy = load::<V>(&dy[part.clone()]) * gain;
                    let normal = (load::<V>(&x[part.clone()]) - mean) * inverse;
                    store((dy - shift - normal * slope) * inverse, &mut dx[part]);
                }
            }
        }
    }
}

//! Kernels of the normalisation of channels over the batch.

use super::{ChannelMoments, ChannelNormalize, RunningAverage, no_weight};
use crate::Result;
use crate::ops::bias::CHUNK;
use crate::ops::element_loops::{PASS, lane_sums, load, map_inline, rows_per_task, store};
use crate::ops::{Args, Direction, Operation};
use crate::simd::{Kernel, LANES, Real, Vector};
use std::ops::Range;

impl Operation for ChannelMoments {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let x = args.read::<T>(0);
        let (mean, variance) = (args.write::<T>(0), args.write::<T>(1));
        let (isa, rows) = (args.cpu.isa(), args.rows);
        let count = T::from_usize(self.count(rows)?);
        let channels = rows_per_task(rows * self.inner, PASS);
        // Whole vectors of channels where they lie side by side.
        let channels = if self.inner == 1 { channels.next_multiple_of(LANES) } else { channels };
        args.cpu.pool().for_each_chunks([mean, variance], channels, |task, [mean, variance]| {
            let first = task * channels;
            T::dispatch(isa, Moments { op: self, x, mean, variance, first, rows, count });
        });
        Ok(())
    }
}

/// Some channels, the first of them channel `first`.
struct Moments<'a, T> {
    op: &'a ChannelMoments,
    x: &'a [T],
    mean: &'a mut [T],
    variance: &'a mut [T],
    first: usize,
    rows: usize,
    count: T,
}

impl<T: Real> Kernel<T> for Moments<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let (channels, inner) = (self.op.channels, self.op.inner);
        let square = |x: V| x * x;
        if inner > 1 {
            for (number, (mean, variance)) in self.mean.iter_mut().zip(self.variance.iter_mut()).enumerate() {
                let channel = self.first + number;
                let plane = |row: usize| &self.x[(row * channels + channel) * inner..][..inner];
                *mean = in_chunks(self.rows, T::ZERO, |row| lane_sums(plane(row), |x: V| x).reduce_sum())
                    / self.count;
                let centre = V::splat(*mean);
                let spread = |row| lane_sums(plane(row), |x: V| square(x - centre)).reduce_sum();
                *variance = in_chunks(self.rows, T::ZERO, spread) / self.count;
            }
            return;
        }
        let (zero, count) = (V::splat(T::ZERO), V::splat(self.count));
        let blocks = self.mean.chunks_mut(LANES).zip(self.variance.chunks_mut(LANES));
        for (block, (mean, variance)) in blocks.enumerate() {
            let channel = self.first + block * LANES;
            let block = Channels::Block(channel..channel + mean.len());
            let row = |row: usize| &self.x[row * channels..];
            let centre = in_chunks(self.rows, zero, |number| block.of::<V>(row(number))) / count;
            let spread = |number| square(block.of::<V>(row(number)) - centre);
            let spread = in_chunks(self.rows, zero, spread) / count;
            store(centre, mean);
            store(spread, variance);
        }
    }
}

/// The sum over rows: in order within chunks, then the chunks' in order.
#[inline(always)]
fn in_chunks<A: Copy + std::ops::Add<Output = A>>(rows: usize, zero: A, of_row: impl Fn(usize) -> A) -> A {
    let mut total = zero;
    for start in (0..rows).step_by(CHUNK) {
        let mut sum = zero;
        for row in start..(start + CHUNK).min(rows) {
            sum = sum + of_row(row);
        }
        total = total + sum;
    }
    total
}

impl Operation for ChannelNormalize {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let isa = args.cpu.isa();
        let row = self.channels * self.inner;
        let chunk = rows_per_task(row, PASS) * row;
        let result = args.write::<T>(0);
        let source = args.read::<T>(0);
        let none: &[T] = &[];
        let optional = |present: bool, index: usize| if present { args.read::<T>(index) } else { none };
        // A line with the mean taken away, times a factor, plus a shift; a second line beside it.
        let (x, mean, variance, gain, shift) = match self.direction {
            Direction::Forward => {
                let bias = optional(self.bias, 3 + usize::from(self.gain));
                (none, args.read(1), args.read(2), optional(self.gain, 3), Shift::Bias(bias))
            }
            Direction::InputGradient if self.fixed => {
                (none, none, args.read(1), optional(self.gain, 2), Shift::Bias(none))
            }
            Direction::InputGradient => {
                let count = T::from_usize(args.rows * self.inner);
                let batch = Shift::Batch { sums: args.read(4), products: args.read(5), count };
                (args.read(1), args.read(2), args.read(3), optional(self.gain, 6), batch)
            }
            Direction::WeightGradient => return Err(no_weight(self)),
        };
        args.cpu.pool().for_each_chunk(result, chunk, |task, result| {
            let part = task * chunk..task * chunk + result.len();
            let x = if x.is_empty() { x } else { &x[part.clone()] };
            let source = &source[part];
            T::dispatch(isa, Apply { op: self, source, x, mean, variance, gain, shift, result });
        });
        Ok(())
    }
}

/// What is added to, or taken away from, the elements of a channel.
#[derive(Clone, Copy)]
enum Shift<'a, T> {
    /// A bias after scaling, where there is one.
    Bias(&'a [T]),
    /// The means of dy and of its part along the normalised x, before scaling.
    Batch { sums: &'a [T], products: &'a [T], count: T },
}

/// Whole rows.
struct Apply<'a, T> {
    op: &'a ChannelNormalize,
    source: &'a [T],
    /// For [`Shift::Batch`].
    x: &'a [T],
    /// Empty where nothing is taken away.
    mean: &'a [T],
    variance: &'a [T],
    gain: &'a [T],
    shift: Shift<'a, T>,
    result: &'a mut [T],
}

impl<T: Real> Kernel<T> for Apply<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(mut self) {
        let result = std::mem::take(&mut self.result);
        let (channels, inner) = (self.op.channels, self.op.inner);
        if inner > 1 {
            for (plane, result) in result.chunks_exact_mut(inner).enumerate() {
                let channel = plane % channels;
                self.line::<V>(&Channels::Single(channel), plane * inner, result);
            }
            return;
        }
        // A block of channels in all rows, so that its factors are made once.
        for start in (0..channels).step_by(LANES) {
            let end = (start + LANES).min(channels);
            let line = self.factors::<V>(&Channels::Block(start..end));
            for (row, result) in result.chunks_exact_mut(channels).enumerate() {
                let at = row * channels + start;
                self.apply(&line, at, &mut result[start..end]);
            }
        }
    }
}

/// Whose numbers the lanes have.
enum Channels {
    /// One channel's, in every lane.
    Single(usize),
    /// At most 16 channels', side by side.
    Block(Range<usize>),
}

impl Channels {
    /// Their numbers. No closure, which would be called at many places and so be compiled for no instruction set.
    #[inline(always)]
    fn of<V: Vector>(&self, values: &[V::Element]) -> V {
        match self {
            Channels::Single(channel) => V::splat(values[*channel]),
            Channels::Block(block) => load(&values[block.clone()]),
        }
    }

    /// Their numbers, or what takes their place where there are none.
    #[inline(always)]
    fn of_or<V: Vector>(&self, values: &[V::Element], otherwise: V) -> V {
        if values.is_empty() { otherwise } else { self.of(values) }
    }
}

/// The numbers of a line, or of a block of channels.
struct Factors<V> {
    mean: V,
    inverse: V,
    factor: V,
    bias: V,
    sum: V,
    product: V,
}

impl<T: Real> Apply<'_, T> {
    #[inline(always)]
    fn factors<V: Vector<Element = T>>(&self, channels: &Channels) -> Factors<V> {
        let (zero, one) = (V::splat(T::ZERO), V::splat(T::ONE));
        let inverse = one / (channels.of::<V>(self.variance) + V::constant(self.op.epsilon)).sqrt();
        let factor = inverse * channels.of_or(self.gain, one);
        let (bias, sum, product) = match self.shift {
            Shift::Bias(bias) => (channels.of_or(bias, zero), zero, zero),
            Shift::Batch { sums, products, count } => {
                let count = V::splat(count);
                (zero, channels.of::<V>(sums) / count, channels.of::<V>(products) / count)
            }
        };
        Factors { mean: channels.of_or(self.mean, zero), inverse, factor, bias, sum, product }
    }

    /// One line of a channel.
    #[inline(always)]
    fn line<V: Vector<Element = T>>(&self, channel: &Channels, start: usize, result: &mut [T]) {
        let line: Factors<V> = self.factors(channel);
        let source = &self.source[start..start + result.len()];
        match self.shift {
            Shift::Bias(_) => map_inline!(source => result, |x: V| forward(x, &line)),
            Shift::Batch { .. } => {
                let x = &self.x[start..start + result.len()];
                map_inline!(source, x => result, |dy: V, x| backward(dy, x, &line));
            }
        }
    }

    /// At most 16 elements side by side.
    #[inline(always)]
    fn apply<V: Vector<Element = T>>(&self, line: &Factors<V>, start: usize, result: &mut [T]) {
        let part = start..start + result.len();
        let source = load::<V>(&self.source[part.clone()]);
        match self.shift {
            Shift::Bias(_) => store(forward(source, line), result),
            Shift::Batch { .. } => store(backward(source, load(&self.x[part]), line), result),
        }
    }
}

#[inline(always)]
fn forward<V: Vector>(x: V, line: &Factors<V>) -> V {
    (x - line.mean).mul_add(line.factor, line.bias)
}

#[inline(always)]
fn backward<V: Vector>(dy: V, x: V, line: &Factors<V>) -> V {
    let normal = (x - line.mean) * line.inverse;
    (dy - line.sum - normal * line.product) * line.factor
}

impl Operation for RunningAverage {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let value = args.read::<T>(0);
        let running = args.write::<T>(0);
        let (kept, share) = (T::from_f64(1.0 - self.momentum), T::from_f64(self.share(args.rows)));
        for (running, value) in running.iter_mut().zip(value) {
            *running = kept * *running + share * *value;
        }
        Ok(())
    }
}

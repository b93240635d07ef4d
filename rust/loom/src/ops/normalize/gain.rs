//! Kernel of the gain's gradient.

use super::{GainGradient, Statistics};
use crate::Result;
use crate::ops::bias::CHUNK;
use crate::ops::element_loops::{PASS, lane_sums2, load, rows_per_task, store};
use crate::ops::{Args, Operation};
use crate::simd::{Kernel, LANES, Real, Vector};

impl Operation for GainGradient {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let (dy, x) = (args.read::<T>(0), args.read::<T>(1));
        let (scale, mean): (&[T], &[T]) = match self.statistics {
            Statistics::Rows { centred, .. } => (args.read(2), if centred { args.read(3) } else { &[] }),
            Statistics::Channels { .. } => (args.read(3), args.read(2)),
        };
        let sums = args.write::<T>(0);
        let (isa, accumulate) = (args.cpu.isa(), args.accumulate);
        let repetitions = args.rows * self.outer;
        let channels = rows_per_task(repetitions * self.inner, PASS);
        // Whole vectors of channels where they lie side by side.
        let channels = if self.inner == 1 { channels.next_multiple_of(LANES) } else { channels };
        args.cpu.pool().for_each_chunk(sums, channels, |task, sums| {
            let first = task * channels;
            T::dispatch(isa, Gradient { op: self, dy, x, scale, mean, sums, first, repetitions, accumulate });
        });
        Ok(())
    }
}

/// Some channels, the first of them channel `first`.
struct Gradient<'a, T> {
    op: &'a GainGradient,
    dy: &'a [T],
    x: &'a [T],
    /// Inverse deviations of rows, or variances of channels.
    scale: &'a [T],
    mean: &'a [T],
    sums: &'a mut [T],
    first: usize,
    repetitions: usize,
    accumulate: bool,
}

impl<T: Real> Kernel<T> for Gradient<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(mut self) {
        let sums = std::mem::take(&mut self.sums);
        if self.op.inner > 1 {
            for (number, sum) in sums.iter_mut().enumerate() {
                let total = self.plane::<V>(self.first + number);
                *sum = if self.accumulate { *sum + total } else { total };
            }
            return;
        }
        for (block, sums) in sums.chunks_mut(LANES).enumerate() {
            let total = self.features::<V>(self.first + block * LANES, sums.len());
            store(if self.accumulate { load::<V>(sums) + total } else { total }, sums);
        }
    }
}

impl<T: Real> Gradient<'_, T> {
    /// Mean and inverse deviation of a channel in one repetition.
    #[inline(always)]
    fn statistics(&self, repetition: usize, channel: usize) -> (T, T) {
        match self.op.statistics {
            Statistics::Rows { groups, centred } => {
                let set = repetition * groups + channel / (self.op.channels / groups);
                (if centred { self.mean[set] } else { T::ZERO }, self.scale[set])
            }
            Statistics::Channels { epsilon } => {
                (self.mean[channel], T::ONE / (self.scale[channel] + T::from_f64(epsilon)).sqrt())
            }
        }
    }

    /// The same of `count` channels side by side.
    #[inline(always)]
    fn statistics_of<V: Vector<Element = T>>(
        &self,
        repetition: usize,
        channel: usize,
        count: usize,
    ) -> (V, V) {
        if matches!(self.op.statistics, Statistics::Rows { groups: 1, .. }) {
            let (mean, scale) = self.statistics(repetition, channel);
            return (V::splat(mean), V::splat(scale));
        }
        let (mut means, mut scales) = ([T::ZERO; LANES], [T::ZERO; LANES]);
        for i in 0..count {
            (means[i], scales[i]) = self.statistics(repetition, channel + i);
        }
        (V::load(&means), V::load(&scales))
    }

    /// The sums of channels side by side.
    #[inline(always)]
    fn features<V: Vector<Element = T>>(&self, channel: usize, count: usize) -> V {
        let fixed = matches!(self.op.statistics, Statistics::Channels { .. });
        let (mut mean, mut scale) = self.statistics_of::<V>(0, channel, count);
        let mut total = V::splat(T::ZERO);
        for start in (0..self.repetitions).step_by(CHUNK) {
            let mut sum = V::splat(T::ZERO);
            for repetition in start..(start + CHUNK).min(self.repetitions) {
                if !fixed {
                    (mean, scale) = self.statistics_of::<V>(repetition, channel, count);
                }
                let at = repetition * self.op.channels + channel;
                let (dy, x) = (load::<V>(&self.dy[at..at + count]), load::<V>(&self.x[at..at + count]));
                sum = sum + dy * ((x - mean) * scale);
            }
            total = total + sum;
        }
        total
    }

    /// The sum of one channel's planes.
    #[inline(always)]
    fn plane<V: Vector<Element = T>>(&self, channel: usize) -> T {
        let inner = self.op.inner;
        let mut total = T::ZERO;
        for start in (0..self.repetitions).step_by(CHUNK) {
            let mut sum = T::ZERO;
            for repetition in start..(start + CHUNK).min(self.repetitions) {
                let (mean, scale) = self.statistics(repetition, channel);
                let (mean, scale) = (V::splat(mean), V::splat(scale));
                let at = (repetition * self.op.channels + channel) * inner;
                let (dy, x) = (&self.dy[at..at + inner], &self.x[at..at + inner]);
                sum += lane_sums2(dy, x, |dy: V, x| dy * ((x - mean) * scale)).reduce_sum();
            }
            total += sum;
        }
        total
    }
}

//! Kernels of the bias.

use super::{BiasAdd, BiasGradient, CHUNK};
use crate::Result;
use crate::ops::element_loops::{PASS, lane_sums, map, map2, rows_per_task};
use crate::ops::{Args, Operation};
use crate::simd::{Kernel, LANES, Real, Vector};

impl Operation for BiasAdd {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let (x, bias) = (args.read::<T>(0), args.read::<T>(1));
        let z = args.write::<T>(0);
        let isa = args.cpu.isa();
        // A line shares its channels' order: a row of channels, or a plane of one channel.
        let line = if self.inner == 1 { self.channels } else { self.inner };
        let lines = rows_per_task(line, PASS);
        args.cpu.pool().for_each_chunk(z, lines * line, |task, z| {
            let first = task * lines;
            let x = &x[first * line..][..z.len()];
            T::dispatch(isa, Add { x, bias, z, inner: self.inner, first });
        });
        Ok(())
    }
}

/// Some lines of [`BiasAdd`], the first of them line `first`.
struct Add<'a, T> {
    x: &'a [T],
    bias: &'a [T],
    z: &'a mut [T],
    inner: usize,
    first: usize,
}

impl<T: Real> Kernel<T> for Add<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let channels = self.bias.len();
        if self.inner == 1 {
            for (x, z) in self.x.chunks_exact(channels).zip(self.z.chunks_exact_mut(channels)) {
                map2(x, self.bias, z, |x: V, bias| x + bias);
            }
        } else {
            let planes = self.x.chunks_exact(self.inner).zip(self.z.chunks_exact_mut(self.inner));
            for (plane, (x, z)) in planes.enumerate() {
                let bias = V::splat(self.bias[(self.first + plane) % channels]);
                map(x, z, |x: V| x + bias);
            }
        }
    }
}

impl Operation for BiasGradient {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let dz = args.read::<T>(0);
        let db = args.write::<T>(0);
        let (isa, accumulate) = (args.cpu.isa(), args.accumulate);
        let repetitions = args.rows * self.outer;
        let channels = rows_per_task(repetitions * self.inner, PASS);
        // Whole vectors of channels where they lie side by side.
        let channels = if self.inner == 1 { channels.next_multiple_of(WIDE * LANES) } else { channels };
        args.cpu.pool().for_each_chunk(db, channels, |task, db| {
            let (first, channels, inner) = (task * channels, self.channels, self.inner);
            T::dispatch(isa, Gradient { dz, db, first, channels, inner, repetitions, accumulate });
        });
        Ok(())
    }
}

/// Vectors of channels that are summed side by side.
const WIDE: usize = 4;

/// Some channels of [`BiasGradient`], the first of them channel `first`.
struct Gradient<'a, T> {
    dz: &'a [T],
    db: &'a mut [T],
    first: usize,
    channels: usize,
    inner: usize,
    repetitions: usize,
    accumulate: bool,
}

impl<T: Real> Kernel<T> for Gradient<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        if self.inner == 1 {
            self.features::<V>();
        } else {
            self.planes::<V>();
        }
    }
}

impl<T: Real> Gradient<'_, T> {
    /// Channels side by side.
    #[inline(always)]
    fn features<V: Vector<Element = T>>(self) {
        let mut first = self.first;
        let mut wide = self.db.chunks_exact_mut(WIDE * LANES);
        for db in wide.by_ref() {
            let zeros = [V::splat(T::ZERO); WIDE];
            let mut totals = zeros;
            for start in (0..self.repetitions).step_by(CHUNK) {
                let mut sums = zeros;
                for row in start..(start + CHUNK).min(self.repetitions) {
                    let dz = &self.dz[row * self.channels + first..][..WIDE * LANES];
                    for (sum, dz) in sums.iter_mut().zip(dz.chunks_exact(LANES)) {
                        *sum = *sum + V::load(dz);
                    }
                }
                for (total, sum) in totals.iter_mut().zip(sums) {
                    *total = *total + sum;
                }
            }
            for (total, db) in totals.into_iter().zip(db.chunks_exact_mut(LANES)) {
                let total = if self.accumulate { V::load(db) + total } else { total };
                total.store(db);
            }
            first += WIDE * LANES;
        }
        for db in wide.into_remainder().chunks_mut(LANES) {
            let mut total = V::splat(T::ZERO);
            for start in (0..self.repetitions).step_by(CHUNK) {
                let mut sum = V::splat(T::ZERO);
                for row in start..(start + CHUNK).min(self.repetitions) {
                    sum = sum + V::load_partial(&self.dz[row * self.channels + first..][..db.len()]);
                }
                total = total + sum;
            }
            let total = if self.accumulate { V::load_partial(db) + total } else { total };
            total.store_partial(db);
            first += LANES;
        }
    }

    /// Each channel a plane.
    #[inline(always)]
    fn planes<V: Vector<Element = T>>(self) {
        for (channel, db) in self.db.iter_mut().enumerate() {
            let mut total = T::ZERO;
            for start in (0..self.repetitions).step_by(CHUNK) {
                let mut sum = T::ZERO;
                for row in start..(start + CHUNK).min(self.repetitions) {
                    let plane = row * self.channels + self.first + channel;
                    let dz = &self.dz[plane * self.inner..][..self.inner];
                    sum += lane_sums(dz, |dz: V| dz).reduce_sum();
                }
                total += sum;
            }
            *db = if self.accumulate { *db + total } else { total };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{Setting, assert_bits, assert_close, lane_sum, numbers};
    use proptest::prelude::*;

    /// (rows, outer, channels, inner), of which either way of lying is as likely.
    fn extents() -> impl Strategy<Value = (usize, usize, usize, usize)> {
        (1..150usize, 1..3usize, 1..150usize, prop_oneof![Just(1), 2..50usize])
    }

    fn add<T: Real>((rows, outer, channels, inner): (usize, usize, usize, usize)) {
        let x = numbers::<T>(1, rows * outer * channels * inner);
        let bias = numbers::<T>(2, channels);
        let expected: Vec<T> = (0..x.len()).map(|i| x[i] + bias[i / inner % channels]).collect();
        let found = Setting::new(rows, &[&x, &bias], &[x.len()]).result(&BiasAdd { outer, channels, inner });
        assert_bits(&found, &expected);
    }

    fn gradient<T: Real>((rows, outer, channels, inner): (usize, usize, usize, usize)) {
        let dz = numbers::<T>(3, rows * outer * channels * inner);
        let before = numbers::<T>(4, channels);
        let planes = |channel: usize| (0..rows * outer).map(move |m| (m * channels + channel) * inner);
        // In the documented order.
        let expected: Vec<T> = (0..channels)
            .map(|channel| {
                let sums: Vec<T> =
                    planes(channel).map(|at| lane_sum(dz[at..at + inner].iter().copied())).collect();
                let in_order = |x: &[T]| x.iter().fold(T::ZERO, |sum, x| sum + *x);
                in_order(&sums.chunks(64).map(in_order).collect::<Vec<T>>())
            })
            .collect();
        // In exact arithmetic, nearly.
        let plain: Vec<f64> = (0..channels)
            .map(|channel| planes(channel).flat_map(|at| &dz[at..at + inner]).map(|x| x.to_f64()).sum())
            .collect();
        let op = BiasGradient { outer, channels, inner };
        let mut setting = Setting::new(rows, &[&dz], &[channels]);
        let found = setting.result(&op);
        assert_bits(&found, &expected);
        assert_close(&found, &plain, T::EPSILON.to_f64() * 100.0);
        setting.accumulate = true;
        setting.writes = vec![crate::ops::testing::Data::Real(before.clone())];
        let both: Vec<T> = expected.iter().zip(&before).map(|(x, before)| *before + *x).collect();
        assert_bits(&setting.result(&op), &both);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn every_channel_gets_its_bias(extents in extents()) {
            add::<f32>(extents);
            add::<f64>(extents);
        }

        #[test]
        fn gradients_are_sums_in_the_documented_order(extents in extents()) {
            gradient::<f32>(extents);
            gradient::<f64>(extents);
        }
    }

    #[test]
    fn large_extents_are_cut_into_tasks() {
        for extents in [(300, 1, 300, 1), (20, 2, 40, 100), (1, 1, 3, 50_000), (40_000, 1, 3, 1)] {
            add::<f32>(extents);
            gradient::<f32>(extents);
        }
    }
}

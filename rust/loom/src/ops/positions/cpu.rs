//! Kernels of the positional rows.

use super::Positions;
use crate::Result;
use crate::ops::element_loops::{PASS, map2, rows_per_task};
use crate::ops::{Args, BiasGradient, Direction, Operation, StepValues};
use crate::simd::{Kernel, Real, Vector};

impl Operation for Positions {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        if self.direction != Direction::Forward {
            return self.gradient::<T>(args);
        }
        let (x, y) = (args.read::<T>(0), args.write::<T>(0));
        let table = match &self.fixed {
            Some(table) => table.of::<T>(),
            None => args.read::<T>(1),
        };
        let isa = args.cpu.isa();
        let values = args.values;
        let steps = rows_per_task(self.width, PASS);
        args.cpu.pool().for_each_chunk(y, steps * self.width, |task, y| {
            let first = task * steps;
            let x = &x[first * self.width..][..y.len()];
            T::dispatch(isa, Add { op: self, x, table, y, first, values });
        });
        Ok(())
    }
}

impl Positions {
    fn gradient<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let (dy, gradient) = (args.read::<T>(0), args.write::<T>(0));
        let channels = self.time * self.width;
        let (reached, beyond) = gradient.split_at_mut(channels);
        if !args.accumulate {
            beyond.fill(T::ZERO);
        }
        let mut inner = Args::new(args.cpu, args.rows, args.values);
        inner.accumulate = args.accumulate;
        inner.set_read(0, dy);
        inner.set_write(0, reached);
        BiasGradient { outer: 1, channels, inner: 1 }.run::<T>(&mut inner)
    }
}

/// Some steps of all rows, the first of them step `first`.
struct Add<'a, T> {
    op: &'a Positions,
    x: &'a [T],
    table: &'a [T],
    y: &'a mut [T],
    first: usize,
    values: &'a StepValues,
}

impl<T: Real> Kernel<T> for Add<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let width = self.op.width;
        for (step, (x, y)) in self.x.chunks_exact(width).zip(self.y.chunks_exact_mut(width)).enumerate() {
            // The session's owner sees to it that there is a place; the last one is as wrong as any.
            let (row, within) = ((self.first + step) / self.op.time, (self.first + step) % self.op.time);
            let start = if self.op.positioned { self.values.position_of(row) } else { 0 };
            let place = (start + within).min(self.op.places - 1);
            map2(x, &self.table[place * width..][..width], y, |x: V, row| x + row);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{Data, Setting, assert_bits, assert_close, numbers};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn steps_get_their_rows_and_rows_their_gradients(
            (rows, time, width, more) in (1..5usize, 1..20usize, 1..40usize, 0..9usize),
            accumulate in proptest::bool::ANY,
        ) {
            let places = time + more;
            let x = numbers::<f32>(1, rows * time * width);
            let table = numbers::<f32>(2, places * width);
            let mut op = Positions::learned(Direction::Forward, time, width, places);
            let mut setting = Setting::new(rows, &[&x, &table], &[x.len()]);
            for start in [0, more] {
                op.positioned = start > 0;
                setting.values.position = start as u64;
                let expected: Vec<f32> = (0..x.len())
                    .map(|i| x[i] + table[(start + i / width % time) * width + i % width])
                    .collect();
                assert_bits(&setting.result(&op), &expected);
            }
            let mut setting = Setting::new(rows, &[&x], &[table.len()]);
            setting.accumulate = accumulate;
            setting.writes = vec![Data::Real(table.clone())];
            let found = setting.result(&Positions::learned(Direction::WeightGradient, time, width, places));
            for (i, found) in found.iter().enumerate() {
                let sum = (0..if i < time * width { rows } else { 0 })
                    .fold(0.0, |sum, row| sum + x[row * time * width + i]);
                let expected = match (accumulate, i < time * width) {
                    (false, _) => sum,
                    (true, true) => table[i] + sum,
                    (true, false) => table[i],
                };
                assert_bits(&[*found], &[expected]);
            }
        }
    }

    #[test]
    fn waves_are_those_of_the_paper() {
        let op = Positions::sinusoidal(3, 4, 10_000.0, 3).unwrap();
        let y = Setting::new(1, &[&[0.0f64; 12]], &[12]).result(&op);
        let expected: Vec<f64> = (0..3)
            .flat_map(|p| {
                let p = f64::from(p);
                [p.sin(), p.cos(), (p / 100.0).sin(), (p / 100.0).cos()]
            })
            .collect();
        assert_close(&y, &expected, 1e-14);
    }
}

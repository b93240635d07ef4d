//! Kernels of the table look-up.

use super::Gather;
use crate::ops::element_loops::{PASS, load, rows_per_task, store};
use crate::ops::{Args, Direction, Operation};
use crate::simd::{Kernel, Real, Vector};
use crate::{Error, Result};
use std::cell::RefCell;

impl Operation for Gather {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        match self.direction {
            Direction::Forward => self.look_up::<T>(args),
            Direction::WeightGradient => {
                self.scatter::<T>(args);
                Ok(())
            }
            Direction::InputGradient => {
                Err(Error::Internal("there is no gradient with respect to a row's number".into()))
            }
        }
    }
}

thread_local! {
    /// Where each row's occurrences start, and all occurrences in the order of rows; they only grow.
    static OCCURRENCES: RefCell<(Vec<u32>, Vec<u32>)> = RefCell::default();
}

impl Gather {
    fn row<T: Real>(&self, number: T) -> usize {
        // A cast saturates, and takes NaN for 0.
        (number.to_f64() as usize).min(self.vocabulary - 1)
    }

    fn look_up<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let (x, table, y) = (args.read::<T>(0), args.view(1), args.write::<T>(0));
        let width = self.width;
        let steps = rows_per_task(width, PASS);
        let Some(packing) = table.packed else {
            let table: &[T] = table.elements();
            args.cpu.pool().for_each_chunk(y, steps * width, |task, y| {
                for (number, y) in x[task * steps..].iter().zip(y.chunks_exact_mut(width)) {
                    y.copy_from_slice(&table[self.row(*number) * width..][..width]);
                }
            });
            return Ok(());
        };
        let isa = args.cpu.isa();
        args.cpu.pool().for_each_chunk(y, steps * width, |task, y| {
            for (number, y) in x[task * steps..].iter().zip(y.chunks_exact_mut(width)) {
                let row = self.row(*number);
                packing.decode_tile(isa, (table.bytes, table.scales), row..row + 1, 0..width, y, width);
            }
        });
        Ok(())
    }

    fn scatter<T: Real>(&self, args: &mut Args<'_>) {
        let (x, dy, gradient) = (args.read::<T>(0), args.read::<T>(1), args.write::<T>(0));
        let (isa, accumulate, width) = (args.cpu.isa(), args.accumulate, self.width);
        OCCURRENCES.with_borrow_mut(|(starts, order)| {
            // A counting sort, which leaves occurrences of one number in their order.
            starts.clear();
            starts.resize(self.vocabulary + 2, 0);
            for number in x {
                starts[self.row(*number) + 2] += 1;
            }
            for row in 2..starts.len() {
                starts[row] += starts[row - 1];
            }
            order.clear();
            order.resize(x.len(), 0);
            for (place, number) in x.iter().enumerate() {
                let next = &mut starts[self.row(*number) + 1];
                order[*next as usize] = place as u32;
                *next += 1;
            }
            let (starts, order) = (&starts[..], &order[..]);
            let rows = rows_per_task(width, PASS);
            args.cpu.pool().for_each_chunk(gradient, rows * width, |task, gradient| {
                let starts = &starts[task * rows..];
                T::dispatch(isa, Scatter { starts, order, dy, gradient, width, accumulate });
            });
        });
    }
}

/// Some rows of the table's gradient; `starts` begins with theirs.
struct Scatter<'a, T> {
    starts: &'a [u32],
    order: &'a [u32],
    dy: &'a [T],
    gradient: &'a mut [T],
    width: usize,
    accumulate: bool,
}

impl<T: Real> Kernel<T> for Scatter<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        for (row, gradient) in self.gradient.chunks_exact_mut(self.width).enumerate() {
            if !self.accumulate {
                gradient.fill(T::ZERO);
            }
            for place in &self.order[self.starts[row] as usize..self.starts[row + 1] as usize] {
                let dy = &self.dy[*place as usize * self.width..][..self.width];
                add::<V>(gradient, dy);
            }
        }
    }
}

#[inline(always)]
fn add<V: Vector>(sums: &mut [V::Element], x: &[V::Element]) {
    for start in (0..sums.len()).step_by(crate::simd::LANES) {
        let sum = load::<V>(&sums[start..]) + load::<V>(&x[start..]);
        store(sum, &mut sums[start..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::{DType, testing::sample};
    use crate::ops::testing::{Data, Setting, assert_bits, cpus, numbers};
    use proptest::prelude::*;

    fn indices<T: Real>(len: usize, vocabulary: usize) -> Vec<T> {
        // Some numbers often, others never.
        (0..len).map(|i| T::from_usize((i * i * 7 + i / 3) % (2 * vocabulary) / 2)).collect()
    }

    fn check<T: Real>(rows: usize, time: usize, vocabulary: usize, width: usize) {
        let op = |direction| Gather { direction, time, vocabulary, width };
        let x = indices::<T>(rows * time, vocabulary);
        let table = numbers::<T>(1, vocabulary * width);
        let y = Setting::new(rows, &[&x, &table], &[x.len() * width]).result(&op(Direction::Forward));
        let row = |number: &T| number.to_f64() as usize * width;
        let expected: Vec<T> = x.iter().flat_map(|number| table[row(number)..][..width].to_vec()).collect();
        assert_bits(&y, &expected);
        let dy = numbers::<T>(2, y.len());
        let before = numbers::<T>(3, table.len());
        for accumulate in [false, true] {
            let mut sums = if accumulate { before.clone() } else { vec![T::ZERO; table.len()] };
            for (number, dy) in x.iter().zip(dy.chunks(width)) {
                for (sum, dy) in sums[row(number)..].iter_mut().zip(dy) {
                    *sum += *dy;
                }
            }
            let mut setting = Setting::new(rows, &[&x, &dy], &[table.len()]);
            setting.accumulate = accumulate;
            setting.writes = vec![Data::Real(before.clone())];
            assert_bits(&setting.result(&op(Direction::WeightGradient)), &sums);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn rows_are_found_and_their_gradients_gathered(
            rows in 1..5usize, time in 1..30usize, vocabulary in 1..40usize, width in 1..40usize,
        ) {
            check::<f32>(rows, time, vocabulary, width);
            check::<f64>(rows, time, vocabulary, width);
        }
    }

    #[test]
    fn large_extents_are_cut_into_tasks() {
        check::<f32>(3, 100, 700, 200);
    }

    #[test]
    fn packed_tables_are_decoded_row_by_row() {
        let (vocabulary, width) = (9, 21);
        let table = numbers::<f32>(4, vocabulary * width);
        for dtype in DType::all() {
            let cpu = &cpus()[0];
            let sample = sample(dtype, &table, width);
            let plain = sample.decoded::<f32>();
            let x = [3.0f32, 8.0, 0.0, 8.0];
            let mut y = vec![0.0f32; 4 * width];
            let values = crate::ops::StepValues::default();
            let mut args = Args::new(cpu, 1, &values);
            args.set_read(0, &x);
            args.set_packed(1, sample.bytes(), sample.packing, &sample.scales);
            args.set_write(0, &mut y);
            Gather { direction: Direction::Forward, time: 4, vocabulary, width }
                .run::<f32>(&mut args)
                .unwrap();
            let expected: Vec<f32> =
                x.iter().flat_map(|i| plain[*i as usize * width..][..width].to_vec()).collect();
            assert_bits(&y, &expected);
        }
    }

    #[test]
    fn numbers_out_of_range_do_no_harm() {
        let x = [f32::NAN, -3.0, 7.0, f32::INFINITY];
        let table = [1.0f32, 2.0];
        let op = Gather { direction: Direction::Forward, time: 4, vocabulary: 2, width: 1 };
        assert_bits(&Setting::new(1, &[&x, &table], &[4]).result(&op), &[1.0, 1.0, 2.0, 2.0]);
    }
}

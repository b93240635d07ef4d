//! Kernels of the softmax.

use super::Softmax;
use crate::ops::element_loops::{TRANSCENDENTAL, load, rows_per_task, store};
use crate::ops::reduced_axis::{Apart, ReducedAxis, SideBySide};
use crate::ops::{Args, Direction, Operation};
use crate::simd::{Kernel, LANES, Real, Vector};
use crate::{Error, Result};

impl Operation for Softmax {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let isa = args.cpu.isa();
        let (classes, inner) = (self.classes, self.inner);
        let factor = T::from_f64(1.0 / self.temperature);
        let block = classes * inner;
        let chunk = rows_per_task(block, TRANSCENDENTAL) * block;
        let (x, result) = (args.read::<T>(0), args.write::<T>(0));
        match self.direction {
            Direction::Forward => args.cpu.pool().for_each_chunk(result, chunk, |task, y| {
                let x = &x[task * chunk..][..y.len()];
                T::dispatch(isa, Forward { x, y, classes, inner, factor });
            }),
            Direction::InputGradient => {
                let (y, dy) = (x, args.read::<T>(1));
                args.cpu.pool().for_each_chunk(result, chunk, |task, dx| {
                    let part = task * chunk..task * chunk + dx.len();
                    let (y, dy) = (&y[part.clone()], &dy[part]);
                    T::dispatch(isa, Backward { y, dy, dx, classes, inner, factor });
                });
            }
            Direction::WeightGradient => {
                return Err(Error::Internal("a softmax has no weight to take a gradient of".into()));
            }
        }
        Ok(())
    }
}

/// Whole blocks of (classes, inner).
struct Forward<'a, T> {
    x: &'a [T],
    y: &'a mut [T],
    classes: usize,
    inner: usize,
    factor: T,
}

impl<T: Real> Kernel<T> for Forward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let Self { classes, inner, .. } = self;
        let factor = V::splat(self.factor);
        let block = classes * inner;
        for (x, y) in self.x.chunks_exact(block).zip(self.y.chunks_exact_mut(block)) {
            if inner == 1 {
                forward(SideBySide { classes }, x, y, factor);
                continue;
            }
            for start in (0..inner).step_by(LANES) {
                let count = LANES.min(inner - start);
                forward(Apart { classes, inner, start, count }, x, y, factor);
            }
        }
    }
}

#[inline(always)]
fn forward<V: Vector>(axis: impl ReducedAxis<V>, x: &[V::Element], y: &mut [V::Element], factor: V) {
    let largest = axis.largest(x);
    let one = V::splat(V::Element::ONE);
    let mut sums = axis.sums();
    if axis.steps() == 1 {
        // What fits a register stays there.
        let power = ((load::<V>(&x[axis.part(0)]) - largest) * factor).exp();
        axis.add(&mut sums, 0, power);
        store(power * (one / axis.total(sums)), &mut y[axis.part(0)]);
        return;
    }
    for step in 0..axis.steps() {
        let power = ((load::<V>(&x[axis.part(step)]) - largest) * factor).exp();
        store(power, &mut y[axis.part(step)]);
        axis.add(&mut sums, step, power);
    }
    let share = one / axis.total(sums);
    for step in 0..axis.steps() {
        let y = &mut y[axis.part(step)];
        store(load::<V>(y) * share, y);
    }
}

/// Whole blocks of (classes, inner).
struct Backward<'a, T> {
    y: &'a [T],
    dy: &'a [T],
    dx: &'a mut [T],
    classes: usize,
    inner: usize,
    factor: T,
}

impl<T: Real> Kernel<T> for Backward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let Self { classes, inner, .. } = self;
        let factor = V::splat(self.factor);
        let block = classes * inner;
        let operands = self.y.chunks_exact(block).zip(self.dy.chunks_exact(block));
        for ((y, dy), dx) in operands.zip(self.dx.chunks_exact_mut(block)) {
            if inner == 1 {
                backward(SideBySide { classes }, y, dy, dx, factor);
                continue;
            }
            for start in (0..inner).step_by(LANES) {
                let count = LANES.min(inner - start);
                backward(Apart { classes, inner, start, count }, y, dy, dx, factor);
            }
        }
    }
}

#[inline(always)]
fn backward<V: Vector>(
    axis: impl ReducedAxis<V>,
    y: &[V::Element],
    dy: &[V::Element],
    dx: &mut [V::Element],
    factor: V,
) {
    let mut sums = axis.sums();
    for step in 0..axis.steps() {
        let part = axis.part(step);
        axis.add(&mut sums, step, load::<V>(&y[part.clone()]) * load::<V>(&dy[part]));
    }
    let mean = axis.total(sums);
    for step in 0..axis.steps() {
        let part = axis.part(step);
        let (y, dy) = (load::<V>(&y[part.clone()]), load::<V>(&dy[part.clone()]));
        store(y * (dy - mean) * factor, &mut dx[part]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{Setting, assert_bits, assert_close, assert_gradient, numbers};
    use proptest::prelude::*;

    /// The plain formula over (blocks, classes, inner).
    fn plain(x: &[f64], classes: usize, inner: usize, temperature: f64) -> Vec<f64> {
        let value = |i: usize| {
            let (block, position) = (i / (classes * inner), i % inner);
            let at = |class: usize| x[(block * classes + class) * inner + position] / temperature;
            let largest = (0..classes).map(at).fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = (0..classes).map(|class| (at(class) - largest).exp()).sum();
            (at(i / inner % classes) - largest).exp() / sum
        };
        (0..x.len()).map(value).collect()
    }

    fn op(direction: Direction, classes: usize, inner: usize, temperature: f64) -> Softmax {
        Softmax { direction, outer: 1, classes, inner, temperature }
    }

    fn check<T: Real>(rows: usize, classes: usize, inner: usize, temperature: f64) {
        let tolerance = T::EPSILON.to_f64() * 20.0;
        let scaled = |x: Vec<T>| -> Vec<T> { x.into_iter().map(|x| x * T::from_f64(5.0)).collect() };
        let x = scaled(numbers(7, rows * classes * inner));
        let wide: Vec<f64> = x.iter().map(|x| x.to_f64()).collect();
        let y = Setting::new(rows, &[&x], &[x.len()]).result(&op(
            Direction::Forward,
            classes,
            inner,
            temperature,
        ));
        let expected = plain(&wide, classes, inner, temperature);
        assert_close(&y, &expected, tolerance * (1.0 + 20.0 / temperature));

        let dy = numbers::<T>(8, x.len());
        let backward = op(Direction::InputGradient, classes, inner, temperature);
        let dx = Setting::new(rows, &[&y, &dy], &[x.len()]).result(&backward);
        let expected: Vec<f64> = (0..x.len())
            .map(|i| {
                let start = i / (classes * inner) * classes * inner + i % inner;
                let sum: f64 = (0..classes)
                    .map(|class| start + class * inner)
                    .map(|j| y[j].to_f64() * dy[j].to_f64())
                    .sum();
                y[i].to_f64() * (dy[i].to_f64() - sum) / temperature
            })
            .collect();
        assert_close(&dx, &expected, tolerance * (1.0 + 1.0 / temperature));
    }

    /// (rows, classes, inner) to (rows x inner, classes).
    fn turned<T: Real>(x: &[T], classes: usize, inner: usize) -> Vec<T> {
        (0..x.len())
            .map(|i| {
                let (place, class) = (i / classes, i % classes);
                x[(place / inner * classes + class) * inner + place % inner]
            })
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn values_follow_the_formula(
            rows in 1..5usize,
            classes in 1..70usize,
            inner in prop_oneof![Just(1), 2..40usize],
            temperature in 0.3..4.0,
        ) {
            check::<f32>(rows, classes, inner, temperature);
            check::<f64>(rows, classes, inner, temperature);
        }

        #[test]
        fn both_layouts_give_the_same_bits(rows in 1..4usize, classes in 1..50usize, inner in 2..40usize) {
            let (x, dy) = (numbers::<f32>(9, rows * classes * inner), numbers::<f32>(10, rows * classes * inner));
            let apart = op(Direction::Forward, classes, inner, 0.7);
            let y = Setting::new(rows, &[&x], &[x.len()]).result(&apart);
            let side_by_side = op(Direction::Forward, classes, 1, 0.7);
            let turned_x = turned(&x, classes, inner);
            let turned_y = Setting::new(rows * inner, &[&turned_x], &[x.len()]).result(&side_by_side);
            assert_bits(&turned_y, &turned(&y, classes, inner));

            let backward = op(Direction::InputGradient, classes, inner, 0.7);
            let dx = Setting::new(rows, &[&y, &dy], &[x.len()]).result(&backward);
            let backward = op(Direction::InputGradient, classes, 1, 0.7);
            let reads: [&[f32]; 2] = [&turned_y, &turned(&dy, classes, inner)];
            let turned_dx = Setting::new(rows * inner, &reads, &[x.len()]).result(&backward);
            assert_bits(&turned_dx, &turned(&dx, classes, inner));
        }

        #[test]
        fn the_gradient_is_that_of_the_values(
            rows in 1..3usize,
            classes in 1..20usize,
            inner in 1..4usize,
            temperature in 0.5..2.0,
        ) {
            let (x, dy) = (numbers::<f64>(11, rows * classes * inner), numbers::<f64>(12, rows * classes * inner));
            let forward = op(Direction::Forward, classes, inner, temperature);
            let y = Setting::new(rows, &[&x], &[x.len()]).result(&forward);
            let backward = op(Direction::InputGradient, classes, inner, temperature);
            let dx = Setting::new(rows, &[&y, &dy], &[x.len()]).result(&backward);
            let cpu = &crate::ops::testing::cpus()[0];
            assert_gradient(&dx, &x, |x| {
                let y = Setting::new(rows, &[x], &[x.len()]).run_on(&forward, cpu).unwrap();
                y[0].real().iter().zip(&dy).map(|(y, dy)| y * dy).sum()
            });
        }
    }

    #[test]
    fn large_extents_are_cut_into_tasks() {
        check::<f32>(1000, 10, 1, 1.0);
        check::<f32>(3, 20, 1000, 1.0);
        check::<f32>(2, 10_000, 1, 1.0);
    }

    #[test]
    fn huge_and_infinite_logits_do_no_harm() {
        for inner in [1, 2] {
            let x: Vec<f32> =
                [1e30, -1e30, 1e30, f32::NEG_INFINITY].iter().flat_map(|x| vec![*x; inner]).collect();
            let forward = op(Direction::Forward, 4, inner, 1.0);
            let y = Setting::new(1, &[&x], &[x.len()]).result(&forward);
            let expected: Vec<f32> = [0.5, 0.0, 0.5, 0.0].iter().flat_map(|y| vec![*y; inner]).collect();
            assert_bits(&y, &expected);
            let with_nan: Vec<f32> = [0.0, f32::NAN, 1.0].iter().flat_map(|x| vec![*x; inner]).collect();
            let y = Setting::new(1, &[&with_nan], &[with_nan.len()]).result(&op(
                Direction::Forward,
                3,
                inner,
                1.0,
            ));
            assert!(y.iter().all(|y| y.is_nan()));
        }
    }
}

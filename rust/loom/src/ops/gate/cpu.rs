//! Kernels of the gate.

use super::Gate;
use crate::Result;
use crate::ops::element_loops::{TRANSCENDENTAL, load, store};
use crate::ops::pointwise::{Activation, Function, FunctionVisitor, Saved};
use crate::ops::{Args, Direction, Operation};
use crate::simd::{Kernel, LANES, Real, Vector};
use std::marker::PhantomData;

impl Operation for Gate {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let (isa, activation) = (args.cpu.isa(), self.activation);
        let (a, b) = (args.read::<T>(0), args.read::<T>(1));
        let pool = args.cpu.pool();
        if self.direction == Direction::Forward {
            pool.for_each_chunk(args.write::<T>(0), TRANSCENDENTAL, |task, y| {
                let part = task * TRANSCENDENTAL..task * TRANSCENDENTAL + y.len();
                T::dispatch(isa, Forward { activation, a: &a[part.clone()], b: &b[part], y });
            });
            return Ok(());
        }
        let dy = args.read::<T>(2);
        let (da, db) = (args.write::<T>(0), args.write::<T>(1));
        pool.for_each_chunks([da, db], TRANSCENDENTAL, |task, [da, db]| {
            let part = task * TRANSCENDENTAL..task * TRANSCENDENTAL + da.len();
            let (a, b, dy) = (&a[part.clone()], &b[part.clone()], &dy[part]);
            T::dispatch(isa, Backward { activation, a, b, dy, da, db });
        });
        Ok(())
    }
}

struct Forward<'a, T> {
    activation: Activation,
    a: &'a [T],
    b: &'a [T],
    y: &'a mut [T],
}

impl<T: Real> Kernel<T> for Forward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        self.activation.visit(ForwardLoop::<V> { a: self.a, b: self.b, y: self.y, vector: PhantomData });
    }
}

struct ForwardLoop<'a, V: Vector> {
    a: &'a [V::Element],
    b: &'a [V::Element],
    y: &'a mut [V::Element],
    vector: PhantomData<V>,
}

impl<V: Vector> FunctionVisitor for ForwardLoop<'_, V> {
    type Output = ();

    #[inline(always)]
    fn visit<F: Function>(self, function: F) {
        // No closure: what is not inlined here is compiled without the instruction set.
        let (a, a_rest) = self.a.as_chunks::<LANES>();
        let (b, b_rest) = self.b.as_chunks::<LANES>();
        let (y, y_rest) = self.y.as_chunks_mut::<LANES>();
        for ((a, b), y) in a.iter().zip(b).zip(y) {
            (function.value(V::load(a)) * V::load(b)).store(y);
        }
        if !a_rest.is_empty() {
            (function.value(V::load_partial(a_rest)) * V::load_partial(b_rest)).store_partial(y_rest);
        }
    }
}

struct Backward<'a, T> {
    activation: Activation,
    a: &'a [T],
    b: &'a [T],
    dy: &'a [T],
    da: &'a mut [T],
    db: &'a mut [T],
}

impl<T: Real> Kernel<T> for Backward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let Self { activation, a, b, dy, da, db } = self;
        let from_input = activation.saved() == Saved::Input;
        activation.visit(BackwardLoop::<V> { from_input, a, b, dy, da, db, vector: PhantomData });
    }
}

struct BackwardLoop<'a, V: Vector> {
    from_input: bool,
    a: &'a [V::Element],
    b: &'a [V::Element],
    dy: &'a [V::Element],
    da: &'a mut [V::Element],
    db: &'a mut [V::Element],
    vector: PhantomData<V>,
}

impl<V: Vector> FunctionVisitor for BackwardLoop<'_, V> {
    type Output = ();

    #[inline(always)]
    fn visit<F: Function>(self, function: F) {
        let Self { from_input, a, b, dy, da, db, .. } = self;
        for start in (0..a.len()).step_by(LANES) {
            let (a, b, dy) = (load::<V>(&a[start..]), load::<V>(&b[start..]), load::<V>(&dy[start..]));
            let value = function.value(a);
            let slope = function.derivative(if from_input { a } else { value });
            store(dy * b * slope, &mut da[start..]);
            store(dy * value, &mut db[start..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{Setting, assert_bits, assert_gradient, cpus, numbers};
    use proptest::prelude::*;

    fn op(direction: Direction, activation: Activation) -> Gate {
        Gate { direction, activation }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8))]

        #[test]
        fn values_and_gradients_are_those_of_the_table(len in 1..200usize) {
            let [a, b, dy] = [1, 2, 3].map(|seed| numbers::<f32>(seed, len));
            for &activation in Activation::ALL {
                let y = Setting::new(1, &[&a, &b], &[len]).result(&op(Direction::Forward, activation));
                let expected: Vec<f32> = a.iter().zip(&b).map(|(a, b)| activation.value(*a) * b).collect();
                assert_bits(&y, &expected);
                let found = Setting::new(1, &[&a, &b, &dy], &[len, len])
                    .run(&op(Direction::InputGradient, activation));
                let slope = |a: f32| {
                    let input = activation.saved() == Saved::Input;
                    activation.derivative(if input { a } else { activation.value(a) })
                };
                let da: Vec<f32> = (0..len).map(|i| dy[i] * b[i] * slope(a[i])).collect();
                let db: Vec<f32> = (0..len).map(|i| dy[i] * activation.value(a[i])).collect();
                assert_bits(found[0].real(), &da);
                assert_bits(found[1].real(), &db);
            }
        }
    }

    #[test]
    fn gradients_are_those_of_the_values() {
        let [a, b, dy] = [4, 5, 6].map(|seed| numbers::<f64>(seed, 30));
        for activation in [Activation::Silu, Activation::Gelu, Activation::Sigmoid] {
            let found =
                Setting::new(1, &[&a, &b, &dy], &[30, 30]).run(&op(Direction::InputGradient, activation));
            let total = |a: &[f64], b: &[f64]| {
                let forward = op(Direction::Forward, activation);
                let y = Setting::new(1, &[a, b], &[30]).run_on(&forward, &cpus()[0]).unwrap();
                y[0].real().iter().zip(&dy).map(|(y, dy)| y * dy).sum::<f64>()
            };
            assert_gradient(found[0].real(), &a, |a| total(a, &b));
            assert_gradient(found[1].real(), &b, |b| total(&a, b));
        }
    }

    #[test]
    fn large_extents_are_cut_into_tasks() {
        let len = 3 * TRANSCENDENTAL + 5;
        let [a, b] = [1, 2].map(|seed| numbers::<f32>(seed, len));
        let y = Setting::new(1, &[&a, &b], &[len]).result(&op(Direction::Forward, Activation::Silu));
        let expected: Vec<f32> = a.iter().zip(&b).map(|(a, b)| Activation::Silu.value(*a) * b).collect();
        assert_bits(&y, &expected);
    }
}

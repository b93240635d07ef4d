//! Every kernel on every instruction set has the bits of the scalar code.

use super::*;
use crate::simd::{Isa, Kernel, Real, Vector};
use proptest::prelude::*;

/// Applies to a tile in place, and to one vector.
struct Tile<'a, T>(Activation, &'a mut [T]);

impl<T: Real> Kernel<T> for Tile<'_, T> {
    type Output = V16<T>;

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) -> V16<T> {
        let one = apply(self.0, V::load_partial(self.1)).to_array();
        apply_in_place::<V>(self.0, self.1);
        one
    }
}

type V16<T> = [T; crate::simd::LANES];

#[track_caller]
fn same<T: Real>(activation: Activation, isa: Isa, found: &[T], expected: impl Fn(usize) -> T) {
    for (i, found) in found.iter().enumerate() {
        let expected = expected(i);
        let same = found.to_bits_u64() == expected.to_bits_u64() || found.is_nan() && expected.is_nan();
        assert!(same, "{activation} on {isa}, element {i}: {found:?} for {expected:?}");
    }
}

fn check<T: Real>(x: &[T], dy: &[T]) {
    for activation in all() {
        let saved: Vec<T> = x.iter().map(|x| saved_at(activation, *x)).collect();
        for isa in Isa::available() {
            let mut y = vec![T::NAN; x.len()];
            forward(isa, activation, x, &mut y);
            same(activation, isa, &y, |i| activation.value(x[i]));

            let mut tile = x.to_vec();
            let one = T::dispatch(isa, Tile(activation, &mut tile));
            same(activation, isa, &tile, |i| y[i]);
            same(activation, isa, &one[..x.len().min(one.len())], |i| y[i]);

            let mut dx = vec![T::NAN; x.len()];
            backward(isa, activation, &saved, dy, &mut dx);
            same(activation, isa, &dx, |i| dy[i] * activation.derivative(saved[i]));
        }
    }
}

proptest! {
    #[test]
    fn any_length_and_any_bits(pairs in prop::collection::vec((any::<u32>(), any::<u32>()), 0..70)) {
        let (x, dy): (Vec<f32>, Vec<f32>) =
            pairs.into_iter().map(|(x, dy)| (f32::from_bits(x), f32::from_bits(dy))).unzip();
        check(&x, &dy);
    }

    #[test]
    fn any_length_of_ordinary_numbers(pairs in prop::collection::vec((-20.0f64..20.0, -2.0f64..2.0), 0..70)) {
        let (x, dy): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
        check(&x, &dy);
        let (x, dy): (Vec<f32>, Vec<f32>) = pairs.into_iter().map(|(x, dy)| (x as f32, dy as f32)).unzip();
        check(&x, &dy);
    }
}

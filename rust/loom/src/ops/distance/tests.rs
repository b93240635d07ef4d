//! Proofs of the squared distances.

use super::*;
use crate::ops::testing::{Setting, assert_close, assert_gradient, cpus, numbers};
use crate::simd::Real;
use proptest::prelude::*;

fn op(direction: Direction, outer: usize, features: usize, centroids: usize) -> Distance {
    Distance { direction, outer, features, centroids, factor: 0.3 }
}

fn check<T: Real>(rows: usize, outer: usize, features: usize, centroids: usize) {
    let (x, c) = (numbers::<T>(1, rows * outer * features), numbers::<T>(2, centroids * features));
    let op = op(Direction::Forward, outer, features, centroids);
    let y = Setting::new(rows, &[&x, &c], &[rows * outer * centroids]).result(&op);
    let square = |(x, c): (&T, &T)| (x.to_f64() - c.to_f64()).powi(2);
    let expected: Vec<f64> = x
        .chunks(features)
        .flat_map(|x| c.chunks(features).map(move |c| -0.3 * x.iter().zip(c).map(square).sum::<f64>()))
        .collect();
    assert_close(&y, &expected, T::EPSILON.to_f64() * 20.0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn values_follow_the_formula(
        rows in 1..5usize, outer in 1..3usize, features in 1..40usize, centroids in 1..20usize,
    ) {
        check::<f32>(rows, outer, features, centroids);
        check::<f64>(rows, outer, features, centroids);
    }

    #[test]
    fn gradients_are_those_of_the_values(
        rows in 1..90usize, outer in 1..3usize, features in 1..20usize, centroids in 1..5usize,
    ) {
        let (x, c) = (numbers::<f64>(1, rows * outer * features), numbers::<f64>(2, centroids * features));
        let dy = numbers::<f64>(3, rows * outer * centroids);
        let forward = op(Direction::Forward, outer, features, centroids);
        let value = |x: &[f64], c: &[f64]| -> f64 {
            let y = Setting::new(rows, &[x, c], &[dy.len()]).run_on(&forward, &cpus()[0]).unwrap();
            y[0].real().iter().zip(&dy).map(|(y, dy)| y * dy).sum()
        };
        let gradient = |direction, len| {
            let op = op(direction, outer, features, centroids);
            Setting::new(rows, &[&dy, &x, &c], &[len]).result(&op)
        };
        assert_gradient(&gradient(Direction::InputGradient, x.len()), &x, |x| value(x, &c));
        assert_gradient(&gradient(Direction::WeightGradient, c.len()), &c, |c| value(&x, c));
        let mut adding = Setting::new(rows, &[&dy, &x, &c], &[c.len()]);
        adding.accumulate = true;
        let added = adding.result(&op(Direction::WeightGradient, outer, features, centroids));
        let alone = gradient(Direction::WeightGradient, c.len());
        let expected: Vec<f64> = alone.iter().map(|dc| -77.0 + dc).collect();
        assert_close(&added, &expected, 1e-15);
    }
}

#[test]
fn large_extents_are_cut_into_tasks() {
    check::<f32>(300, 1, 100, 20);
}

#[cfg(feature = "gpu")]
#[test]
fn a_gpu_agrees() {
    use crate::gpu::testing::check;
    for (rows, outer, features, centroids) in [(1, 1, 1, 1), (67, 2, 10, 3), (3000, 1, 5, 7), (2, 1, 300, 9)]
    {
        let (x, c) = (numbers::<f32>(1, rows * outer * features), numbers::<f32>(2, centroids * features));
        let dy = numbers::<f32>(3, rows * outer * centroids);
        let op = |direction| op(direction, outer, features, centroids);
        check(op(Direction::Forward), &Setting::new(rows, &[&x, &c], &[dy.len()]));
        let reads: [&[f32]; 3] = [&dy, &x, &c];
        check(op(Direction::InputGradient), &Setting::new(rows, &reads, &[x.len()]));
        let mut setting = Setting::new(rows, &reads, &[c.len()]);
        check(op(Direction::WeightGradient), &setting);
        setting.accumulate = true;
        check(op(Direction::WeightGradient), &setting);
    }
}

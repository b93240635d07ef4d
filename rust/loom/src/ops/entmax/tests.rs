//! Proofs of entmax: the sorting algorithms of the papers, central differences, the GPU.

use super::*;
use crate::ops::testing::{Setting, assert_close, cpus, differences, numbers};
use crate::simd::Real;
use proptest::prelude::*;

/// Martins and Astudillo (2016), algorithm 1.
fn sparsemax(x: &[f64]) -> Vec<f64> {
    let mut sorted = x.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let (mut sum, mut tau) = (0.0, 0.0);
    for (i, v) in sorted.iter().enumerate() {
        sum += v;
        let k = (i + 1) as f64;
        if 1.0 + k * v > sum {
            tau = (sum - 1.0) / k;
        }
    }
    x.iter().map(|x| (x - tau).max(0.0)).collect()
}

/// Peters, Niculae and Martins (2019), algorithm 2.
fn entmax15(x: &[f64]) -> Vec<f64> {
    let half: Vec<f64> = x.iter().map(|x| x / 2.0).collect();
    let mut sorted = half.clone();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let mut tau = 0.0;
    for k in 1..=sorted.len() {
        let mean = sorted[..k].iter().sum::<f64>() / k as f64;
        let spread: f64 = sorted[..k].iter().map(|x| (x - mean).powi(2)).sum();
        let rest = (1.0 - spread) / k as f64;
        if rest >= 0.0 && mean - rest.sqrt() <= sorted[k - 1] {
            tau = mean - rest.sqrt();
        }
    }
    half.iter().map(|x| (x - tau).max(0.0).powi(2)).collect()
}

fn op(classes: usize, alpha: f64) -> Entmax {
    Entmax { direction: Direction::Forward, outer: 1, classes, alpha }
}

fn logits<T: Real>(seed: u64, len: usize, scale: f64) -> Vec<T> {
    numbers::<T>(seed, len).into_iter().map(|x| x * T::from_f64(scale)).collect()
}

fn check<T: Real>(rows: usize, classes: usize, scale: f64) {
    let x = logits::<T>(1, rows * classes, scale);
    let wide: Vec<f64> = x.iter().map(|x| x.to_f64()).collect();
    for (alpha, exact) in [(2.0, sparsemax as fn(&[f64]) -> Vec<f64>), (1.5, entmax15)] {
        let y = Setting::new(rows, &[&x], &[x.len()]).result(&op(classes, alpha));
        let expected: Vec<f64> = wide.chunks(classes).flat_map(exact).collect();
        // The sorting algorithms add up logits as they are, and so round by as much as those are large.
        assert_close(&y, &expected, T::EPSILON.to_f64() * 10.0 + 1e-13);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn values_are_those_of_the_sorting_algorithms(
        rows in 1..4usize, classes in 1..60usize, scale in prop_oneof![Just(0.1), Just(1.0), Just(20.0)],
    ) {
        check::<f32>(rows, classes, scale);
        check::<f64>(rows, classes, scale);
    }

    #[test]
    fn general_alpha_meets_its_equation(classes in 1..40usize, alpha in 1.1..3.0, scale in 0.2..3.0) {
        let x = logits::<f64>(2, classes, scale);
        let y = Setting::new(1, &[&x], &[classes]).result(&op(classes, alpha));
        prop_assert!((y.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        // The same tau for all that are above zero, and none below it for the others.
        let taus: Vec<f64> = (0..classes).filter(|i| y[*i] > 0.0)
            .map(|i| (alpha - 1.0) * x[i] - y[i].powf(alpha - 1.0)).collect();
        for tau in &taus {
            prop_assert!((tau - taus[0]).abs() < 1e-9, "{taus:?}");
        }
        for i in (0..classes).filter(|i| y[*i] == 0.0) {
            prop_assert!((alpha - 1.0) * x[i] <= taus[0] + 1e-9);
        }
        let narrow: Vec<f32> = x.iter().map(|x| *x as f32).collect();
        let found = Setting::new(1, &[&narrow], &[classes]).result(&op(classes, alpha));
        assert_close(&found, &y, 1e-5);
    }

    #[test]
    fn gradients_are_those_of_the_values(classes in 1..20usize, which in 0..4usize) {
        let alpha = [2.0, 1.5, 1.25, 1.7][which];
        let x = logits::<f64>(3, classes, 1.0);
        let dy = numbers::<f64>(4, classes);
        let forward = op(classes, alpha);
        let y = Setting::new(1, &[&x], &[classes]).result(&forward);
        let backward = Entmax { direction: Direction::InputGradient, ..forward.clone() };
        let dx = Setting::new(1, &[&y, &dy], &[classes]).result(&backward);
        let expected = differences(&x, |x| {
            let y = Setting::new(1, &[x], &[classes]).run_on(&forward, &cpus()[0]).unwrap();
            y[0].real().iter().zip(&dy).map(|(y, dy)| y * dy).sum()
        });
        assert_close(&dx, &expected, 1e-6);
    }
}

#[test]
fn equal_and_impossible_logits() {
    for alpha in [2.0, 1.5, 1.2] {
        let y = Setting::new(1, &[&[3.0f64; 5]], &[5]).result(&op(5, alpha));
        assert_close(&y, &[0.2; 5], 1e-12);
        let x = [0.0f32, f32::NEG_INFINITY, 0.0, -1e30];
        let y = Setting::new(1, &[&x], &[4]).result(&op(4, alpha));
        assert_close(&y, &[0.5, 0.0, 0.5, 0.0], 1e-6);
    }
    check::<f32>(300, 50, 1.0);
    check::<f32>(2, 5000, 1.0);
}

#[cfg(feature = "gpu")]
#[test]
fn a_gpu_agrees() {
    for (rows, classes, alpha) in [(1, 1, 2.0), (67, 10, 1.5), (3, 300, 2.0), (5, 33, 1.5), (5, 20, 1.25)] {
        let x = logits::<f32>(1, rows * classes, 1.0);
        let forward = Setting::new(rows, &[&x], &[x.len()]);
        crate::gpu::testing::check(op(classes, alpha), &forward);
        let y = forward.result(&op(classes, alpha));
        let dy = numbers::<f32>(4, x.len());
        let backward = Entmax { direction: Direction::InputGradient, ..op(classes, alpha) };
        crate::gpu::testing::check(backward, &Setting::new(rows, &[&y, &dy], &[x.len()]));
    }
}

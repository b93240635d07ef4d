//! Proofs of the nested softmax: the plain formula, central differences, the GPU.

use super::*;
use crate::ops::testing::{Setting, assert_close, assert_gradient, cpus, numbers};
use crate::simd::Real;
use proptest::prelude::*;

fn softmax(x: &[f64]) -> Vec<f64> {
    let largest = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = x.iter().map(|x| (x - largest).exp()).sum();
    x.iter().map(|x| (x - largest).exp() / sum).collect()
}

/// `p = p(part) p(place in part)`, for one position.
fn plain(op: &NestedSoftmax, x: &[f64]) -> Vec<f64> {
    let head = softmax(&x[..op.head()]);
    let mut y = head[..op.shortlist].to_vec();
    y.resize(op.outputs(), 0.0);
    let (mut from, mut to) = (op.head(), op.shortlist);
    for (part, length) in op.parts.iter().enumerate() {
        for (i, p) in softmax(&x[from..from + length]).into_iter().enumerate() {
            y[to + i] += head[op.shortlist + part] * p;
        }
        from += length;
        to += if op.shared { 0 } else { *length };
    }
    y
}

fn op(outer: usize, shortlist: usize, parts: &[usize], shared: bool) -> NestedSoftmax {
    NestedSoftmax { direction: Direction::Forward, outer, shortlist, parts: parts.to_vec(), shared }
}

fn logits<T: Real>(len: usize) -> Vec<T> {
    numbers::<T>(1, len).into_iter().map(|x| x * T::from_f64(3.0)).collect()
}

fn check_values<T: Real>(rows: usize, op: &NestedSoftmax) {
    let x = logits::<T>(rows * op.outer * op.inputs());
    let y = Setting::new(rows, &[&x], &[rows * op.outer * op.outputs()]).result(op);
    let wide: Vec<f64> = x.iter().map(|x| x.to_f64()).collect();
    let expected: Vec<f64> = wide.chunks(op.inputs()).flat_map(|x| plain(op, x)).collect();
    assert_close(&y, &expected, T::EPSILON.to_f64() * 60.0);
}

fn check_gradient(rows: usize, op: &NestedSoftmax) {
    let x = logits::<f64>(rows * op.outer * op.inputs());
    let dy = numbers::<f64>(2, rows * op.outer * op.outputs());
    let backward = NestedSoftmax { direction: Direction::InputGradient, ..op.clone() };
    let dx = Setting::new(rows, &[&x, &dy], &[x.len()]).result(&backward);
    assert_gradient(&dx, &x, |x| {
        let y = Setting::new(rows, &[x], &[dy.len()]).run_on(op, &cpus()[0]).unwrap();
        y[0].real().iter().zip(&dy).map(|(y, dy)| y * dy).sum()
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn parts_share_out_their_gates(
        rows in 1..4usize, outer in 1..3usize, shortlist in 0..40usize,
        parts in prop::collection::vec(1..40usize, 1..6),
    ) {
        let op = op(outer, shortlist, &parts, false);
        check_values::<f32>(rows, &op);
        check_values::<f64>(rows, &op);
        check_gradient(rows.min(2), &op);
    }

    #[test]
    fn mixtures_add_up(rows in 1..4usize, outer in 1..3usize, components in 1..6usize, n in 1..40usize) {
        let op = op(outer, 0, &vec![n; components], true);
        check_values::<f32>(rows, &op);
        check_values::<f64>(rows, &op);
        check_gradient(rows.min(2), &op);
    }
}

#[test]
fn large_extents_and_impossible_gates() {
    check_values::<f32>(50, &op(2, 100, &[300, 500, 7], false));
    // A gate of probability zero leaves its part zeros, and gradients that are numbers.
    let op = op(1, 1, &[2, 2], false);
    let x = [0.0f32, -1e30, 1.0, 0.5, 0.25, 1.0, 2.0];
    let y = Setting::new(1, &[&x], &[5]).result(&op);
    assert_eq!(y[1..3], [0.0, 0.0]);
    let backward = NestedSoftmax { direction: Direction::InputGradient, ..op };
    let dx = Setting::new(1, &[&x, &[1.0, 2.0, 3.0, 4.0, 5.0]], &[7]).result(&backward);
    assert!(dx.iter().all(|dx| dx.is_finite()));
}

#[cfg(feature = "gpu")]
#[test]
fn a_gpu_agrees() {
    for (rows, op) in [
        (1, op(1, 0, &[1], false)),
        (5, op(2, 3, &[4, 1, 33], false)),
        (67, op(1, 0, &[3, 3, 3, 3], false)),
        (2, op(1, 300, &[20, 700], false)),
        (5, op(3, 0, &[10, 10, 10], true)),
        (2, op(1, 0, &[600, 600], true)),
    ] {
        let x = logits::<f32>(rows * op.outer * op.inputs());
        let dy = numbers::<f32>(2, rows * op.outer * op.outputs());
        crate::gpu::testing::check(op.clone(), &Setting::new(rows, &[&x], &[dy.len()]));
        let backward = NestedSoftmax { direction: Direction::InputGradient, ..op };
        crate::gpu::testing::check(backward, &Setting::new(rows, &[&x, &dy], &[x.len()]));
    }
}

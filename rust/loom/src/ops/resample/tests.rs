//! Proofs of resampling.

use super::*;
use crate::ops::testing::{Setting, assert_bits, assert_close, numbers};
use crate::simd::Real;
use proptest::prelude::*;

fn op(resampling: Resampling, extents: [usize; 4]) -> Resample {
    let [outer, input, output, inner] = extents;
    Resample { direction: Direction::Forward, resampling, outer, input, output, inner }
}

/// What element `from` counts in element `to`, from the definition alone.
fn weight(op: &Resample, from: usize, to: usize) -> f64 {
    let (input, output) = (op.input as f64, op.output as f64);
    match op.resampling {
        Resampling::Nearest => f64::from(u8::from((to as f64 * input / output).floor() == from as f64)),
        Resampling::Linear => {
            let there = ((to as f64 + 0.5) * input / output - 0.5).clamp(0.0, input - 1.0);
            (1.0 - (there - from as f64).abs()).max(0.0)
        }
        Resampling::Means => {
            let (first, end) = (to * op.input / op.output, ((to + 1) * op.input).div_ceil(op.output));
            if (first..end).contains(&from) { 1.0 / (end - first) as f64 } else { 0.0 }
        }
    }
}

/// Both directions against a product with the whole matrix of weights.
fn check<T: Real>(op: &Resample, rows: usize) {
    let lines = rows * op.outer;
    let (read, written) = (lines * op.input * op.inner, lines * op.output * op.inner);
    let (x, dy): (Vec<T>, Vec<T>) = (numbers(1, read), numbers(2, written));
    let (mut y, mut dx) = (vec![0.0; written], vec![0.0; read]);
    for line in 0..lines {
        for from in 0..op.input {
            for to in 0..op.output {
                for k in 0..op.inner {
                    let (i, j) =
                        ((line * op.input + from) * op.inner + k, (line * op.output + to) * op.inner + k);
                    y[j] += weight(op, from, to) * x[i].to_f64();
                    dx[i] += weight(op, from, to) * dy[j].to_f64();
                }
            }
        }
    }
    let slack = T::EPSILON.to_f64() * 40.0;
    assert_close(&Setting::new(rows, &[&x], &[written]).result(op), &y, slack);
    assert_close(&Setting::new(rows, &[&dy], &[read]).result(&op.gradient()), &dx, slack);
}

fn ops() -> impl Strategy<Value = Resample> {
    let extents = (1..4usize, 1..9usize, 1..9usize, prop_oneof![Just(1), 2..40usize]);
    (0..3usize, extents).prop_map(|(rule, (outer, input, output, inner))| match rule {
        0 => op(Resampling::Nearest, [outer, input, output * input, inner]),
        1 => op(Resampling::Linear, [outer, input, output * input, inner]),
        _ => op(Resampling::Means, [outer, input, output, inner]),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn values_and_gradients_are_those_of_the_whole_matrix(op in ops(), rows in 1..4usize) {
        check::<f32>(&op, rows);
        check::<f64>(&op, rows);
    }
}

#[test]
fn large_extents_are_cut_into_tasks() {
    for resampling in [Resampling::Nearest, Resampling::Linear] {
        check::<f32>(&op(resampling, [40, 30, 60, 30]), 2);
        check::<f32>(&op(resampling, [900, 30, 90, 1]), 2);
    }
    check::<f32>(&op(Resampling::Means, [700, 31, 7, 3]), 2);
}

#[test]
fn an_element_alone_is_handed_on_as_it_is() {
    let x = [f32::NAN, f32::INFINITY, -0.0, 1.5];
    for resampling in [Resampling::Nearest, Resampling::Linear, Resampling::Means] {
        let y = Setting::new(1, &[&x], &[4]).result(&op(resampling, [1, 4, 4, 1]));
        assert_bits(&y, &x);
    }
    // What a centre lies on has no neighbour: what is infinite there stays away.
    let y = Setting::new(1, &[&[1.0f32, f32::INFINITY]], &[6]).result(&op(Resampling::Linear, [1, 2, 6, 1]));
    assert_bits(&y[..2], &[1.0, 1.0]);
}

#[cfg(feature = "gpu")]
mod gpu {
    use super::*;
    use crate::gpu::testing::check;

    proptest! {
        #![proptest_config(crate::gpu::testing::cases(12))]

        #[test]
        fn a_gpu_agrees(op in ops(), rows in 1..4usize) {
            let lines = rows * op.outer * op.inner;
            let (x, dy) = (numbers::<f32>(3, lines * op.input), numbers::<f32>(4, lines * op.output));
            check(op.gradient(), &Setting::new(rows, &[&dy], &[x.len()]));
            check(op, &Setting::new(rows, &[&x], &[dy.len()]));
        }
    }
}

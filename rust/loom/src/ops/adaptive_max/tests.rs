//! Proofs of the maximum of adaptive windows.

use super::*;
use crate::ops::testing::{Data, Setting, assert_bits, numbers};
use crate::simd::Real;
use proptest::prelude::*;

fn op(channels: usize, input: [usize; 3], output: [usize; 3]) -> AdaptiveMax {
    AdaptiveMax { direction: Direction::Forward, channels, input, output }
}

fn settings<T: Real>(op: &AdaptiveMax, rows: usize, x: &[T]) -> (Setting<T>, Setting<T>) {
    let planes = rows * op.channels;
    let (input, output) = op.volumes();
    let mut forward = Setting::new(rows, &[x], &[planes * output]);
    forward.writes.push(Data::Index(vec![-77; planes * output]));
    let mut back = Setting::new(rows, &[&numbers(9, planes * output)], &[planes * input]);
    back.reads.push(forward.run(op).swap_remove(1));
    (forward, back)
}

/// Numbers few enough that there are ties.
fn coarse<T: Real>(count: usize) -> Vec<T> {
    numbers::<T>(5, count).iter().map(|x| T::from_f64((x.to_f64() * 4.0).round())).collect()
}

/// Both directions against all elements that lie in each window by its definition.
fn check<T: Real>(op: &AdaptiveMax, rows: usize) {
    let (input, output) = op.volumes();
    let planes = rows * op.channels;
    let x: Vec<T> = coarse(planes * input);
    let (forward, back) = settings(op, rows, &x);
    let (dy, mut dx) = (back.reads[0].real(), vec![T::ZERO; planes * input]);
    let (mut y, mut places) = (vec![T::ZERO; planes * output], vec![0; planes * output]);
    let inside = |axis: usize, window: usize, place: usize| {
        let (input, output) = (op.input[axis] as f64, op.output[axis] as f64);
        let window = window as f64;
        place as f64 >= (window * input / output).floor()
            && (place as f64) < ((window + 1.0) * input / output).ceil()
    };
    let place_of = |at: usize, extents: [usize; 3]| {
        [at / extents[2] / extents[1], at / extents[2] % extents[1], at % extents[2]]
    };
    for window in 0..planes * output {
        let (plane, number) = (window / output, place_of(window % output, op.output));
        let under = (0..input).filter(|at| {
            let place = place_of(*at, op.input);
            (0..3).all(|axis| inside(axis, number[axis], place[axis]))
        });
        let value = |at: usize| x[plane * input + at];
        let best = under.reduce(|best, at| if value(at) > value(best) { at } else { best }).unwrap();
        (y[window], places[window]) = (value(best), best as i32);
        dx[plane * input + best] += dy[window];
    }
    let found = forward.run(op);
    assert_bits(found[0].real(), &y);
    assert_eq!(found[1].indices(), places);
    let gradient = AdaptiveMax { direction: Direction::InputGradient, ..op.clone() };
    assert_bits(&back.result(&gradient), &dx);
}

fn extents() -> impl Strategy<Value = [usize; 3]> {
    (1..4usize, 1..8usize, 1..20usize).prop_map(|(depth, height, width)| [depth, height, width])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn maxima_and_gradients_are_those_of_the_definition(
        input in extents(), output in extents(), channels in 1..3usize, rows in 1..3usize,
    ) {
        check::<f32>(&op(channels, input, output), rows);
        check::<f64>(&op(channels, input, output), rows);
    }
}

#[test]
fn large_extents_are_cut_into_tasks() {
    check::<f32>(&op(40, [1, 31, 17], [1, 4, 5]), 2);
}

#[test]
fn nan_wins_and_minus_infinity_has_a_place() {
    let mut x = [f32::NEG_INFINITY; 7];
    let op = op(1, [1, 1, 7], [1, 1, 3]);
    let of = |x: &[f32]| settings(&op, 1, x).0.run(&op);
    assert_eq!(of(&x)[1].indices(), [0, 2, 4]);
    x[3] = f32::NAN;
    let found = of(&x);
    assert!(found[0].real()[1].is_nan());
    assert_eq!(found[1].indices(), [0, 3, 4]);
}

#[cfg(feature = "gpu")]
proptest! {
    #![proptest_config(crate::gpu::testing::cases(8))]

    #[test]
    fn a_gpu_agrees(input in extents(), output in extents(), channels in 1..3usize, rows in 1..3usize) {
        let op = op(channels, input, output);
        let x: Vec<f32> = coarse(rows * channels * op.volumes().0);
        let (forward, back) = settings(&op, rows, &x);
        crate::gpu::testing::check(op.clone(), &forward);
        crate::gpu::testing::check(AdaptiveMax { direction: Direction::InputGradient, ..op }, &back);
    }
}

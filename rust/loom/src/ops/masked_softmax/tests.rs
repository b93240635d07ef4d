//! Proofs of the masked softmax.

use super::*;
use crate::ops::testing::{Setting, assert_close, numbers};
use crate::simd::Real;
use proptest::prelude::*;

/// Whether an element takes part.
fn keeps(op: &MaskedSoftmax, mask: &[f64], i: usize) -> bool {
    let (class, block) = (i / op.inner % op.classes, i / (op.inner * op.classes));
    let (row, repetition) = (block / op.outer, block % op.outer);
    op.keeps(class)
        && match op.time {
            TimeMask::None => true,
            TimeMask::Classes => mask[row * op.classes + class] != 0.0,
            TimeMask::Repetitions { steps } => mask[row * steps + repetition * steps / op.outer] != 0.0,
        }
}

fn plain(op: &MaskedSoftmax, x: &[f64], mask: &[f64]) -> Vec<f64> {
    let value = |i: usize| {
        let start = i / (op.classes * op.inner) * op.classes * op.inner + i % op.inner;
        let all = (0..op.classes).map(|class| start + class * op.inner).filter(|j| keeps(op, mask, *j));
        let sum: f64 = all.map(|j| x[j].exp()).sum();
        if keeps(op, mask, i) { x[i].exp() / sum } else { 0.0 }
    };
    (0..x.len()).map(value).collect()
}

/// An operation with its mask of time.
fn case<T: Real>(
    rows: usize,
    (steps, repeats, classes, inner): (usize, usize, usize, usize),
    fixed: bool,
    over: usize,
) -> (MaskedSoftmax, Setting<T>) {
    let kept: Vec<bool> = numbers::<f32>(5, classes).iter().map(|x| *x > -0.5).collect();
    let kept = if fixed { kept.into() } else { [].into() };
    let outer = steps * repeats;
    let (time, len) = match over {
        0 => (TimeMask::None, 0),
        1 => (TimeMask::Classes, classes),
        _ => (TimeMask::Repetitions { steps }, steps),
    };
    let op = MaskedSoftmax { outer, classes, inner, kept, time };
    let x = numbers::<T>(3, rows * outer * classes * inner);
    let mask: Vec<T> =
        numbers::<f32>(4, rows * len).iter().map(|x| if *x > 0.0 { T::ONE } else { T::ZERO }).collect();
    let reads: Vec<&[T]> = if over == 0 { vec![&x] } else { vec![&x, &mask] };
    (op, Setting::new(rows, &reads, &[x.len()]))
}

fn check<T: Real>(op: &MaskedSoftmax, setting: &Setting<T>) {
    let y = setting.result(op);
    let wide = |i: usize| -> Vec<f64> {
        setting.reads.get(i).map_or(Vec::new(), |data| data.real().iter().map(|x| x.to_f64()).collect())
    };
    let (x, mask) = (wide(0), wide(1));
    assert_close(&y, &plain(op, &x, &mask), T::EPSILON.to_f64() * 20.0);
    for (i, y) in y.iter().enumerate() {
        assert!(keeps(op, &mask, i) || y.to_bits_u64() == 0, "element {i} is {y}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn masked_places_are_zeros_and_the_others_a_softmax(
        rows in 1..4usize, steps in 1..4usize, repeats in 1..3usize, classes in 1..40usize,
        inner in prop_oneof![Just(1), 2..20usize], fixed: bool, over in 0..3usize,
    ) {
        let (op, setting) = case::<f32>(rows, (steps, repeats, classes, inner), fixed, over);
        check(&op, &setting);
        let (op, setting) = case::<f64>(rows, (steps, repeats, classes, inner), fixed, over);
        check(&op, &setting);
    }
}

#[test]
fn where_nothing_is_left_all_is_zero() {
    for inner in [1, 3] {
        let op = MaskedSoftmax { outer: 1, classes: 5, inner, kept: [false; 5].into(), time: TimeMask::None };
        let x = numbers::<f32>(1, 2 * 5 * inner);
        assert_eq!(Setting::new(2, &[&x], &[x.len()]).result(&op), vec![0.0; x.len()]);
    }
}

#[cfg(feature = "gpu")]
#[test]
fn a_gpu_agrees() {
    for (rows, extents, fixed, over) in [
        (1, (1, 1, 1, 1), false, 1),
        (67, (1, 1, 10, 1), true, 0),
        (3, (4, 2, 300, 1), true, 2),
        (3, (1, 1, 7, 40), true, 1),
        (2, (3, 1, 20, 1), false, 2),
    ] {
        let (op, setting) = case::<f32>(rows, extents, fixed, over);
        crate::gpu::testing::check(op, &setting);
    }
}

use super::*;
use crate::ops::testing::{Setting, assert_bits, numbers};
use crate::simd::Real;
use proptest::prelude::*;

const SCALE: f64 = 0.75;

fn lengths((inputs, outputs, rank): (usize, usize, usize)) -> OutputLengths {
    OutputLengths { inputs, outputs, rank, scale: SCALE }
}

/// w with a column of zeros where there are several, beside which b has none, either; a; b.
fn factors<T: Real>((inputs, outputs, rank): (usize, usize, usize)) -> [Vec<T>; 3] {
    let [mut w, a, mut b] = [(1, inputs * outputs), (2, inputs * rank), (3, rank * outputs)]
        .map(|(seed, len)| numbers::<T>(seed, len));
    if outputs > 2 {
        w.iter_mut().skip(1).step_by(outputs).for_each(|w| *w = T::ZERO);
        b.iter_mut().skip(1).step_by(outputs).for_each(|b| *b = T::ZERO);
    }
    [w, a, b]
}

/// The lengths are those of the plain loops, bit for bit.
fn check_lengths<T: Real>(extents: (usize, usize, usize)) {
    let (inputs, outputs, rank) = extents;
    let [w, a, b] = factors::<T>(extents);
    let of_output = |n: usize| {
        let squares = (0..inputs).fold(T::ZERO, |squares, k| {
            let share =
                |sum: T, r: usize| (a[k * rank + r] * T::from_f64(SCALE)).mul_add(b[r * outputs + n], sum);
            let sum = (0..rank).fold(w[k * outputs + n], share);
            sum.mul_add(sum, squares)
        });
        squares.sqrt()
    };
    let expected: Vec<T> = (0..outputs).map(of_output).collect();
    let found = Setting::new(3, &[&w, &a, &b], &[outputs]).result(&lengths(extents));
    assert_bits(&found, &expected);
}

/// x, dy, magnitudes, lengths of which one is zero where there are several.
fn outputs_of<T: Real>(rows: usize, outputs: usize) -> [Vec<T>; 4] {
    let [x, dy, magnitudes, mut lengths] =
        [(1, rows * outputs), (2, rows * outputs), (3, outputs), (4, outputs)]
            .map(|(seed, len)| numbers::<T>(seed, len));
    lengths.iter_mut().for_each(|length| *length = length.abs() + T::from_f64(0.1));
    if outputs > 1 {
        lengths[1] = T::ZERO;
    }
    [x, dy, magnitudes, lengths]
}

fn check_scaled<T: Real>(rows: usize, outputs: usize) {
    let [x, dy, magnitudes, lengths] = outputs_of::<T>(rows, outputs);
    let inverse = |n: usize| if lengths[n] > T::ZERO { T::ONE / lengths[n] } else { T::ZERO };
    for (direction, other) in [
        (Direction::Forward, &magnitudes),
        (Direction::InputGradient, &magnitudes),
        (Direction::WeightGradient, &dy),
    ] {
        let expected: Vec<T> = (0..x.len())
            .map(|i| match direction {
                Direction::WeightGradient => x[i] * dy[i] * inverse(i % outputs),
                _ => x[i] * (magnitudes[i % outputs] * inverse(i % outputs)),
            })
            .collect();
        let found = Setting::new(rows, &[&x, other, &lengths], &[x.len()])
            .result(&WithLengths { direction, outputs });
        assert_bits(&found, &expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn lengths_are_those_of_the_plain_loops(inputs in 1..40usize, outputs in 1..70usize, rank in 1..9usize) {
        check_lengths::<f32>((inputs, outputs, rank));
        check_lengths::<f64>((inputs, outputs, rank));
    }

    #[test]
    fn outputs_are_those_of_the_plain_loops(rows in 1..40usize, outputs in 1..70usize) {
        check_scaled::<f32>(rows, outputs);
        check_scaled::<f64>(rows, outputs);
    }
}

#[test]
fn large_matrices_are_cut_into_tasks() {
    check_lengths::<f32>((700, 130, 4));
    check_lengths::<f32>((3, 20_000, 1));
    check_scaled::<f32>(700, 130);
}

#[cfg(feature = "gpu")]
#[test]
fn a_gpu_agrees() {
    use crate::gpu::testing::check;
    for extents in [(1, 1, 1), (5, 3, 2), (300, 17, 8), (4, 600, 3), (67, 40, 16)] {
        let [w, a, b] = factors::<f32>(extents);
        check(lengths(extents), &Setting::new(3, &[&w, &a, &b], &[extents.1]));
    }
    for (rows, outputs) in [(1, 1), (5, 3), (40, 300)] {
        let [x, dy, magnitudes, lengths] = outputs_of::<f32>(rows, outputs);
        for (direction, other) in [(Direction::Forward, &magnitudes), (Direction::WeightGradient, &dy)] {
            check(
                WithLengths { direction, outputs },
                &Setting::new(rows, &[&x, other, &lengths], &[x.len()]),
            );
        }
    }
}

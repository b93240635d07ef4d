use super::*;
use crate::ops::testing::{Data, Setting, assert_bits, assert_close, cpus, differences, numbers};
use crate::simd::Real;
use proptest::prelude::*;

fn op(direction: Direction, (rows, columns): (usize, usize)) -> WeightNorm {
    WeightNorm { direction, rows, columns }
}

/// v with a column of zeros where there are several, gain, dw.
fn operands<T: Real>((rows, columns): (usize, usize)) -> [Vec<T>; 3] {
    let mut v = numbers::<T>(1, rows * columns);
    if columns > 2 {
        v.iter_mut().skip(1).step_by(columns).for_each(|v| *v = T::ZERO);
    }
    [v, numbers(2, columns), numbers(3, rows * columns)]
}

fn forward<T: Real>(extents: (usize, usize), v: &[T], gain: &[T]) -> Setting<T> {
    Setting::new(3, &[v, gain], &[extents.0 * extents.1, extents.1])
}

/// Both directions are the plain loops, bit for bit.
fn check<T: Real>(extents: (usize, usize)) {
    let (rows, columns) = extents;
    let [v, gain, dw] = operands::<T>(extents);
    let sum = |a: &[T], b: &[T], column: usize| {
        (0..rows).fold(T::ZERO, |sum, row| a[row * columns + column].mul_add(b[row * columns + column], sum))
    };
    let lengths: Vec<T> = (0..columns).map(|column| sum(&v, &v, column).sqrt()).collect();
    let inverse = |x: T| if x > T::ZERO { T::ONE / x } else { T::ZERO };
    let found = forward(extents, &v, &gain).run(&op(Direction::Forward, extents));
    let w: Vec<T> =
        (0..v.len()).map(|i| v[i] * (gain[i % columns] * inverse(lengths[i % columns]))).collect();
    assert_bits(found[0].real(), &w);
    assert_bits(found[1].real(), &lengths);
    let setting = Setting::new(3, &[&v, &gain, &lengths, &dw], &[v.len(), columns]);
    let found = setting.run(&op(Direction::InputGradient, extents));
    let dgain: Vec<T> = (0..columns).map(|column| sum(&dw, &v, column) * inverse(lengths[column])).collect();
    let dv: Vec<T> = (0..v.len())
        .map(|i| {
            let inverse = inverse(lengths[i % columns]);
            (dw[i] - v[i] * (dgain[i % columns] * inverse)) * (gain[i % columns] * inverse)
        })
        .collect();
    assert_bits(found[0].real(), &dv);
    assert_bits(found[1].real(), &dgain);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn both_directions_are_the_plain_loops(rows in 1..40usize, columns in 1..70usize) {
        check::<f32>((rows, columns));
        check::<f64>((rows, columns));
    }

    #[test]
    fn gradients_are_those_of_the_values(rows in 1..5usize, columns in 1..3usize) {
        let extents = (rows, columns);
        let [v, gain, dw] = operands::<f64>(extents);
        let setting = forward(extents, &v, &gain);
        let found = setting.run(&op(Direction::Forward, extents));
        let backward = Setting::new(3, &[&v, &gain, found[1].real(), &dw], &[v.len(), columns]);
        let gradients = backward.run(&op(Direction::InputGradient, extents));
        for (number, x) in [v, gain].into_iter().enumerate() {
            let mut at = setting.clone();
            let expected = differences(&x, |x| {
                at.reads[number] = Data::Real(x.to_vec());
                let w = at.run_on(&op(Direction::Forward, extents), &cpus()[0]).unwrap();
                w[0].real().iter().zip(&dw).map(|(w, dw)| w * dw).sum()
            });
            assert_close(gradients[number].real(), &expected, 1e-6);
        }
    }
}

#[test]
fn large_matrices_are_cut_into_tasks() {
    check::<f32>((700, 130));
    check::<f32>((3, 20_000));
    check::<f32>((20_000, 1));
}

#[cfg(feature = "gpu")]
#[test]
fn a_gpu_agrees() {
    use crate::gpu::testing::check;
    for extents in [(1, 1), (5, 3), (300, 17), (4, 600)] {
        let [v, gain, dw] = operands::<f32>(extents);
        let setting = forward(extents, &v, &gain);
        check(op(Direction::Forward, extents), &setting);
        let lengths = setting.result_number(&op(Direction::Forward, extents), 1);
        let backward = Setting::new(3, &[&v, &gain, &lengths, &dw], &[v.len(), extents.1]);
        check(op(Direction::InputGradient, extents), &backward);
    }
}

use super::*;
use crate::ops::testing::{Data, Setting, assert_bits, assert_close, cpus, differences, lane_sum, numbers};
use crate::simd::Real;
use proptest::prelude::*;

fn op(direction: Direction, (rows, columns): (usize, usize)) -> SpectralNorm {
    SpectralNorm { direction, rows, columns }
}

/// w, u and dy.
fn operands<T: Real>((rows, columns): (usize, usize)) -> [Vec<T>; 3] {
    [numbers(1, rows * columns), numbers(2, columns), numbers(3, rows * columns)]
}

fn forward<T: Real>(extents: (usize, usize), w: &[T], u: &[T]) -> Setting<T> {
    let (rows, columns) = extents;
    Setting::new(3, &[w, u], &[rows * columns, columns, rows, 2])
}

fn backward<T: Real>(extents: (usize, usize), [w, u, dy]: &[Vec<T>; 3], found: &[Data<T>]) -> Setting<T> {
    let [next, v, sizes] = [1, 2, 3].map(|number: usize| found[number].real());
    Setting::new(3, &[w, u, next, v, sizes, dy], &[w.len(), 2 * extents.0])
}

/// The forward direction is the plain loops, bit for bit.
fn check<T: Real>(extents: (usize, usize)) {
    let (rows, columns) = extents;
    let [w, u, dy] = operands::<T>(extents);
    let found = forward(extents, &w, &u).run(&op(Direction::Forward, extents));
    let unit = |x: Vec<T>| {
        let length = lane_sum(x.iter().map(|x| *x * *x)).sqrt();
        let share = T::ONE / if length > T::from_f64(1e-12) { length } else { T::from_f64(1e-12) };
        (length, x.iter().map(|x| *x * share).collect::<Vec<T>>())
    };
    let by_row = |a: &[T], b: &dyn Fn(usize, usize) -> T| -> Vec<T> {
        let row =
            |row: usize| lane_sum((0..columns).map(|column| a[row * columns + column] * b(row, column)));
        (0..rows).map(row).collect()
    };
    let (first, v) = unit(by_row(&w, &|_, column| u[column]));
    let column =
        |column: usize| (0..rows).fold(T::ZERO, |sum, row| w[row * columns + column].mul_add(v[row], sum));
    let (sigma, next) = unit((0..columns).map(column).collect());
    assert_bits(found[3].real(), &[sigma, first]);
    assert_bits(found[2].real(), &v);
    assert_bits(found[1].real(), &next);
    let share = T::ONE / sigma;
    assert_bits(found[0].real(), &w.iter().map(|w| *w * share).collect::<Vec<T>>());
    let sums = by_row(&dy, &|row, column| w[row * columns + column]);
    let factor = lane_sum(sums.iter().copied()) * share * share;
    let c: Vec<T> = by_row(&w, &|_, column| next[column])
        .iter()
        .zip(&v)
        .map(|(sum, v)| (*sum - sigma * *v) * (T::ONE / first))
        .collect();
    let dw: Vec<T> = (0..w.len())
        .map(|i| {
            let (row, column) = (i / columns, i % columns);
            dy[i] * share - (v[row] * next[column] + c[row] * u[column]) * factor
        })
        .collect();
    let gradient = backward(extents, &[w, u, dy], &found).result(&op(Direction::InputGradient, extents));
    assert_bits(&gradient, &dw);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn both_directions_are_the_plain_loops(rows in 1..40usize, columns in 1..70usize) {
        check::<f32>((rows, columns));
        check::<f64>((rows, columns));
    }

    #[test]
    fn the_gradient_is_that_of_the_values(rows in 2..6usize, columns in 2..5usize) {
        let extents = (rows, columns);
        let operands = operands::<f64>(extents);
        let mut setting = forward(extents, &operands[0], &operands[1]);
        let found = setting.run(&op(Direction::Forward, extents));
        let gradient =
            backward(extents, &operands, &found).result(&op(Direction::InputGradient, extents));
        let [w, _, dy] = operands;
        let expected = differences(&w, |w| {
            setting.reads[0] = Data::Real(w.to_vec());
            let y = setting.run_on(&op(Direction::Forward, extents), &cpus()[0]).unwrap();
            y[0].real().iter().zip(&dy).map(|(y, dy)| y * dy).sum()
        });
        assert_close(&gradient, &expected, 1e-5);
    }
}

#[test]
fn large_matrices_are_cut_into_tasks() {
    check::<f32>((700, 130));
    check::<f32>((3, 20_000));
    check::<f32>((20_000, 1));
}

/// Iterations come to the largest singular value, here that of a matrix of known ones.
#[test]
fn iterations_converge() {
    let extents = (3, 2);
    let w = vec![0.0, 3.0, 0.5, 0.0, 0.0, 0.0];
    let mut u = vec![1.0, 1.0];
    for _ in 0..20 {
        let found = forward::<f64>(extents, &w, &u).run(&op(Direction::Forward, extents));
        u = found[1].real().to_vec();
        if found[3].real()[0] > 3.0 - 1e-12 {
            assert_close(found[0].real(), &[0.0, 1.0, 0.5 / 3.0, 0.0, 0.0, 0.0], 1e-12);
            return;
        }
    }
    panic!("no singular value of 3");
}

/// A weight of zeros stays one.
#[test]
fn zeros_stay_zeros() {
    let extents = (2, 3);
    let operands = [vec![0.0f32; 6], vec![1.0; 3], vec![0.0; 6]];
    let found = forward(extents, &operands[0], &operands[1]).run(&op(Direction::Forward, extents));
    assert_bits(found[0].real(), &[0.0; 6]);
    let gradient = backward(extents, &operands, &found).result(&op(Direction::InputGradient, extents));
    assert!(gradient.iter().all(|x| x.is_finite()));
}

#[cfg(feature = "gpu")]
#[test]
fn a_gpu_agrees() {
    use crate::gpu::testing::check;
    for extents in [(1, 1), (5, 3), (300, 17), (4, 600)] {
        let operands = operands::<f32>(extents);
        let setting = forward(extents, &operands[0], &operands[1]);
        check(op(Direction::Forward, extents), &setting);
        let found = setting.run(&op(Direction::Forward, extents));
        let gradient = op(Direction::InputGradient, extents);
        // What its working memory holds afterwards is nobody's.
        let setting = backward(extents, &operands, &found);
        let Some(gpu) = crate::gpu::testing::gpu() else { return };
        let expected: Vec<f64> = setting.result(&gradient).into_iter().map(f64::from).collect();
        let found = crate::gpu::testing::run(&gpu, &gradient.into(), &setting, None).unwrap();
        crate::ops::testing::assert_close(found[0].real(), &expected, 1e-4);
    }
}

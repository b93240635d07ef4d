//! Pooling against plain loops and finite differences.

use super::*;
use crate::ops::pointwise;
use crate::ops::testing::{
    Data, Setting, assert_bits, assert_close, assert_gradient, cpus, lane_sum, numbers,
};
use crate::simd::{Cpu, Real};
use proptest::prelude::*;

/// Windows as they fit an input, of one axis: (input, kernel, stride, padding, dilation).
fn axis() -> impl Strategy<Value = [usize; 5]> {
    (1..4usize, 1..4usize, 1..3usize, any::<prop::sample::Index>(), 0..20usize).prop_map(
        |(kernel, stride, dilation, padding, extra)| {
            let reach = (kernel - 1) * dilation + 1;
            let padding = padding.index(kernel / 2 + 1);
            [(reach + extra).saturating_sub(2 * padding).max(1), kernel, stride, padding, dilation]
        },
    )
}

pub(super) fn geometry(rows: [usize; 5], columns: [usize; 5]) -> Geometry {
    volume([1, 1, 1, 0, 1], rows, columns)
}

pub(super) fn volume(planes: [usize; 5], rows: [usize; 5], columns: [usize; 5]) -> Geometry {
    let all = |i: usize| [planes[i], rows[i], columns[i]];
    let output = |[input, kernel, stride, padding, dilation]: [usize; 5]| {
        (input + 2 * padding - (kernel - 1) * dilation - 1) / stride + 1
    };
    Geometry {
        input: all(0),
        output: [planes, rows, columns].map(output),
        kernel: all(1),
        stride: all(2),
        padding: all(3),
        dilation: all(4),
    }
}

/// Geometries of every kind, those with paths of their own among them.
pub(super) fn geometries() -> impl Strategy<Value = Geometry> {
    prop_oneof![
        2 => (axis(), axis()).prop_map(|(rows, columns)| geometry(rows, columns)),
        2 => (axis(), axis(), axis()).prop_map(|(planes, rows, columns)| volume(planes, rows, columns)),
        1 => (1..6usize, 1..6usize, 1..6usize)
            .prop_map(|(d, h, w)| volume([d, d, d, 0, 1], [h, h, h, 0, 1], [w, w, w, 0, 1])),
        1 => (2..40usize, 2..70usize).prop_map(|(h, w)| geometry([h, 2, 2, 0, 1], [w, 2, 2, 0, 1])),
        1 => (1..12usize, 1..12usize).prop_map(|(h, w)| geometry([h, h, h, 0, 1], [w, w, w, 0, 1])),
    ]
}

/// The places of a window's elements in the volume, in order; `None` on the border.
fn window(g: &Geometry, [plane, row, column]: [usize; 3]) -> Vec<Option<usize>> {
    let place = |axis: usize, index: usize, k: usize| {
        (index * g.stride[axis] + k * g.dilation[axis])
            .checked_sub(g.padding[axis])
            .filter(|p| *p < g.input[axis])
    };
    let mut places = Vec::new();
    for h in 0..g.kernel[0] {
        for i in 0..g.kernel[1] {
            for j in 0..g.kernel[2] {
                let line = place(0, plane, h).zip(place(1, row, i)).map(|(p, r)| p * g.input[1] + r);
                places.push(line.zip(place(2, column, j)).map(|(line, c)| line * g.input[2] + c));
            }
        }
    }
    places
}

/// Every window of every channel: (channel's first element, window's number, its places).
fn windows(g: &Geometry, planes: usize) -> Vec<(usize, usize, Vec<Option<usize>>)> {
    let (input, output) = g.volumes();
    let [_, height, width] = g.output;
    let place = |i: usize| [i % output / width / height, i / width % height, i % width];
    (0..planes * output).map(|i| (i / output * input, i, window(g, place(i)))).collect()
}

fn pool(direction: Direction, kind: PoolKind, geometry: &Geometry, channels: usize) -> Pool {
    Pool { direction, kind, geometry: *geometry, channels, derivative: None }
}

pub(super) fn len(g: &Geometry, planes: usize) -> (usize, usize) {
    (planes * g.volumes().0, planes * g.volumes().1)
}

/// Inputs with many ties.
pub(super) fn coarse<T: Real>(seed: u64, len: usize) -> Vec<T> {
    numbers::<T>(seed, len).into_iter().map(|x| (x * T::from_f64(2.0)).round_ties_even()).collect()
}

fn check_max<T: Real>(g: &Geometry, rows: usize, channels: usize, x: &[T]) {
    let (input, output) = len(g, rows * channels);
    assert_eq!(x.len(), input);
    let (mut y, mut indices) = (vec![T::ZERO; output], vec![0; output]);
    for (start, i, places) in windows(g, rows * channels) {
        let mut best: Option<usize> = None;
        for place in places.into_iter().flatten() {
            let beats = best.is_none_or(|best| x[start + place] > x[start + best]);
            if beats || x[start + place].is_nan() {
                best = Some(place);
            }
        }
        y[i] = best.map_or(-T::INFINITY, |best| x[start + best]);
        indices[i] = best.map_or(-1, |best| best as i32);
    }
    let mut setting = Setting::new(rows, &[x], &[output]);
    setting.writes.push(Data::Index(vec![-77; output]));
    let results = setting.run(&pool(Direction::Forward, PoolKind::Max, g, channels));
    assert_bits(results[0].real(), &y);
    assert_eq!(results[1].indices(), &indices);

    let dy = numbers::<T>(22, output);
    let mut dx = vec![T::ZERO; input];
    for (start, i, _) in windows(g, rows * channels) {
        if let Ok(index) = usize::try_from(indices[i]) {
            dx[start + index] += dy[i];
        }
    }
    let mut setting = Setting::new(rows, &[&dy], &[input]);
    setting.reads.push(Data::Index(indices));
    let back = pool(Direction::InputGradient, PoolKind::Max, g, channels);
    assert_bits(&setting.result(&back), &dx);
    check_derivative(back, setting, &dx);
}

/// With a derivative, the gradient has the bits that it has without and multiplied after.
fn check_derivative<T: Real>(op: Pool, mut setting: Setting<T>, dx: &[T]) {
    let saved = numbers::<T>(25, dx.len());
    let mut expected = vec![T::ZERO; dx.len()];
    pointwise::backward(Cpu::global().unwrap().isa(), Activation::Gelu, &saved, dx, &mut expected);
    setting.reads.push(Data::Real(saved));
    assert_bits(&setting.result(&Pool { derivative: Some(Activation::Gelu), ..op }), &expected);
}

fn check_average<T: Real>(g: &Geometry, rows: usize, channels: usize, count_padding: bool) {
    let (input, output) = len(g, rows * channels);
    let x = numbers::<T>(23, input);
    let dy = numbers::<T>(24, output);
    let (mut y, mut plain, mut dx) = (vec![T::ZERO; output], vec![0.0; output], vec![T::ZERO; input]);
    for (start, i, places) in windows(g, rows * channels) {
        let count = if count_padding { places.len() } else { places.iter().flatten().count().max(1) };
        let count = T::from_usize(count);
        y[i] = lane_sum(places.iter().map(|place| place.map_or(T::ZERO, |place| x[start + place]))) / count;
        let sum: f64 = places.iter().flatten().map(|place| x[start + place].to_f64()).sum();
        plain[i] = sum / count.to_f64();
        for place in places.into_iter().flatten() {
            dx[start + place] += dy[i] / count;
        }
    }
    let kind = PoolKind::Average { count_padding };
    let found = Setting::new(rows, &[&x], &[output]).result(&pool(Direction::Forward, kind, g, channels));
    assert_bits(&found, &y);
    assert_close(&found, &plain, T::EPSILON.to_f64() * 20.0);
    let (back, setting) =
        (pool(Direction::InputGradient, kind, g, channels), Setting::new(rows, &[&dy], &[input]));
    assert_bits(&setting.result(&back), &dx);
    check_derivative(back, setting, &dx);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn maxima_are_those_of_a_plain_loop(g in geometries(), rows in 1..3usize, channels in 1..4usize) {
        let (input, _) = len(&g, rows * channels);
        check_max(&g, rows, channels, &coarse::<f32>(20, input));
        check_max(&g, rows, channels, &coarse::<f64>(21, input));
        let mut with_nan = coarse::<f32>(25, input);
        for x in with_nan.iter_mut().step_by(5) {
            *x = f32::NAN;
        }
        for x in with_nan.iter_mut().step_by(3) {
            *x = f32::NEG_INFINITY;
        }
        check_max(&g, rows, channels, &with_nan);
    }

    #[test]
    fn means_are_those_of_a_plain_loop(
        g in geometries(),
        rows in 1..3usize,
        channels in 1..4usize,
        count_padding in any::<bool>(),
    ) {
        check_average::<f32>(&g, rows, channels, count_padding);
        check_average::<f64>(&g, rows, channels, count_padding);
    }
}

proptest! {
    // Each runs the layer twice for every element.
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn gradients_are_those_of_the_values(g in geometries(), average in any::<bool>(), count_padding in any::<bool>()) {
        let kind = if average { PoolKind::Average { count_padding } } else { PoolKind::Max };
        let (input, output) = len(&g, 1);
        // No two elements are near each other, so that the maximum's place is certain.
        let x: Vec<f64> = (0..input).map(|i| ((i * 7919) % 10_007) as f64 / 1000.0).collect();
        let forward = pool(Direction::Forward, kind, &g, 1);
        let run = |x: &[f64]| {
            let mut setting = Setting::new(1, &[x], &[output]);
            if !average {
                setting.writes.push(Data::Index(vec![0; output]));
            }
            setting.run_on(&forward, &cpus()[0]).unwrap()
        };
        // A window that holds nothing but border has no gradient.
        prop_assume!(run(&x)[0].real().iter().all(|y| y.is_finite()));
        let dy = numbers::<f64>(26, output);
        let mut setting = Setting::new(1, &[&dy], &[input]);
        setting.reads.extend(run(&x).into_iter().skip(1));
        let dx = setting.result(&pool(Direction::InputGradient, kind, &g, 1));
        assert_gradient(&dx, &x, |x| run(x)[0].real().iter().zip(&dy).map(|(y, dy)| y * dy).sum());
    }
}

#[test]
fn many_planes_are_cut_into_tasks() {
    for (h, w) in [(28, 28), (14, 14), (15, 33)] {
        let g = geometry([h, 2, 2, 0, 1], [w, 2, 2, 0, 1]);
        check_max(&g, 3, 40, &coarse::<f32>(27, len(&g, 120).0));
        check_average::<f32>(&g, 3, 40, true);
    }
    let overlapping = geometry([30, 3, 2, 1, 1], [31, 3, 2, 1, 1]);
    check_max(&overlapping, 3, 40, &coarse::<f32>(28, len(&overlapping, 120).0));
    check_average::<f32>(&overlapping, 3, 40, false);
}

#[test]
fn ties_go_to_the_first() {
    for size in [2, 3] {
        let axis = [size, size, size, 0, 1];
        check_max(&geometry(axis, axis), 1, 1, &vec![1.5_f32; size * size]);
    }
    let g = geometry([2, 2, 2, 0, 1], [2, 2, 2, 0, 1]);
    let mut setting = Setting::new(1, &[&[0.0_f32, 3.0, 3.0, 3.0]], &[1]);
    setting.writes.push(Data::Index(vec![-77]));
    assert_eq!(setting.run(&pool(Direction::Forward, PoolKind::Max, &g, 1))[1].indices(), &[1]);
}

//! Proofs of the normalisations: plain formulas, central differences, the GPU.

use super::*;
use crate::ops::testing::{Data, Setting, assert_close, assert_gradient, cpus, numbers};
use crate::simd::Real;
use proptest::prelude::*;

/// (rows, outer, channels of a group, inner, groups).
fn extents() -> impl Strategy<Value = (usize, usize, usize, usize, usize)> {
    (1..5usize, 1..4usize, 1..40usize, prop_oneof![Just(1), 2..30usize], 1..4usize)
}

fn rows_op(
    direction: Direction,
    (outer, channels, inner, groups): (usize, usize, usize, usize),
    (centred, gain, bias): (bool, bool, bool),
) -> Normalize {
    Normalize { direction, outer, channels, inner, groups, centred, epsilon: 1e-3, gain, bias }
}

/// The formula over sets of `extent`, in f64.
fn plain(x: &[f64], op: &Normalize, gain: &[f64], bias: &[f64]) -> Vec<f64> {
    let extent = op.extent();
    let mut y = Vec::with_capacity(x.len());
    for (set, x) in x.chunks(extent).enumerate() {
        let count = extent as f64;
        let mean = if op.centred { x.iter().sum::<f64>() / count } else { 0.0 };
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
        for (e, x) in x.iter().enumerate() {
            let channel = set % op.groups * op.set_channels() + e / op.inner;
            let gain = if op.gain { gain[channel] } else { 1.0 };
            let bias = if op.bias { bias[channel] } else { 0.0 };
            y.push((x - mean) / (variance + op.epsilon).sqrt() * gain + bias);
        }
    }
    y
}

fn wide<T: Real>(x: &[T]) -> Vec<f64> {
    x.iter().map(|x| x.to_f64()).collect()
}

/// Operands that are there.
fn present<'a, T>(operands: &[(&'a [T], bool)]) -> Vec<&'a [T]> {
    operands.iter().filter(|(_, present)| *present).map(|(operand, _)| *operand).collect()
}

fn forward_of_rows<T: Real>(
    (rows, outer, of_group, inner, groups): (usize, usize, usize, usize, usize),
    flags: (bool, bool, bool),
) -> (Normalize, Setting<T>) {
    let channels = of_group * groups;
    let op = rows_op(Direction::Forward, (outer, channels, inner, groups), flags);
    let x: Vec<T> = numbers::<T>(1, rows * outer * channels * inner);
    let (gain, bias) = (numbers::<T>(2, channels), numbers::<T>(3, channels));
    let reads = present(&[(&x[..], true), (&gain, op.gain), (&bias, op.bias)]);
    let sets = rows * outer * groups;
    let mut lengths = vec![x.len(), sets];
    if op.centred {
        lengths.push(sets);
    }
    (op.clone(), Setting::new(rows, &reads, &lengths))
}

fn check_rows<T: Real>(extents: (usize, usize, usize, usize, usize), flags: (bool, bool, bool)) {
    let (op, setting) = forward_of_rows::<T>(extents, flags);
    let channels = op.channels;
    let y = setting.result(&op);
    let (gain, bias) = (wide(&numbers::<T>(2, channels)), wide(&numbers::<T>(3, channels)));
    let expected = plain(&wide(setting.reads[0].real()), &op, &gain, &bias);
    assert_close(&y, &expected, T::EPSILON.to_f64() * 300.0);
}

/// The input gradient and, as one weight gradient, that of the gain.
fn gradients_of_rows(op: &Normalize, forward: &Setting<f64>, dy: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let results = forward.run(op);
    let x = forward.reads[0].real();
    let none: &[f64] = &[];
    let mean = results.get(2).map_or(none, Data::real);
    let gain = if op.gain { forward.reads[1].real() } else { none };
    let inverse = results[1].real();
    let backward = Normalize { direction: Direction::InputGradient, ..op.clone() };
    let reads = present(&[(dy, true), (x, true), (inverse, true), (mean, op.centred), (gain, op.gain)]);
    let dx = Setting::new(forward.rows, &reads, &[x.len()]).result(&backward);
    let statistics = Statistics::Rows { groups: op.groups, centred: op.centred };
    let gradient = GainGradient { outer: op.outer, channels: op.channels, inner: op.inner, statistics };
    let reads = present(&[(dy, true), (x, true), (inverse, true), (mean, op.centred)]);
    let dgain = Setting::new(forward.rows, &reads, &[op.channels]).result(&gradient);
    (dx, dgain)
}

/// `sum(y dy)` with operand `index` replaced.
fn objective(
    op: &impl crate::ops::Operation,
    setting: &Setting<f64>,
    index: usize,
    operand: &[f64],
    dy: &[f64],
) -> f64 {
    let mut setting = setting.clone();
    setting.reads[index] = Data::Real(operand.to_vec());
    let y = setting.run_on(op, &cpus()[0]).unwrap();
    y[0].real().iter().zip(dy).map(|(y, dy)| y * dy).sum()
}

const FLAGS: [(bool, bool, bool); 5] = [
    (true, true, true),
    (true, false, false),
    (false, true, false),
    (true, true, false),
    (false, false, true),
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn rows_follow_the_formula(extents in extents(), flags in 0..FLAGS.len()) {
        check_rows::<f32>(extents, FLAGS[flags]);
        check_rows::<f64>(extents, FLAGS[flags]);
    }

    #[test]
    fn gradients_of_rows_are_those_of_the_values(
        rows in 1..3usize, outer in 1..3usize, of_group in 1..9usize,
        inner in prop_oneof![Just(1), 2..7usize], groups in 1..3usize, flags in 0..FLAGS.len(),
    ) {
        let (op, setting) = forward_of_rows::<f64>((rows, outer, of_group, inner, groups), FLAGS[flags]);
        let dy = numbers::<f64>(4, setting.reads[0].real().len());
        let (dx, dgain) = gradients_of_rows(&op, &setting, &dy);
        // Where a set is one number its value does not depend on it.
        let scale = dx.iter().fold(1.0, |scale: f64, dx| scale.max(dx.abs()));
        let differences = crate::ops::testing::differences(setting.reads[0].real(), |x| objective(&op, &setting, 0, x, &dy));
        for (found, expected) in dx.iter().zip(differences) {
            prop_assert!((found - expected).abs() < 1e-5 * scale, "{found} {expected}");
        }
        if op.gain {
            assert_gradient(&dgain, setting.reads[1].real(), |gain| objective(&op, &setting, 1, gain, &dy));
        }
    }
}

#[test]
fn large_extents_are_cut_into_tasks() {
    check_rows::<f32>((300, 1, 300, 1, 1), (true, true, true));
    check_rows::<f32>((2, 1, 8, 3000, 2), (true, true, true));
    check_rows::<f32>((1, 1, 40_000, 1, 1), (false, true, false));
}

/// Mean and biased variance in f64.
fn moments(x: &[f64], channels: usize, inner: usize) -> (Vec<f64>, Vec<f64>) {
    let of = |channel: usize| {
        let all: Vec<f64> = x.chunks(inner).skip(channel).step_by(channels).flatten().copied().collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        (mean, all.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / all.len() as f64)
    };
    (0..channels).map(of).unzip()
}

fn check_moments<T: Real>(rows: usize, channels: usize, inner: usize) {
    let x = numbers::<T>(5, rows * channels * inner);
    let op = ChannelMoments { channels, inner, part: false };
    let results = Setting::new(rows, &[&x], &[channels, channels]).run(&op);
    let (mean, variance) = moments(&wide(&x), channels, inner);
    assert_close(results[0].real(), &mean, T::EPSILON.to_f64() * 30.0);
    assert_close(results[1].real(), &variance, T::EPSILON.to_f64() * 60.0);
}

fn channel_op(
    direction: Direction,
    (channels, inner): (usize, usize),
    fixed: bool,
    affine: bool,
) -> ChannelNormalize {
    ChannelNormalize { direction, channels, inner, epsilon: 1e-3, gain: affine, bias: affine, fixed }
}

/// The batch norm's forward pass of training, statistics and all.
fn batch_norm(
    x: &[f64],
    gain: &[f64],
    bias: &[f64],
    (rows, channels, inner): (usize, usize, usize),
) -> Vec<f64> {
    let moments = ChannelMoments { channels, inner, part: false };
    let moments = Setting::new(rows, &[x], &[channels, channels]).run_on(&moments, &cpus()[0]).unwrap();
    let (mean, variance) = (moments[0].real(), moments[1].real());
    let op = channel_op(Direction::Forward, (channels, inner), false, !gain.is_empty());
    let affine = !gain.is_empty();
    let reads = present(&[(x, true), (mean, true), (variance, true), (gain, affine), (bias, affine)]);
    Setting::new(rows, &reads, &[x.len()]).result(&op)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn moments_are_those_of_the_channels(
        rows in 2..150usize, channels in 1..70usize, inner in prop_oneof![Just(1), 2..40usize],
    ) {
        check_moments::<f32>(rows, channels, inner);
        check_moments::<f64>(rows, channels, inner);
    }

    #[test]
    fn gradients_of_batch_norm_are_those_of_the_values(
        rows in 2..6usize, channels in 1..20usize, inner in prop_oneof![Just(1), 2..5usize], affine: bool,
    ) {
        let extents = (rows, channels, inner);
        let x = numbers::<f64>(6, rows * channels * inner);
        let dy = numbers::<f64>(7, x.len());
        let of = |seed| if affine { numbers::<f64>(seed, channels) } else { Vec::new() };
        let (gain, bias) = (of(8), of(9));
        let value = |x: &[f64], gain: &[f64]| -> f64 {
            batch_norm(x, gain, &bias, extents).iter().zip(&dy).map(|(y, dy)| y * dy).sum()
        };
        let (mean, variance) = moments(&x, channels, inner);
        let statistics = Statistics::Channels { epsilon: 1e-3 };
        let gradient = GainGradient { outer: 1, channels, inner, statistics };
        let products = Setting::new(rows, &[&dy, &x, &mean, &variance], &[channels]).result(&gradient);
        if affine {
            assert_gradient(&products, &gain, |gain| value(&x, gain));
        }
        let sums = crate::ops::BiasGradient { outer: 1, channels, inner };
        let sums = Setting::new(rows, &[&dy], &[channels]).result(&sums);
        let op = channel_op(Direction::InputGradient, (channels, inner), false, affine);
        let reads = [&dy[..], &x, &mean, &variance, &sums, &products];
        let reads: Vec<&[f64]> = reads.into_iter().chain(affine.then_some(&gain[..])).collect();
        let dx = Setting::new(rows, &reads, &[x.len()]).result(&op);
        let scale = dx.iter().fold(1.0, |scale: f64, dx| scale.max(dx.abs()));
        for (found, expected) in dx.iter().zip(crate::ops::testing::differences(&x, |x| value(x, &gain))) {
            prop_assert!((found - expected).abs() < 1e-5 * scale, "{found} {expected}");
        }
        // Statistics that are given.
        let given = channel_op(Direction::Forward, (channels, inner), true, affine);
        let reads = present(&[(&x[..], true), (&mean, true), (&variance, true), (&gain, affine), (&bias, affine)]);
        let forward = Setting::new(rows, &reads, &[x.len()]);
        let backward = ChannelNormalize { direction: Direction::InputGradient, ..given.clone() };
        let reads = present(&[(&dy[..], true), (&variance, true), (&gain, affine)]);
        let dx = Setting::new(rows, &reads, &[x.len()]).result(&backward);
        assert_gradient(&dx, &x, |x| objective(&given, &forward, 0, x, &dy));
    }
}

#[test]
fn one_value_a_channel_is_an_error() {
    let setting = Setting::new(1, &[&[1.0f32, 2.0]], &[2, 2]);
    let error =
        setting.run_on(&ChannelMoments { channels: 2, inner: 1, part: false }, &cpus()[0]).unwrap_err();
    assert!(error.to_string().contains("more than one value a channel"), "{error}");
    let one = Setting::new(1, &[&[1.0f32, 2.0]], &[1, 1]);
    assert!(one.run_on(&ChannelMoments { channels: 1, inner: 2, part: false }, &cpus()[0]).is_ok());
}

#[test]
fn running_averages_take_their_share_of_the_unbiased_variance() {
    let mut setting = Setting::new(2, &[&[6.0f64, 8.0]], &[2]);
    setting.writes = vec![Data::Real(vec![1.0, 2.0])];
    let op = |unbiased| RunningAverage { momentum: 0.25, unbiased };
    assert_eq!(setting.result(&op(None)), [2.25, 3.5]);
    // Of 2 x 2 numbers: 4 / 3 of the variance.
    assert_close(&setting.result(&op(Some(2))), &[0.75 + 2.0, 1.5 + 8.0 / 3.0], 1e-15);
}

#[cfg(feature = "gpu")]
mod gpu {
    use super::*;
    use crate::gpu::testing::{check, gpu, run, run_after};
    use crate::simd::Cpu;

    fn rows(extents: (usize, usize, usize, usize, usize), flags: (bool, bool, bool)) {
        let (op, setting) = forward_of_rows::<f32>(extents, flags);
        check(op.clone(), &setting);
        let results = setting.run_on(&op, Cpu::global().unwrap()).unwrap();
        let x = setting.reads[0].real();
        let dy = numbers::<f32>(4, x.len());
        let none: &[f32] = &[];
        let mean = results.get(2).map_or(none, Data::real);
        let gain = if op.gain { setting.reads[1].real() } else { none };
        let inverse = results[1].real();
        let reads =
            present(&[(&dy[..], true), (x, true), (inverse, true), (mean, op.centred), (gain, op.gain)]);
        let backward = Normalize { direction: Direction::InputGradient, ..op.clone() };
        check(backward, &Setting::new(setting.rows, &reads, &[x.len()]));
        let statistics = Statistics::Rows { groups: op.groups, centred: op.centred };
        let gradient = GainGradient { outer: op.outer, channels: op.channels, inner: op.inner, statistics };
        let reads = present(&[(&dy[..], true), (x, true), (inverse, true), (mean, op.centred)]);
        let mut setting = Setting::new(setting.rows, &reads, &[op.channels]);
        check(gradient.clone(), &setting);
        setting.accumulate = true;
        check(gradient, &setting);
    }

    fn channels((rows, channels, inner): (usize, usize, usize), affine: bool) {
        let x: Vec<f32> = numbers::<f32>(6, rows * channels * inner).iter().map(|x| x + 3.0).collect();
        let dy = numbers::<f32>(7, x.len());
        let (gain, bias) = (numbers::<f32>(8, channels), numbers::<f32>(9, channels));
        let op = ChannelMoments { channels, inner, part: false };
        let setting = Setting::new(rows, &[&x], &[channels, channels]);
        check(op.clone(), &setting);
        let found = setting.run_on(&op, Cpu::global().unwrap()).unwrap();
        let (mean, variance) = (found[0].real(), found[1].real());
        let gradient =
            GainGradient { outer: 1, channels, inner, statistics: Statistics::Channels { epsilon: 1e-3 } };
        let setting = Setting::new(rows, &[&dy, &x, mean, variance], &[channels]);
        check(gradient.clone(), &setting);
        let products = setting.run_on(&gradient, Cpu::global().unwrap()).unwrap();
        let reads =
            present(&[(&x[..], true), (mean, true), (variance, true), (&gain, affine), (&bias, affine)]);
        check(
            channel_op(Direction::Forward, (channels, inner), false, affine),
            &Setting::new(rows, &reads, &[x.len()]),
        );
        let reads = present(&[(&dy[..], true), (variance, true), (&gain, affine)]);
        check(
            channel_op(Direction::InputGradient, (channels, inner), true, affine),
            &Setting::new(rows, &reads, &[x.len()]),
        );
        let reads = present(&[
            (&dy[..], true),
            (&x, true),
            (mean, true),
            (variance, true),
            (&bias, true),
            (products[0].real(), true),
            (&gain, affine),
        ]);
        check(
            channel_op(Direction::InputGradient, (channels, inner), false, affine),
            &Setting::new(rows, &reads, &[x.len()]),
        );
    }

    #[test]
    fn rows_of_every_kind() {
        for extents in [
            (1, 1, 1, 1, 1),
            (67, 1, 10, 1, 1),
            (2, 3, 1000, 1, 1),
            (40, 50, 33, 1, 1),
            (3, 1, 2, 49, 4),
            (3, 2, 3, 1, 2),
        ] {
            rows(extents, (true, true, true));
        }
        rows((5, 2, 37, 1, 1), (false, true, false));
        rows((5, 2, 37, 1, 1), (false, false, false));
        rows((5, 1, 4, 6, 3), (true, false, false));
    }

    #[test]
    fn channels_of_every_kind() {
        for extents in [(2, 1, 1), (1, 1, 2), (9_000, 3, 1), (64, 70, 1), (40, 8, 676), (3, 5, 49)] {
            channels(extents, true);
        }
        channels((7, 6, 5), false);
    }

    #[test]
    fn running_averages_stand_still_after_a_bad_step() {
        let value = numbers::<f32>(1, 70);
        let setting = Setting::new(4, &[&value], &[70]);
        let op = RunningAverage { momentum: 0.1, unbiased: Some(3) };
        check(op.clone(), &setting);
        let Some(gpu) = gpu() else { return };
        let kept = run_after(&gpu, &op.clone().into(), &setting, [0, 1, 0, 0]).unwrap();
        assert_eq!(kept, setting.writes);
        let one = Setting::new(1, &[&value], &[70, 70]);
        assert!(
            run(&gpu, &ChannelMoments { channels: 70, inner: 1, part: false }.into(), &one, None).is_err()
        );
    }
}

//! Proofs of the normal noise.

use super::*;
use crate::ops::testing::{Setting, assert_bits, assert_close};
use crate::random::{Stream, Use, path_within};
use crate::simd::Real;
use proptest::prelude::*;

fn op(features: usize) -> GaussianNoise {
    GaussianNoise { scale: 0.36, purpose: 2, features }
}

fn setting<T: Real>(rows: usize, features: usize, row_offset: u64) -> Setting<T> {
    let mut setting = Setting::new(rows, &[], &[rows * features]);
    setting.path = 0xABCD;
    setting.values.seed = 0x1234_5678_9ABC;
    setting.values.step = 5 + (1 << 33);
    setting.values.row_offset = row_offset;
    setting
}

fn check<T: Real>(rows: usize, features: usize, row_offset: u64) {
    let stream = Stream::new(0x1234_5678_9ABC, 5 + (1 << 33), path_within(0xABCD, 2), Use::Noise);
    let expected: Vec<f64> = (0..rows * features)
        .map(|i| {
            let at = row_offset * features as u64 + i as u64;
            let first = at - at % 2;
            let u = (f64::from(stream.word(first) >> 9) * 2.0 + 1.0) / 2f64.powi(24);
            let (sine, cosine) = (std::f64::consts::TAU * f64::from(stream.uniform_f32(first + 1))).sin_cos();
            0.36 * (-2.0 * u.ln()).sqrt() * if at.is_multiple_of(2) { cosine } else { sine }
        })
        .collect();
    let y = setting::<T>(rows, features, row_offset).result(&op(features));
    assert_close(&y, &expected, T::EPSILON.to_f64() * 10.0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn noise_is_that_of_the_stream(rows in 1..6usize, features in 1..150usize, row_offset in 0..1000u64) {
        check::<f32>(rows, features, row_offset);
        check::<f64>(rows, features, row_offset);
    }

    #[test]
    fn a_batch_in_parts_has_the_noise_of_the_whole(features in 1..50usize, cut in 1..6usize) {
        let rows = 7;
        let whole = setting::<f32>(rows, features, 0).result(&op(features));
        let mut parts = setting::<f32>(cut, features, 0).result(&op(features));
        parts.extend(setting::<f32>(rows - cut, features, cut as u64).result(&op(features)));
        assert_bits(&parts, &whole);
    }
}

#[test]
fn moments_are_those_of_a_normal_number() {
    let (rows, features) = (100, 2003);
    let y = setting::<f64>(rows, features, 0).result(&GaussianNoise { scale: 1.0, ..op(features) });
    let n = y.len() as f64;
    let moment = |power: i32| y.iter().map(|y| y.powi(power)).sum::<f64>() / n;
    // The moments of a standard normal number, and the variances of its powers.
    for (power, expected, variance) in [(1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0)] {
        let slack = 5.0 * f64::sqrt(variance / n);
        assert!((moment(power) - expected).abs() < slack, "moment {power}: {}", moment(power));
    }
    // Neighbours, which share words two by two, have nothing to do with each other.
    for apart in 1..5 {
        let product = y.iter().zip(&y[apart..]).map(|(a, b)| a * b).sum::<f64>() / n;
        assert!(product.abs() < 5.0 / n.sqrt(), "{apart} apart: {product}");
    }
    assert!(y.iter().all(|y| y.abs() < 5.8));
}

#[test]
fn noises_differ_between_purposes_seeds_steps_and_layers() {
    let base = setting::<f32>(1, 256, 0);
    let noise = base.result(&op(256));
    assert_bits(&base.result(&op(256)), &noise);
    let mut others = [base.clone(), base.clone(), base.clone()];
    others[0].values.seed += 1;
    others[1].values.step += 1;
    others[2].path += 1;
    let mut others: Vec<Vec<f32>> = others.iter().map(|other| other.result(&op(256))).collect();
    others.push(base.result(&GaussianNoise { purpose: 3, ..op(256) }));
    for (number, other) in others.iter().enumerate() {
        let same = other.iter().zip(&noise).filter(|(a, b)| a == b).count();
        assert!(same < 3, "noise {number} has {same} numbers in common");
    }
}

#[cfg(feature = "gpu")]
#[test]
fn a_gpu_agrees() {
    for (rows, features, row_offset) in [(1, 1, 0), (3, 1001, 0), (5, 3, 7), (3, 4097, 4_000_000)] {
        crate::gpu::testing::check(op(features), &setting(rows, features, row_offset));
    }
}

//! Proofs of the Gumbel noise.

use super::*;
use crate::ops::testing::{Setting, assert_bits, assert_close, numbers};
use crate::random::{Stream, Use};
use crate::simd::Real;
use proptest::prelude::*;

fn setting<T: Real>(rows: usize, x: &[T], row_offset: u64) -> Setting<T> {
    let mut setting = Setting::new(rows, &[x], &[x.len()]);
    setting.path = 0xABCD;
    setting.values.seed = 0x1234_5678_9ABC;
    setting.values.step = 5 + (1 << 33);
    setting.values.row_offset = row_offset;
    setting
}

fn check<T: Real>(rows: usize, features: usize, row_offset: u64) {
    let x = numbers::<T>(13, rows * features);
    let stream = Stream::new(0x1234_5678_9ABC, 5 + (1 << 33), 0xABCD, Use::Gumbel);
    let expected: Vec<f64> = (0..x.len())
        .map(|i| {
            let word = stream.word(row_offset * features as u64 + i as u64);
            let u = (f64::from(word >> 9) * 2.0 + 1.0) / 2f64.powi(24);
            x[i].to_f64() - (-u.ln()).ln()
        })
        .collect();
    let y = setting(rows, &x, row_offset).result(&GumbelNoise { features });
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
        let (rows, op) = (7, GumbelNoise { features });
        let x = numbers::<f32>(14, rows * features);
        let whole = setting(rows, &x, 0).result(&op);
        let (head, tail) = x.split_at(cut * features);
        let mut parts = setting(cut, head, 0).result(&op);
        parts.extend(setting(rows - cut, tail, cut as u64).result(&op));
        assert_bits(&parts, &whole);
    }
}

#[test]
fn the_largest_is_a_draw_from_the_softmax() {
    let (rows, logits) = (20_000usize, [0.0, 1.0, 2.0, -1.0]);
    let x: Vec<f64> = (0..rows).flat_map(|_| logits).collect();
    let y = setting(rows, &x, 0).result(&GumbelNoise { features: 4 });
    let mut counts = [0usize; 4];
    for y in y.chunks(4) {
        let best = (0..4).max_by(|a, b| y[*a].total_cmp(&y[*b])).unwrap();
        counts[best] += 1;
    }
    let sum: f64 = logits.iter().map(|x| f64::exp(*x)).sum();
    for (count, logit) in counts.iter().zip(logits) {
        let p = logit.exp() / sum;
        // Six standard deviations of a binomial count.
        let slack = 6.0 * (p * (1.0 - p) / rows as f64).sqrt();
        assert!((*count as f64 / rows as f64 - p).abs() < slack, "{counts:?}");
    }
}

#[cfg(feature = "gpu")]
#[test]
fn a_gpu_agrees() {
    for (rows, features, row_offset) in [(1, 1, 0), (3, 1001, 0), (5, 3, 7), (3, 4097, 4_000_000)] {
        let x = numbers::<f32>(13, rows * features);
        crate::gpu::testing::check(GumbelNoise { features }, &setting(rows, &x, row_offset));
    }
}

//! What initialisers draw.

use super::*;
use crate::random::Use;
use proptest::prelude::*;

fn stream(seed: u64) -> Stream {
    Stream::new(seed, 0, 1, Use::Initialize)
}

fn filled(initializer: Initializer, rows: usize, columns: usize) -> Vec<f64> {
    let mut out = vec![f64::NAN; rows * columns];
    initializer.fill(&stream(3), rows, columns, rows, columns, &mut out).unwrap();
    out
}

/// Mean, variance and largest magnitude.
fn summary(values: &[f64]) -> (f64, f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
    (mean, variance, values.iter().fold(0.0, |largest, x| largest.max(x.abs())))
}

#[test]
fn scales_follow_the_fans() {
    let (rows, columns) = (300, 200);
    let cases = [
        (Initializer::XavierNormal, 2.0 / 500.0, f64::INFINITY),
        (Initializer::XavierUniform, 2.0 / 500.0, (6.0f64 / 500.0).sqrt()),
        (Initializer::HeNormal, 2.0 / 300.0, f64::INFINITY),
        (Initializer::HeUniform, 2.0 / 300.0, (6.0f64 / 300.0).sqrt()),
        (Initializer::LecunNormal, 1.0 / 300.0, f64::INFINITY),
        (Initializer::Normal { std: 0.3 }, 0.09, f64::INFINITY),
        // The variance of a standard normal cut at two: 1 - 4 phi(2) / (2 Phi(2) - 1).
        (Initializer::TruncatedNormal { std: 0.5 }, 0.25 * 0.773_741_3, 1.0),
    ];
    for (initializer, expected, limit) in cases {
        let (mean, variance, largest) = summary(&filled(initializer, rows, columns));
        let n = (rows * columns) as f64;
        assert!(mean.abs() < 5.0 * (expected / n).sqrt(), "{initializer:?}: mean {mean}");
        let error = 5.0 * expected * (2.0 / n).sqrt();
        assert!((variance - expected).abs() < error, "{initializer:?}: variance {variance}");
        assert!(largest <= limit, "{initializer:?}: {largest}");
        assert!(limit.is_infinite() || largest > 0.99 * limit, "{initializer:?}: {largest}");
    }
}

#[test]
fn truncation_is_at_two_deviations_and_keeps_the_rest() {
    let plain = filled(Initializer::Normal { std: 1.0 }, 50, 50);
    let cut = filled(Initializer::TruncatedNormal { std: 1.0 }, 50, 50);
    let redrawn = plain.iter().zip(&cut).filter(|(a, b)| a != b).count();
    assert_eq!(redrawn, plain.iter().filter(|x| x.abs() > 2.0).count());
    assert!(redrawn > 50);
}

#[test]
fn constants_are_exact_and_uniform_stays_in_its_interval() {
    assert!(filled(Initializer::Zeros, 3, 4).iter().all(|x| *x == 0.0));
    assert!(filled(Initializer::Ones, 3, 4).iter().all(|x| *x == 1.0));
    assert!(filled(Initializer::Constant { value: -2.5 }, 3, 4).iter().all(|x| *x == -2.5));
    let uniform = filled(Initializer::Uniform { low: 2.0, high: 5.0 }, 100, 100);
    assert!(uniform.iter().all(|x| (2.0..5.0).contains(x)));
    assert!((summary(&uniform).0 - 3.5).abs() < 0.05);
}

fn check_orthogonal(rows: usize, columns: usize, gain: f64, matrix: &[f64]) {
    let (count, length) = (rows.min(columns), rows.max(columns));
    let at = |vector: usize, i: usize| {
        if rows >= columns { matrix[i * columns + vector] } else { matrix[vector * columns + i] }
    };
    for a in 0..count {
        for b in 0..=a {
            let dot: f64 = (0..length).map(|i| at(a, i) * at(b, i)).sum();
            let expected = if a == b { gain * gain } else { 0.0 };
            assert!((dot - expected).abs() < 1e-12 * gain * gain, "{rows}x{columns} ({a}, {b}): {dot}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn orthogonal_to_rounding(rows in 1usize..40, columns in 1usize..40, seed: u64, gain in 0.1f64..3.0) {
        let mut out = vec![0.0; rows * columns];
        let initializer = Initializer::Orthogonal { gain };
        initializer.fill(&stream(seed), 1, 1, rows, columns, &mut out).unwrap();
        check_orthogonal(rows, columns, gain, &out);
    }
}

#[test]
fn orthogonal_at_size() {
    for (rows, columns) in [(200, 200), (300, 60), (60, 300)] {
        check_orthogonal(rows, columns, 1.0, &filled(Initializer::Orthogonal { gain: 1.0 }, rows, columns));
    }
}

#[test]
fn blocks_of_columns_start_by_themselves() {
    let matrix = filled(Initializer::OrthogonalBlocks { gain: 0.5, blocks: 3 }, 20, 60);
    let block = |number: usize| -> Vec<f64> {
        matrix.chunks(60).flat_map(|row| row[number * 20..][..20].to_vec()).collect()
    };
    (0..3).for_each(|number| check_orthogonal(20, 20, 0.5, &block(number)));
    assert_ne!(block(0), block(1));
    let forget = Initializer::ConstantBlock { value: 1.5, block: 1, blocks: 3 };
    assert_eq!(filled(forget, 1, 6), [0.0, 0.0, 1.5, 1.5, 0.0, 0.0]);
    let error = forget.fill(&stream(0), 1, 1, 1, 7, &mut [0.0; 7]).unwrap_err();
    assert!(error.to_string().contains("7 columns do not make 3 blocks"));
}

#[test]
fn names_go_to_json_and_back() {
    let all = [
        (Initializer::XavierNormal, r#""xavier_normal""#),
        (Initializer::XavierUniform, r#""xavier_uniform""#),
        (Initializer::HeNormal, r#""he_normal""#),
        (Initializer::HeUniform, r#""he_uniform""#),
        (Initializer::LecunNormal, r#""lecun_normal""#),
        (Initializer::Normal { std: 0.02 }, r#"{"normal":{"std":0.02}}"#),
        (Initializer::Uniform { low: -1.0, high: 0.5 }, r#"{"uniform":{"high":0.5,"low":-1.0}}"#),
        (Initializer::TruncatedNormal { std: 0.1 }, r#"{"truncated_normal":{"std":0.1}}"#),
        (Initializer::Orthogonal { gain: 1.0 }, r#""orthogonal""#),
        (Initializer::Orthogonal { gain: 2.0 }, r#"{"orthogonal":{"gain":2.0}}"#),
        (
            Initializer::OrthogonalBlocks { gain: 1.0, blocks: 4 },
            r#"{"orthogonal_blocks":{"blocks":4,"gain":1.0}}"#,
        ),
        (
            Initializer::ConstantBlock { value: 1.0, block: 1, blocks: 4 },
            r#"{"constant_block":{"block":1,"blocks":4,"value":1.0}}"#,
        ),
        (Initializer::Zeros, r#""zeros""#),
        (Initializer::Ones, r#""ones""#),
        (Initializer::Constant { value: 3.0 }, r#"{"constant":{"value":3.0}}"#),
    ];
    for (initializer, text) in all {
        assert_eq!(serde_json::to_string(&initializer).unwrap(), text);
        assert_eq!(serde_json::from_str::<Initializer>(text).unwrap(), initializer);
    }
}

#[test]
fn errors_say_what_to_do() {
    let message = |text: &str| serde_json::from_str::<Initializer>(text).unwrap_err().to_string();
    assert!(message(r#""he_norml""#).contains("did you mean \"he_normal\"?"));
    assert!(message(r#""normal""#).contains("needs std"));
    assert!(message(r#"{"normal":{"std":-1}}"#).contains("std must be"));
    assert!(message(r#"{"normal":{"std":"a"}}"#).contains("must be a number"));
    assert!(message(r#"{"normal":{"mean":1,"std":1}}"#).contains("no \"mean\"; it takes std"));
    assert!(message(r#"{"zeros":{"std":1}}"#).contains("takes no parameters"));
    assert!(message(r#"{"uniform":{"low":1,"high":0}}"#).contains("low at most high"));
    assert!(message(r#"{"orthogonal_blocks":{"blocks":0}}"#).contains("at least 1"));
    assert!(message(r#"{"orthogonal_blocks":{"blocks":1.5}}"#).contains("must be a whole number"));
    let block = r#"{"constant_block":{"value":1,"block":2,"blocks":2}}"#;
    assert!(message(block).contains("block must be less than blocks"));
    assert!(message("3").contains("is a name"));
    let error = Initializer::HeNormal.fill(&stream(0), 0, 3, 1, 0, &mut []).unwrap_err();
    assert!(error.to_string().contains("inputs"));
}

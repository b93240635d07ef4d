//! Directions against plain loops in `f64`, the same bits on every processor, and devices against those.

use super::{Directions, Part};
use crate::ops::Update;
use crate::ops::testing::{Data, Setting, cpus, numbers};
use crate::ops::update::Optimizer;
use crate::simd::Cpu;

const LEN: usize = 2432;

/// A bias, a wide and a tall matrix, two groups of a matrix, a frozen parameter.
fn parts() -> Vec<Part> {
    let part = |start, rows, columns, stride, matrix| Part { start, rows, columns, stride, matrix };
    vec![
        part(0, 1, 37, 37, false),
        part(64, 12, 40, 40, true),
        part(576, 50, 30, 30, true),
        part(2112, 5, 6, 12, true),
        part(2118, 5, 6, 12, true),
        part(2176, 2, 3, 3, true),
        part(2240, 9, 19, 19, false),
    ]
}

fn case(text: &str, step: u64) -> (Directions, Setting<f32>) {
    let optimizer: Optimizer = serde_json::from_str(text).expect("a rule");
    let mut parts = parts();
    if let Optimizer::Adafactor { .. } = optimizer {
        // Which has no groups.
        parts.retain(|part| part.rows == 1 || part.columns == part.stride);
    }
    let slots = optimizer.slots().len();
    let frozen = std::iter::once(2176..2182).collect();
    let op = Directions { update: Box::new(Update { frozen, ..Update::new(optimizer, LEN) }), parts };
    let positive: Vec<f32> = numbers::<f32>(4, LEN).iter().map(|x| x * x + 0.05).collect();
    let mut reads = vec![numbers(1, LEN), numbers(2, LEN)];
    reads.extend([numbers(3, LEN), positive.clone()].into_iter().take(slots));
    if slots == 1 {
        reads[2] = positive;
    }
    let reads: Vec<&[f32]> = reads.iter().map(Vec::as_slice).collect();
    let mut setting = Setting::new(1, &reads, &vec![LEN; 1 + slots]);
    setting.writes.push(Data::Real(vec![0.0; op.scratch()]));
    setting.values.optimizer_step = step;
    (op, setting)
}

/// What counts of the results: all but the scratch memory.
fn made(op: &Directions, setting: &Setting<f32>, cpu: &Cpu) -> Vec<Data<f32>> {
    let mut found = setting.run_on(op, cpu).expect("directions");
    found.pop();
    found
}

const RULES: [&str; 6] = [
    r#"{"type": "adafactor"}"#,
    r#"{"type": "adafactor", "clip_threshold": 0.0, "scale_by_weights": false, "decay_power": 0.5}"#,
    r#"{"type": "adafactor", "clip_threshold": 0.4, "least_scale": 2.0}"#,
    r#"{"type": "muon"}"#,
    r#"{"type": "muon", "nesterov": false, "match_adam": false, "momentum": 0.8}"#,
    r#"{"type": "muon", "beta1": 0.8, "beta2": 0.98, "epsilon": 1e-3}"#,
];

#[test]
fn the_same_bits_everywhere() {
    for rule in RULES {
        let (op, setting) = case(rule, 3);
        let reference = made(&op, &setting, &cpus()[0]);
        for cpu in cpus() {
            assert!(made(&op, &setting, cpu) == reference, "{rule}");
        }
        let Data::Real(direction) = &reference[0] else { panic!("no direction") };
        // Between parameters, and what is frozen.
        assert!(direction[40..64].iter().chain(&direction[2176..2182]).all(|x| *x == 0.0));
        assert!(direction[..37].iter().any(|x| *x != 0.0));
    }
}

/// The matrix that has come of it has singular values near one value: M M^T is near a multiple of the identity.
#[test]
fn matrices_are_orthogonalised() {
    let (op, setting) = case(RULES[4], 1);
    let found = made(&op, &setting, Cpu::global().expect("a processor"));
    let Data::Real(direction) = &found[0] else { panic!("no direction") };
    for part in op.parts.iter().filter(|part| part.matrix && part.start != 2176) {
        let at = |row: usize, column: usize| {
            let (row, column) = if part.rows <= part.columns { (row, column) } else { (column, row) };
            f64::from(direction[part.start + row * part.stride + column])
        };
        let (short, long) = (part.rows.min(part.columns), part.rows.max(part.columns));
        let scale = (part.columns as f64 / part.rows as f64).max(1.0);
        for i in 0..short {
            for j in 0..short {
                let product = (0..long).map(|k| at(i, k) * at(j, k)).sum::<f64>() / scale;
                // The iteration leaves singular values between about 0.7 and 1.2.
                let expected = if i == j { 0.4..1.5 } else { -0.4..0.4 };
                assert!(expected.contains(&product), "{part:?} {i} {j}: {product}");
            }
        }
    }
}

/// A NaN anywhere in a parameter's gradient shows in its directions, whatever their lengths are limited to.
#[test]
fn what_is_not_finite_is_not_hidden() {
    for rule in RULES {
        for (place, part) in [(3, 0..37), (100, 64..544)] {
            let (op, mut setting) = case(rule, 2);
            let Data::Real(gradient) = &mut setting.reads[0] else { panic!("no gradient") };
            gradient[place] = f32::NAN;
            let found = made(&op, &setting, Cpu::global().expect("a processor"));
            let odd = |data: &Data<f32>| data.real()[part.clone()].iter().any(|x| x.is_nan());
            assert!(found.iter().any(odd), "{rule}");
        }
    }
}

#[cfg(feature = "gpu")]
#[test]
fn devices_agree() {
    let Some(gpu) = crate::gpu::testing::gpu() else { return };
    for rule in RULES {
        for step in [1, 7] {
            let (op, setting) = case(rule, step);
            let here = made(&op, &setting, Cpu::global().expect("a processor"));
            let mut there =
                crate::gpu::testing::run(&gpu, &op.clone().into(), &setting, None).expect("directions");
            there.pop();
            crate::gpu::testing::compare(&op.into(), &here, &there);
        }
    }
}

//! Losses against plain formulas, finite differences and PyTorch.

use super::table::{ElementFunction, ElementVisitor};
use super::*;
use crate::ops::testing::{Data, Setting, assert_bits, assert_close, assert_gradient, cpus, numbers};
use crate::simd::Real;
use crate::{Error, Result};
use proptest::prelude::*;

pub(super) fn loss(function: LossFunction, outer: usize, classes: usize, inner: usize) -> Loss {
    Loss {
        function,
        outer,
        classes,
        inner,
        class_targets: false,
        label_smoothing: 0.0,
        class_weight: None,
        weighted: false,
        by_place: false,
        gradient: true,
        scaled: false,
    }
}

/// What a loss is computed of.
#[derive(Clone, Debug)]
pub(super) struct Example<T> {
    op: Loss,
    rows: usize,
    pub(super) output: Vec<T>,
    targets: Vec<T>,
    labels: Vec<i32>,
    pub(super) weights: Vec<T>,
}

impl<T: Real> Example<T> {
    fn divisor(&self) -> f64 {
        divisor(&self.op, self.rows, &self.labels, &self.weights)
    }

    pub(super) fn setting(&self) -> Setting<T> {
        let mut setting = Setting::new(self.rows, &[&self.output, &[], &self.weights], &[self.rows]);
        setting.reads[1] = match self.op.class_targets {
            true => Data::Index(self.labels.clone()),
            false => Data::Real(self.targets.clone()),
        };
        if self.op.gradient {
            setting.writes.push(Data::Real(vec![T::from_f64(-77.0); self.output.len()]));
        }
        setting.values.loss_divisor = self.divisor();
        setting
    }

    /// The losses of the rows and the gradient.
    #[track_caller]
    fn run(&self) -> (Vec<T>, Vec<T>) {
        let results = self.setting().run(&self.op);
        (
            results[0].real().to_vec(),
            results.get(1).map_or_else(Vec::new, |gradient| gradient.real().to_vec()),
        )
    }

    /// The mean loss of this output, on one processor.
    fn mean(&self, output: &[f64]) -> f64 {
        let mut example = self.clone();
        example.output = output.iter().map(|o| T::from_f64(*o)).collect();
        let results = example.setting().run_on(&self.op, &cpus()[0]).unwrap();
        results[0].real().iter().map(|loss| loss.to_f64()).sum::<f64>() / self.divisor()
    }

    /// Each row's loss by the textbook, in `f64`.
    fn plain(&self) -> Vec<f64> {
        let Loss { outer, classes, inner, label_smoothing, .. } = self.op;
        let element = |i: usize| self.output[i].to_f64();
        let mut losses = vec![0.0; self.rows];
        for (row, loss) in losses.iter_mut().enumerate() {
            for place in 0..outer * inner {
                let at =
                    |class: usize| ((row * outer + place / inner) * classes + class) * inner + place % inner;
                let weight = match (self.op.weighted, self.op.by_place) {
                    (false, _) => 1.0,
                    (true, false) => self.weights[row].to_f64(),
                    (true, true) => self.weights[row * outer * inner + place].to_f64(),
                };
                let sum = |temperature: f64| -> f64 {
                    let largest = (0..classes).map(|c| element(at(c))).fold(f64::NEG_INFINITY, f64::max);
                    let powers = (0..classes).map(|c| ((element(at(c)) - largest) / temperature).exp());
                    powers.sum::<f64>().ln() + largest / temperature
                };
                for class in 0..classes {
                    let o = element(at(class));
                    let mut t = match self.op.class_targets {
                        true => f64::from(self.labels[row * outer * inner + place] == class as i32),
                        false => self.targets[at(class)].to_f64(),
                    };
                    t = t * (1.0 - label_smoothing) + label_smoothing / classes as f64;
                    t *= self.op.class_weight.as_ref().map_or(1.0, |weights| weights[class]);
                    *loss += weight
                        * match self.op.function {
                            LossFunction::CrossEntropy { temperature } => {
                                t * (sum(temperature) - o / temperature)
                            }
                            LossFunction::KullbackLeibler { .. } if t == 0.0 => 0.0,
                            LossFunction::KullbackLeibler { temperature } => {
                                t * (sum(temperature) - o / temperature + t.ln())
                            }
                            LossFunction::Focal { temperature, gamma } => {
                                let cost = sum(temperature) - o / temperature;
                                t * (-(-cost).exp_m1()).max(0.0).powf(gamma) * cost
                            }
                            LossFunction::NegativeLogLikelihood => -t * o.max(1e-12).ln(),
                            LossFunction::MeanSquaredError => (o - t).powi(2),
                            LossFunction::MeanAbsoluteError => (o - t).abs(),
                            LossFunction::Huber { delta } => match (o - t).abs() {
                                d if d <= delta => d * d / 2.0,
                                d => delta * (d - delta / 2.0),
                            },
                            LossFunction::BinaryCrossEntropy => o.max(0.0) - o * t + (-o.abs()).exp().ln_1p(),
                            // What PyTorch's values prove the formula of is added up as the others are.
                            other => other.visit(Plain(o, t)).unwrap_or(f64::NAN),
                        };
                }
            }
        }
        losses
    }
}

/// The table's formula of one element.
struct Plain(f64, f64);

impl ElementVisitor for Plain {
    type Output = f64;

    fn visit<F: ElementFunction>(self, function: F) -> f64 {
        function.value(self.0, self.1)
    }
}

fn positive<T: Real>(seed: u64, len: usize) -> Vec<T> {
    numbers::<T>(seed, len).into_iter().map(|x| x * x + T::from_f64(0.05)).collect()
}

/// Outputs and targets that suit the loss.
pub(super) fn example<T: Real>(op: Loss, rows: usize, seed: u64) -> Example<T> {
    let len = rows * op.elements();
    let (output, targets) = match op.function {
        LossFunction::NegativeLogLikelihood => (positive(seed, len), positive(seed + 1, len)),
        LossFunction::KullbackLeibler { .. } => (numbers(seed, len), positive(seed + 1, len)),
        LossFunction::BinaryCrossEntropy
        | LossFunction::BinaryFocal { .. }
        | LossFunction::Poisson
        | LossFunction::Hinge
        | LossFunction::SquaredHinge => {
            let targets: Vec<T> = numbers(seed + 1, len);
            (numbers(seed, len), targets.into_iter().map(|t| t.abs() / T::from_f64(4.0)).collect())
        }
        _ => (numbers(seed, len), numbers(seed + 1, len)),
    };
    let labels = positive::<f64>(seed + 2, rows * op.positions());
    let labels = labels.into_iter().map(|x| (x * 1e6) as i32 % op.classes as i32).collect();
    let weights = positive(seed + 3, rows * op.weights());
    Example { op, rows, output, targets, labels, weights }
}

fn functions() -> impl Strategy<Value = LossFunction> {
    let plain = (0..LossFunction::ALL.len()).prop_map(|number| LossFunction::ALL[number]);
    prop_oneof![
        1 => (0.5..3.0).prop_map(|temperature| LossFunction::CrossEntropy { temperature }),
        1 => (0.5..3.0).prop_map(|temperature| LossFunction::KullbackLeibler { temperature }),
        1 => (0.5..3.0, 0.2..4.0).prop_map(|(temperature, gamma)| LossFunction::Focal { temperature, gamma }),
        1 => (0.2..2.0).prop_map(|delta| LossFunction::Huber { delta }),
        1 => (0.1..0.9).prop_map(|quantile| LossFunction::Quantile { quantile }),
        1 => (0.2..4.0).prop_map(|gamma| LossFunction::BinaryFocal { gamma }),
        4 => plain,
    ]
}

/// A loss with every option it takes.
pub(super) fn losses(classes: std::ops::Range<usize>, inner: usize) -> impl Strategy<Value = Loss> {
    let extents = (1..4usize, classes, prop_oneof![Just(1), 2..=inner]);
    let options = (any::<bool>(), prop_oneof![Just(0.0), 0.0..0.9], any::<bool>(), 0..3u8);
    (functions(), extents, options).prop_map(|(function, extents, options)| {
        let (outer, classes, inner) = extents;
        let (class_targets, label_smoothing, class_weights, weighted) = options;
        let mut op = loss(function, outer, classes, inner);
        (op.weighted, op.by_place) = (weighted > 0, weighted > 1);
        // A divergence takes distributions as they are.
        if op.is_over_classes() && !matches!(function, LossFunction::KullbackLeibler { .. }) {
            op.class_targets = class_targets;
            op.label_smoothing = label_smoothing;
            op.class_weight = class_weights.then(|| positive(31, classes));
        }
        op
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn values_follow_the_formula(op in losses(1..40, 40), rows in 1..5usize, seed in 0..1000u64) {
        let example32 = example::<f32>(op.clone(), rows, seed);
        assert_close(&example32.run().0, &example32.plain(), 1e-5);
        let example64 = example::<f64>(op, rows, seed);
        assert_close(&example64.run().0, &example64.plain(), 1e-13);
    }

    #[test]
    fn gradients_are_those_of_the_mean(op in losses(1..6, 4), rows in 1..3usize, seed in 0..1000u64) {
        let mut example = example::<f64>(op, rows, seed);
        for (o, t) in example.output.iter_mut().zip(&example.targets) {
            // Away from kinks.
            if !example.op.is_over_classes() && (*o - t).abs() < 1e-3 {
                *o = t + 0.1;
            }
        }
        let (_, gradient) = example.run();
        assert_gradient(&gradient, &example.output, |output| example.mean(output));
    }

    #[test]
    fn losses_do_not_depend_on_whether_the_gradient_is_wanted(op in losses(1..40, 20), rows in 1..5usize) {
        let mut example = example::<f32>(op, rows, 3);
        let (losses, _) = example.run();
        example.op.gradient = false;
        assert_bits(&example.run().0, &losses);
    }

    #[test]
    fn a_row_has_the_same_loss_in_any_batch(op in losses(1..40, 20), rows in 2..6usize) {
        let whole = example::<f32>(op, rows, 4);
        let (losses, _) = whole.run();
        let (elements, positions) = (whole.op.elements(), whole.op.positions());
        for row in 0..rows {
            let mut one = whole.clone();
            one.rows = 1;
            one.output = whole.output[row * elements..][..elements].to_vec();
            one.targets = whole.targets[row * elements..][..elements].to_vec();
            one.labels = whole.labels[row * positions..][..positions].to_vec();
            let weights = whole.op.weights();
            one.weights = whole.weights[row * weights..][..weights].to_vec();
            assert_bits(&one.run().0, &losses[row..=row]);
        }
    }

    #[test]
    fn both_layouts_give_the_same_bits(op in losses(1..40, 2), inner in 2..20usize, smoothing in 0.0..0.5) {
        // One block of (classes, inner) against `inner` rows of the classes.
        let mut op = Loss { outer: 1, inner, weighted: false, ..op };
        if !op.is_over_classes() {
            op.function = LossFunction::CrossEntropy { temperature: 1.3 };
            op.label_smoothing = smoothing;
        }
        let apart = example::<f32>(op.clone(), 1, 5);
        let turn = |x: &[f32]| -> Vec<f32> {
            (0..x.len()).map(|i| x[i % op.classes * inner + i / op.classes]).collect()
        };
        let mut rows = apart.clone();
        rows.rows = inner;
        rows.op.inner = 1;
        rows.output = turn(&apart.output);
        rows.targets = turn(&apart.targets);
        let ((together, gradient), (losses, turned)) = (apart.run(), rows.run());
        assert_bits(&turned, &turn(&gradient));
        assert_bits(&together, &[crate::ops::testing::lane_sum(losses)]);
    }
}

#[test]
fn large_batches_are_cut_into_tasks() {
    for inner in [1, 5] {
        for function in [LossFunction::CrossEntropy { temperature: 1.0 }, LossFunction::MeanSquaredError] {
            let mut op = loss(function, 1, 20, inner);
            op.weighted = true;
            op.class_targets = op.is_over_classes();
            let example = example::<f32>(op, 1001, 6);
            assert_close(&example.run().0, &example.plain(), 1e-5);
        }
    }
}

#[test]
fn values_and_gradients_are_those_of_pytorch() -> Result<(), Box<dyn std::error::Error>> {
    let golden: serde_json::Value =
        serde_json::from_str(include_str!("../../../../../tests/golden/losses.json"))?;
    let divergences: serde_json::Value =
        serde_json::from_str(include_str!("../../../../../tests/golden/divergences.json"))?;
    let focal: serde_json::Value =
        serde_json::from_str(include_str!("../../../../../tests/golden/focal.json"))?;
    let mut cases = Vec::new();
    for golden in [&golden, &divergences, &focal] {
        cases.extend(golden["cases"].as_array().ok_or("no cases")?);
    }
    assert!(cases.len() > 100);
    let mut seen = Vec::new();
    for case in cases {
        let name = case["name"].as_str().ok_or("no name")?;
        let numbers = |key: &str| -> Option<Vec<f64>> {
            case.get(key)?.as_array().map(|list| list.iter().filter_map(serde_json::Value::as_f64).collect())
        };
        let extents: Vec<usize> = numbers("extents").ok_or(name)?.iter().map(|x| *x as usize).collect();
        let number = |key: &str| case.get(key).and_then(serde_json::Value::as_f64);
        let mut function = LossFunction::named(case["function"].as_str().ok_or(name)?)?;
        seen.push(function.name());
        if let LossFunction::CrossEntropy { temperature }
        | LossFunction::KullbackLeibler { temperature }
        | LossFunction::Focal { temperature, .. } = &mut function
        {
            *temperature = number("temperature").ok_or(name)?;
        }
        if let Some(setting) = function.setting() {
            *setting.value = number(setting.name).ok_or(name)?;
        }
        let mut op = loss(function, extents[1], extents[2], extents[3]);
        op.class_targets = case["class_targets"].as_bool().ok_or(name)?;
        op.label_smoothing = number("label_smoothing").unwrap_or(0.0);
        op.class_weight = numbers("class_weight");
        op.weighted = case.get("sample_weight").is_some();
        let targets = numbers("target").ok_or(name)?;
        let example = Example {
            rows: extents[0],
            output: numbers("output").ok_or(name)?,
            labels: targets.iter().filter(|_| op.class_targets).map(|t| *t as i32).collect(),
            targets,
            weights: numbers("sample_weight").unwrap_or_default(),
            op,
        };
        let (losses, gradient) = example.run();
        let mean = losses.iter().sum::<f64>() / example.divisor();
        let expected = number("loss").ok_or(name)?;
        assert!((mean - expected).abs() <= 1e-11 * expected.abs().max(1.0), "{name}: {mean} for {expected}");
        let expected = numbers("gradient").ok_or(name)?;
        assert_eq!(gradient.len(), expected.len(), "{name}");
        for (g, e) in gradient.iter().zip(&expected) {
            assert!((g - e).abs() <= 1e-12 * e.abs().max(1e-2), "{name}: {g} for {e}");
        }
    }
    // The output itself is no loss of PyTorch's.
    let mut known = LossFunction::ALL.iter().filter(|known| **known != LossFunction::MeanOutput);
    assert!(known.all(|known| seen.contains(&known.name())), "only {seen:?}");
    Ok(())
}

#[test]
fn logits_of_minus_infinity_cost_nothing_unless_asked_for() {
    let (output, one) = (vec![0.0_f32, f32::NEG_INFINITY, 0.0], vec![1.0_f32, 0.0, 0.0]);
    let mut example = Example {
        op: loss(LossFunction::CrossEntropy { temperature: 1.0 }, 1, 3, 1),
        rows: 1,
        output,
        targets: one,
        labels: vec![0],
        weights: Vec::new(),
    };
    for class_targets in [false, true] {
        example.op.class_targets = class_targets;
        let (losses, gradient) = example.run();
        assert_close(&losses, &[2f64.ln()], 1e-6);
        assert_bits(&gradient, &[-0.5, 0.0, 0.5]);
    }
}

#[test]
fn a_nan_output_shows_in_the_loss_and_the_gradient() {
    for &function in LossFunction::ALL {
        for inner in [1, 3] {
            let mut example = example::<f32>(loss(function, 1, 5, inner), 1, 8);
            example.output[2 * inner] = f32::NAN;
            let (losses, gradient) = example.run();
            // The slope of the output itself is 1 everywhere.
            let shows = function == LossFunction::MeanOutput || gradient[2 * inner].is_nan();
            assert!(losses[0].is_nan() && shows, "{function:?}");
        }
    }
}

#[test]
fn weights_that_are_all_zero_give_no_gradient() {
    let mut op = loss(LossFunction::MeanSquaredError, 1, 3, 1);
    op.weighted = true;
    let mut example = example::<f32>(op, 2, 9);
    example.weights = vec![0.0; 2];
    assert_eq!(example.divisor(), 0.0);
    let (losses, gradient) = example.run();
    assert!(losses.iter().chain(&gradient).all(|x| *x == 0.0));
}

#[test]
fn steps_of_no_weight_behind_the_others_change_no_bit() {
    for &function in LossFunction::ALL {
        for (inner, class_targets) in [(1, false), (1, true), (3, false)] {
            let mut op = loss(function, 40, 5, inner);
            (op.weighted, op.by_place) = (true, true);
            op.class_targets = class_targets && op.is_over_classes();
            let mut padded = example::<f32>(op, 1, 12);
            padded.weights[23 * inner..].fill(0.0);
            let mut short = padded.clone();
            short.op.outer = 23;
            let block = 5 * inner;
            short.output.truncate(23 * block);
            short.targets.truncate(23 * block);
            short.labels.truncate(23 * inner);
            short.weights.truncate(23 * inner);
            assert_eq!(padded.divisor(), short.divisor());
            let ((long, gradient), (expected, slope)) = (padded.run(), short.run());
            assert_bits(&long, &expected);
            assert_bits(&gradient[..23 * block], &slope);
            assert!(gradient[23 * block..].iter().all(|x| *x == 0.0), "{function:?}");
        }
    }
}

#[test]
fn places_side_by_side_count_as_rows_would() {
    for function in LossFunction::ALL.iter().copied() {
        for (classes, places) in [(1, 7), (3, 40), (20, 16)] {
            let mut op = loss(function, 1, classes, places);
            (op.weighted, op.by_place) = (true, true);
            let mut apart = example::<f64>(op, 2, 21);
            apart.weights[3] = 0.0;
            let turn = |x: &[f64]| -> Vec<f64> {
                let block = classes * places;
                let from = |i: usize| i / block * block + i % classes * places + i % block / classes;
                (0..x.len()).map(|i| x[from(i)]).collect()
            };
            let mut rows = apart.clone();
            rows.rows = 2 * places;
            (rows.op.inner, rows.op.by_place) = (1, false);
            (rows.output, rows.targets) = (turn(&apart.output), turn(&apart.targets));
            assert_eq!(apart.divisor(), rows.divisor());
            let ((together, gradient), (losses, turned)) = (apart.run(), rows.run());
            assert_close(&turn(&gradient), &turned, 1e-14);
            let sums: Vec<f64> = losses.chunks(places).map(|row| row.iter().sum()).collect();
            assert_close(&together, &sums, 1e-13);
        }
    }
}

#[test]
fn divisors_count_what_the_mean_is_over() {
    let cross_entropy = LossFunction::CrossEntropy { temperature: 1.0 };
    let image = |function| loss(function, 2, 3, 5);
    assert_eq!(divisor::<f32>(&image(LossFunction::MeanSquaredError), 4, &[], &[]), 120.0);
    assert_eq!(divisor::<f32>(&image(cross_entropy), 4, &[], &[]), 40.0);
    let weighted = Loss { weighted: true, ..image(cross_entropy) };
    assert_eq!(divisor(&weighted, 2, &[], &[0.5, 2.0]), 25.0);
    // Weights of the rows that are not this output's.
    assert_eq!(divisor(&image(cross_entropy), 2, &[], &[0.5, 2.0]), 20.0);
    let mut op = loss(cross_entropy, 1, 3, 2);
    op.class_weight = Some(vec![1.0, 10.0, 100.0]);
    assert_eq!(divisor::<f32>(&op, 2, &[], &[]), 4.0);
    op.class_targets = true;
    assert_eq!(divisor::<f32>(&op, 2, &[0, 1, 2, 2], &[]), 211.0);
    op.weighted = true;
    assert_eq!(divisor(&op, 2, &[0, 1, 2, 2], &[2.0, 0.5]), 122.0);
    op.by_place = true;
    assert_eq!(divisor(&op, 2, &[0, 1, 2, 2], &[2.0, 0.5, 0.0, 3.0]), 307.0);
    op.class_weight = None;
    assert_eq!(divisor(&op, 2, &[0, 1, 2, 2], &[2.0, 0.5, 0.0, 3.0]), 5.5);
    let of_elements =
        Loss { weighted: true, by_place: true, ..loss(LossFunction::MeanSquaredError, 1, 3, 2) };
    assert_eq!(divisor(&of_elements, 2, &[], &[2.0, 0.5, 0.0, 3.0]), 16.5);
}

#[test]
fn targets_that_do_not_fit_are_refused_with_their_place() {
    let message = |op: &Loss, output: &[f32], targets: &[f32], labels: &[i32]| match validate_targets(
        op, output, targets, labels,
    ) {
        Err(Error::Value(message)) => message,
        other => panic!("{other:?}"),
    };
    let op = loss(LossFunction::CrossEntropy { temperature: 1.0 }, 1, 3, 2);
    assert!(validate_targets(&op, &[-1.0_f32], &[0.5, -3.0], &[0, 2, 1]).is_ok());
    let text = message(&op, &[], &[], &[0, 1, 2, 3]);
    assert!(text.contains("class index 3 of row 1") && text.contains("3 classes"), "{text}");
    assert!(message(&op, &[], &[], &[-1]).contains("class index -1 of row 0"));
    let text = message(&op, &[], &[0.0, f32::NAN], &[]);
    assert!(text.contains("row 0, element 1, is NaN"), "{text}");
    let op = loss(LossFunction::BinaryCrossEntropy, 1, 2, 1);
    let text = message(&op, &[], &[0.0, 1.0, 1.5], &[]);
    assert!(text.contains("row 1, element 0, is 1.5"), "{text}");
    let op = loss(LossFunction::NegativeLogLikelihood, 1, 2, 1);
    let text = message(&op, &[0.5, -0.7], &[], &[]);
    assert!(text.contains("element 1, is -0.7") && text.contains("logarithms"), "{text}");
}

#[test]
fn running_refuses_what_it_cannot_compute() {
    let refused = |example: &Example<f32>| match example.setting().run_on(&example.op, &cpus()[0]) {
        Err(Error::Value(message)) => message,
        other => panic!("{other:?}"),
    };
    let mut op = loss(LossFunction::CrossEntropy { temperature: 1.0 }, 1, 3, 1);
    op.class_targets = true;
    let mut classes = example::<f32>(op, 2, 10);
    classes.labels[1] = 7;
    assert!(refused(&classes).contains("class index 7 of row 1"));
    let mut likelihood = example::<f32>(loss(LossFunction::NegativeLogLikelihood, 1, 3, 1), 2, 11);
    likelihood.output[4] = -0.1;
    assert!(refused(&likelihood).contains("logarithms"));
    let mut squared = example::<f32>(loss(LossFunction::MeanSquaredError, 1, 3, 1), 2, 12);
    squared.op.class_targets = true;
    assert!(refused(&squared).contains("class indices"));
}

//! Training that diverges, for every layer, numeric type and rule: a step lands whole and finite, or nothing of
//! it does, and the network can be used and saved afterwards.

use super::setup::{ROWS, inputs, place};
use crate::dtype::DType;
use crate::layers::{Sample, samples};
use crate::ops::update::Optimizer;
use crate::tensor::Precision;
use crate::train::landing_tests::{odd, saved};
use crate::train::{Examples, OnNonFinite, Rows, Trainer, TrainingConfig};
use crate::{Error, Network, Result, tensor_view};

const STEPS: usize = 6;

/// What makes a training diverge.
#[derive(Clone, Debug)]
struct Case {
    dtype: Option<DType>,
    optimizer: Optimizer,
    rate: f64,
    input: f64,
    target: f64,
    device: &'static str,
}

fn rules() -> Vec<Optimizer> {
    let momentum = Optimizer::Sgd { momentum: 0.9, nesterov: true, weight_decay: 0.01, decay_exempt: false };
    vec![momentum, Optimizer::adam(), Optimizer::default(), Optimizer::rms_prop(), Optimizer::sgd()]
}

/// How many steps were left out.
fn diverge(sample: &Sample, case: &Case) -> Result<usize> {
    let mut refused = 0;
    for on_nonfinite in [OnNonFinite::Raise, OnNonFinite::Skip] {
        let mut network = place(sample, Precision::Float32)?.network;
        if let Some(dtype) = case.dtype {
            network.morph(dtype)?;
        }
        network.to(case.device)?;
        let calm = inputs(sample);
        let whole = sample.layer.index_limit().is_some();
        let factor = if whole { 1.0 } else { case.input };
        let input: Vec<f32> = calm.iter().map(|x| (x * factor) as f32).collect();
        let outputs = network.output_shape().to_vec();
        let target: Vec<f32> = (0..ROWS * network.output_shape().len())
            .map(|i| ([0.9, -0.6, 0.3, -0.8, 0.5][i % 5] * case.target) as f32)
            .collect();
        let shape = |of: &[usize]| [&[ROWS], of].concat();
        let examples = Examples::regression(
            tensor_view(&shape(&sample.input), &input)?,
            tensor_view(&shape(&outputs), &target)?,
        );
        let config = TrainingConfig {
            batch_size: ROWS,
            learning_rate: case.rate,
            optimizer: case.optimizer.clone(),
            on_nonfinite,
            ..TrainingConfig::default()
        };
        let mut trainer = Trainer::new(&mut network, &config, &examples, 100)?;
        for _ in 0..STEPS {
            let before = saved(&mut network, true)?;
            let tensors = saved(&mut network, false)?;
            match trainer.step(&mut network, &[(&examples, Rows::First(ROWS))]) {
                Ok(report) if report.skipped => {
                    refused += 1;
                    assert_eq!(on_nonfinite, OnNonFinite::Skip);
                    assert!(saved(&mut network, false)? == tensors, "a skipped step left something");
                }
                Ok(_) => {
                    let odd = odd(&mut network)?;
                    assert!(odd.is_empty(), "landed with {odd:?}");
                }
                Err(Error::NonFinite(text)) => {
                    refused += 1;
                    assert_eq!(on_nonfinite, OnNonFinite::Raise, "{text}");
                    assert!(saved(&mut network, true)? == before, "{text}: something moved");
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        let calm: Vec<f32> = calm.iter().map(|x| *x as f32).collect();
        network.reset_states();
        network.predict(tensor_view(&shape(&sample.input), &calm)?)?;
        let file = network.to_bytes(crate::io::SaveOptions::resumable())?;
        Network::from_bytes(&file)?;
    }
    Ok(refused)
}

/// Runs every `stride`-th case of the matrix; returns how many, and how many had steps left out.
fn matrix(device: &'static str, stride: usize) -> [usize; 2] {
    let mut types: Vec<Option<DType>> = vec![None];
    types.extend(DType::all().map(Some));
    let mut counts = [0, 0];
    let mut number = 0usize;
    let mut failed = Vec::new();
    for (kind, samples) in samples() {
        for sample in &samples {
            for dtype in &types {
                for optimizer in rules() {
                    for (rate, input, target) in [
                        (1e2, 1.0, 1.0),
                        (1e6, 1.0, 1.0),
                        (1e20, 1.0, 1.0),
                        (1e38, 1.0, 1.0),
                        (1e-2, 1e18, 1.0),
                        (1e-2, 1e30, 1.0),
                        (1e-2, 1.0, 1e18),
                        (1.0, 1.0, 1e38),
                    ] {
                        number += 1;
                        // Spread over all the lists, whatever their lengths.
                        if !(number.wrapping_mul(0x9E37_79B1) >> 7).is_multiple_of(stride) {
                            continue;
                        }
                        let optimizer = optimizer.clone();
                        let case = Case { dtype: *dtype, optimizer, rate, input, target, device };
                        let name = format!("{kind} {} {case:?}", sample.layer.config());
                        let outcome =
                            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| diverge(sample, &case)));
                        counts[0] += 1;
                        match outcome {
                            Ok(Ok(refused)) => counts[1] += usize::from(refused > 0),
                            Ok(Err(error)) => failed.push(format!("{name}: {error}")),
                            Err(_) => failed.push(format!("{name}: panicked")),
                        }
                    }
                }
            }
        }
    }
    println!("{device}: {} cases, {} with steps left out, {} failed", counts[0], counts[1], failed.len());
    failed.truncate(20);
    assert!(failed.is_empty(), "{failed:#?}");
    counts
}

#[test]
fn steps_land_whole_or_not_at_all() {
    let [cases, refused] = matrix("cpu", 1999);
    assert!(cases > 40 && refused > cases / 10, "{cases} cases, {refused} refused");
}

#[cfg(feature = "gpu")]
#[test]
fn steps_land_whole_or_not_at_all_on_a_gpu() {
    if crate::gpu::testing::gpu().is_some() {
        matrix("gpu:0", 35_983);
    }
}

#[test]
#[ignore = "a soak: make soak"]
fn every_step_of_the_whole_matrix_lands_whole_or_not_at_all() {
    matrix("cpu", 7);
}

//! Layers against the golden files of tests/golden: PyTorch's numbers, or those of the papers' algorithms.

use super::from_config;
use crate::tensor::Precision;
use crate::{Network, Result, tensor_view};
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
struct Golden {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    config: serde_json::Value,
    input_shape: Vec<usize>,
    rows: usize,
    parameters: BTreeMap<String, Shaped>,
    steps: Vec<Step>,
    /// What the layer keeps after the last step.
    states: BTreeMap<String, Vec<f64>>,
    /// The output at inference for the last step's input.
    inference: Vec<f64>,
}

#[derive(Deserialize)]
struct Shaped {
    shape: Vec<usize>,
    values: Vec<f64>,
}

#[derive(Deserialize)]
struct Step {
    input: Vec<f64>,
    output: Vec<f64>,
    gradient: Vec<f64>,
    input_gradient: Vec<f64>,
    gradients: BTreeMap<String, Vec<f64>>,
}

fn assert_close(what: &str, found: &[f64], expected: &[f64], tolerance: f64) {
    let scale = expected.iter().fold(1.0f64, |scale, x| scale.max(x.abs()));
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (found - expected).abs() / scale;
        assert!(error <= tolerance, "{what}, element {i}: {found} instead of {expected}");
    }
}

fn check(case: &Case, precision: Precision, tolerance: f64) -> Result<()> {
    const CELL: [usize; 3] = [0, 0, 0];
    let mut network = Network::with_options(&case.input_shape[..], [1, 1, 1], precision, 3)?;
    network.add_arc(CELL, from_config(&case.config)?.into())?;
    network.build()?;
    for (name, Shaped { shape, values }) in &case.parameters {
        network.set_parameter(CELL, 0, name, tensor_view(shape, values)?)?;
    }
    assert_eq!(network.parameter_names(CELL, 0)?.len(), case.parameters.len(), "{}", case.config);
    let batch = |shape: &[usize]| [&[case.rows], shape].concat();
    let inputs = batch(&case.input_shape);
    let outputs = batch(network.output_shape());
    let close = |what: &str, found: &[f64], expected: &[f64]| {
        assert_close(&format!("{}: {what}", case.config), found, expected, tolerance);
    };
    for step in &case.steps {
        network.zero_gradients();
        let output = network.forward(tensor_view(&inputs, &step.input)?)?.output;
        close("output", &output.to_f64(), &step.output);
        let gradient = network.backward(tensor_view(&outputs, &step.gradient)?)?;
        close("gradient of the input", &gradient.to_f64(), &step.input_gradient);
        for (name, expected) in &step.gradients {
            close(&format!("gradient of {name}"), &network.gradient(CELL, 0, name)?.to_f64(), expected);
        }
    }
    for (name, expected) in &case.states {
        close(name, &network.state(CELL, 0, name)?.to_f64(), expected);
    }
    if let Some(step) = case.steps.last() {
        let output = network.predict(tensor_view(&inputs, &step.input)?)?;
        close("inference", &output.to_f64(), &case.inference);
    }
    Ok(())
}

/// Every case in float64, and in float32 as far as it goes.
fn check_all(text: &str) {
    let golden: Golden = serde_json::from_str(text).unwrap();
    for case in &golden.cases {
        check(case, Precision::Float64, 1e-11).unwrap_or_else(|error| panic!("{}: {error}", case.config));
        check(case, Precision::Float32, 2e-5).unwrap_or_else(|error| panic!("{}: {error}", case.config));
    }
}

#[test]
fn normalisations_are_pytorchs() {
    check_all(include_str!("../../../../tests/golden/normalization.json"));
}

#[test]
fn softmaxes_are_pytorchs_and_their_papers() {
    check_all(include_str!("../../../../tests/golden/softmax.json"));
}

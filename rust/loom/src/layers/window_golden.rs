//! Convolutions and poolings against PyTorch's: outputs and all gradients.

use super::from_config;
use crate::tensor::Precision;
use crate::{Network, Result, tensor_view};
use serde::Deserialize;
use std::collections::BTreeMap;

const ROWS: usize = 2;

/// What tests/golden/convolution.py writes.
#[derive(Deserialize)]
struct Case {
    config: serde_json::Value,
    input: Vec<usize>,
    output: Vec<usize>,
    y: Vec<f64>,
    dx: Vec<f64>,
    gradients: BTreeMap<String, Vec<f64>>,
}

/// The whole numbers that follow from their place.
fn numbers(len: usize, seed: usize) -> Vec<f64> {
    (0..len).map(|i| ((7 * i + 3 * (i / 5) + seed) % 9) as f64 - 4.0).collect()
}

fn assert_close(what: &str, found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() < 1e-11, "{what}: element {i} is {found}, expected {expected}");
    }
}

#[test]
fn outputs_and_gradients_are_those_of_pytorch() -> Result<()> {
    const CELL: [usize; 3] = [0; 3];
    let cases: Vec<Case> =
        serde_json::from_str(include_str!("../../../../tests/golden/convolution.json")).unwrap();
    assert!(cases.len() > 20);
    for case in cases {
        let name = case.config.to_string();
        let mut network = Network::with_options(&case.input[..], [1; 3], Precision::Float64, 1)?;
        network.add_arc(CELL, from_config(&case.config)?.into())?;
        network.build()?;
        assert_eq!(network.output_shape()[..], case.output[..], "{name}");
        for (parameter, seed) in [("weight", 1), ("bias", 2)] {
            if case.gradients.contains_key(parameter) {
                let shape = network.parameter(CELL, 0, parameter)?.shape().to_vec();
                let values = numbers(shape.iter().product(), seed);
                network.set_parameter(CELL, 0, parameter, tensor_view(&shape, &values)?)?;
            }
        }
        let rows = |extents: &[usize]| [&[ROWS], extents].concat();
        let x = numbers(rows(&case.input).iter().product(), 0);
        let dy = numbers(rows(&case.output).iter().product(), 5);
        let y = network.forward(tensor_view(&rows(&case.input), &x)?)?.output.to_f64();
        assert_close(&format!("{name}: output"), &y, &case.y);
        let dx = network.backward(tensor_view(&rows(&case.output), &dy)?)?.to_f64();
        assert_close(&format!("{name}: gradient of the input"), &dx, &case.dx);
        for (parameter, expected) in &case.gradients {
            let found = network.gradient(CELL, 0, parameter)?.to_f64();
            assert_close(&format!("{name}: gradient of {parameter}"), &found, expected);
        }
    }
    Ok(())
}

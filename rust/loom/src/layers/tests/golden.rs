//! Layers against the golden files of tests/golden: PyTorch's numbers, or those of the papers' algorithms.

use crate::layers::{Dense, Flatten, Reshape, from_config};
use crate::network::{Combine, Link};
use crate::tensor::Precision;
use crate::{Network, Result, tensor_view};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;

type Named = BTreeMap<String, Vec<f64>>;

const CELL: [usize; 3] = [0; 3];

/// Where a layer stands in a network.
struct Tried {
    network: Network,
    cell: [usize; 3],
    layer: usize,
    /// What it is called where it is wrong.
    name: String,
    tolerance: f64,
}

/// What goes through a layer once, forwards and backwards, and what comes of it.
struct Pass<'a> {
    rows: usize,
    x: &'a [f64],
    y: &'a [f64],
    dy: &'a [f64],
    dx: Option<&'a [f64]>,
    gradients: &'a Named,
}

impl Tried {
    /// The layer of this config alone in a network.
    fn alone(config: &Value, input: &[usize], precision: Precision, tolerance: f64) -> Result<Self> {
        let mut network = Network::with_options(input, [1, 1, 1], precision, 3)?;
        network.add_arc(CELL, from_config(config)?.into())?;
        network.build()?;
        Ok(Self { network, cell: CELL, layer: 0, name: config.to_string(), tolerance })
    }

    /// Sets all parameters, flat lists of elements.
    fn set<'a>(&mut self, parameters: impl IntoIterator<Item = (&'a String, &'a [f64])>) -> Result<()> {
        let mut count = 0;
        for (name, values) in parameters {
            let shape = self.network.parameter(self.cell, self.layer, name)?.shape().to_vec();
            self.network.set_parameter(self.cell, self.layer, name, tensor_view(&shape, values)?)?;
            count += 1;
        }
        assert_eq!(self.network.parameter_names(self.cell, self.layer)?.len(), count, "{}", self.name);
        Ok(())
    }

    fn close(&self, what: &str, found: &[f64], expected: &[f64]) {
        let scale = expected.iter().fold(1.0f64, |scale, x| scale.max(x.abs()));
        assert_eq!(found.len(), expected.len(), "{}: {what}", self.name);
        for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
            let close = (found - expected).abs() <= self.tolerance * scale;
            assert!(close, "{}: {what}, element {i}: {found} instead of {expected}", self.name);
        }
    }

    fn check(&mut self, pass: &Pass<'_>) -> Result<()> {
        let batch = |extents: &[usize]| [&[pass.rows], extents].concat();
        let (input, output) = (batch(self.network.input_shape()), batch(self.network.output_shape()));
        self.network.zero_gradients();
        let y = self.network.forward(tensor_view(&input, pass.x)?)?.output;
        self.close("output", &y.to_f64(), pass.y);
        let dx = self.network.backward(tensor_view(&output, pass.dy)?)?;
        if let Some(expected) = pass.dx {
            self.close("gradient of the input", &dx.to_f64(), expected);
        }
        for (name, expected) in pass.gradients {
            let found = self.network.gradient(self.cell, self.layer, name)?.to_f64();
            self.close(&format!("gradient of {name}"), &found, expected);
        }
        Ok(())
    }
}

fn read<T: DeserializeOwned>(text: &str) -> T {
    serde_json::from_str(text).unwrap()
}

/// What `tests/golden/normalization.py`, `resizing.py` and `softmax.py` write.
#[derive(Deserialize)]
struct InSteps {
    cases: Vec<Steps>,
}

#[derive(Deserialize)]
struct Steps {
    config: Value,
    input_shape: Vec<usize>,
    rows: usize,
    parameters: BTreeMap<String, Shaped>,
    steps: Vec<Step>,
    /// What the layer keeps after the last step.
    states: Named,
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
    gradients: Named,
}

fn check_steps(case: &Steps, precision: Precision, tolerance: f64) -> Result<()> {
    let mut tried = Tried::alone(&case.config, &case.input_shape, precision, tolerance)?;
    for (name, Shaped { shape, .. }) in &case.parameters {
        assert_eq!(tried.network.parameter(CELL, 0, name)?.shape(), shape, "{}: {name}", case.config);
    }
    tried.set(case.parameters.iter().map(|(name, parameter)| (name, &parameter.values[..])))?;
    for Step { input, output, gradient, input_gradient, gradients } in &case.steps {
        let (x, y, dy, dx) = (input, output, gradient, Some(&input_gradient[..]));
        tried.check(&Pass { rows: case.rows, x, y, dy, dx, gradients })?;
    }
    for (name, expected) in &case.states {
        let found = tried.network.state(CELL, 0, name)?.to_f64();
        tried.close(name, &found, expected);
    }
    if let Some(step) = case.steps.last() {
        let shape = [&[case.rows], &case.input_shape[..]].concat();
        let output = tried.network.predict(tensor_view(&shape, &step.input)?)?;
        tried.close("inference", &output.to_f64(), &case.inference);
    }
    Ok(())
}

/// Every case in float64, and in float32 as far as it goes.
fn check_all_steps(text: &str) {
    for case in read::<InSteps>(text).cases {
        for (precision, tolerance) in [(Precision::Float64, 1e-11), (Precision::Float32, 2e-5)] {
            check_steps(&case, precision, tolerance)
                .unwrap_or_else(|error| panic!("{}: {error}", case.config));
        }
    }
}

#[test]
fn normalisations_are_pytorchs() {
    check_all_steps(include_str!("../../../../../tests/golden/normalization.json"));
}

#[test]
fn layers_that_resize_are_pytorchs() {
    check_all_steps(include_str!("../../../../../tests/golden/resizing.json"));
}

#[test]
fn softmaxes_are_pytorchs_and_their_papers() {
    check_all_steps(include_str!("../../../../../tests/golden/softmax.json"));
}

/// What `tests/golden/convolution.py` writes; what goes in follows from its place.
#[derive(Deserialize)]
struct Windowed {
    config: Value,
    input: Vec<usize>,
    output: Vec<usize>,
    y: Vec<f64>,
    dx: Vec<f64>,
    gradients: Named,
}

#[test]
fn convolutions_and_poolings_are_pytorchs() -> Result<()> {
    let rows = 2;
    let numbers = |len: usize, seed: usize| -> Vec<f64> {
        (0..len).map(|i| ((7 * i + 3 * (i / 5) + seed) % 9) as f64 - 4.0).collect()
    };
    let cases: Vec<Windowed> = read(include_str!("../../../../../tests/golden/convolution.json"));
    assert!(cases.len() > 20);
    for case in &cases {
        let mut tried = Tried::alone(&case.config, &case.input, Precision::Float64, 1e-13)?;
        assert_eq!(tried.network.output_shape()[..], case.output[..], "{}", case.config);
        let seed = |name: &str| if name == "weight" { 1 } else { 2 };
        let parameters: Named =
            case.gradients.iter().map(|(name, dw)| (name.clone(), numbers(dw.len(), seed(name)))).collect();
        tried.set(parameters.iter().map(|(name, values)| (name, &values[..])))?;
        let (x, dy) = (numbers(rows * case.input.iter().product::<usize>(), 0), numbers(case.y.len(), 5));
        let (y, dx, gradients) = (&case.y, Some(&case.dx[..]), &case.gradients);
        tried.check(&Pass { rows, x: &x, y, dy: &dy, dx, gradients })?;
    }
    Ok(())
}

/// What `tests/golden/recurrent.py` writes.
#[derive(Deserialize)]
struct Recurrences {
    rows: usize,
    time: usize,
    features: usize,
    cases: Vec<Recurrence>,
}

#[derive(Deserialize)]
struct Recurrence {
    config: Value,
    parameters: Named,
    x: Vec<f64>,
    y: Vec<f64>,
    dy: Vec<f64>,
    dx: Vec<f64>,
    gradients: Named,
}

/// Outputs and all gradients, with PyTorch's weights under its names in its layouts.
#[test]
fn recurrent_layers_are_pytorchs() -> Result<()> {
    let Recurrences { rows, time, features, cases } =
        read(include_str!("../../../../../tests/golden/recurrent.json"));
    assert_eq!(cases.len(), 12);
    for Recurrence { config, parameters, x, y, dy, dx, gradients } in &cases {
        let mut tried = Tried::alone(config, &[time, features], Precision::Float64, 1e-12)?;
        tried.set(parameters.iter().map(|(name, values)| (name, &values[..])))?;
        assert_eq!(gradients.len(), parameters.len(), "{config}");
        tried.check(&Pass { rows, x, y, dy, dx: Some(dx), gradients })?;
    }
    Ok(())
}

/// Extents and elements.
#[derive(Deserialize)]
struct Array {
    shape: Vec<usize>,
    elements: Vec<f64>,
}

/// One case of what `tests/golden/attention.py` writes.
#[derive(Deserialize)]
struct Attending {
    name: String,
    config: Value,
    weights: BTreeMap<String, Array>,
    input: Array,
    output: Array,
    output_gradient: Vec<f64>,
    input_gradient: Option<Vec<f64>>,
    weight_gradients: Named,
    asked: Option<Array>,
}

impl Attending {
    /// The layer by itself, or in a second cell whose context is the input.
    fn tried(&self) -> Result<Tried> {
        let input = &self.input.shape[1..];
        let Some(asked) = &self.asked else {
            return Tried::alone(&self.config, input, Precision::Float64, 1e-11);
        };
        let mut network = Network::with_options(input, [1, 1, 2], Precision::Float64, 0)?;
        let extents =
            |shape: &[usize]| Reshape { shape: shape.iter().map(|extent| *extent as i64).collect() };
        network.add(CELL, extents(input))?;
        let cell = [0, 0, 1];
        network.add(cell, Flatten {})?;
        network.add(cell, Dense::new(asked.shape[0]).without_bias())?;
        network.add(cell, extents(&self.output.shape[1..]))?;
        network.add_arc(cell, from_config(&self.config)?.into())?;
        network.link(Link { source: CELL, target: cell, combine: Combine::Context, axis: None })?;
        network.build()?;
        network.set_parameter(cell, 1, "weight", tensor_view(&asked.shape, &asked.elements)?)?;
        Ok(Tried { network, cell, layer: 3, name: self.name.clone(), tolerance: 1e-11 })
    }
}

#[test]
fn attention_and_its_kin_are_pytorchs() -> Result<()> {
    let cases: Vec<Attending> = read(include_str!("../../../../../tests/golden/attention.json"));
    assert!(cases.len() >= 10);
    for case in &cases {
        let mut tried = case.tried()?;
        tried.set(case.weights.iter().map(|(name, weight)| (name, &weight.elements[..])))?;
        let (x, y, gradients) = (&case.input.elements, &case.output.elements, &case.weight_gradients);
        let (dy, dx) = (&case.output_gradient, case.input_gradient.as_deref());
        tried.check(&Pass { rows: case.input.shape[0], x, y, dy, dx, gradients })?;
    }
    Ok(())
}

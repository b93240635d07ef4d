//! Gradients of every layer and activation against central differences, in f64, with the
//! layer in the middle of a network: a backward pass that ignores what comes in from above,
//! or leaves out what goes down, cannot pass.

use loom::io::SaveOptions;
use loom::layers::{
    ActivationLayer, AvgPool2D, Conv2D, Dense, Dropout, Flatten, GlobalAvgPool2D, Layer, MaxPool2D, Padding,
    Reshape, Softmax, from_config,
};
use loom::ops::pointwise::Activation;
use loom::{Network, Precision, Result, Tensor, tensor_view};
use proptest::prelude::*;
use serde_json::json;
use std::sync::Arc;

/// Step of the central differences.
const STEP: f64 = 1e-5;
/// The largest error, relative to the largest gradient of its kind.
const TOLERANCE: f64 = 1e-6;

/// Numbers that look random, never repeat, and stay away from the corners of activations.
fn numbers(count: usize, seed: f64) -> Vec<f64> {
    (0..count)
        .map(|i| {
            let x = ((i as f64 + 1.0) * 0.754_877_666 + seed).fract() * 2.0 - 1.0;
            x + 0.03 * x.signum()
        })
        .collect()
}

/// The weighted sum of outputs whose gradient is known: the weights. The pass is made in a copy, so that the
/// next one draws the same.
fn objective(network: &mut Network, input: &[f64], shape: &[usize], weights: &[f64]) -> Result<f64> {
    let mut network = Network::from_bytes(&network.to_bytes(SaveOptions::resumable())?)?;
    let output = network.forward(tensor_view(shape, input)?)?.output.to_f64();
    Ok(output.iter().zip(weights).map(|(output, weight)| output * weight).sum())
}

fn assert_close(what: &str, found: &[f64], expected: &[f64]) {
    let scale = expected.iter().fold(1e-3f64, |scale, x| scale.max(x.abs()));
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (found - expected).abs() / scale;
        assert!(error < TOLERANCE, "{what}, element {index}: {found} instead of {expected}");
    }
}

/// Checks the gradients of the input and of every parameter.
fn check(mut network: Network, rows: usize) -> Result<()> {
    network.build()?;
    let row = network.input_shape().len();
    let shape = [&[rows], &network.input_shape()[..]].concat();
    let mut input = numbers(rows * row, 0.1);
    let outputs = rows * network.output_shape().len();
    let weights = numbers(outputs, 0.7);
    let copy = network.to_bytes(SaveOptions::resumable())?;
    network.forward(tensor_view(&shape, &input)?)?;
    let gradient_shape = [&[rows], &network.output_shape()[..]].concat();
    let found = network.backward(tensor_view(&gradient_shape, &weights)?)?.to_f64();

    let layers: Vec<([usize; 3], usize)> = network
        .layers()
        .map(|placed| {
            let path = placed.path().indices();
            ([path[0], path[1], path[2]], path[3])
        })
        .collect();
    let mut parameter_gradients = Vec::new();
    for &(cell, layer) in &layers {
        for name in network.parameter_names(cell, layer)? {
            let gradient = network.gradient(cell, layer, &name)?.to_f64();
            parameter_gradients.push((cell, layer, name, gradient));
        }
    }

    let mut network = Network::from_bytes(&copy)?;
    let mut differences = Vec::with_capacity(input.len());
    for index in 0..input.len() {
        let kept = input[index];
        input[index] = kept + STEP;
        let above = objective(&mut network, &input, &shape, &weights)?;
        input[index] = kept - STEP;
        let below = objective(&mut network, &input, &shape, &weights)?;
        input[index] = kept;
        differences.push((above - below) / (2.0 * STEP));
    }
    assert_close("input", &found, &differences);

    for (cell, layer, name, found) in parameter_gradients {
        let parameter = network.parameter(cell, layer, &name)?;
        let (extents, mut values) = (parameter.shape().to_vec(), parameter.to_f64());
        let mut differences = Vec::with_capacity(values.len());
        for index in 0..values.len() {
            let kept = values[index];
            let mut at = |network: &mut Network, value: f64| -> Result<f64> {
                values[index] = value;
                network.set_parameter(cell, layer, &name, tensor_view(&extents, &values)?)?;
                objective(network, &input, &shape, &weights)
            };
            let above = at(&mut network, kept + STEP)?;
            let below = at(&mut network, kept - STEP)?;
            at(&mut network, kept)?;
            differences.push((above - below) / (2.0 * STEP));
        }
        assert_close(&format!("{cell:?} {layer} {name}"), &found, &differences);
    }
    Ok(())
}

/// A network over images with `layer` in its middle, spread over a grid.
fn around_images(layer: Arc<dyn Layer>, channels: usize, size: [usize; 2]) -> Result<Network> {
    let mut network = Network::with_options([2, size[0], size[1]], [2, 1, 2], Precision::Float64, 3)?;
    network.add([0, 0, 0], Conv2D::new(channels, [1, 1]))?;
    network.add_arc([0, 0, 1], layer)?;
    network.add([1, 0, 0], Flatten {})?;
    network.add([1, 0, 1], Dense::new(3))?;
    Ok(network)
}

/// A network over features with `layer` in its middle.
fn around_features(layer: Arc<dyn Layer>, features: usize) -> Result<Network> {
    let mut network = Network::with_options([4], [1, 2, 1], Precision::Float64, 5)?;
    network.add([0, 0, 0], Dense::new(features))?;
    network.add_arc([0, 0, 0], layer)?;
    network.add([0, 1, 0], Flatten {})?;
    network.add([0, 1, 0], Dense::new(3))?;
    Ok(network)
}

/// All of the table, and those with a parameter at another one than usual.
fn activations() -> Vec<Activation> {
    let others = [Activation::LeakyRelu { slope: 0.2 }, Activation::Elu { alpha: 0.5 }];
    Activation::ALL.iter().copied().chain(others).collect()
}

#[test]
fn every_activation_as_a_layer_and_in_dense_and_convolution() -> Result<()> {
    for activation in activations() {
        let layer = from_config(&json!({"type": "activation", "function": activation}))?;
        check(around_features(layer.into(), 5)?, 3)?;
        let layer = from_config(&json!({"type": "dense", "units": 5, "activation": activation}))?;
        check(around_features(layer.into(), 6)?, 3)?;
        let layer = from_config(
            &json!({"type": "conv2d", "filters": 3, "kernel_size": [2, 2], "activation": activation}),
        )?;
        check(around_images(layer.into(), 2, [3, 4])?, 2)?;
    }
    Ok(())
}

#[test]
fn layers_without_parameters() -> Result<()> {
    check(around_features(Arc::new(Softmax::default()), 5)?, 3)?;
    check(around_features(Arc::new(Softmax { temperature: 2.5 }), 5)?, 3)?;
    check(around_features(Arc::new(Dropout { rate: 0.4 }), 12)?, 3)?;
    check(around_features(Arc::new(Reshape::new([2, -1])), 6)?, 2)?;
    check(around_features(Arc::new(Flatten {}), 6)?, 2)?;
    check(around_images(Arc::new(Softmax::default()), 4, [2, 3])?, 2)?;
    check(around_images(Arc::new(GlobalAvgPool2D {}), 3, [3, 5])?, 2)?;
    check(around_images(Arc::new(ActivationLayer { function: Default::default() }), 2, [2, 2])?, 1)
}

#[test]
fn dense_over_sequences() -> Result<()> {
    let mut network = Network::with_options([3, 4], [1, 1, 1], Precision::Float64, 1)?;
    network.add([0, 0, 0], Dense::new(5))?;
    network.add([0, 0, 0], Dense::new(2).without_bias())?;
    check(network, 2)
}

#[test]
fn frozen_layers_pass_gradients_on() -> Result<()> {
    let mut network = around_features(Arc::new(Dense::new(5)), 6)?;
    network.set_trainable([0, 0, 0], 1, false)?;
    network.build()?;
    let input = numbers(8, 0.2);
    let output = network.forward(tensor_view(&[2, 4], &input)?)?.output;
    network.backward(output.view())?;
    assert!(network.gradient([0, 0, 0], 1, "weight")?.to_f64().iter().all(|g| *g == 0.0));
    assert!(network.gradient([0, 0, 0], 0, "weight")?.to_f64().iter().any(|g| *g != 0.0));
    Ok(())
}

#[test]
fn gradients_add_up_until_they_are_applied() -> Result<()> {
    let mut network = around_features(Arc::new(Dense::new(5)), 6)?;
    let input = numbers(8, 0.3);
    let pass = |network: &mut Network| -> Result<Tensor> {
        let output = network.forward(tensor_view(&[2, 4], &input)?)?.output;
        network.backward(output.view())?;
        network.gradient([0, 0, 0], 0, "weight")
    };
    let once = pass(&mut network)?.to_f64();
    let twice = pass(&mut network)?.to_f64();
    assert_close("twice", &twice, &once.iter().map(|g| 2.0 * g).collect::<Vec<_>>());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn dense_of_any_shape(features in 1usize..9, units in 1usize..9, rows in 1usize..5, bias: bool) {
        let layer = if bias { Dense::new(units) } else { Dense::new(units).without_bias() };
        check(around_features(Arc::new(layer), features)?, rows)?;
    }

    #[test]
    fn convolution_of_any_shape(
        size in [1usize..6, 1usize..6],
        kernel in [1usize..4, 1usize..4],
        stride in [1usize..3, 1usize..3],
        padding in [0usize..3, 0usize..3],
        dilation in [1usize..3, 1usize..3],
        groups in 1usize..3,
        rows in 1usize..4,
    ) {
        let layer = Conv2D::new(2 * groups, kernel)
            .stride(stride)
            .padding(Padding::Explicit(padding))
            .dilation(dilation)
            .groups(groups);
        let fits = (0..2).all(|axis| size[axis] + 2 * padding[axis] > dilation[axis] * (kernel[axis] - 1));
        prop_assume!(fits);
        check(around_images(Arc::new(layer), 2 * groups, size)?, rows)?;
    }

    #[test]
    fn pooling_of_any_shape(
        size in [1usize..7, 1usize..7],
        window in [1usize..4, 1usize..4],
        stride in [1usize..4, 1usize..4],
        padding in [0usize..2, 0usize..2],
        count_include_pad: bool,
        ceil_mode: bool,
        rows in 1usize..4,
    ) {
        prop_assume!((0..2).all(|axis| 2 * padding[axis] <= window[axis]));
        prop_assume!((0..2).all(|axis| size[axis] + 2 * padding[axis] >= window[axis]));
        let max = MaxPool2D { pool_size: window, stride: Some(stride), padding, ceil_mode };
        check(around_images(Arc::new(max), 3, size)?, rows)?;
        let count_include_pad = count_include_pad && !(ceil_mode && padding != [0; 2]);
        let average =
            AvgPool2D { pool_size: window, stride: Some(stride), padding, count_include_pad, ceil_mode };
        check(around_images(Arc::new(average), 3, size)?, rows)?;
    }
}

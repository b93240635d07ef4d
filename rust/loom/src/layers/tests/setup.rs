//! What the tests of every layer share: a network with the tried layer in its middle, what goes into it, and
//! what it makes.

use crate::layers::{Chain, Dense, Flatten, Masked, Reshape, Sample, samples};
use crate::network::{Combine, Link};
use crate::ops::pointwise::Activation;
use crate::tensor::{Precision, Shape, TensorView};
use crate::{Network, Result, tensor_view};
use std::sync::Arc;

pub(super) const ROWS: usize = 3;
/// Numbers that look random, never repeat, and stay away from the corners of activations.
pub(super) fn numbers(count: usize, seed: f64) -> Vec<f64> {
    let number = |i: usize| {
        let x = ((i as f64 + 1.0) * 0.754_877_666 + seed).fract() * 2.0 - 1.0;
        x + 0.03 * x.signum()
    };
    (0..count).map(number).collect()
}

/// Where the tried layer stands.
pub(super) struct Place {
    pub(super) network: Network,
    pub(super) cell: [usize; 3],
    pub(super) layer: usize,
}

/// A network with the layer in its middle, so that what comes to it has been computed, and so has the
/// gradient that comes from above. One that reads whole numbers stands at the beginning.
pub(super) fn place(sample: &Sample, precision: Precision) -> Result<Place> {
    let cells = if sample.context.is_some() { 3 } else { 1 };
    let mut network = Network::with_options(sample.input.clone(), [1, 1, cells], precision, 11)?;
    let first = sample.layer.index_limit().is_some() || sample.masked;
    let features = sample.input.last().copied().unwrap_or(1);
    let before = |units| Dense::new(units).activation(Activation::Tanh);
    if !first {
        network.add([0, 0, 0], before(features))?;
    }
    if let Some(context) = &sample.context {
        let extents = |shape: &Shape| Reshape { shape: shape.iter().map(|extent| *extent as i64).collect() };
        network.add([0, 0, 1], Flatten {})?;
        network.add([0, 0, 1], before(context.len()))?;
        network.add([0, 0, 1], extents(context))?;
        network.add([0, 0, 2], Flatten {})?;
        network.add([0, 0, 2], before(sample.input.len()))?;
        network.add([0, 0, 2], extents(&sample.input))?;
        let link = Link { source: [0, 0, 1], target: [0, 0, 2], combine: Combine::Context, axis: None };
        network.link(link)?;
    }
    let cell = [0, 0, cells - 1];
    let layer = network.cell_len(cell)?;
    let masked = sample.masked && sample.layer.kind() != "masked";
    network.add_arc(
        cell,
        match masked {
            true => Arc::new(Masked::new(Chain::new(vec![sample.layer.clone()]))),
            false => sample.layer.clone(),
        },
    )?;
    network.add(cell, before(2))?;
    network.build()?;
    Ok(Place { network, cell, layer })
}

/// Inputs for it: whole numbers where it reads such, some steps of padding where it is masked.
pub(super) fn inputs(sample: &Sample) -> Vec<f64> {
    let mut input = numbers(ROWS * sample.input.len(), 0.1);
    if let Some(limit) = sample.layer.index_limit() {
        for (i, x) in input.iter_mut().enumerate() {
            *x = ((i * 7 + i / 3) % limit) as f64;
        }
    }
    if sample.masked {
        let steps = sample.input[0];
        let width = sample.input.len() / steps;
        // Padding at the end of the second row and within the third.
        for (row, step) in (steps / 2..steps).map(|step| (1, step)).chain((steps > 2).then_some((2, 1))) {
            input[(row * steps + step) * width..][..width].fill(0.0);
        }
    }
    input
}

pub(super) fn shaped(rows: usize, shape: &[usize]) -> Vec<usize> {
    [&[rows], shape].concat()
}

/// The same in single precision.
pub(super) fn single(sample: &Sample) -> Vec<f32> {
    inputs(sample).into_iter().map(|x| x as f32).collect()
}

/// Where the layers of a network stand: cell and place in it.
pub(super) fn places(network: &Network) -> Vec<([usize; 3], usize)> {
    let place = |path: [usize; 4]| ([path[0], path[1], path[2]], path[3]);
    network.layers().map(|layer| place([0, 1, 2, 3].map(|i| layer.path().indices()[i]))).collect()
}

pub(super) fn assert_close(what: &str, found: &[f64], expected: &[f64], tolerance: f64) {
    let scale = expected.iter().fold(1e-3f64, |scale, x| scale.max(x.abs()));
    assert_eq!(found.len(), expected.len(), "{what}");
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (found - expected).abs() / scale;
        assert!(error <= tolerance, "{what}, element {index}: {found} instead of {expected} ({error:.1e})");
    }
}

/// What a network makes by the manual loop: its output, gradients, and states.
pub(super) type Made = Vec<(String, Vec<f64>)>;

/// Output and gradients by the manual loop on whatever device the network is.
pub(super) fn on_device(network: &mut Network, sample: &Sample, input: &[f32]) -> Result<Made> {
    network.reset_states();
    network.zero_gradients();
    let view: TensorView<'_> = tensor_view(&shaped(ROWS, &sample.input), input)?;
    let mut made = vec![("inference".into(), network.predict(view.clone())?.to_f64())];
    made.push(("output".into(), network.forward(view)?.output.to_f64()));
    let output = shaped(ROWS, network.output_shape());
    let count = output.iter().product();
    let gradient: Vec<f32> = numbers(count, 0.3).into_iter().map(|x| x as f32).collect();
    made.push(("gradient of the input".into(), network.backward(tensor_view(&output, &gradient)?)?.to_f64()));
    for (cell, layer) in places(network) {
        for parameter in network.parameter_names(cell, layer)? {
            let found = network.gradient(cell, layer, &parameter)?.to_f64();
            made.push((format!("gradient of {parameter}"), found));
        }
        for state in network.state_names(cell, layer)? {
            made.push((state.clone(), network.state(cell, layer, &state)?.to_f64()));
        }
    }
    Ok(made)
}

/// Runs one proof on every sample of every layer.
pub(super) fn for_every_sample(proof: impl Fn(&str, &Sample) -> Result<()>) {
    for (kind, samples) in samples() {
        assert!(!samples.is_empty(), "{kind} has no samples to be tried on");
        for sample in &samples {
            assert_eq!(sample.layer.kind(), kind);
            let name = format!("{} on {}", sample.layer.config(), sample.input);
            proof(&name, sample).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
}

/// Runs a proof on a GPU on the first sample of each layer kind and every `nth` of the others, where that is software.
#[cfg(feature = "gpu")]
pub(super) fn for_samples_in_part(nth: usize, proof: impl Fn(&str, &Sample) -> Result<()>) {
    let number = std::cell::Cell::new(0);
    let kind = std::cell::Cell::new("");
    for_every_sample(|name, sample| {
        let is_first = kind.replace(sample.layer.kind()) != sample.layer.kind();
        match is_first || crate::gpu::testing::in_part(number.replace(number.get() + 1), nth) {
            true => proof(name, sample),
            false => Ok(()),
        }
    });
}

/// Runs a proof on the first sample of each layer kind.
pub(super) fn for_every_kind(proof: impl Fn(&str, &Sample) -> Result<()>) {
    for (kind, samples) in samples() {
        if let Some(sample) = samples.first() {
            let name = format!("{} on {}", sample.layer.config(), sample.input);
            proof(&name, sample).unwrap_or_else(|error| panic!("{kind}, {name}: {error}"));
        }
    }
}

//! Every layer with weights learns through every numeric type on either device: quantisation-aware training of
//! its packed weights alone makes the loss less.

use super::setup::{ROWS, single};
use crate::dtype::DType;
use crate::layers::{Chain, Layer, Masked, Sample, samples};
use crate::network::{Morph, Numerics};
use crate::ops::update::Optimizer;
use crate::tensor::Precision;
use crate::train::{Examples, Schedule, TrainingConfig, train};
use crate::weights::ParameterInfo;
use crate::{Error, Network, Result, tensor_view};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

const STEPS: usize = 200;

const AT: [usize; 3] = [0, 0, 0];

/// A network of the layer alone.
fn alone(sample: &Sample, seed: u64) -> Result<Network> {
    let mut network = Network::with_options(sample.input.clone(), [1, 1, 1], Precision::Float32, seed)?;
    let masked = sample.masked && sample.layer.kind() != "masked";
    let layer: Arc<dyn Layer> = match masked {
        true => Arc::new(Masked::new(Chain::new(vec![sample.layer.clone()]))),
        false => sample.layer.clone(),
    };
    network.add_arc(AT, layer)?;
    network.build()?;
    Ok(network)
}

/// Whether a parameter is packed here: such as take on the layer's numeric type, and centroids, which are all
/// that there is to learn of their layer though they stay float unless they are named. Gains and positions
/// alone are proved to compute what they hold, not to learn through a few codes.
fn is_packed(info: &ParameterInfo) -> bool {
    info.morphable || info.name == "centroids"
}

/// How many weights are packed.
fn packed_weights(sample: &Sample) -> usize {
    let count = |network: Network| -> Result<usize> {
        let Some(store) = network.weights(AT, 0)? else { return Ok(0) };
        Ok(store.parameters().iter().filter(|info| is_packed(info)).map(|info| info.len()).sum())
    };
    alone(sample, 1).and_then(count).unwrap_or_else(|error| panic!("{}: {error}", sample.layer.config()))
}

/// The loss after the steps as a part of the one before, of which nothing moves but the packed weights.
fn learned(sample: &Sample, dtype: DType, device: &str, seed: u64) -> Result<f64> {
    let mut network = alone(sample, seed)?;
    let store = network.weights(AT, 0)?.ok_or_else(|| Error::State("no weights".into()))?;
    let all = store.parameters().iter().map(|info| (info.name.to_string(), is_packed(info)));
    let (packed, float): (Vec<_>, Vec<_>) =
        all.collect::<Vec<_>>().into_iter().partition(|(_, packed)| *packed);
    for (name, _) in &float {
        network.set_frozen(AT, 0, name, true)?;
    }
    let packed: Vec<&str> = packed.iter().map(|(name, _)| name.as_str()).collect();
    network
        .morph_layers(Morph { dtype, numerics: Numerics::default(), parameters: Some(&packed) }, |_| true)?;
    network.to(device)?;
    let row = single(sample);
    let outputs = network.output_shape().to_vec();
    let wanted: Vec<f32> =
        (0..ROWS * network.output_shape().len()).map(|i| [0.9, -0.6, 0.3, -0.8, 0.5][i % 5]).collect();
    let shape = |rows: usize| [&[rows], &sample.input[..]].concat();
    let loss = |network: &Network| -> Result<f64> {
        let made = network.predict(tensor_view(&shape(ROWS), &row)?)?.to_f64();
        Ok(made.iter().zip(&wanted).map(|(made, wanted)| (made - f64::from(*wanted)).powi(2)).sum())
    };
    let before = loss(&network)?;
    // The same few rows for every step.
    let (input, target) = (row.repeat(STEPS), wanted.repeat(STEPS));
    let examples = Examples::regression(
        tensor_view(&shape(ROWS * STEPS), &input)?,
        tensor_view(&[&[ROWS * STEPS], &outputs[..]].concat(), &target)?,
    );
    let config = TrainingConfig {
        batch_size: ROWS,
        learning_rate: 0.02,
        optimizer: Optimizer::adam(),
        schedule: Schedule::Cosine { end_factor: 0.0, steps: None },
        shuffle: false,
        ..TrainingConfig::default()
    };
    train(&mut network, &examples, &config)?;
    Ok(loss(&network)? / before)
}

/// The median over the seeds of what is left of the loss. Where the first two of three agree on whether that is
/// less than before, so does the median, and the one nearer to 1 stands for it.
fn median(sample: &Sample, dtype: DType, device: &str, seeds: u64) -> Result<f64> {
    let mut found = vec![learned(sample, dtype, device, 1)?];
    if seeds > 1 {
        found.push(learned(sample, dtype, device, 2)?);
        if (found[0] < 1.0) != (found[1] < 1.0) {
            found.push(learned(sample, dtype, device, 3)?);
        }
    }
    found.sort_by(f64::total_cmp);
    Ok(match found[..] {
        [low, high] if high < 1.0 => low.max(high),
        [low, _] => low,
        _ => found[found.len() / 2],
    })
}

/// Fills the matrix and prints it: rows are layers, columns types, each cell what is left of the loss. Of a
/// layer's types only every `nth` is tried, of the next layer's the ones after those.
fn matrix(device: &str, seeds: u64, nth: usize) {
    // Of each kind the sample with the most weights.
    let layers: Vec<(&str, Sample)> = samples()
        .into_iter()
        .filter_map(|(kind, samples)| {
            let alone = samples.into_iter().filter(|sample| sample.context.is_none());
            Some((kind, alone.max_by_key(packed_weights)?))
        })
        .filter(|(_, sample)| packed_weights(sample) > 0)
        .collect();
    let types: Vec<DType> = DType::all().collect();
    let cells = Mutex::new(vec![None; layers.len() * types.len()]);
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let cell = next.fetch_add(1, Ordering::Relaxed);
                    let Some((kind, sample)) = layers.get(cell / types.len()) else { break };
                    if !(cell / types.len() + cell % types.len()).is_multiple_of(nth) {
                        continue;
                    }
                    let dtype = types[cell % types.len()];
                    let found = median(sample, dtype, device, seeds)
                        .unwrap_or_else(|error| panic!("{kind} in {dtype} on {device}: {error}"));
                    cells.lock().unwrap()[cell] = Some(found);
                }
            });
        }
    });
    let cells = cells.into_inner().unwrap();
    let mut failed = Vec::new();
    let mut text = format!("What {STEPS} steps leave of the loss on {device}, in percent\n{:24}", "");
    types.iter().for_each(|dtype| text += &format!("{:>12}", dtype.name()));
    for ((kind, _), row) in layers.iter().zip(cells.chunks(types.len())) {
        text += &format!("\n{kind:24}");
        for (dtype, found) in types.iter().zip(row) {
            let Some(found) = found else {
                text += &format!("{:>12}", "");
                continue;
            };
            text += &format!("{:>12.2}", found * 100.0);
            if found.partial_cmp(&1.0) != Some(std::cmp::Ordering::Less) {
                failed.push(format!("{kind} in {dtype}: {found}"));
            }
        }
    }
    println!("{text}");
    assert!(failed.is_empty(), "no less than before on {device}: {failed:#?}");
}

#[test]
fn every_layer_learns_through_types_in_turn() {
    matrix("cpu", 3, 2);
}

#[test]
#[ignore = "a soak: make soak"]
fn every_layer_learns_through_every_type() {
    matrix("cpu", 3, 1);
}

#[cfg(feature = "gpu")]
#[test]
fn every_layer_learns_through_types_in_turn_on_a_gpu() {
    if crate::gpu::testing::gpu().is_some() {
        matrix("gpu:0", 3, 67);
    }
}

#[cfg(feature = "gpu")]
#[test]
#[ignore = "a soak: make soak"]
fn every_layer_learns_through_every_type_on_a_gpu() {
    if crate::gpu::testing::gpu().is_some() {
        matrix("gpu:0", 3, 1);
    }
}

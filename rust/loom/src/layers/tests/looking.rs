//! Looking into every registered layer: what is shown is the newest pass's or nothing, a pass of inference shows
//! what `predict` makes and moves nothing, and training passes draw anew.

use super::setup::for_every_kind;
use super::setup::{Place, ROWS, assert_close, for_every_sample, place, places, shaped, single};
use crate::layers::{BatchNorm, Dense, Dropout, LayerNorm, Sample};
use crate::network::{LayerValue, Network};
use crate::program::LayerPath;
use crate::random::{Stream, Use};
use crate::state::OptimizerState;
use crate::tensor::{Precision, TensorView};
use crate::train::{Examples, Trainer, TrainingConfig, TweenConfig, TweenState, evaluate};
use crate::{Error, Result, tensor_view};
use std::collections::BTreeSet;

/// Runs a proof on every sample on the CPU, and on the first of each kind on a GPU where there is one; it gets the
/// device with how far results there may be from the CPU's.
fn on_each_device(proof: impl Fn(&str, &Sample, (&str, f64)) -> Result<()>) {
    for_every_sample(|name, sample| proof(name, sample, ("cpu", 0.0)));
    if crate::device::testing::gpu().is_some() {
        for_every_kind(|name, sample| {
            proof(&format!("{name} on a GPU"), sample, ("gpu:0", sample.tolerance))
        });
    }
}

fn shown(network: &Network, (cell, layer): ([usize; 3], usize), which: LayerValue) -> Result<Vec<f64>> {
    let value = network.layer_value(cell, layer, which)?;
    assert_eq!(value.shape()[0], ROWS, "the rows of the pass and no others");
    Ok(value.to_f64())
}

/// What every layer shows fits together, and ends in this output.
fn shows(name: &str, network: &Network, output: &[f64]) -> Result<()> {
    let places = places(network);
    let mut before: Option<([usize; 3], Vec<f64>)> = None;
    for &at in &places {
        let input = shown(network, at, LayerValue::Input)?;
        if let Some((cell, made)) = before.filter(|(cell, _)| *cell == at.0) {
            assert!(input == made, "{name}: layer {at:?} of {cell:?} read something else than was made");
        }
        shown(network, at, LayerValue::Preactivation)?;
        before = Some((at.0, shown(network, at, LayerValue::Output)?));
    }
    let last = before.map(|(_, made)| made).unwrap_or_default();
    assert!(last == output, "{name}: the last layer shows something else than came out");
    Ok(())
}

/// The network with everything that persists.
fn file(network: &mut Network) -> Result<Vec<u8>> {
    network.to_bytes(crate::io::SaveOptions::resumable())
}

/// Weights and what layers keep, as bits, and the counters.
fn kept(network: &mut Network) -> Result<(Vec<Vec<u64>>, OptimizerState)> {
    let mut held = Vec::new();
    for (cell, layer) in places(network) {
        for name in network.parameter_names(cell, layer)? {
            held.push(network.parameter(cell, layer, &name)?.to_f64());
        }
        for name in network.state_names(cell, layer)? {
            held.push(network.state(cell, layer, &name)?.to_f64());
        }
    }
    let bits = held.iter().map(|values| values.iter().map(|x| x.to_bits()).collect());
    Ok((bits.collect(), network.optimizer_state().clone()))
}

fn hides(name: &str, network: &Network) {
    for (cell, layer) in places(network) {
        for which in [LayerValue::Input, LayerValue::Preactivation, LayerValue::Output] {
            let error = network.layer_value(cell, layer, which).unwrap_err();
            assert!(matches!(error, Error::State(_)), "{name}: {error}");
            assert!(error.to_string().contains("forward(x, training=False)"), "{name}: {error}");
        }
    }
    assert!(network.layer_statistics().is_err(), "{name}");
}

fn inference_is_shown(name: &str, sample: &Sample, (device, tolerance): (&str, f64)) -> Result<()> {
    let input = single(sample);
    let Place { mut network, .. } = place(sample, Precision::Float32)?;
    network.to(device)?;
    let view = || tensor_view(&shaped(ROWS, &sample.input), &input);
    let training = network.forward(view()?)?.output.to_f64();
    shows(&format!("{name}, training"), &network, &training)?;
    let before = kept(&mut network)?;
    let predicted = network.predict(view()?)?.to_f64();
    hides(&format!("{name}, after predict"), &network);
    let looked = network.forward_inference(view()?)?.output.to_f64();
    shows(name, &network, &looked)?;
    assert_close(&format!("{name}: as predicted"), &looked, &predicted, tolerance);
    // Going back leaves what was passed as it was.
    network.backward(tensor_view(&shaped(ROWS, network.output_shape()), &looked)?)?;
    shows(&format!("{name}, after backward"), &network, &looked)?;
    network.zero_gradients();
    let again = network.forward_inference(view()?)?.output.to_f64();
    assert!(again == looked, "{name}: inference has drawn or moved something");
    assert!(kept(&mut network)? == before, "{name}: inference has moved something");
    Ok(())
}

#[test]
fn inference_shows_what_predict_makes_and_moves_nothing() {
    on_each_device(inference_is_shown);
}

/// Passes of inference with weights packed: what they show is what `predict` makes from them.
#[test]
fn packed_layers_show_what_predict_makes() {
    use crate::dtype::{DType, Recipe};
    use crate::network::{Morph, Numerics};
    on_each_device(|name, sample, (device, tolerance)| {
        let input = single(sample);
        let Place { mut network, .. } = place(sample, Precision::Float32)?;
        let numerics = Numerics { recipe: Recipe::default(), activations: Some(DType::Int8) };
        // Layers that leave activations in float say so.
        if network.morph_layers(Morph { numerics, ..Morph::new(DType::Int8) }, |_| true).is_err() {
            network.morph(DType::Int4)?;
        }
        network.to(device)?;
        let view = || tensor_view(&shaped(ROWS, &sample.input), &input);
        let predicted = network.predict(view()?)?.to_f64();
        let looked = network.forward_inference(view()?)?.output.to_f64();
        shows(name, &network, &looked)?;
        // A row at the edge of two codes may go either way.
        let tolerance = if tolerance > 0.0 { 0.02 } else { 0.0 };
        assert_close(&format!("{name}, packed"), &looked, &predicted, tolerance);
        Ok(())
    });
}

/// Three passes of training, and whether any two of them differ. A file goes on with the draws.
fn passes(sample: &Sample, device: &str) -> Result<(Vec<Vec<f64>>, bool)> {
    let kind = sample.layer.kind();
    let input = single(sample);
    let Place { mut network, .. } = place(sample, Precision::Float32)?;
    network.to(device)?;
    let pass = |network: &mut Network| -> Result<Vec<f64>> {
        network.reset_states();
        Ok(network.forward(tensor_view(&shaped(ROWS, &sample.input), &input)?)?.output.to_f64())
    };
    let first = pass(&mut network)?;
    let file = file(&mut network)?;
    let made = vec![first, pass(&mut network)?, pass(&mut network)?];
    let differ = made[0] != made[1] && made[1] != made[2] && made[0] != made[2];
    assert!(differ || made[0] == made[1] && made[1] == made[2], "{kind}: only some passes draw anew");
    let mut loaded = Network::from_bytes(&file)?;
    loaded.to(device)?;
    assert!(pass(&mut loaded)? == made[1], "{kind}: a loaded network draws something else");
    Ok((made, differ))
}

/// Notes the kinds whose training passes draw.
fn draws(sample: &Sample, seen: &mut BTreeSet<String>) -> Result<()> {
    let (expected, differ) = passes(sample, "cpu")?;
    if !differ {
        return Ok(());
    }
    seen.insert(sample.layer.kind().to_string());
    if crate::device::testing::gpu().is_some() {
        for (found, expected) in passes(sample, "gpu:0")?.0.iter().zip(&expected) {
            assert_close(
                &format!("{}: draws on a GPU", sample.layer.kind()),
                found,
                expected,
                sample.tolerance,
            );
        }
    }
    let _ = expected;
    Ok(())
}

#[test]
fn every_pass_of_training_draws_anew_on_either_device_and_after_a_file() {
    let seen = std::cell::RefCell::new(BTreeSet::new());
    for_every_sample(|_, sample| draws(sample, &mut seen.borrow_mut()));
    let seen = seen.into_inner();
    for kind in ["dropout", "gumbel_softmax", "lstm", "gru", "rnn", "multi_head_attention"] {
        assert!(seen.contains(kind), "{kind} has drawn the same again: {seen:?}");
    }
    assert!(!seen.contains("dense") && !seen.contains("batch_norm"), "{seen:?}");
}

/// A network of dropout alone, whose output for ones is its mask.
fn masks(rate: f64) -> Result<Network> {
    let mut network = Network::with_options([FEATURES], [1, 1, 1], Precision::Float32, SEED)?;
    network.add([0, 0, 0], Dropout { rate })?;
    network.build()?;
    Ok(network)
}

const FEATURES: usize = 9;
const SEED: u64 = 0x1234_5678_9ABC;

fn ones(rows: usize) -> Vec<f32> {
    vec![1.0; rows * FEATURES]
}

fn pass(network: &mut Network, rows: usize) -> Result<Vec<f64>> {
    Ok(network.forward(tensor_view(&[rows, FEATURES], &ones(rows))?)?.output.to_f64())
}

fn back(network: &mut Network, rows: usize) -> Result<Vec<f64>> {
    Ok(network.backward(tensor_view(&[rows, FEATURES], &ones(rows))?)?.to_f64())
}

/// The mask of the stream of a pass, as it is documented.
fn drawn(forwards: u64, first_row: usize, rows: usize) -> Vec<f64> {
    let path = crate::program::LayerPath::new(0, 0, 0, 0).hash32();
    // The number's digits, lowest first, from the 56th of the step's down.
    let digits = (0..56).filter(|digit| forwards >> digit & 1 == 1);
    let step: u64 = digits.map(|digit| 1 << (55 - digit)).sum();
    let stream = Stream::new(SEED, step, path, Use::Dropout);
    let word = |i: usize| stream.word((first_row * FEATURES + i) as u64);
    (0..rows * FEATURES).map(|i| if word(i) < 1 << 31 { 0.0 } else { 2.0 }).collect()
}

/// Every order of calls: the newest pass's masks on the way back, and never a mask twice within a step.
#[test]
fn draws_go_by_passes_and_by_rows_gone_back_through() {
    let check = || -> Result<()> {
        let mut network = masks(0.5)?;
        assert_eq!(pass(&mut network, 4)?, drawn(0, 0, 4));
        assert_eq!(pass(&mut network, 2)?, drawn(1, 0, 2));
        // An inference pass in between is no pass that draws; going back through it counts no rows.
        assert_eq!(
            network.forward_inference(tensor_view(&[4, FEATURES], &ones(4))?)?.output.to_f64(),
            [1.0; 4 * FEATURES]
        );
        assert_eq!(back(&mut network, 4)?, [1.0; 4 * FEATURES]);
        assert_eq!(pass(&mut network, 3)?, drawn(2, 0, 3));
        assert_eq!(back(&mut network, 3)?, drawn(2, 0, 3));
        // Once more through the same pass, whose masks are what they were.
        assert_eq!(back(&mut network, 3)?, drawn(2, 0, 3));
        // Rows of one batch, part by part.
        assert_eq!(pass(&mut network, 5)?, drawn(2, 6, 5));
        assert_eq!(back(&mut network, 5)?, drawn(2, 6, 5));
        assert_eq!(pass(&mut network, 1)?, drawn(2, 11, 1));
        network.zero_gradients();
        assert_eq!(back(&mut network, 1)?, drawn(2, 11, 1));
        network.zero_gradients();
        assert_eq!(pass(&mut network, 1)?, drawn(3, 0, 1));
        Ok(())
    };
    check().unwrap();
}

/// What each call other than `forward` leaves to be looked at: nothing.
#[test]
fn only_forward_leaves_something_to_look_at() {
    let check = |device: &str| -> Result<()> {
        let mut network = Network::with_options([4, 3], [1, 1, 1], Precision::Float32, 2)?;
        network.add([0, 0, 0], Dense::new(3))?;
        network.add([0, 0, 0], LayerNorm::default())?;
        network.to(device)?;
        network.build()?;
        let x: Vec<f32> = (0..2 * 12).map(|i| i as f32 / 7.0 - 1.0).collect();
        let view = || -> Result<TensorView<'_>> { tensor_view(&[2, 4, 3], &x) };
        let examples = Examples::regression(view()?, view()?);
        let config = TrainingConfig { epochs: 1, batch_size: 2, ..TrainingConfig::default() };
        let mut session = network.session(2, 8)?;
        let mut mesh = crate::mesh::Mesh::new(&mut network, 2, 0)?;
        let tween = TweenConfig::tween().training();
        type Call<'a> = Box<dyn FnMut(&mut Network) -> Result<()> + 'a>;
        let calls: Vec<(&str, Call<'_>)> = vec![
            ("predict", Box::new(|network| network.predict(view()?).map(|_| ()))),
            ("observed", Box::new(|network| network.predict_observed(view()?, 1, |_| ()).map(|_| ()))),
            ("evaluate", Box::new(|network| evaluate(network, &examples, &config).map(|_| ()))),
            ("session", Box::new(|network| session.advance(network, view()?).map(|_| ()))),
            ("calibrate", Box::new(|network| network.calibrate(view()?, 99.0, 2))),
            ("mesh", Box::new(|network| mesh.tick(network, 1))),
            ("train", Box::new(|network| crate::train::train(network, &examples, &config).map(|_| ()))),
            (
                "step",
                Box::new(|network| {
                    let mut trainer = Trainer::new(network, &config, &examples, 10)?;
                    network.forward_inference(view()?)?;
                    trainer.step(network, &[(&examples, crate::train::Rows::First(2))]).map(|_| ())
                }),
            ),
            (
                "tween",
                Box::new(|network| {
                    let mut state = TweenState::new(network, &tween, false)?;
                    network.forward_inference(view()?)?;
                    state.forward(network, view()?).map(|_| ())
                }),
            ),
        ];
        for (name, mut call) in calls {
            network.forward_inference(view()?)?;
            assert!(network.layer_value([0, 0, 0], 0, LayerValue::Output).is_ok());
            call(&mut network)?;
            hides(&format!("{name} on {device}"), &network);
        }
        Ok(())
    };
    check("cpu").unwrap();
    if crate::device::testing::gpu().is_some() {
        check("gpu:0").unwrap();
    }
}

/// A pass of inference is not gone back through with other running statistics than it has read.
#[test]
fn moved_statistics_are_refused_on_the_way_back() {
    let check = || -> Result<()> {
        let mut network = Network::with_options([3], [1, 1, 1], Precision::Float64, 2)?;
        network.add([0, 0, 0], BatchNorm::default())?;
        let x: Vec<f64> = (0..6).map(f64::from).collect();
        network.forward_inference(tensor_view(&[2, 3], &x)?)?;
        network.backward(tensor_view(&[2, 3], &x)?)?;
        network.set_state([0, 0, 0], 0, "running_var", tensor_view(&[3], &[4.0f64, 5.0, 6.0])?)?;
        let error = network.backward(tensor_view(&[2, 3], &x)?).unwrap_err();
        assert!(error.to_string().contains("run forward again"), "{error}");
        network.forward_inference(tensor_view(&[2, 3], &x)?)?;
        network.backward(tensor_view(&[2, 3], &x)?).map(|_| ())
    };
    check().unwrap();
}

/// What is asked for without a trace is what a pass of inference shows, inside layers as well, whatever the batches;
/// and so is the gradient of the input.
fn nothing_is_left_by_looking(name: &str, sample: &Sample, (device, tolerance): (&str, f64)) -> Result<()> {
    let input = single(sample);
    let Place { mut network, cell, layer } = place(sample, Precision::Float32)?;
    network.to(device)?;
    let view = || tensor_view(&shaped(ROWS, &sample.input), &input);
    let output = network.forward_keeping_gradients(view()?, false)?.output;
    let to_input = network.backward(output.view())?.to_f64();
    let before = (kept(&mut network)?, gradients(&network)?);
    let inner = network.inner_layers(cell, layer)?;
    let mut asked = vec![(LayerPath::default(), LayerValue::Output)];
    for which in [LayerValue::Input, LayerValue::Preactivation, LayerValue::Output] {
        asked.extend(network.layers().map(|placed| (placed.path().clone(), which)));
        asked.extend(inner.iter().map(|layer| (layer.path.clone(), which)));
    }
    for batch_size in [ROWS, 1] {
        let found = network.layer_values(view()?, batch_size, &asked)?;
        for ((path, which), found) in asked.iter().zip(found) {
            let shown = match path.indices().is_empty() {
                true => output.to_f64(),
                false => {
                    network.fetch_value(path, *which)?;
                    network.value_at(path, *which)?.to_f64()
                }
            };
            let what = format!("{name}: {which:?} of {path} in batches of {batch_size}");
            assert_close(&what, &found.to_f64(), &shown, tolerance);
        }
        let gradient = network.input_gradient(view()?, output.view(), batch_size)?.to_f64();
        assert_close(&format!("{name}: gradient of the input"), &gradient, &to_input, tolerance.max(1e-6));
    }
    for layer in &inner {
        let (read, made) = (LayerValue::Input, LayerValue::Output);
        let found =
            network.layer_values(view()?, ROWS, &[(layer.path.clone(), read), (layer.path.clone(), made)])?;
        assert_eq!(found[0].shape(), shaped(ROWS, &layer.input_shape), "{name}: {}", layer.name);
        assert_eq!(found[1].shape(), shaped(ROWS, &layer.output_shape), "{name}: {}", layer.name);
        network.fetch_value(&layer.path, LayerValue::InputGradient)?;
        let gradient = network.value_at(&layer.path, LayerValue::InputGradient)?;
        assert_eq!(gradient.shape(), found[0].shape(), "{name}: {}", layer.name);
    }
    assert!((kept(&mut network)?, gradients(&network)?) == before, "{name}: looking has moved something");
    Ok(())
}

/// The gradients of all parameters.
fn gradients(network: &Network) -> Result<Vec<Vec<f64>>> {
    let mut all = Vec::new();
    for (cell, layer) in places(network) {
        for name in network.parameter_names(cell, layer)? {
            all.push(network.gradient(cell, layer, &name)?.to_f64());
        }
    }
    Ok(all)
}

#[test]
fn looking_without_a_trace_finds_what_passes_show() {
    on_each_device(nothing_is_left_by_looking);
}

/// Layers inside others, whose values are pinned in the manual loop, are trained to the same bits as without.
#[test]
fn looking_inside_changes_no_bit_of_training() {
    for_every_sample(|name, sample| {
        let input = single(sample);
        let view = || tensor_view(&shaped(ROWS, &sample.input), &input);
        let mut made = Vec::new();
        for keeps in [false, true] {
            let Place { mut network, .. } = place(sample, Precision::Float32)?;
            for _ in 0..2 {
                let output = match keeps {
                    false => network.forward(view()?),
                    true => network.forward_keeping_gradients(view()?, true),
                }?
                .output;
                network.backward(output.view())?;
                if network.trained_stores().next().is_some() {
                    network.apply_gradients(0.1)?;
                }
            }
            made.push(kept(&mut network)?);
        }
        assert!(made[0] == made[1], "{name}: gradients that are kept have moved training");
        Ok(())
    });
}

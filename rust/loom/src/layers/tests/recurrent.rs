//! What the conformance tests do not see: sessions, states carried through training, masks, configs.

use crate::layers::{Dense, Flatten, Gru, InitialState, Layer, Lstm, Rnn, from_config};
use crate::tensor::{Precision, Shape, Tensor};
use crate::train::{Examples, OnNonFinite, TrainingConfig, train};
use crate::{Network, Result, tensor_view};
use serde_json::json;

fn numbers(len: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 37 % 101) as f32 - 50.0) / 40.0).collect()
}

/// The layer between two others, on sequences of `time` steps of 3 features.
fn network(layer: impl Layer + 'static, time: usize) -> Result<Network> {
    let mut network = Network::with_options([time, 3], [1, 1, 1], Precision::Float32, 5)?;
    network.add([0, 0, 0], Dense::new(4))?;
    network.add([0, 0, 0], layer)?;
    network.add([0, 0, 0], Dense::new(2))?;
    network.build()?;
    Ok(network)
}

/// The state at the start moved away from zero.
fn move_states(network: &mut Network) -> Result<()> {
    for name in network.parameter_names([0, 0, 0], 1)?.into_iter().filter(|name| name.starts_with("state")) {
        let shape = network.parameter([0, 0, 0], 1, &name)?.shape().to_vec();
        let values = numbers(shape.iter().product());
        network.set_parameter([0, 0, 0], 1, &name, tensor_view(&shape, &values)?)?;
    }
    Ok(())
}

fn sessions_equal_whole_sequences(
    layer: impl Layer + Clone + 'static,
    last: bool,
    device: &str,
) -> Result<()> {
    let mut network = network(layer, 7)?;
    move_states(&mut network)?;
    network.to(device)?;
    let input = numbers(2 * 7 * 3);
    let whole = network.predict(tensor_view(&[2, 7, 3], &input)?)?.to_f32();
    // Another session finds nothing of the one before.
    for _ in 0..2 {
        let mut session = network.session(2, 7)?;
        let mut found = vec![Vec::new(); 2];
        for (start, steps) in [(0, 1), (1, 3), (4, 3)] {
            let piece: Vec<f32> =
                input.chunks(21).flat_map(|row| row[start * 3..(start + steps) * 3].to_vec()).collect();
            let output = session.advance(&network, tensor_view(&[2, steps, 3], &piece)?)?.to_f32();
            for (row, output) in output.chunks(output.len() / 2).enumerate() {
                if last {
                    found[row].clear();
                }
                found[row].extend_from_slice(output);
            }
        }
        let found = found.concat();
        assert_eq!(found.len(), whole.len());
        for (found, whole) in found.iter().zip(&whole) {
            let same = if device == "cpu" { found == whole } else { (found - whole).abs() < 1e-5 };
            assert!(same, "{found} in pieces, {whole} at once");
        }
    }
    Ok(())
}

#[test]
fn a_sequence_in_pieces_is_the_sequence() -> Result<()> {
    let learned = InitialState::Learned;
    for device in devices() {
        sessions_equal_whole_sequences(Lstm::new(5).layers(2).return_sequences(), false, device)?;
        let layer = Lstm { initial_state: learned, ..Lstm::new(5).layers(2).return_sequences() };
        sessions_equal_whole_sequences(layer, false, device)?;
        sessions_equal_whole_sequences(Gru { initial_state: learned, ..Gru::new(5) }, true, device)?;
        sessions_equal_whole_sequences(Rnn::new(5), true, device)?;
    }
    Ok(())
}

#[test]
fn a_sequence_read_from_its_end_has_no_pieces() -> Result<()> {
    let error = network(Gru::new(2).bidirectional(), 3)?.session(1, 3).unwrap_err().to_string();
    assert!(error.contains("gru") || error.contains("session"), "{error}");
    Ok(())
}

#[test]
fn stateful_training_goes_on_from_batch_to_batch() -> Result<()> {
    let layer = Lstm { stateful: true, ..Lstm::new(4).layers(2).return_sequences() };
    let mut whole = network(Lstm { stateful: false, ..layer.clone() }, 6)?;
    let mut halves = network(layer, 3)?;
    let input = numbers(2 * 6 * 3);
    let half = |part: usize| -> Vec<f32> {
        input.chunks(18).flat_map(|row| row[part * 9..part * 9 + 9].to_vec()).collect()
    };
    let expected = whole.forward(tensor_view(&[2, 6, 3], &input)?)?.output.to_f32();
    let steps = |output: Tensor| output.to_f32();
    for round in 0..2 {
        for part in 0..2 {
            let found = steps(halves.forward(tensor_view(&[2, 3, 3], &half(part))?)?.output);
            for row in 0..2 {
                assert_eq!(
                    found[row * 6..][..6],
                    expected[row * 12 + part * 6..][..6],
                    "{round} {part} {row}"
                );
            }
        }
        halves.reset_states();
    }
    // Inference starts at zeros.
    halves.forward(tensor_view(&[2, 3, 3], &half(0))?)?;
    let found = steps(halves.predict(tensor_view(&[2, 3, 3], &half(0))?)?);
    assert_eq!(found[..6], expected[..6]);
    Ok(())
}

fn stateful() -> Result<Network> {
    network(Lstm { stateful: true, ..Lstm::new(4).layers(2).return_sequences() }, 3)
}

fn devices() -> impl Iterator<Item = &'static str> {
    std::iter::once("cpu").chain(crate::device::testing::gpu())
}

/// The outputs of forward passes over the same two rows.
fn passes(network: &mut Network, count: usize) -> Result<Vec<Vec<f32>>> {
    let input = numbers(2 * 3 * 3);
    (0..count).map(|_| Ok(network.forward(tensor_view(&[2, 3, 3], &input)?)?.output.to_f32())).collect()
}

#[test]
fn what_is_carried_is_read_set_reset_saved_and_moved() -> Result<()> {
    for device in devices() {
        let mut first = stateful()?;
        first.to(device)?;
        assert_eq!(first.carried_names([0, 0, 0], 1)?, ["state_l0", "state_l1"]);
        assert!(first.state_names([0, 0, 0], 1)?.is_empty());
        assert!(first.state([0, 0, 0], 1, "state_l0").unwrap_err().to_string().contains("carries nothing"));
        let expected = passes(&mut first, 4)?;
        assert_ne!(expected[0], expected[1]);
        // A new sequence begins where it is reset, however often.
        for _ in 0..2 {
            first.reset_states();
            assert_eq!(passes(&mut first, 2)?, expected[..2], "after a reset on {device}");
        }
        assert_eq!(first.state_names([0, 0, 0], 1)?, ["state_l0", "state_l1"]);
        let held: Vec<Tensor> = ["state_l0", "state_l1"]
            .iter()
            .map(|name| first.state([0, 0, 0], 1, name))
            .collect::<Result<_>>()?;
        assert_eq!(held[0].shape(), [2, 2, 4]);
        // Set in another network.
        let mut set = stateful()?;
        set.to(device)?;
        for (name, held) in ["state_l0", "state_l1"].iter().zip(&held) {
            set.set_state([0, 0, 0], 1, name, held.view())?;
        }
        assert_eq!(passes(&mut set, 2)?, expected[2..], "after it was set on {device}");
        // Through a file, and from there to the device.
        let mut loaded = Network::from_bytes(&first.to_bytes(Default::default())?)?;
        loaded.to(device)?;
        assert_eq!(passes(&mut loaded, 2)?, expected[2..], "after it was loaded on {device}");
        // There and back again.
        first.to("cpu")?;
        first.to(device)?;
        assert_eq!(passes(&mut first, 1)?, expected[2..3], "after it was moved on {device}");
        // A network that grows keeps what it carries.
        first.add([0, 0, 0], Flatten {})?;
        assert_eq!(passes(&mut first, 1)?, expected[3..], "after it has grown on {device}");
        // Other rows, other extents, what is not there.
        let mut refused = |name: &str, shape: &[usize]| {
            let values = vec![0.0f32; shape.iter().product()];
            set.set_state([0, 0, 0], 1, name, tensor_view(shape, &values)?)
        };
        let message = |outcome: Result<()>| outcome.unwrap_err().to_string();
        assert!(message(refused("state_l0", &[3, 2, 4])).contains("2 rows"));
        assert!(message(refused("state_l0", &[2, 2, 5])).contains("shape"));
        assert!(message(refused("state_l9", &[2, 2, 4])).contains("state_l1"));
    }
    Ok(())
}

/// The states that a training of these batches leaves, and its losses.
fn left(
    shuffle: bool,
    accumulate: usize,
    device: &str,
    batch_size: usize,
) -> Result<(Vec<f64>, Option<Vec<f32>>)> {
    let mut network = stateful()?;
    network.to(device)?;
    let (input, target) = (numbers(4 * 3 * 3), numbers(4 * 3 * 2));
    let examples = Examples::regression(tensor_view(&[4, 3, 3], &input)?, tensor_view(&[4, 3, 2], &target)?);
    let config = TrainingConfig { epochs: 2, batch_size, shuffle, accumulate, ..Default::default() };
    let losses = train(&mut network, &examples, &config)?.loss_history;
    let names = network.state_names([0, 0, 0], 1)?;
    let state = names.first().map(|name| network.state([0, 0, 0], 1, name)).transpose()?;
    Ok((losses, state.map(|state| state.to_f32())))
}

#[test]
fn what_is_shuffled_begins_new_sequences_in_every_batch() -> Result<()> {
    for device in devices() {
        for accumulate in [1, 2] {
            let (_, state) = left(true, accumulate, device, 1)?;
            assert!(state.is_none(), "{accumulate} on {device}");
            // So a last batch of another size is as good as any.
            left(true, accumulate, device, 3)?;
            let (_, state) = left(false, accumulate, device, 1)?;
            assert!(state.is_some_and(|state| state.iter().any(|x| *x != 0.0)), "{accumulate} on {device}");
            let error = left(false, accumulate, device, 3).unwrap_err().to_string();
            assert!(error.contains("this batch has 1"), "{error}");
        }
        // As if the layer carried nothing.
        let mut plain = network(Lstm::new(4).layers(2).return_sequences(), 3)?;
        plain.to(device)?;
        let (input, target) = (numbers(4 * 3 * 3), numbers(4 * 3 * 2));
        let examples =
            Examples::regression(tensor_view(&[4, 3, 3], &input)?, tensor_view(&[4, 3, 2], &target)?);
        let config = TrainingConfig { epochs: 2, batch_size: 1, ..Default::default() };
        assert_eq!(train(&mut plain, &examples, &config)?.loss_history, left(true, 1, device, 1)?.0);
    }
    Ok(())
}

/// A step of several batches that goes wrong in a later one leaves what was carried before it.
#[test]
fn a_step_that_is_left_out_carries_nothing_on() -> Result<()> {
    for device in devices() {
        let mut network = stateful()?;
        network.to(device)?;
        let (mut input, target) = (numbers(4 * 3 * 3), numbers(4 * 3 * 2));
        input[3 * 9] = f32::NAN;
        let examples =
            Examples::regression(tensor_view(&[4, 3, 3], &input)?, tensor_view(&[4, 3, 2], &target)?);
        let config = TrainingConfig {
            epochs: 1,
            batch_size: 1,
            shuffle: false,
            accumulate: 2,
            on_nonfinite: OnNonFinite::Skip,
            ..Default::default()
        };
        let result = train(&mut network, &examples, &config)?;
        assert_eq!(result.skipped_steps, 1);
        let after = network.state([0, 0, 0], 1, "state_l0")?;
        // The third batch, the first one of the step that was left out, is as if it had never come.
        let mut half = stateful()?;
        half.to(device)?;
        train(&mut half, &examples.slice_rows(0..2), &config)?;
        assert_eq!(after, half.state([0, 0, 0], 1, "state_l0")?, "{device}");
    }
    Ok(())
}

/// What the gradient of a stateful layer is where its states are given: those of the batch alone.
#[test]
fn gradients_end_where_the_batch_begins() -> Result<()> {
    let mut network = Network::with_options([2, 1], [1, 1, 1], Precision::Float64, 5)?;
    network.add([0, 0, 0], Lstm { stateful: true, ..Lstm::new(3) })?;
    network.build()?;
    let (one, two) = ([0.3, -0.8], [1.1, 0.4]);
    let value = |network: &mut Network, two: &[f64]| -> Result<f64> {
        network.reset_states();
        network.forward(tensor_view(&[1, 2, 1], &one)?)?;
        Ok(network.forward(tensor_view(&[1, 2, 1], two)?)?.output.to_f64().iter().sum())
    };
    value(&mut network, &two)?;
    let found = network.backward(tensor_view(&[1, 3], &[1.0, 1.0, 1.0])?)?.to_f64();
    for i in 0..2 {
        let moved = |by: f64| {
            let mut moved = two;
            moved[i] += by;
            moved
        };
        let difference = (value(&mut network, &moved(1e-5))? - value(&mut network, &moved(-1e-5))?) / 2e-5;
        assert!((found[i] - difference).abs() < 1e-8, "{} for {difference}", found[i]);
    }
    Ok(())
}

#[test]
fn weights_start_as_they_should() -> Result<()> {
    let network = network(Lstm::new(4).bidirectional(), 2)?;
    let cell = [0, 0, 0];
    let names = network.parameter_names(cell, 1)?;
    let expected = [
        "weight_ih_l0",
        "weight_hh_l0",
        "bias_ih_l0",
        "bias_hh_l0",
        "weight_ih_l0_reverse",
        "weight_hh_l0_reverse",
        "bias_ih_l0_reverse",
        "bias_hh_l0_reverse",
    ];
    assert_eq!(names, expected);
    let bias = network.parameter(cell, 1, "bias_ih_l0")?.to_f32();
    assert_eq!(bias, [[0.0; 4], [1.0; 4], [0.0; 4], [0.0; 4]].concat());
    let weight = network.parameter(cell, 1, "weight_hh_l0")?;
    assert_eq!(weight.shape(), [16, 4]);
    let weight = weight.to_f64();
    for gate in weight.chunks(16) {
        for (i, row) in gate.chunks(4).enumerate() {
            let dot = |other: &[f64]| row.iter().zip(other).map(|(a, b)| a * b).sum::<f64>();
            for (j, other) in gate.chunks(4).enumerate() {
                assert!((dot(other) - f64::from(i == j)).abs() < 1e-6);
            }
        }
    }
    Ok(())
}

#[test]
fn configs_are_checked() {
    let message = |config: serde_json::Value| from_config(&config).unwrap_err().to_string();
    assert!(message(json!({"type": "lstm", "units": 0})).contains("units must be at least 1"));
    assert!(message(json!({"type": "gru", "units": 2, "layers": 0})).contains("layers must be from 1"));
    assert!(message(json!({"type": "rnn", "units": 2, "dropout": 1.0})).contains("below 1"));
    let both = json!({"type": "rnn", "units": 2, "stateful": true, "bidirectional": true});
    assert!(message(both).contains("cannot be stateful"));
    let learned = json!({"type": "rnn", "units": 2, "stateful": true, "initial_state": "learned"});
    assert!(message(learned).contains("initial_state must be"));
    assert!(message(json!({"type": "lstm", "units": 2, "activation": "relu"})).contains("activation"));
}

#[test]
fn shapes_that_do_not_fit_are_named() {
    let error = Lstm::new(3).output_shape(&[Shape::from([4])]).unwrap_err().to_string();
    assert!(error.contains("(time, features)"), "{error}");
    let layer = Gru { initial_state: InitialState::Context, ..Gru::new(3).layers(2) };
    let error = layer.output_shape(&[Shape::from([4, 1]), Shape::from([5])]).unwrap_err().to_string();
    assert!(error.contains("a context of 6 numbers"), "{error}");
}

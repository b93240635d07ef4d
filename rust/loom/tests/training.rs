//! Whole trainings: they learn, they resume, they are the same bits every time, and bad input
//! leaves the network as it was.

use loom::dtype::DType;
use loom::io::SaveOptions;
use loom::layers::{Conv2D, Dense, Dropout, Flatten, MaxPool2D, Softmax};
use loom::ops::pointwise::Activation;
use loom::train::{
    Callback, EpochReport, Examples, LossConfig, Metric, OnNonFinite, Optimizer, Schedule, StepReport,
    TrainingConfig, evaluate, train, train_with,
};
use loom::{Error, Network, Result, tensor_view};
use std::ops::ControlFlow;

const ROWS: usize = 96;

/// Points of three classes: which third of the circle an angle lies in.
fn circle() -> (Vec<f32>, Vec<i32>) {
    let mut points = Vec::new();
    let mut labels = Vec::new();
    for i in 0..ROWS {
        let turn = i as f32 * 0.618_034 % 1.0;
        let radius = 0.5 + 0.5 * (i % 7) as f32 / 7.0;
        points.extend([
            radius * (turn * std::f32::consts::TAU).cos(),
            radius * (turn * std::f32::consts::TAU).sin(),
        ]);
        labels.push((turn * 3.0) as i32);
    }
    (points, labels)
}

fn mlp(seed: u64) -> Result<Network> {
    let mut network = Network::with_options([2], [1, 1, 2], Default::default(), seed)?;
    network.add([0, 0, 0], Dense::new(32).activation(Activation::Relu))?;
    network.add([0, 0, 0], Dropout { rate: 0.1 })?;
    network.add([0, 0, 1], Dense::new(3))?;
    Ok(network)
}

fn config(epochs: u64) -> Result<TrainingConfig> {
    Ok(TrainingConfig {
        epochs,
        batch_size: 10,
        learning_rate: 0.01,
        loss: LossConfig::parse("cross_entropy")?,
        schedule: Schedule::Cosine { end_factor: 0.1, steps: Some(200) },
        gradient_clip: Some(1.0),
        metrics: vec![Metric::Accuracy],
        seed: 11,
        ..TrainingConfig::default()
    })
}

fn bytes(network: &mut Network) -> Result<Vec<f32>> {
    network.build()?;
    let places: Vec<Vec<usize>> = network.layers().map(|placed| placed.path().indices().to_vec()).collect();
    let mut all = Vec::new();
    for at in places {
        let cell = [at[0], at[1], at[2]];
        for name in network.parameter_names(cell, at[3])? {
            all.extend(network.parameter(cell, at[3], &name)?.to_f32());
        }
    }
    Ok(all)
}

#[test]
fn a_small_network_learns() -> Result<()> {
    let (points, labels) = circle();
    let examples = Examples::classified(tensor_view(&[ROWS, 2], &points)?, &labels);
    for optimizer in [
        Optimizer::default(),
        Optimizer::adam(),
        Optimizer::rms_prop(),
        Optimizer::Sgd { momentum: 0.9, nesterov: true, weight_decay: 0.0, decay_exempt: false },
    ] {
        let mut network = mlp(2)?;
        let config = TrainingConfig { optimizer, schedule: Schedule::Constant, ..config(40)? };
        let result = train(&mut network, &examples, &config)?;
        let found = evaluate(&network, &examples, &config)?;
        assert_eq!(result.loss_history.len(), 40);
        assert!(found.metrics[0].1 > 0.95, "{:?}: {found:?}", config.optimizer);
        assert!(result.final_loss < 0.5 * result.loss_history[0], "{result:?}");
    }
    Ok(())
}

#[test]
fn softmax_at_the_end_trains_as_logits_do() -> Result<()> {
    let (points, labels) = circle();
    let examples = Examples::classified(tensor_view(&[ROWS, 2], &points)?, &labels);
    let mut logits = mlp(4)?;
    let mut probabilities = mlp(4)?;
    probabilities.add([0, 0, 1], Softmax::default())?;
    train(&mut logits, &examples, &config(3)?)?;
    train(&mut probabilities, &examples, &config(3)?)?;
    assert_eq!(bytes(&mut logits)?, bytes(&mut probabilities)?);
    let nll = TrainingConfig { loss: LossConfig::parse("nll")?, ..config(3)? };
    let mut again = mlp(4)?;
    again.add([0, 0, 1], Softmax::default())?;
    train(&mut again, &examples, &nll)?;
    assert_eq!(bytes(&mut logits)?, bytes(&mut again)?);
    Ok(())
}

/// Stops after some steps.
struct StopAfter(usize);

impl Callback for StopAfter {
    fn on_step_end(&mut self, _network: &Network, _report: &StepReport) -> ControlFlow<()> {
        self.0 -= 1;
        if self.0 == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

#[test]
fn a_resumed_training_is_the_uninterrupted_one() -> Result<()> {
    let (points, labels) = circle();
    let examples = Examples::classified(tensor_view(&[ROWS, 2], &points)?, &labels);
    let mut whole = mlp(6)?;
    let expected = train(&mut whole, &examples, &config(6)?)?;
    // Stopped in the middle of the third epoch, saved, loaded, and taken up again.
    let mut first = mlp(6)?;
    train_with(&mut first, &examples, None, &config(6)?, false, &mut StopAfter(24))?;
    let saved = first.to_bytes(SaveOptions::resumable())?;
    let mut second = Network::from_bytes(&saved)?;
    let result = train_with(&mut second, &examples, None, &config(6)?, true, &mut ())?;
    assert_eq!(bytes(&mut second)?, bytes(&mut whole)?);
    assert_eq!(result.loss_history[..], expected.loss_history[2..]);
    Ok(())
}

#[test]
fn accumulation_equals_the_large_batch_but_for_rounding() -> Result<()> {
    let (points, labels) = circle();
    let examples = Examples::classified(tensor_view(&[ROWS, 2], &points)?, &labels);
    let mut large = mlp(8)?;
    let mut small = mlp(8)?;
    train(&mut large, &examples, &TrainingConfig { batch_size: 24, ..config(3)? })?;
    train(&mut small, &examples, &TrainingConfig { batch_size: 8, accumulate: 3, ..config(3)? })?;
    for (large, small) in bytes(&mut large)?.iter().zip(bytes(&mut small)?) {
        assert!((large - small).abs() < 1e-4, "{large} {small}");
    }
    Ok(())
}

#[test]
fn a_convolutional_network_learns_in_low_bits_too() -> Result<()> {
    // Bars that lie or stand, with noise.
    let mut images = Vec::new();
    let mut labels = Vec::new();
    for i in 0..64usize {
        let (at, upright) = (i / 2 % 8, i % 2);
        for y in 0..8 {
            for x in 0..8 {
                let bar = if upright == 1 { x == at } else { y == at };
                images.push(f32::from(u8::from(bar)) + 0.1 * ((i * 7 + y * 3 + x * 5) % 11) as f32 / 11.0);
            }
        }
        labels.push(upright as i32);
    }
    let examples = Examples::classified(tensor_view(&[64, 1, 8, 8], &images)?, &labels);
    for dtype in [DType::Float32, DType::BFloat16, DType::Int8] {
        let mut network = Network::sequential([1, 8, 8])?;
        network.add([0, 0, 0], Conv2D::new(6, [3, 3]).activation(Activation::Relu))?;
        network.add([0, 0, 0], MaxPool2D::new([2, 2]))?;
        network.add([0, 0, 0], Flatten {})?;
        network.add([0, 0, 0], Dense::new(2))?;
        network.morph(dtype)?;
        let result = train(&mut network, &examples, &TrainingConfig { gradient_clip: None, ..config(30)? })?;
        assert!(result.final_loss < 0.1, "{dtype}: {:?}", result.loss_history);
        // What was saved comes back to the bit, and predicts the same.
        let again = Network::from_bytes(&network.to_bytes(SaveOptions::default())?)?;
        let view = tensor_view(&[64, 1, 8, 8], &images)?;
        assert_eq!(network.predict(view.clone())?, again.predict(view)?);
    }
    Ok(())
}

#[test]
fn one_row_and_many_predict_the_same_bits() -> Result<()> {
    let (points, _) = circle();
    let mut network = mlp(3)?;
    network.build()?;
    let all = network.predict(tensor_view(&[ROWS, 2], &points)?)?.to_f32();
    for batch in [1usize, 7, 64] {
        let split = network.predict_batched(tensor_view(&[ROWS, 2], &points)?, batch)?.to_f32();
        assert_eq!(all, split, "batch {batch}");
    }
    Ok(())
}

#[test]
fn bad_data_changes_nothing() -> Result<()> {
    let (mut points, mut labels) = circle();
    let mut network = mlp(5)?;
    let before = bytes(&mut network)?;
    let refused = |network: &mut Network, points: &[f32], labels: &[i32], config: &TrainingConfig| {
        let shape = [points.len() / 2, 2];
        let view = tensor_view(&shape, points).expect("the test's own shape fits");
        train(network, &Examples::classified(view, labels), config).expect_err("bad data must be refused")
    };
    labels[3] = 7;
    let error = refused(&mut network, &points, &labels, &config(1)?);
    assert!(matches!(&error, Error::Value(message) if message.contains('7')), "{error}");
    labels[3] = 0;
    points[9] = f32::NAN;
    let error = refused(&mut network, &points, &labels, &config(1)?);
    assert!(matches!(&error, Error::NonFinite(message) if message.contains("row 4")), "{error}");
    points[9] = 0.0;
    let error = refused(&mut network, &points, &labels[..9], &config(1)?);
    assert!(matches!(&error, Error::Shape(_)), "{error}");
    let error = refused(&mut network, &[], &[], &config(1)?);
    assert!(matches!(&error, Error::Value(message) if message.contains("empty")), "{error}");
    let error = refused(&mut network, &points, &labels, &TrainingConfig { batch_size: 0, ..config(1)? });
    assert!(matches!(&error, Error::Value(message) if message.contains("batch_size")), "{error}");
    assert_eq!(bytes(&mut network)?, before);
    Ok(())
}

#[test]
fn a_diverging_step_stops_with_the_layer_or_is_skipped() -> Result<()> {
    let (points, labels) = circle();
    let huge: Vec<f32> = points.iter().map(|x| x * 1e38).collect();
    let examples = Examples::classified(tensor_view(&[ROWS, 2], &huge)?, &labels);
    let mut network = mlp(7)?;
    let before = bytes(&mut network)?;
    let error = train(&mut network, &examples, &config(1)?).expect_err("the loss is not finite");
    assert!(matches!(&error, Error::NonFinite(message) if message.contains("layer")), "{error}");
    assert_eq!(bytes(&mut network)?, before);
    let skipping = TrainingConfig { on_nonfinite: OnNonFinite::Skip, ..config(1)? };
    let result = train(&mut network, &examples, &skipping)?;
    assert_eq!(result.skipped_steps, 10);
    assert_eq!(bytes(&mut network)?, before);
    Ok(())
}

/// Collects what callbacks are told.
#[derive(Default)]
struct Epochs(Vec<EpochReport>);

impl Callback for Epochs {
    fn on_epoch_end(&mut self, _network: &Network, report: &EpochReport) -> ControlFlow<()> {
        self.0.push(report.clone());
        if report.epoch == 1 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

#[test]
fn validation_and_callbacks() -> Result<()> {
    let (points, labels) = circle();
    let examples = Examples::classified(tensor_view(&[ROWS, 2], &points)?, &labels);
    let mut network = mlp(9)?;
    let settings = TrainingConfig { validation_split: 0.25, ..config(5)? };
    let mut epochs = Epochs::default();
    let result = train_with(&mut network, &examples, None, &settings, false, &mut epochs)?;
    assert_eq!(epochs.0.len(), 2);
    assert_eq!(result.metrics["val_accuracy"].len(), 2);
    assert_eq!(epochs.0[0].validation.as_ref().map(|found| found.rows), Some(24));
    Ok(())
}

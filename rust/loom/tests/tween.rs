//! Learning by targets: what it equals, what it survives, on every device.

use loom::io::SaveOptions;
use loom::layers::{AvgPool2D, Conv2D, Dense, Flatten, Gru, LayerNorm, Lstm, MaxPool2D, Softmax};
use loom::ops::measure::{ExplosionRule, Header};
use loom::ops::pointwise::Activation;
use loom::train::{
    DepthScale, Examples, FeedbackConfig, Initializer, LossConfig, Optimizer, Rows, TargetMode, Trainer,
    TrainingConfig, TweenConfig, Watch, train, train_with,
};
use loom::{Device, Error, Network, Precision, Result, tensor_view};
use safetensors::SafeTensors;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How a network of some precision is made.
type Make = fn(Precision) -> Result<Network>;

/// Settings of the device are the whole process's, so one test at a time uses it.
static ALONE: Mutex<()> = Mutex::new(());

/// Whether there is a GPU, for this test alone. Without one the test is skipped, unless
/// `LOOM_REQUIRE_GPU=1` says that there must be one.
fn gpu() -> Option<MutexGuard<'static, ()>> {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    match Device::open("gpu", Precision::Float32) {
        Ok(device) => (device.to_string() != "cpu").then_some(alone),
        Err(error) if std::env::var("LOOM_REQUIRE_GPU").is_ok_and(|value| value == "1") => {
            panic!("LOOM_REQUIRE_GPU is set, and {error}")
        }
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

fn noise(count: usize) -> Vec<f64> {
    (0..count).map(|i| ((i as f64 + 1.0) * 0.618_034).fract() * 2.0 - 1.0).collect()
}

/// Rows with a label that a network can find out: which quarter is the largest.
struct Data {
    shape: Vec<usize>,
    input: Vec<f64>,
    labels: Vec<i32>,
}

impl Data {
    fn new(rows: usize, row: &[usize]) -> Self {
        let width: usize = row.iter().product();
        let mut input = noise(rows * width);
        let labels: Vec<i32> = (0..rows as i32).map(|i| (i * 7 + i / 3) % 4).collect();
        for (row, label) in input.chunks_mut(width).zip(&labels) {
            let part = width / 4;
            row[*label as usize * part..][..part].iter_mut().for_each(|x| *x += 0.6);
        }
        Self { shape: [&[rows], row].concat(), input, labels }
    }

    fn examples(&self) -> Result<Examples<'_>> {
        Ok(Examples::classified(tensor_view(&self.shape, &self.input)?, &self.labels))
    }
}

fn dense(precision: Precision, activation: Activation) -> Result<Network> {
    let mut network = Network::with_options([20], [1, 1, 1], precision, 3)?;
    for units in [24, 17, 12] {
        network.add([0, 0, 0], Dense::new(units).activation(activation))?;
    }
    network.add([0, 0, 0], Dense::new(4))?;
    Ok(network)
}

fn images(precision: Precision) -> Result<Network> {
    let mut network = Network::with_options([1, 8, 8], [1, 1, 1], precision, 5)?;
    network.add([0, 0, 0], Conv2D::new(6, [3, 3]).activation(Activation::Relu))?;
    network.add([0, 0, 0], MaxPool2D::new([2, 2]))?;
    network.add([0, 0, 0], Conv2D::new(8, [2, 2]).activation(Activation::Tanh))?;
    network.add([0, 0, 0], AvgPool2D::new([2, 2]))?;
    network.add([0, 0, 0], Flatten {})?;
    network.add([0, 0, 0], Dense::new(9).activation(Activation::Tanh))?;
    network.add([0, 0, 0], Dense::new(4))?;
    network.add([0, 0, 0], Softmax::default())?;
    Ok(network)
}

fn sequences(precision: Precision) -> Result<Network> {
    let mut network = Network::with_options([5, 4], [1, 1, 1], precision, 7)?;
    network.add([0, 0, 0], Lstm::new(6).return_sequences())?;
    network.add([0, 0, 0], LayerNorm::default())?;
    network.add([0, 0, 0], Gru::new(5))?;
    network.add([0, 0, 0], Dense::new(4))?;
    Ok(network)
}

fn training(tween: TweenConfig) -> Result<TrainingConfig> {
    Ok(TrainingConfig {
        epochs: 3,
        batch_size: 8,
        loss: LossConfig::parse("cross_entropy")?,
        ..tween.training()
    })
}

fn weights(network: &mut Network) -> Result<Vec<f64>> {
    network.synchronize()?;
    let places: Vec<([usize; 3], usize)> = network
        .layers()
        .map(|placed| {
            let path = placed.path().indices();
            ([path[0], path[1], path[2]], path[3])
        })
        .collect();
    let mut found = Vec::new();
    for (cell, layer) in places {
        for name in network.parameter_names(cell, layer)? {
            found.extend(network.parameter(cell, layer, &name)?.to_f64());
        }
    }
    Ok(found)
}

#[track_caller]
fn assert_close(case: &str, found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{case}");
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (found - expected).abs();
        let both_nan = found.is_nan() && expected.is_nan();
        assert!(both_nan || error <= tolerance, "{case}: element {index}: {found} instead of {expected}");
    }
}

/// One step a batch, no gates, no depth scale: momentum, written another way.
#[test]
fn chain_rule_targets_are_backpropagation() -> Result<()> {
    let tween = TweenConfig { depth_scale: DepthScale::None, ..TweenConfig::tween() };
    let made: [(Make, Data); 3] = [
        (|precision| dense(precision, Activation::Relu), Data::new(20, &[20])),
        (images, Data::new(20, &[1, 8, 8])),
        (sequences, Data::new(20, &[5, 4])),
    ];
    for (make, data) in made {
        let config = training(tween.clone())?;
        let mut tweened = make(Precision::Float64)?;
        train(&mut tweened, &data.examples()?, &config)?;
        let mut plain = make(Precision::Float64)?;
        let rule = Optimizer::Sgd { momentum: 0.9, nesterov: false, weight_decay: 0.0, decay_exempt: false };
        let backprop = TrainingConfig { tween: None, optimizer: rule, ..config };
        train(&mut plain, &data.examples()?, &backprop)?;
        assert_close("weights", &weights(&mut tweened)?, &weights(&mut plain)?, 1e-12);
        assert!(tweened.measures().header(Header::MeanGap) > 0.0);
        assert_eq!(tweened.measures().losses.len(), 9);
        // Measures alone change no bit.
        let mut observed = make(Precision::Float64)?;
        let watched = TrainingConfig { watch: Some(Watch::observer()), ..backprop };
        train(&mut observed, &data.examples()?, &watched)?;
        assert_eq!(weights(&mut observed)?, weights(&mut plain)?);
        assert_eq!(observed.measures().losses.len(), 9);
    }
    Ok(())
}

fn modes() -> Vec<TweenConfig> {
    let feedback = FeedbackConfig { rate: 0.02, noise: 0.2, steps: 2, ..FeedbackConfig::default() };
    let base = TweenConfig { feedback, ..TweenConfig::tween() };
    vec![
        base.clone(),
        TweenConfig { local_steps: 3, ..TweenConfig::target_prop() },
        TweenConfig { mode: TargetMode::Layerwise, ..TweenConfig::target_prop() },
        TweenConfig { mode: TargetMode::Difference, ..base.clone() },
        TweenConfig {
            mode: TargetMode::DifferenceReconstruction,
            // A large epsilon, so that what rounding leaves of a gradient does not move weights.
            optimizer: Some(Optimizer::Adam {
                beta1: 0.9,
                beta2: 0.999,
                epsilon: 1e-2,
                weight_decay: 0.0,
                decay_exempt: false,
            }),
            local_steps: 2,
            ..base
        },
    ]
}

/// Weights, losses and all figures of all steps of a training.
fn course(network: &mut Network, data: &Data, config: &TrainingConfig) -> Result<[Vec<f64>; 3]> {
    train(network, &data.examples()?, config)?;
    let weights = weights(network)?;
    let measures = network.measures();
    Ok([weights, measures.losses.clone(), measures.history.records.clone()])
}

#[test]
fn devices_agree_in_every_mode() -> Result<()> {
    let Some(_alone) = gpu() else { return Ok(()) };
    let made: [(Make, Data, bool); 3] = [
        (|precision| dense(precision, Activation::Tanh), Data::new(20, &[20]), true),
        (images, Data::new(20, &[1, 8, 8]), true),
        (sequences, Data::new(20, &[5, 4]), false),
    ];
    for (make, data, has_feedback) in made {
        for mode in modes() {
            if mode.mode.has_feedback() && !has_feedback {
                continue;
            }
            let watch = Watch { history: Some(1), ..mode.watch.clone() };
            // Momentum and ties of maxima carry rounding on from step to step.
            let tolerance = 1e-3 * mode.local_steps as f64;
            let config = training(TweenConfig { watch, ..mode })?;
            let mut here = make(Precision::Float32)?;
            let expected = course(&mut here, &data, &config)?;
            let mut there = make(Precision::Float32)?;
            there.to("gpu:0")?;
            let found = course(&mut there, &data, &config)?;
            for (what, (found, expected)) in found.iter().zip(&expected).enumerate() {
                let case = format!("{:?}, {what}", config.tween.as_ref().map(|tween| tween.mode));
                assert_close(&case, found, expected, tolerance);
            }
            assert!(expected[1].iter().all(|loss| loss.is_finite()));
            let losses = &expected[1];
            let [first, last] = [&losses[..3], &losses[6..]].map(|epoch| epoch.iter().sum::<f64>());
            assert!(last < first, "{:?}: {losses:?}", config.tween.map(|tween| tween.mode));
        }
    }
    Ok(())
}

/// A network deep enough that one wild step ruins it.
fn deep(seed: u64) -> Result<Network> {
    let mut network = Network::with_options([20], [1, 1, 1], Precision::Float32, seed)?;
    for _ in 0..15 {
        let weight_initializer = Some(Initializer::HeNormal);
        let layer = Dense { weight_initializer, ..Dense::new(20).activation(Activation::Relu) };
        network.add([0, 0, 0], layer)?;
    }
    network.add([0, 0, 0], Dense::new(4))?;
    Ok(network)
}

/// The mean loss of the last of some steps, of which one is taken at a thousand times the rate.
fn with_a_wild_step(
    network: &mut Network,
    data: &Data,
    config: &TrainingConfig,
    wild: Option<u64>,
) -> Result<f64> {
    const STEPS: u64 = 150;
    let examples = data.examples()?;
    let mut trainer = Trainer::new(network, config, &examples, STEPS)?;
    let mut last = Vec::new();
    for step in 0..STEPS {
        let calm = trainer.config().learning_rate;
        if wild == Some(step) {
            trainer.set_learning_rate(calm * 1000.0)?;
        }
        let rows: Vec<u32> = (0..8).map(|row| ((step * 8 + row) % 64) as u32).collect();
        let report = trainer.step(network, &[(&examples, Rows::At(&rows))])?;
        trainer.set_learning_rate(calm)?;
        if step + 16 >= STEPS {
            last.push(report.loss);
        }
    }
    Ok(last.iter().sum::<f64>() / last.len() as f64)
}

fn explosions_on(device: &str) -> Result<()> {
    let data = Data::new(64, &[20]);
    let watched = |explosion| Watch { explosion, ..Watch::tween() };
    let config = |explosion| {
        training(TweenConfig {
            watch: watched(explosion),
            depth_scale: DepthScale::None,
            ..TweenConfig::tween()
        })
    };
    let mut ratios = Vec::new();
    for seed in 0..5 {
        let run = |explosion, wild| -> Result<(f64, f64)> {
            let mut network = deep(seed)?;
            network.to(device)?;
            let config =
                TrainingConfig { on_nonfinite: loom::train::OnNonFinite::Skip, ..config(explosion)? };
            let loss = with_a_wild_step(&mut network, &data, &config, wild)?;
            Ok((loss, network.measures().header(Header::Explosions)))
        };
        let (undisturbed, calm) = run(Some(ExplosionRule::default()), None)?;
        let (recovered, count) = run(Some(ExplosionRule::default()), Some(60))?;
        let (ruined, _) = run(None, Some(60))?;
        assert!(
            count >= calm + 1.0,
            "seed {seed}: {count} explosions instead of at least one more than {calm}"
        );
        assert!(!ruined.is_finite() || ruined > 2.0 * undisturbed, "seed {seed}: {ruined} and {undisturbed}");
        ratios.push(recovered / undisturbed);
    }
    ratios.sort_by(f64::total_cmp);
    assert!(ratios[2] <= 2.0, "{ratios:?}");
    Ok(())
}

#[test]
fn a_wild_step_is_taken_back() -> Result<()> {
    explosions_on("cpu")
}

#[test]
fn a_wild_step_is_taken_back_on_a_gpu() -> Result<()> {
    let Some(_alone) = gpu() else { return Ok(()) };
    explosions_on("gpu:0")
}

/// Everything that a network saves, by name: weights, moments, measures, counters.
fn state_of(network: &mut Network) -> Result<BTreeMap<String, Vec<u8>>> {
    let bytes = network.to_bytes(SaveOptions::resumable())?;
    let (_, header) = SafeTensors::read_metadata(&bytes).expect("a checkpoint");
    let metadata = header.metadata().clone().unwrap_or_default();
    let tensors = SafeTensors::deserialize(&bytes).expect("a checkpoint");
    let tensors = tensors.iter().map(|(name, tensor)| (name.to_string(), tensor.data().to_vec()));
    Ok(tensors.chain(metadata.into_iter().map(|(name, text)| (name, text.into_bytes()))).collect())
}

#[track_caller]
fn assert_same(found: &BTreeMap<String, Vec<u8>>, expected: &BTreeMap<String, Vec<u8>>) {
    assert!(found.keys().eq(expected.keys()), "{:?} instead of {:?}", found.keys(), expected.keys());
    let differing: Vec<&String> = found.keys().filter(|name| found[*name] != expected[*name]).collect();
    assert!(differing.is_empty(), "{differing:?} differ");
}

/// Interrupted, saved, loaded and resumed, every mode goes on bit for bit.
fn resumes_on(device: &str) -> Result<()> {
    let data = Data::new(20, &[1, 8, 8]);
    for mode in modes() {
        let feedback = FeedbackConfig { alternate: mode.local_steps == 1, ..mode.feedback.clone() };
        let watch = Watch { history: Some(2), history_limit: 3, ..mode.watch.clone() };
        let config = TrainingConfig { epochs: 4, ..training(TweenConfig { watch, feedback, ..mode })? };
        let mut whole = images(Precision::Float32)?;
        whole.to(device)?;
        train(&mut whole, &data.examples()?, &config)?;
        let mut first = images(Precision::Float32)?;
        first.to(device)?;
        train(&mut first, &data.examples()?, &TrainingConfig { epochs: 2, ..config.clone() })?;
        let saved = first.to_bytes(SaveOptions::resumable())?;
        let mut second = Network::from_bytes(&saved)?;
        assert_same(&state_of(&mut second)?, &state_of(&mut first)?);
        second.to(device)?;
        train_with(&mut second, &data.examples()?, None, &config, true, &mut ())?;
        assert_same(&state_of(&mut second)?, &state_of(&mut whole)?);
    }
    Ok(())
}

#[test]
fn a_saved_training_goes_on_bit_for_bit() -> Result<()> {
    resumes_on("cpu")
}

#[test]
fn a_saved_training_goes_on_bit_for_bit_on_a_gpu() -> Result<()> {
    let Some(_alone) = gpu() else { return Ok(()) };
    resumes_on("gpu:0")
}

/// Accumulated batches are one step: same targets' measures, same weights.
#[test]
fn accumulated_batches_are_one_step() -> Result<()> {
    let data = Data::new(16, &[20]);
    let make = || dense(Precision::Float64, Activation::Tanh);
    for mode in
        [TweenConfig::tween(), TweenConfig { mode: TargetMode::Layerwise, ..TweenConfig::target_prop() }]
    {
        let config = TrainingConfig { epochs: 2, batch_size: 16, ..training(mode)? };
        let mut whole = make()?;
        train(&mut whole, &data.examples()?, &config)?;
        let mut parts = make()?;
        let config = TrainingConfig { batch_size: 4, accumulate: 4, ..config };
        train(&mut parts, &data.examples()?, &config)?;
        assert_close("weights", &weights(&mut parts)?, &weights(&mut whole)?, 1e-12);
        assert_close("measures", &parts.measures().newest, &whole.measures().newest, 1e-12);
    }
    Ok(())
}

#[test]
fn what_has_no_way_back_is_refused_by_name() -> Result<()> {
    let data = Data::new(8, &[5, 4]);
    let tween = TweenConfig { mode: TargetMode::Difference, ..TweenConfig::tween() };
    let mut network = sequences(Precision::Float32)?;
    let error = train(&mut network, &data.examples()?, &training(tween)?).unwrap_err();
    assert!(matches!(&error, Error::State(message) if message.contains("layer 1 (layer_norm)")), "{error}");
    let tween = TweenConfig { local_steps: 0, ..TweenConfig::tween() };
    assert!(matches!(training(tween)?.validate(), Err(Error::Value(_))));
    let tween = TweenConfig { local_steps: 2, ..TweenConfig::tween() };
    let clipped = TrainingConfig { gradient_clip: Some(1.0), ..training(tween)? };
    assert!(matches!(clipped.validate(), Err(Error::Value(_))));
    Ok(())
}

/// Targets are not kept: learning by them takes the memory of backpropagation and of the measures.
#[test]
fn chain_rule_targets_take_little_memory() -> Result<()> {
    let data = Data::new(64, &[1, 8, 8]);
    let watch = Watch { explosion: None, ..Watch::tween() };
    let config =
        TrainingConfig { batch_size: 64, ..training(TweenConfig { watch, ..TweenConfig::tween() })? };
    let rule = Optimizer::Sgd { momentum: 0.9, nesterov: false, weight_decay: 0.0, decay_exempt: false };
    let plain = TrainingConfig { tween: None, optimizer: rule, ..config.clone() };
    let mut bytes = Vec::new();
    for config in [plain, config] {
        let mut network = images(Precision::Float32)?;
        let trainer = Trainer::new(&mut network, &config, &data.examples()?, 1)?;
        let saved = network.to_bytes(SaveOptions::resumable())?.len();
        bytes.push(trainer.run().program().run_bytes() + saved);
    }
    assert!(bytes[1] as f64 <= 1.3 * bytes[0] as f64, "{bytes:?}");
    Ok(())
}

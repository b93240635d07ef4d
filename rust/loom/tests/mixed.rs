//! Networks in mixed precision: close to single precision, the same bits every time, and overflow is
//! noticed and overcome.

use loom::dtype::DType;
use loom::io::SaveOptions;
use loom::layers::{Conv2D, Dense, Flatten, MaxPool2D, Padding};
use loom::ops::pointwise::Activation;
use loom::train::{
    Callback, Examples, LossConfig, Metric, OnNonFinite, Optimizer, StepReport, TrainingConfig, evaluate,
    train, train_with,
};
use loom::{Device, Error, Network, Precision, Result, tensor_view};
use safetensors::SafeTensors;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// The devices that there are: the CPU, and a GPU unless there is none.
fn devices() -> Vec<&'static str> {
    match Device::open("gpu", Precision::Mixed) {
        Ok(_) => vec!["cpu", "gpu"],
        Err(error) if std::env::var("LOOM_REQUIRE_GPU").is_ok_and(|value| value == "1") => {
            panic!("LOOM_REQUIRE_GPU is set, and {error}")
        }
        Err(error) => {
            eprintln!("the CPU alone: {error}");
            vec!["cpu"]
        }
    }
}

fn has_gpu() -> bool {
    devices().contains(&"gpu")
}

fn noise(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i as f32 + 1.0) * 0.618_034).fract() * 2.0 - 1.0).collect()
}

/// Rows with a label that a network can find out: which quarter is the brightest.
struct Data {
    shape: Vec<usize>,
    input: Vec<f32>,
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

fn mlp(precision: Precision) -> Result<Network> {
    let mut network = Network::with_options([20], [1, 1, 1], precision, 0)?;
    network.add([0, 0, 0], Dense::new(33).activation(Activation::Relu))?;
    network.add([0, 0, 0], Dense::new(17).activation(Activation::Tanh))?;
    network.add([0, 0, 0], Dense::new(4))?;
    Ok(network)
}

fn cnn(precision: Precision) -> Result<Network> {
    let mut network = Network::with_options([1, 12, 12], [1, 1, 1], precision, 0)?;
    let same = Padding::Explicit([1, 1]);
    network.add([0, 0, 0], Conv2D::new(6, [3, 3]).padding(same).activation(Activation::Relu))?;
    network.add([0, 0, 0], MaxPool2D::new([2, 2]))?;
    network.add([0, 0, 0], Conv2D::new(8, [3, 3]).groups(2).activation(Activation::Gelu))?;
    network.add([0, 0, 0], Flatten {})?;
    network.add([0, 0, 0], Dense::new(4))?;
    Ok(network)
}

fn config() -> Result<TrainingConfig> {
    Ok(TrainingConfig {
        batch_size: 16,
        epochs: 5,
        learning_rate: 0.002,
        loss: LossConfig::parse("cross_entropy")?,
        ..TrainingConfig::default()
    })
}

/// The loss of every step, NaN where it was left out.
fn losses_of(network: &mut Network, examples: &Examples<'_>, config: &TrainingConfig) -> Result<Vec<f64>> {
    struct Losses(Vec<f64>);
    impl Callback for Losses {
        fn watches_steps(&self) -> bool {
            false
        }

        fn on_step_end(&mut self, _: &Network, report: &StepReport) -> ControlFlow<()> {
            self.0.push(report.loss);
            ControlFlow::Continue(())
        }
    }
    let mut losses = Losses(Vec::new());
    train_with(network, examples, None, config, false, &mut losses)?;
    Ok(losses.0)
}

fn on(device: &str, mut network: Network) -> Result<Network> {
    network.to(device)?;
    Ok(network)
}

fn saved(network: &mut Network) -> Result<Vec<u8>> {
    network.to_bytes(SaveOptions::resumable())
}

/// Everything that a network saves, by name: weights, moments, counters, the loss scale.
fn state_of(network: &mut Network) -> Result<BTreeMap<String, Vec<u8>>> {
    let bytes = saved(network)?;
    let (_, header) = SafeTensors::read_metadata(&bytes).expect("a checkpoint");
    let metadata = header.metadata().clone().unwrap_or_default();
    let tensors = SafeTensors::deserialize(&bytes).expect("a checkpoint");
    let tensors = tensors.iter().map(|(name, tensor)| (name.to_string(), tensor.data().to_vec()));
    Ok(tensors.chain(metadata.into_iter().map(|(name, text)| (name, text.into_bytes()))).collect())
}

/// Operands of 8 bits of fraction on the CPU and 11 on the GPU: fifty steps stay within 3 % and 1 % of
/// single precision, and learn as much.
#[test]
fn training_is_close_to_single_precision() -> Result<()> {
    for (make, data) in [
        (mlp as fn(Precision) -> Result<Network>, Data::new(160, &[20])),
        (cnn, Data::new(160, &[1, 12, 12])),
    ] {
        for optimizer in [Optimizer::sgd(), Optimizer::default()] {
            let rate = if matches!(optimizer, Optimizer::Sgd { .. }) { 0.05 } else { 0.002 };
            let config = TrainingConfig { optimizer, learning_rate: rate, ..config()? };
            let expected = losses_of(&mut make(Precision::Float32)?, &data.examples()?, &config)?;
            for device in devices() {
                let found = losses_of(&mut on(device, make(Precision::Mixed)?)?, &data.examples()?, &config)?;
                let tolerance = if device == "cpu" { 3e-2 } else { 1e-2 };
                assert_eq!(found.len(), 50);
                for (step, (found, expected)) in found.iter().zip(&expected).enumerate() {
                    let error = (found - expected).abs() / expected;
                    assert!(error < tolerance, "{device}, step {step}: {found}, {expected} in single");
                }
                assert_ne!(found, expected, "nothing was rounded");
            }
        }
    }
    Ok(())
}

/// Trained to the end, it tells as many rows apart that it has not seen.
#[test]
fn it_learns_as_much() -> Result<()> {
    let (data, unseen) = (Data::new(320, &[20]), Data::new(801, &[20]));
    let config =
        TrainingConfig { epochs: 30, learning_rate: 0.005, metrics: vec![Metric::Accuracy], ..config()? };
    let accuracy = |device: &str, precision| -> Result<f64> {
        let mut network = on(device, mlp(precision)?)?;
        train(&mut network, &data.examples()?, &config)?;
        Ok(evaluate(&network, &unseen.examples()?, &config)?.metrics[0].1)
    };
    let single = accuracy("cpu", Precision::Float32)?;
    assert!(single > 0.9, "{single}");
    for device in devices() {
        let mixed = accuracy(device, Precision::Mixed)?;
        assert!(mixed > single - 0.01, "{device}: {mixed}, {single} in single");
    }
    Ok(())
}

/// Targets so far away that the first scaled gradients do not fit 16 bits.
fn far_targets() -> (Vec<f32>, Vec<f32>) {
    let input = noise(64 * 20);
    let targets = input.chunks(20).flat_map(|x| [0, 1, 2, 3].map(|i| 90.0 + 20.0 * x[i])).collect();
    (input, targets)
}

/// The first steps overflow, are left out and halve the scale; then it learns. The same bits every
/// time, in frames or step by step.
#[test]
fn a_scale_that_is_too_large_recovers() -> Result<()> {
    if !has_gpu() {
        return Ok(());
    }
    let (input, targets) = far_targets();
    let examples = Examples::regression(tensor_view(&[64, 20], &input)?, tensor_view(&[64, 4], &targets)?);
    struct Watching;
    impl Callback for Watching {}
    for (gradient_clip, clip_value, accumulate) in
        [(None, None, 1), (Some(5.0), None, 1), (None, Some(2.0), 1), (None, None, 2)]
    {
        let config = TrainingConfig {
            loss: LossConfig::parse("mse")?,
            learning_rate: 0.05,
            epochs: 6,
            batch_size: 8,
            gradient_clip,
            clip_value,
            accumulate,
            ..config()?
        };
        let mut network = on("gpu", mlp(Precision::Mixed)?)?;
        let result = train(&mut network, &examples, &config)?;
        let scale = network.loss_scale().expect("a mixed network on a GPU scales its loss");
        assert!(result.skipped_steps > 0 && result.skipped_steps == scale.skipped_steps, "{scale:?}");
        assert_eq!(scale.scale, 65536.0 / 2f32.powi(scale.skipped_steps as i32));
        assert_eq!(network.optimizer_state().updates + scale.skipped_steps, network.optimizer_state().step);
        // Later epochs had no skips, and their losses are those of single precision.
        let mut single = mlp(Precision::Float32)?;
        let expected = train(&mut single, &examples, &config)?.final_loss;
        assert!(result.final_loss < result.loss_history[0]);
        let off = (result.final_loss - expected).abs() / expected;
        assert!(off < 0.25, "{} {expected}", result.final_loss);
        let state = state_of(&mut network)?;
        let mut again = on("gpu", mlp(Precision::Mixed)?)?;
        train(&mut again, &examples, &config)?;
        assert!(state == state_of(&mut again)?, "two runs differ");
        let mut watched = on("gpu", mlp(Precision::Mixed)?)?;
        train_with(&mut watched, &examples, None, &config, false, &mut Watching)?;
        assert!(state == state_of(&mut watched)?, "single steps differ");
    }
    Ok(())
}

/// Interrupted after a skipped step, saved, loaded and resumed: bit for bit what it would have been.
#[test]
fn resuming_gives_the_same_bits() -> Result<()> {
    for device in devices() {
        let (input, targets) = far_targets();
        let examples =
            Examples::regression(tensor_view(&[64, 20], &input)?, tensor_view(&[64, 4], &targets)?);
        let config =
            TrainingConfig { loss: LossConfig::parse("mse")?, epochs: 4, batch_size: 8, ..config()? };
        let mut whole = on(device, mlp(Precision::Mixed)?)?;
        train(&mut whole, &examples, &config)?;
        let mut first = on(device, mlp(Precision::Mixed)?)?;
        train(&mut first, &examples, &TrainingConfig { epochs: 2, ..config.clone() })?;
        assert_eq!(first.loss_scale().is_some_and(|now| now.skipped_steps > 0), device == "gpu");
        let mut second = on(device, Network::from_bytes(&saved(&mut first)?)?)?;
        assert_eq!((second.precision(), second.loss_scale()), (Precision::Mixed, first.loss_scale()));
        train_with(&mut second, &examples, None, &config, true, &mut ())?;
        assert!(state_of(&mut whole)? == state_of(&mut second)?, "{device}");
    }
    Ok(())
}

/// Activations that 16 bits cannot hold are no silent infinities: steps are left out while the scale may
/// be the reason, then the error names the layer.
#[test]
fn overflow_of_activations_is_noticed() -> Result<()> {
    if !has_gpu() {
        return Ok(());
    }
    let mut data = Data::new(64, &[20]);
    data.input.iter_mut().for_each(|x| *x *= 1e6);
    let mut network = on("gpu", mlp(Precision::Mixed)?)?;
    let error = train(&mut network, &data.examples()?, &config()?).unwrap_err();
    assert!(matches!(&error, Error::NonFinite(message) if message.contains("layer 0 (dense)")), "{error}");
    let scale = network.loss_scale().expect("a scale");
    assert_eq!((scale.scale, scale.skipped_steps), (1.0, 16));
    assert_eq!(network.optimizer_state().updates, 0);
    let config = TrainingConfig { on_nonfinite: OnNonFinite::Skip, ..config()? };
    let mut network = on("gpu", mlp(Precision::Mixed)?)?;
    assert_eq!(train(&mut network, &data.examples()?, &config)?.skipped_steps, 20);
    // bfloat16 has the range of single precision.
    assert_eq!(train(&mut mlp(Precision::Mixed)?, &data.examples()?, &config)?.skipped_steps, 0);
    Ok(())
}

/// The manual loop: gradients are those of single precision to what 16 bits leave, over several backward
/// passes; what overflows is not applied.
#[test]
fn the_manual_loop_scales_and_skips() -> Result<()> {
    let data = Data::new(48, &[20]);
    let manual = |device: &str, precision| -> Result<[Vec<f32>; 3]> {
        let mut network = on(device, mlp(precision)?)?;
        network.set_optimizer(Optimizer::default())?;
        let mut input_gradient = Vec::new();
        let mut gradient = Vec::new();
        for _ in 0..3 {
            for _ in 0..2 {
                let step = network.forward(tensor_view(&data.shape, &data.input)?)?;
                let output = step.output.to_f32().into_iter().map(|x| x * 1e-3).collect::<Vec<_>>();
                input_gradient = network.backward(tensor_view(&[48, 4], &output)?)?.to_f32();
            }
            gradient = network.gradient([0, 0, 0], 0, "weight")?.to_f32();
            assert!(network.clip_gradients(0.5)? > 0.0);
            network.apply_gradients(0.001)?;
        }
        Ok([input_gradient, gradient, network.parameter([0, 0, 0], 1, "weight")?.to_f32()])
    };
    let expected = manual("cpu", Precision::Float32)?;
    for device in devices() {
        for (found, expected) in manual(device, Precision::Mixed)?.iter().zip(&expected) {
            let largest = expected.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
            let off = found.iter().zip(expected).fold(0.0f32, |off, (f, e)| off.max((f - e).abs()));
            let tolerance = if device == "cpu" { 0.1 } else { 0.02 };
            assert!(off <= tolerance * largest, "{device}: off by {off}, largest {largest}");
        }
    }
    if !has_gpu() {
        return Ok(());
    }
    let mut network = on("gpu", mlp(Precision::Mixed)?)?;
    network.forward(tensor_view(&data.shape, &data.input)?)?;
    let before = network.parameter([0, 0, 0], 1, "weight")?.to_f32();
    network.backward(tensor_view(&[48, 4], &vec![1e3f32; 48 * 4])?)?;
    assert!(!network.clip_gradients(1.0)?.is_finite());
    network.apply_gradients(0.1)?;
    assert_eq!(before, network.parameter([0, 0, 0], 1, "weight")?.to_f32());
    let scale = network.loss_scale().expect("a scale");
    assert_eq!((scale.scale, scale.skipped_steps, scale.good_steps), (32768.0, 1, 0));
    assert!(matches!(network.apply_gradients(0.1), Err(Error::State(_))));
    network.forward(tensor_view(&data.shape, &data.input)?)?;
    network.backward(tensor_view(&[48, 4], &vec![1e-3f32; 48 * 4])?)?;
    network.apply_gradients(0.1)?;
    assert_ne!(before, network.parameter([0, 0, 0], 1, "weight")?.to_f32());
    assert_eq!(network.loss_scale().map(|now| now.good_steps), Some(1));
    Ok(())
}

/// Low-bit weights, inference, evaluation and both devices by turns.
#[test]
fn mixed_networks_do_all_that_others_do() -> Result<()> {
    let data = Data::new(80, &[1, 12, 12]);
    let input = tensor_view(&data.shape, &data.input)?;
    for device in devices() {
        let mut single = on(device, cnn(Precision::Float32)?)?;
        let mut network = on(device, cnn(Precision::Mixed)?)?;
        single.build()?;
        network.build()?;
        let expected = single.predict(input.clone())?.to_f32();
        for (found, expected) in network.predict(input.clone())?.to_f32().iter().zip(&expected) {
            assert!((found - expected).abs() < 0.02, "{device}: {found} {expected}");
        }
        // One row and many are the same bits on the CPU.
        if device == "cpu" {
            let one = network.predict(input.slice_rows(3..4))?.to_f32();
            assert_eq!(one, network.predict(input.clone())?.to_f32()[12..16]);
        }
        assert_eq!(network.layer_dtype([0, 0, 0], 0)?.as_deref(), Some("float32"));
        network.morph(DType::Int8)?;
        let result = train(&mut network, &data.examples()?, &config()?)?;
        assert!(result.final_loss < result.loss_history[0]);
        let mut loaded = on(device, Network::from_bytes(&saved(&mut network)?)?)?;
        assert_eq!(
            network.predict(input.clone())?.to_f32(),
            loaded.predict(input.clone())?.to_f32(),
            "{device}"
        );
        loaded.morph(DType::Float32)?;
        assert_eq!(loaded.layer_dtype([0, 0, 0], 0)?.as_deref(), Some("float32"));
        for other in devices() {
            loaded.to(other)?;
            assert!(evaluate(&loaded, &data.examples()?, &config()?)?.loss.is_finite());
        }
    }
    let json = mlp(Precision::Mixed)?.to_json()?;
    assert!(json.contains("\"mixed\""));
    assert_eq!(Network::from_json(&json)?.precision(), Precision::Mixed);
    Ok(())
}

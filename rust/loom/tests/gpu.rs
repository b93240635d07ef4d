//! Whole networks on a GPU: as on the CPU, the same bits every time, honest on both sides.
#![cfg(feature = "gpu")]

use loom::gpu::Fault;
use loom::io::SaveOptions;
use loom::layers::{BatchNorm, Conv2D, Dense, Dropout, Flatten, LayerNorm, MaxPool2D};
use loom::ops::pointwise::Activation;
use loom::train::{
    Callback, Epoch, Evaluator, Examples, LossConfig, Metric, OnNonFinite, Optimizer, Rows, StepReport,
    Trainer, TrainingConfig, train, train_with,
};
use loom::{Device, Error, Network, Precision, Result, tensor_view};
use safetensors::SafeTensors;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Settings of the device are the whole process's, so one test at a time uses it.
static ALONE: Mutex<()> = Mutex::new(());

/// The first GPU, for this test alone. Without one the test is skipped, unless `LOOM_REQUIRE_GPU=1`
/// says that there must be one. Bindings are dropped from the last to the first: the GPU before the lock.
fn gpu() -> Option<(MutexGuard<'static, ()>, Arc<loom::gpu::Gpu>)> {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    match Device::open("gpu", Precision::Float32) {
        Ok(device) => loom::gpu::Gpu::of(device.engine()).map(|gpu| (alone, gpu)),
        Err(error) if std::env::var("LOOM_REQUIRE_GPU").is_ok_and(|value| value == "1") => {
            panic!("LOOM_REQUIRE_GPU is set, and {error}")
        }
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

fn noise(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i as f32 + 1.0) * 0.618_034).fract() * 2.0 - 1.0).collect()
}

/// Images with a label that a network can find out: which quarter is the brightest.
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

fn mlp() -> Result<Network> {
    let mut network = Network::sequential([20])?;
    network.add([0, 0, 0], Dense::new(33).activation(Activation::Relu))?;
    network.add([0, 0, 0], Dense::new(17).activation(Activation::Tanh))?;
    network.add([0, 0, 0], Dense::new(4))?;
    Ok(network)
}

fn cnn() -> Result<Network> {
    let mut network = Network::sequential([1, 12, 12])?;
    network.add(
        [0, 0, 0],
        Conv2D::new(6, [3, 3]).padding(loom::layers::Padding::Explicit([1, 1])).activation(Activation::Relu),
    )?;
    network.add([0, 0, 0], MaxPool2D::new([2, 2]))?;
    network.add([0, 0, 0], Conv2D::new(8, [3, 3]).groups(2).activation(Activation::Gelu))?;
    network.add([0, 0, 0], Flatten {})?;
    network.add([0, 0, 0], Dropout { rate: 0.2 })?;
    network.add([0, 0, 0], Dense::new(4))?;
    Ok(network)
}

fn config() -> Result<TrainingConfig> {
    Ok(TrainingConfig {
        batch_size: 16,
        epochs: 5,
        learning_rate: 0.01,
        loss: LossConfig::parse("cross_entropy")?,
        ..TrainingConfig::default()
    })
}

fn optimizers() -> Vec<Optimizer> {
    let (weight_decay, decay_exempt) = (0.01, true);
    vec![
        Optimizer::sgd(),
        Optimizer::Sgd { momentum: 0.9, nesterov: true, weight_decay, decay_exempt },
        Optimizer::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay, decay_exempt: false },
        Optimizer::default(),
        Optimizer::RmsProp {
            alpha: 0.99,
            epsilon: 1e-8,
            momentum: 0.5,
            epsilon_in_root: false,
            centered: true,
            weight_decay,
            decay_exempt,
        },
    ]
}

/// Everything that a network saves, by name: weights, moments, counters.
fn state_of(network: &mut Network) -> Result<BTreeMap<String, Vec<u8>>> {
    let bytes = network.to_bytes(SaveOptions::resumable())?;
    let (_, header) = SafeTensors::read_metadata(&bytes).expect("a checkpoint");
    let metadata = header.metadata().clone().unwrap_or_default();
    let tensors = SafeTensors::deserialize(&bytes).expect("a checkpoint");
    let tensors = tensors.iter().map(|(name, tensor)| (name.to_string(), tensor.data().to_vec()));
    Ok(tensors.chain(metadata.into_iter().map(|(name, text)| (name, text.into_bytes()))).collect())
}

/// The loss of every step, and what the network then is.
type Trained = (Vec<f64>, BTreeMap<String, Vec<u8>>);

fn losses_of(network: &mut Network, data: &Data, config: &TrainingConfig) -> Result<Trained> {
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
    train_with(network, &data.examples()?, None, config, false, &mut losses)?;
    Ok((losses.0, state_of(network)?))
}

#[track_caller]
fn assert_close(found: &[f64], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(found.len(), expected.len());
    for (step, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (found - expected).abs() / expected.abs().max(1e-3);
        assert!(error < tolerance, "{what}, step {step}: {found} on the GPU, {expected} on the CPU");
    }
}

/// Fifty steps with every optimizer, in frames, on both kinds of network.
#[test]
fn training_is_as_on_the_cpu() -> Result<()> {
    let Some((_alone, _gpu)) = gpu() else { return Ok(()) };
    for (make, data) in
        [(mlp as fn() -> Result<Network>, Data::new(160, &[20])), (cnn, Data::new(160, &[1, 12, 12]))]
    {
        for optimizer in optimizers() {
            let rate = if matches!(optimizer, Optimizer::Sgd { .. }) { 0.05 } else { 0.002 };
            let config =
                TrainingConfig { optimizer, learning_rate: rate, gradient_clip: Some(1.0), ..config()? };
            let expected = losses_of(&mut make()?, &data, &config)?.0;
            let mut network = make()?;
            network.to("gpu")?;
            let found = losses_of(&mut network, &data, &config)?.0;
            assert_eq!(found.len(), 50);
            assert_close(&found, &expected, 1e-3, &format!("{:?}", config.optimizer));
        }
    }
    Ok(())
}

/// Two runs, one cut after every dispatch, one step by step: the same losses, weights and moments.
#[test]
fn a_frame_cut_anywhere_gives_the_same_bits() -> Result<()> {
    let Some((_alone, gpu)) = gpu() else { return Ok(()) };
    let data = Data::new(100, &[1, 12, 12]);
    let config =
        TrainingConfig { epochs: 2, gradient_clip: Some(0.5), metrics: vec![Metric::Accuracy], ..config()? };
    let on_gpu = || -> Result<Network> {
        let mut network = cnn()?;
        network.to("gpu")?;
        Ok(network)
    };
    let whole = losses_of(&mut on_gpu()?, &data, &config)?;
    assert!(whole == losses_of(&mut on_gpu()?, &data, &config)?, "two runs differ");
    gpu.cut_every_dispatch(true);
    let cut = losses_of(&mut on_gpu()?, &data, &config);
    gpu.cut_every_dispatch(false);
    assert!(whole == cut?, "a frame that was cut differs");

    let mut network = on_gpu()?;
    struct Watching;
    impl Callback for Watching {}
    train_with(&mut network, &data.examples()?, None, &config, false, &mut Watching)?;
    assert!(whole.1 == state_of(&mut network)?, "single steps differ");
    Ok(())
}

/// Running statistics move with every step of a frame as they do on the CPU, however frames are cut.
#[test]
fn running_statistics_move_as_on_the_cpu() -> Result<()> {
    let Some((_alone, gpu)) = gpu() else { return Ok(()) };
    // The last batch of an epoch has four rows.
    let data = Data::new(100, &[20]);
    let config = TrainingConfig { epochs: 2, ..config()? };
    let make = || -> Result<Network> {
        let mut network = Network::sequential([20])?;
        // A bias would have no gradient but for rounding, which Adam makes steps of.
        network.add([0, 0, 0], Dense::new(12).without_bias())?;
        network.add([0, 0, 0], BatchNorm::default())?;
        network.add([0, 0, 0], Dense::new(9).activation(Activation::Tanh))?;
        network.add([0, 0, 0], LayerNorm::default())?;
        network.add([0, 0, 0], Dense::new(4))?;
        Ok(network)
    };
    let mut on_cpu = make()?;
    let expected = losses_of(&mut on_cpu, &data, &config)?.0;
    let mut on_gpu = make()?;
    on_gpu.to("gpu")?;
    let whole = losses_of(&mut on_gpu, &data, &config)?;
    assert_close(&whole.0, &expected, 1e-3, "losses");
    for name in ["running_mean", "running_var"] {
        let expected = on_cpu.state([0, 0, 0], 1, name)?.to_f64();
        assert!(expected.iter().all(|x| *x != 0.0 && *x != 1.0), "{name} has not moved");
        assert_close(&on_gpu.state([0, 0, 0], 1, name)?.to_f64(), &expected, 1e-3, name);
    }
    gpu.cut_every_dispatch(true);
    let mut network = make()?;
    let cut = network.to("gpu").and_then(|_| losses_of(&mut network, &data, &config));
    gpu.cut_every_dispatch(false);
    assert!(whole == cut?, "a frame that was cut differs");
    Ok(())
}

/// What was learned on one device goes on on the other; reading brings the newest back.
#[test]
fn both_sides_stay_honest() -> Result<()> {
    let Some((_alone, _gpu)) = gpu() else { return Ok(()) };
    let data = Data::new(64, &[20]);
    let config = TrainingConfig { epochs: 2, ..config()? };
    let mut network = mlp()?;
    network.build()?;
    let before = network.parameter([0, 0, 0], 0, "weight")?.to_f32();
    network.to("gpu")?;
    train(&mut network, &data.examples()?, &config)?;
    // Read while the host's copy is stale, then after it was brought back.
    let stale = network.parameter([0, 0, 0], 0, "weight")?.to_f32();
    assert_ne!(before, stale);
    let input = tensor_view(&data.shape, &data.input)?;
    let on_gpu = network.predict(input.clone())?.to_f32();
    network.synchronize()?;
    assert_eq!(stale, network.parameter([0, 0, 0], 0, "weight")?.to_f32());
    network.to("cpu")?;
    assert_eq!(stale, network.parameter([0, 0, 0], 0, "weight")?.to_f32());
    for (gpu, cpu) in on_gpu.iter().zip(network.predict(input.clone())?.to_f32()) {
        assert!((gpu - cpu).abs() < 1e-4, "{gpu} {cpu}");
    }
    // A parameter set here is what the GPU computes with next.
    network.to("gpu")?;
    let zeros = vec![0.0f32; 33 * 20];
    network.set_parameter([0, 0, 0], 0, "weight", tensor_view(&[33, 20], &zeros)?)?;
    let blind = network.predict(input.clone())?.to_f32();
    assert_eq!(blind[..4], blind[4..8]);
    Ok(())
}

/// Interrupted on the GPU, saved, loaded, resumed on the GPU: bit for bit what it would have been.
#[test]
fn resuming_gives_the_same_bits() -> Result<()> {
    let Some((_alone, _gpu)) = gpu() else { return Ok(()) };
    let data = Data::new(96, &[20]);
    let config = TrainingConfig { epochs: 4, ..config()? };
    let mut whole = mlp()?;
    whole.to("gpu")?;
    train(&mut whole, &data.examples()?, &config)?;
    let mut first = mlp()?;
    first.to("gpu")?;
    train(&mut first, &data.examples()?, &TrainingConfig { epochs: 2, ..config.clone() })?;
    let mut second = Network::from_bytes(&first.to_bytes(SaveOptions::resumable())?)?;
    second.to("gpu")?;
    train_with(&mut second, &data.examples()?, None, &config, true, &mut ())?;
    assert!(state_of(&mut whole)? == state_of(&mut second)?);
    Ok(())
}

/// The manual loop, accumulation, weights of rows and classes: as on the CPU.
#[test]
fn every_way_of_training_is_as_on_the_cpu() -> Result<()> {
    let Some((_alone, _gpu)) = gpu() else { return Ok(()) };
    let data = Data::new(48, &[20]);
    let weights: Vec<f32> = (0..48).map(|i| (i % 5) as f32).collect();
    let weighted = Examples { weight: Some(tensor_view(&[48], &weights)?), ..data.examples()? };
    let configs = [
        TrainingConfig { accumulate: 3, batch_size: 8, clip_value: Some(0.01), ..config()? },
        TrainingConfig { class_weight: Some(vec![1.0, 2.0, 0.5, 1.5]), label_smoothing: 0.1, ..config()? },
        TrainingConfig { loss: LossConfig::parse("mse")?, ..config()? },
    ];
    for config in configs {
        let targets = noise(48 * 4);
        let examples = match config.loss.name() {
            "mse" => Examples::regression(weighted.input.clone(), tensor_view(&[48, 4], &targets)?),
            _ => weighted.clone(),
        };
        let run = |device: &str| -> Result<Vec<f64>> {
            let mut network = mlp()?;
            network.to(device)?;
            Ok(train(&mut network, &examples, &config)?.loss_history)
        };
        assert_close(&run("gpu")?, &run("cpu")?, 1e-3, &format!("{config:?}"));
    }
    let manual = |device: &str| -> Result<Vec<f32>> {
        let mut network = mlp()?;
        network.to(device)?;
        network.set_optimizer(Optimizer::default())?;
        for _ in 0..3 {
            let step = network.forward(tensor_view(&data.shape, &data.input)?)?;
            let gradient = network.backward(step.output.view())?;
            assert_eq!(gradient.shape(), [48, 20]);
            assert!(network.clip_gradients(0.5)? > 0.0);
            network.apply_gradients(0.01)?;
        }
        Ok(network.parameter([0, 0, 0], 1, "weight")?.to_f32())
    };
    for (gpu, cpu) in manual("gpu")?.iter().zip(manual("cpu")?) {
        assert!((gpu - cpu).abs() < 1e-4, "{gpu} {cpu}");
    }
    Ok(())
}

/// Weights in packed types are encoded on the device after each update, and computed from there.
#[test]
fn packed_weights_train_as_on_the_cpu() -> Result<()> {
    let Some((_alone, _gpu)) = gpu() else { return Ok(()) };
    let data = Data::new(80, &[1, 12, 12]);
    for dtype in [loom::dtype::DType::Float16, loom::dtype::DType::BFloat16, loom::dtype::DType::Int8] {
        let run = |device: &str| -> Result<(Vec<f64>, Vec<f32>)> {
            let mut network = cnn()?;
            network.build()?;
            network.morph(dtype)?;
            network.to(device)?;
            let losses = train(&mut network, &data.examples()?, &config()?)?.loss_history;
            Ok((losses, network.active_parameter([0, 0, 0], 5, "weight")?.to_f32()))
        };
        let (gpu, cpu) = (run("gpu")?, run("cpu")?);
        // A weight at the edge of two codes may fall to either side.
        assert_close(&gpu.0, &cpu.0, 2e-2, &dtype.to_string());
        let off = gpu.1.iter().zip(&cpu.1).filter(|(g, c)| (*g - *c).abs() > 1e-2).count();
        assert!(off * 100 <= gpu.1.len(), "{dtype}: {off} of {} weights are off", gpu.1.len());
    }
    Ok(())
}

/// A step that is not finite changes nothing, and the error names the layer.
#[test]
fn bad_steps_never_land() -> Result<()> {
    let Some((_alone, _gpu)) = gpu() else { return Ok(()) };
    let mut data = Data::new(64, &[20]);
    // Row 40 overflows in the first layer.
    data.input[40 * 20..41 * 20].fill(f32::MAX);
    for gradient_clip in [None, Some(1.0)] {
        let config = TrainingConfig { shuffle: false, epochs: 1, gradient_clip, ..config()? };
        let mut network = mlp()?;
        network.to("gpu")?;
        let error = train(&mut network, &data.examples()?, &config).expect_err("an overflow");
        assert!(matches!(error, Error::NonFinite(_)), "{error}");
        assert!(error.to_string().contains("dense"), "{error}");
        let stopped = network.parameter([0, 0, 0], 0, "weight")?.to_f32();

        let mut cpu = mlp()?;
        train(&mut cpu, &data.examples()?, &config).expect_err("an overflow");
        for (gpu, cpu) in stopped.iter().zip(cpu.parameter([0, 0, 0], 0, "weight")?.to_f32()) {
            assert!((gpu - cpu).abs() < 1e-5, "{gpu} {cpu}");
        }

        let config = TrainingConfig { on_nonfinite: OnNonFinite::Skip, ..config };
        let run = |device: &str| -> Result<(u64, Vec<f32>)> {
            let mut network = mlp()?;
            network.to(device)?;
            let result = train(&mut network, &data.examples()?, &config)?;
            Ok((result.skipped_steps, network.parameter([0, 0, 0], 0, "weight")?.to_f32()))
        };
        let (gpu, cpu) = (run("gpu")?, run("cpu")?);
        assert_eq!((gpu.0, cpu.0), (1, 1));
        for (gpu, cpu) in gpu.1.iter().zip(&cpu.1) {
            assert!((gpu - cpu).abs() < 1e-4, "{gpu} {cpu}");
        }
    }
    Ok(())
}

/// Weights, gradients and moments larger than a kernel can see are worked on in parts.
#[test]
fn weights_larger_than_a_binding_are_split() -> Result<()> {
    let Some((_alone, gpu)) = gpu() else { return Ok(()) };
    let run = |device: &str| -> Result<Vec<f64>> {
        let mut network = Network::sequential([1024])?;
        network.add([0, 0, 0], Dense::new(24).activation(Activation::Relu))?;
        network.add([0, 0, 0], Dense::new(4))?;
        network.to(device)?;
        let data = Data::new(32, &[1024]);
        let config = TrainingConfig { batch_size: 8, gradient_clip: Some(1.0), ..config()? };
        Ok(losses_of(&mut network, &data, &config)?.0)
    };
    let expected = run("cpu")?;
    // The weight has 96 KiB, and so do its gradient and moments; the examples have 128 KiB, so that
    // batches are sent one by one. A batch fits.
    gpu.limit_binding(40 << 10);
    let found = run("gpu");
    gpu.limit_binding(usize::MAX);
    assert_close(&found?, &expected, 1e-3, "split weights");
    Ok(())
}

/// What a device cannot do is an error that says so, and the network goes on on the CPU.
#[test]
fn errors_leave_the_network_usable() -> Result<()> {
    let Some((_alone, gpu)) = gpu() else { return Ok(()) };
    let mut double = Network::with_options([4], [1, 1, 1], Precision::Float64, 0)?;
    assert!(matches!(double.to("gpu"), Err(Error::Device(_))));
    assert!(matches!(double.to("gpu:99"), Err(Error::Device(_))));
    let mut network = mlp()?;
    let error = network.to("gpu:99").expect_err("no such GPU").to_string();
    assert!(error.contains("gpu:99") && error.contains(&gpu.adapter().name), "{error}");
    assert!(matches!(network.to("cuda"), Err(Error::Value(_))));

    // More than there is, asked for by a single row.
    let mut wide = Network::sequential([1])?;
    wide.add([0, 0, 0], Dense::new(1 << 16))?;
    wide.to("gpu")?;
    wide.build()?;
    let held = gpu.allocated();
    let rows = 3;
    gpu.meet(Fault::Memory(held + (1 << 20)));
    let input = vec![0.5f32; rows];
    let error =
        wide.predict_batched(tensor_view(&[rows, 1], &input)?, rows).expect_err("too large").to_string();
    gpu.meet(Fault::Memory(u64::MAX));
    assert!(error.contains("MiB"), "{error}");
    assert!(gpu.allocated() <= held + (1 << 20), "memory of a refused batch is still held");
    assert_eq!(wide.predict(tensor_view(&[1, 1], &input[..1])?)?.shape(), [1, 1 << 16]);
    wide.to("cpu")?;
    assert_eq!(wide.predict(tensor_view(&[1, 1], &input[..1])?)?.shape(), [1, 1 << 16]);
    Ok(())
}

/// A lost device is reported; the weights that were last brought back survive it.
#[test]
fn the_last_synchronised_weights_survive_a_lost_device() -> Result<()> {
    let Some((_alone, gpu)) = gpu() else { return Ok(()) };
    let data = Data::new(32, &[20]);
    let input = tensor_view(&data.shape, &data.input)?;
    let mut network = mlp()?;
    network.to("gpu")?;
    let config = TrainingConfig { epochs: 1, ..config()? };
    train(&mut network, &data.examples()?, &config)?;
    network.synchronize()?;
    let kept = network.parameter([0, 0, 0], 0, "weight")?.to_f32();
    train(&mut network, &data.examples()?, &config)?;
    gpu.lose();
    let error = network.predict(input.clone()).expect_err("a lost device");
    assert!(matches!(&error, Error::Device(message) if message.contains("lost")), "{error}");
    assert!(train(&mut network, &data.examples()?, &config).is_err());
    network.to("cpu")?;
    assert_eq!(network.parameter([0, 0, 0], 0, "weight")?.to_f32(), kept);
    // It can be opened anew.
    network.to("gpu")?;
    train(&mut network, &data.examples()?, &config)?;
    Ok(())
}

/// A training step is one submit, and reads back nothing but what it came to.
#[test]
fn a_step_is_one_submit() -> Result<()> {
    let Some((_alone, gpu)) = gpu() else { return Ok(()) };
    let data = Data::new(64, &[20]);
    let mut network = mlp()?;
    network.to("gpu")?;
    let examples = data.examples()?;
    let mut trainer = Trainer::new(&mut network, &config()?, &examples, 100)?;
    let order: Vec<u32> = (0..16).collect();
    trainer.step(&mut network, &[(&examples, Rows::At(&order))])?;
    gpu.reset_statistics();
    trainer.step(&mut network, &[(&examples, Rows::At(&order))])?;
    let statistics = gpu.statistics();
    assert_eq!((statistics.frames, statistics.steps), (1, 1));
    // The batch goes there, the step is made, and what it came to comes back.
    assert_eq!(statistics.submits, 1);
    assert!(statistics.bytes_down <= 64 + 16 * 4, "{statistics:?}");
    // Four of them look ahead, one for each store and one for all, so that the step lands whole or not at all.
    assert!(statistics.dispatches <= 17, "{statistics:?}");
    // The batch: inputs and labels.
    assert!(statistics.bytes_up <= 16 * 21 * 4 + 256, "{statistics:?}");
    Ok(())
}

/// A trainer goes where its network goes, in the middle of an epoch; so does an evaluation.
#[test]
fn a_trainer_follows_its_network() -> Result<()> {
    let Some((_alone, _gpu)) = gpu() else { return Ok(()) };
    let data = Data::new(64, &[20]);
    let examples = data.examples()?;
    let config = config()?;
    let run = |devices: [&str; 4]| -> Result<Vec<f64>> {
        let mut network = mlp()?;
        let mut trainer = Trainer::new(&mut network, &config, &examples, 100)?;
        let mut epoch = Epoch::new(&config, 64);
        epoch.begin(&config, 0);
        let mut evaluator = Evaluator::new(&network, &config)?;
        let mut found = Vec::new();
        for device in devices {
            network.to(device)?;
            let reports = epoch.advance(&mut trainer, &mut network, &examples, 1, Duration::MAX)?;
            found.extend(reports.iter().map(|report| report.loss));
            evaluator.update(&network, &examples, 16)?;
        }
        found.push(evaluator.finish()?.loss);
        Ok(found)
    };
    let expected = run(["cpu"; 4])?;
    assert_eq!(expected.len(), 5);
    for devices in [["cpu", "gpu", "cpu", "gpu"], ["gpu", "gpu", "cpu", "cpu"]] {
        for (found, expected) in run(devices)?.iter().zip(&expected) {
            assert!((found / expected - 1.0).abs() < 1e-3, "{devices:?}: {found} {expected}");
        }
    }
    Ok(())
}

/// A GPU that was released is the same one again while a network holds it, and is let go of after that.
#[test]
fn a_released_gpu_is_found_again_while_a_network_is_on_it() -> Result<()> {
    let Some((_alone, gpu)) = gpu() else { return Ok(()) };
    let mut network = mlp()?;
    network.to("gpu")?;
    let known = Arc::downgrade(&gpu);
    drop(gpu);
    loom::gpu::release();
    let Some(again) = loom::gpu::Gpu::of(Device::open("gpu", Precision::Float32)?.engine()) else {
        return Ok(());
    };
    assert!(std::ptr::eq(known.as_ptr(), Arc::as_ptr(&again)));
    drop(again);
    loom::gpu::release();
    assert!(known.upgrade().is_some());
    drop(network);
    assert!(known.upgrade().is_none());
    Ok(())
}

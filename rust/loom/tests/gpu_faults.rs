//! What goes wrong on a GPU: errors that say so, weights that are of one step, memory that comes back.
#![cfg(feature = "gpu")]

use loom::gpu::{Fault, Gpu};
use loom::io::SaveOptions;
use loom::layers::{BatchNorm, Dense, Dropout, Lstm};
use loom::network::LayerValue;
use loom::ops::pointwise::Activation;
use loom::program::LayerPath;
use loom::train::{
    Epoch, Examples, LossConfig, Rows, Trainer, TrainerOptions, TrainingConfig, end_epoch, evaluate,
};
use loom::{Device, Error, Network, Precision, Result, interrupt, tensor_view};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Faults are the whole process's, so one test at a time has a device.
static ALONE: Mutex<()> = Mutex::new(());

/// The lock of the tests; skips where there is no GPU, unless `LOOM_REQUIRE_GPU=1` says that there must be one.
fn alone() -> Option<MutexGuard<'static, ()>> {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    match Device::open("gpu", Precision::Float32) {
        Ok(_) => Some(alone),
        Err(error) if std::env::var("LOOM_REQUIRE_GPU").is_ok_and(|value| value == "1") => {
            panic!("LOOM_REQUIRE_GPU is set, and {error}")
        }
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

fn gpu_of(network: &Network) -> Arc<Gpu> {
    Gpu::of(network.device().engine()).expect("a network on a GPU")
}

const ROWS: usize = 40;

fn network() -> Result<Network> {
    let mut network = Network::sequential([6])?;
    network.add([0, 0, 0], Dense::new(9).activation(Activation::Relu))?;
    network.add([0, 0, 0], BatchNorm::default())?;
    network.add([0, 0, 0], Dropout { rate: 0.2 })?;
    network.add([0, 0, 0], Dense::new(3))?;
    Ok(network)
}

/// One that carries its states from batch to batch.
fn stateful() -> Result<Network> {
    let mut network = Network::sequential([2, 3])?;
    network.add([0, 0, 0], Lstm { stateful: true, ..Lstm::new(5) })?;
    network.add([0, 0, 0], Dense::new(3))?;
    Ok(network)
}

fn input() -> Vec<f32> {
    (0..ROWS * 6).map(|i| ((i as f32 + 1.0) * 0.618_034).fract() * 2.0 - 1.0).collect()
}

fn config(batch_size: usize, accumulate: usize) -> Result<TrainingConfig> {
    Ok(TrainingConfig {
        batch_size,
        accumulate,
        epochs: 3,
        learning_rate: 0.01,
        loss: LossConfig::parse("cross_entropy")?,
        ..TrainingConfig::default()
    })
}

/// Trains to the end, and brings the weights back after every third step.
fn learn(network: &mut Network, config: &TrainingConfig, resume: bool) -> Result<()> {
    learn_until(network, config, resume, u64::MAX)
}

/// The same, as far as a step that is a multiple of three.
fn learn_until(network: &mut Network, config: &TrainingConfig, resume: bool, end: u64) -> Result<()> {
    let (input, labels) = (input(), (0..ROWS as i32).map(|i| i % 3).collect::<Vec<_>>());
    let shape = [&[ROWS], &network.input_shape()[..]].concat();
    let examples = Examples::classified(tensor_view(&shape, &input)?, &labels);
    network.build()?;
    let mut epoch = Epoch::new(config, ROWS);
    let options =
        TrainerOptions { total_steps: epoch.total_steps(config), resume, ..TrainerOptions::default() };
    let mut trainer = Trainer::with_options(network, config, &examples, options)?;
    while network.optimizer_state().epoch < config.epochs && network.optimizer_state().step < end {
        epoch.begin(config, network.optimizer_state().epoch);
        while !epoch.is_done(network) && network.optimizer_state().step < end {
            let left = 3 - network.optimizer_state().step % 3;
            epoch.advance(&mut trainer, network, &examples, left, Duration::MAX)?;
            if network.optimizer_state().step.is_multiple_of(3) {
                network.synchronize()?;
            }
        }
        if epoch.is_done(network) {
            end_epoch(network);
        }
    }
    Ok(())
}

fn saved(network: &mut Network) -> Result<Vec<u8>> {
    network.to_bytes(SaveOptions::resumable())
}

/// The network goes back to a step that the error names, whole, and goes on from there to the same bits.
#[test]
fn a_training_that_loses_its_device_goes_on_to_the_same_bits() -> Result<()> {
    let Some(_alone) = alone() else { return Ok(()) };
    for accumulate in [1, 2] {
        let config = config(8 / accumulate, accumulate)?;
        let mut whole = network()?;
        whole.to("gpu")?;
        learn(&mut whole, &config, false)?;
        let expected = saved(&mut whole)?;
        for after in [0, 4, 7, 16] {
            let mut network = network()?;
            network.to("gpu")?;
            gpu_of(&network).meet(Fault::Loss(after));
            let error = learn(&mut network, &config, false).expect_err("a lost device").to_string();
            let here = format!("loss after {after} submits, {accumulate} batches a step: {error}");
            assert!(error.contains("was lost"), "{here}");
            // What is newer is not to be had, and nobody gets older weights without asking for them.
            assert!(network.predict(tensor_view(&[1, 6], &[0.5f32; 6])?).is_err(), "{here}");
            network.to("gpu")?;
            let state = network.optimizer_state().clone();
            // What layers keep is copied before each step of several batches, and all else with it.
            assert!(accumulate > 1 || state.step % 3 == 0, "{here}");
            assert!(error.contains(&format!("are left of step {} ", state.step)), "{here}");
            assert_eq!(state.step, state.updates, "{here}");
            learn(&mut network, &config, true)?;
            assert!(saved(&mut network)? == expected, "{here}");
        }
    }
    Ok(())
}

/// What layers carry from batch to batch is of the step that the network goes back to.
#[test]
fn what_layers_carry_goes_back_with_the_weights() -> Result<()> {
    let Some(_alone) = alone() else { return Ok(()) };
    let config = TrainingConfig { shuffle: false, ..config(8, 1)? };
    let mut whole = stateful()?;
    whole.to("gpu")?;
    learn(&mut whole, &config, false)?;
    let expected = saved(&mut whole)?;
    let mut carrying = 0;
    for after in [0, 4, 13] {
        let mut network = stateful()?;
        network.to("gpu")?;
        gpu_of(&network).meet(Fault::Loss(after));
        learn(&mut network, &config, false).expect_err("a lost device");
        network.to("cpu")?;
        let mut alike = stateful()?;
        alike.to("gpu")?;
        learn_until(&mut alike, &config, false, network.optimizer_state().step)?;
        let names = network.state_names([0, 0, 0], 0)?;
        assert_eq!(names, alike.state_names([0, 0, 0], 0)?, "loss after {after} submits");
        for name in &names {
            let found = network.state([0, 0, 0], 0, name)?;
            assert_eq!(found, alike.state([0, 0, 0], 0, name)?, "loss after {after} submits: {name}");
        }
        carrying += names.len();
        network.to("gpu")?;
        learn(&mut network, &config, true)?;
        assert!(saved(&mut network)? == expected, "loss after {after} submits");
    }
    assert!(carrying > 0);
    Ok(())
}

/// Weights in packed types follow the masters that the network goes back to.
#[test]
fn a_network_that_lost_its_device_computes_saves_and_learns_on_the_host() -> Result<()> {
    let Some(_alone) = alone() else { return Ok(()) };
    let config = config(8, 1)?;
    for dtype in [loom::dtype::DType::Float32, loom::dtype::DType::Int8] {
        let mut network = network()?;
        network.build()?;
        network.morph(dtype)?;
        network.to("gpu")?;
        gpu_of(&network).meet(Fault::Loss(9));
        learn(&mut network, &config, false).expect_err("a lost device");
        assert!(matches!(saved(&mut network), Err(Error::Device(_))));
        network.to("cpu")?;
        let x = input();
        let x = tensor_view(&[ROWS, 6], &x)?;
        let output = network.predict(x.clone())?.to_f32();
        let file = saved(&mut network)?;
        let loaded = Network::from_bytes(&file)?;
        assert_eq!(loaded.predict(x.clone())?.to_f32(), output);
        learn(&mut network, &config, true)?;
    }
    Ok(())
}

/// A device with little memory takes fewer rows at a time; a large batch gives the bits of the small ones.
#[test]
fn what_does_not_fit_goes_through_in_smaller_frames() -> Result<()> {
    let Some(_alone) = alone() else { return Ok(()) };
    const MANY: usize = 3000;
    let input: Vec<f32> = (0..MANY * 6).map(|i| (i as f32 * 0.7).sin()).collect();
    let labels: Vec<i32> = (0..MANY as i32).map(|i| i % 3).collect();
    let x = tensor_view(&[MANY, 6], &input)?;
    let mut network = network()?;
    network.build()?;
    network.to("gpu")?;
    let gpu = gpu_of(&network);
    let config = config(MANY, 1)?;
    let examples = Examples::classified(x.clone(), &labels);
    let whole = network.predict_batched(x.clone(), MANY)?.to_f32();
    let evaluated = evaluate(&network, &examples, &config)?;
    // What a smaller batch keeps is not in the way of a large one.
    network.predict_batched(x.clone(), 500)?;
    gpu.meet(Fault::Memory(gpu.allocated() + 200_000));
    assert_eq!(network.predict_batched(x.clone(), MANY)?.to_f32(), whole);
    network.to("cpu")?;
    network.to("gpu")?;
    gpu.meet(Fault::Memory(gpu.allocated() + 120_000));
    gpu.reset_statistics();
    assert_eq!(network.predict_batched(x.clone(), MANY)?.to_f32(), whole);
    let frames = gpu.statistics().frames;
    assert!((3..=64).contains(&frames), "{frames} frames");
    assert_eq!(evaluate(&network, &examples, &config)?, evaluated);
    let values = [(LayerPath::new(0, 0, 0, 0), LayerValue::Output)];
    network.layer_values(x.clone(), MANY, &values)?;
    network.input_gradient(x.clone(), tensor_view(&[MANY, 3], &whole)?, MANY)?;

    // Not even one row.
    gpu.meet(Fault::Memory(0));
    network.to("cpu")?;
    network.to("gpu")?;
    let error = network.predict_batched(x.clone(), MANY).expect_err("no memory").to_string();
    assert!(error.contains("out of memory") && error.contains("1 rows at a time"), "{error}");
    gpu.meet(Fault::Memory(u64::MAX));
    assert_eq!(network.predict_batched(x, MANY)?.to_f32(), whole);
    Ok(())
}

/// Whichever allocation fails: an error that says what there is no memory for, nothing moved, nothing kept.
#[test]
fn a_step_that_does_not_fit_is_refused_and_leaves_everything_usable() -> Result<()> {
    let Some(_alone) = alone() else { return Ok(()) };
    let config = TrainingConfig { epochs: 1, ..config(8, 1)? };
    let mut whole = network()?;
    whole.to("gpu")?;
    learn(&mut whole, &config, false)?;
    let expected = saved(&mut whole)?;
    let gpu = gpu_of(&whole);
    drop(whole);
    // Memory that a few bytes are sent by stays for the next time. Where there is no room for all examples on the device,
    // batches are sent one by one, as here.
    let (rows, labels) = (input(), [0, 1, 2, 0, 1, 2, 0, 1]);
    let batch = Examples::classified(tensor_view(&[8, 6], &rows[..48])?, &labels);
    let mut network_of_batches = network()?;
    network_of_batches.to("gpu")?;
    let mut trainer = Trainer::new(&mut network_of_batches, &config, &batch, 1)?;
    trainer.step(&mut network_of_batches, &[(&batch, Rows::First(8))])?;
    drop((trainer, network_of_batches));
    let held = gpu.allocated();
    let (mut refused, mut number) = (0, 0);
    loop {
        let mut network = network()?;
        network.to("gpu")?;
        gpu.meet(Fault::Allocation(number));
        let outcome = learn(&mut network, &config, false);
        gpu.meet(Fault::Allocation(u64::MAX));
        if let Err(error) = &outcome {
            let error = error.to_string();
            assert!(error.contains("out of memory") && error.contains("MiB for"), "{number}: {error}");
            refused += 1;
            // Where it stopped it goes on, to the same bits.
            learn(&mut network, &config, true)?;
        }
        assert!(saved(&mut network)? == expected, "allocation {number}");
        assert!(!gpu.is_lost());
        drop(network);
        assert_eq!(gpu.allocated(), held, "allocation {number} leaves memory behind");
        if outcome.is_ok() && number > 60 {
            break;
        }
        number += 2;
    }
    assert!(refused > 15, "{refused} refused before allocation {number}");
    Ok(())
}

/// A frame that never ends is given up in time, with what it was; the network goes on elsewhere.
#[test]
fn a_frame_that_hangs_is_given_up_in_time() -> Result<()> {
    let Some(_alone) = alone() else { return Ok(()) };
    let config = config(8, 1)?;
    for after in [0, 9] {
        let mut network = network()?;
        network.to("gpu")?;
        let gpu = gpu_of(&network);
        gpu.set_time_limit(Some(Duration::from_millis(200)));
        gpu.meet(Fault::Hang(after));
        let error = learn(&mut network, &config, false).expect_err("a hang").to_string();
        assert!(error.contains("did not end within 0.2 seconds"), "{error}");
        assert!(error.contains("dispatches, the last of them \""), "{error}");
        assert!(error.contains("are left of step"), "{error}");
        assert!(gpu.is_lost());
        network.to("gpu")?;
        learn(&mut network, &config, true)?;
    }
    Ok(())
}

/// Who waits for inference may end that at once, and has changed nothing.
#[test]
fn waiting_for_inference_can_be_ended() -> Result<()> {
    let Some(_alone) = alone() else { return Ok(()) };
    let mut network = network()?;
    network.build()?;
    network.to("gpu")?;
    let gpu = gpu_of(&network);
    let input = input();
    let x = tensor_view(&[ROWS, 6], &input)?;
    let expected = network.predict(x.clone())?.to_f32();
    gpu.meet(Fault::Hang(0));
    let enough = || Err(Error::State("enough".into()));
    let ended = interrupt::asking(enough, || network.predict(x.clone()));
    assert!(matches!(ended, Err(Error::State(message)) if message == "enough"));
    gpu.meet(Fault::Hang(u64::MAX));
    assert!(!gpu.is_lost());
    assert_eq!(network.predict(x)?.to_f32(), expected);
    Ok(())
}

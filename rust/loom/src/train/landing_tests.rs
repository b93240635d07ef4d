//! Diverging training leaves everything as it was before the step that went wrong, and a network that can
//! still be used.

use super::*;
use crate::dtype::DType;
use crate::io::SaveOptions;
use crate::layers::{BatchNorm, Dense, Gru};
use crate::mesh::{Mesh, Sample, SteppingConfig, train_stepping};
use crate::network::Watch;
use crate::ops::measure::Header;
use crate::ops::pointwise::Activation;
use crate::tensor::Precision;
use crate::{Error, Network, Result, tensor_view};
use safetensors::SafeTensors;
use std::collections::BTreeMap;

const AT: [usize; 3] = [0, 0, 0];
const ROWS: usize = 8;

/// All that a network saves with its optimizer, by name; the tensors alone without `counters`.
pub(crate) fn saved(network: &mut Network, counters: bool) -> Result<BTreeMap<String, Vec<u8>>> {
    let bytes = network.to_bytes(SaveOptions::resumable())?;
    let (_, header) = SafeTensors::read_metadata(&bytes).expect("a checkpoint");
    let tensors = SafeTensors::deserialize(&bytes).expect("a checkpoint");
    let mut all: BTreeMap<String, Vec<u8>> =
        tensors.tensors().into_iter().map(|(name, tensor)| (name, tensor.data().to_vec())).collect();
    // What was measured of a step that went wrong is there to be looked at; checksums go by it and by the header.
    let figures = ["training@measures", "training@losses", "training@newest", "loom.checksums"];
    all.retain(|name, _| !figures.iter().any(|figure| name.starts_with(figure)));
    if counters {
        let metadata = header.metadata().clone().unwrap_or_default();
        all.extend(metadata.into_iter().map(|(name, text)| (name, text.into_bytes())));
    }
    Ok(all)
}

/// What is not finite among the tensors that a network saves in its own precision.
pub(crate) fn odd(network: &mut Network) -> Result<Vec<String>> {
    let bytes = network.to_bytes(SaveOptions::resumable())?;
    let tensors = SafeTensors::deserialize(&bytes).expect("a checkpoint");
    let is_odd = |tensor: &safetensors::tensor::TensorView<'_>| match tensor.dtype() {
        safetensors::Dtype::F32 => {
            tensor.data().chunks_exact(4).any(|x| !f32::from_le_bytes([x[0], x[1], x[2], x[3]]).is_finite())
        }
        safetensors::Dtype::F64 => tensor.data().chunks_exact(8).any(|x| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(x);
            !f64::from_le_bytes(bytes).is_finite()
        }),
        safetensors::Dtype::F16 => tensor.data().chunks_exact(2).any(|x| x[1] & 0x7C == 0x7C),
        safetensors::Dtype::BF16 => {
            tensor.data().chunks_exact(2).any(|x| x[1] & 0x7F == 0x7F && x[0] & 0x80 == 0x80)
        }
        _ => false,
    };
    // Measures of what is not there are NaN, and zero points stand as integers among the scales.
    let is_plain = |name: &str| !name.starts_with("training@") && !(name.contains("@uint"));
    let named = tensors.tensors().into_iter().filter(|(name, _)| is_plain(name));
    Ok(named.filter(|(_, tensor)| is_odd(tensor)).map(|(name, _)| name).collect())
}

/// A network that has diverged predicts, saves, loads, takes weights, and trains.
pub(crate) fn is_usable(network: &mut Network, row: &[f32]) -> Result<()> {
    let shape = [&[1], &network.input_shape()[..]].concat();
    assert_eq!(odd(network)?, Vec::<String>::new());
    network.reset_states();
    network.predict(tensor_view(&shape, row)?)?;
    let mut loaded = Network::from_bytes(&network.to_bytes(SaveOptions::resumable())?)?;
    let found = saved(&mut loaded, true)?;
    // Moments that were never made are zeros once loaded.
    assert!(saved(network, false)?.iter().all(|(name, bytes)| found.get(name) == Some(bytes)));
    if network.device().is_host() {
        let predict = |network: &Network| -> Result<Vec<u32>> {
            let output = network.predict(tensor_view(&shape, row)?)?;
            Ok(output.to_f32().into_iter().map(f32::to_bits).collect())
        };
        assert_eq!(predict(network)?, predict(&loaded)?);
    }
    Ok(())
}

fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i as f32 + 1.0) * 0.618_034).fract() * 2.0 - 1.0).collect()
}

fn perceptron(dtype: Option<DType>) -> Result<Network> {
    let mut network = Network::with_options([6], [1, 1, 1], Precision::Float32, 3)?;
    network.add(AT, Dense::new(32).activation(Activation::Relu))?;
    network.add(AT, Dense::new(3))?;
    if let Some(dtype) = dtype {
        network.morph(dtype)?;
    }
    network.build()?;
    Ok(network)
}

fn config(rate: f64, optimizer: Optimizer, on_nonfinite: OnNonFinite) -> TrainingConfig {
    TrainingConfig {
        epochs: 3,
        batch_size: ROWS,
        learning_rate: rate,
        optimizer,
        on_nonfinite,
        shuffle: false,
        ..TrainingConfig::default()
    }
}

fn momentum() -> Optimizer {
    Optimizer::Sgd { momentum: 0.9, nesterov: false, weight_decay: 0.0, decay_exempt: false }
}

/// Trains step by step until one goes wrong; returns how it went and checks that nothing moved.
fn until_refused(network: &mut Network, config: &TrainingConfig, steps: usize) -> Result<Option<Error>> {
    let input = numbers(ROWS * network.input_shape().len());
    let target = numbers(ROWS * network.output_shape().len());
    let shape = |of: &[usize]| [&[ROWS], of].concat();
    let examples = Examples::regression(
        tensor_view(&shape(network.input_shape()), &input)?,
        tensor_view(&shape(network.output_shape()), &target)?,
    );
    let mut trainer = Trainer::new(network, config, &examples, 1000)?;
    for _ in 0..steps {
        let before = saved(network, true)?;
        // Figures of the step that was refused are there to be looked at, and a skipped one is counted.
        let moved = |network: &mut Network, but: &str| -> Result<Vec<String>> {
            let after = saved(network, true)?;
            let names = before.keys().chain(after.keys()).filter(|name| !name.starts_with(but));
            Ok(names.filter(|name| before.get(*name) != after.get(*name)).cloned().collect())
        };
        match trainer.step(network, &[(&examples, Rows::First(ROWS))]) {
            Ok(report) if report.skipped && !report.exploded => {
                assert_eq!(moved(network, "loom.")?, Vec::<String>::new(), "after a skipped step");
            }
            Ok(_) => assert_eq!(odd(network)?, Vec::<String>::new()),
            Err(error) => {
                assert_eq!(moved(network, "loom.watched")?, Vec::<String>::new(), "{error}");
                return Ok(Some(error));
            }
        }
    }
    Ok(None)
}

fn devices() -> Vec<&'static str> {
    std::iter::once("cpu").chain(crate::device::testing::gpu()).collect()
}

#[test]
fn packed_weights_that_diverge_are_as_before() -> Result<()> {
    let wide = numbers(6);
    for device in devices() {
        for name in ["float16", "q4_0", "q8_0", "bfloat16"] {
            for optimizer in [momentum(), Optimizer::adam()] {
                let rate = match name {
                    "bfloat16" => 1e38,
                    "q8_0" => 1e7,
                    _ => 1e6,
                };
                let mut network = perceptron(Some(name.parse()?))?;
                network.to(device)?;
                let raising = config(rate, optimizer.clone(), OnNonFinite::Raise);
                let error = until_refused(&mut network, &raising, 12)?;
                let error = error.unwrap_or_else(|| panic!("{name} on {device} did not diverge"));
                assert!(
                    matches!(&error, Error::NonFinite(text) if text.contains("cell (0, 0, 0), layer")),
                    "{name}: {error}"
                );
                is_usable(&mut network, &wide)?;
                // It takes good weights, and learns.
                let good = perceptron(None)?;
                for (layer, name) in [(0, "weight"), (0, "bias"), (1, "weight"), (1, "bias")] {
                    network.set_parameter(AT, layer, name, good.parameter(AT, layer, name)?.view())?;
                }
                let calm = config(1e-4, optimizer.clone(), OnNonFinite::Raise);
                assert!(until_refused(&mut network, &calm, 3)?.is_none());

                let mut network = perceptron(Some(name.parse()?))?;
                network.to(device)?;
                let skipping = config(rate, optimizer.clone(), OnNonFinite::Skip);
                assert!(until_refused(&mut network, &skipping, 12)?.is_none());
                is_usable(&mut network, &wide)?;
            }
        }
    }
    Ok(())
}

#[test]
fn the_largest_rates_leave_finite_weights_and_moments() -> Result<()> {
    for device in devices() {
        for optimizer in [Optimizer::sgd(), momentum(), Optimizer::default(), Optimizer::rms_prop()] {
            for rate in [1e4, 1e20, 1e38] {
                let mut network = perceptron(None)?;
                network.to(device)?;
                let raising = config(rate, optimizer.clone(), OnNonFinite::Raise);
                let error = until_refused(&mut network, &raising, 200)?;
                assert!(matches!(error, None | Some(Error::NonFinite(_))), "{error:?}");
                is_usable(&mut network, &numbers(6))?;
            }
        }
    }
    Ok(())
}

fn normalised(device: &str) -> Result<Network> {
    let mut network = Network::with_options([6], [1, 1, 1], Precision::Float32, 3)?;
    network.add(AT, BatchNorm::default())?;
    network.add(AT, Dense::new(3))?;
    network.build()?;
    network.to(device)?;
    Ok(network)
}

#[test]
fn running_statistics_that_overflow_are_as_before() -> Result<()> {
    let target = numbers(ROWS * 3);
    for device in devices() {
        for huge in [1e19f32, 1e25, 1e38] {
            let input: Vec<f32> = numbers(ROWS * 6).into_iter().map(|x| x * huge).collect();
            let examples =
                Examples::regression(tensor_view(&[ROWS, 6], &input)?, tensor_view(&[ROWS, 3], &target)?);
            for accumulate in [1, 2] {
                let raising =
                    TrainingConfig { accumulate, ..config(1e-3, Optimizer::adam(), OnNonFinite::Raise) };
                let mut network = normalised(device)?;
                let before = [network.state(AT, 0, "running_mean")?, network.state(AT, 0, "running_var")?];
                match train(&mut network, &examples, &raising) {
                    Ok(_) => assert!(huge < 1e20),
                    Err(Error::NonFinite(text)) => {
                        assert!(text.contains("running") || text.contains("layer"), "{text}");
                        let after =
                            [network.state(AT, 0, "running_mean")?, network.state(AT, 0, "running_var")?];
                        assert_eq!(before, after);
                    }
                    Err(error) => return Err(error),
                }
                is_usable(&mut network, &numbers(6))?;
                let mut network = normalised(device)?;
                let skipping = TrainingConfig { on_nonfinite: OnNonFinite::Skip, ..raising };
                let result = train(&mut network, &examples, &skipping)?;
                assert!(result.skipped_steps == 3 || huge < 1e20, "{result:?}");
                is_usable(&mut network, &numbers(6))?;
            }
            // The manual loop moves them with every training pass.
            let mut network = normalised(device)?;
            let passed = network.forward(tensor_view(&[ROWS, 6], &input)?);
            if huge > 1e20 {
                let error = passed.err().map(|error| error.to_string()).unwrap_or_default();
                assert!(error.contains("running_var") && error.contains("layer 0 (batch_norm)"), "{error}");
            }
            is_usable(&mut network, &numbers(6))?;
        }
    }
    Ok(())
}

#[test]
fn the_manual_loop_keeps_weights_and_gradients() -> Result<()> {
    for device in devices() {
        for name in [None, Some("float16")] {
            let mut network = perceptron(name.map(str::parse).transpose()?)?;
            network.to(device)?;
            network.set_optimizer(Optimizer::adam())?;
            let input = numbers(ROWS * 6);
            let output = network.forward(tensor_view(&[ROWS, 6], &input)?)?.output;
            network.backward(output.view())?;
            network.apply_gradients(1e-3)?;
            let output = network.forward(tensor_view(&[ROWS, 6], &input)?)?.output;
            network.backward(output.view())?;
            let before = saved(&mut network, true)?;
            let gradient = network.gradient(AT, 0, "weight")?;
            let error = network.apply_gradients(3e38).unwrap_err();
            assert!(matches!(&error, Error::NonFinite(text) if text.contains("layer")), "{error}");
            assert!(saved(&mut network, true)? == before, "{error}: something moved");
            assert_eq!(network.gradient(AT, 0, "weight")?, gradient);
            network.apply_gradients(1e-3)?;
            is_usable(&mut network, &numbers(6))?;
        }
    }
    Ok(())
}

/// Learning by targets, in every mode, with and without explosions taken back, one local step and several.
#[test]
fn targets_that_diverge_are_taken_back() -> Result<()> {
    for device in devices() {
        for mode in [
            TargetMode::ChainRule,
            TargetMode::Layerwise,
            TargetMode::Difference,
            TargetMode::DifferenceReconstruction,
        ] {
            for (local_steps, explosion) in [(1, true), (1, false), (2, true), (2, false)] {
                let mut tween = TweenConfig { mode, local_steps, ..TweenConfig::tween() };
                if !explosion {
                    tween.watch.explosion = None;
                }
                for (rate, on_nonfinite) in [(1e38, OnNonFinite::Raise), (1e38, OnNonFinite::Skip)] {
                    let mut network = perceptron(None)?;
                    network.add(AT, Dense::new(3))?;
                    network.build()?;
                    network.to(device)?;
                    let config = TrainingConfig {
                        tween: Some(tween.clone()),
                        ..config(rate, momentum(), on_nonfinite)
                    };
                    let error = until_refused(&mut network, &config, 12)?;
                    assert!(matches!(error, None | Some(Error::NonFinite(_))), "{mode:?}: {error:?}");
                    if explosion {
                        assert!(error.is_none(), "{mode:?}, {local_steps}: {error:?}");
                        assert!(network.measures().header(Header::Explosions) > 0.0, "{mode:?}");
                    }
                    is_usable(&mut network, &numbers(6))?;
                }
            }
        }
    }
    Ok(())
}

#[test]
fn a_mesh_that_diverges_is_as_before() -> Result<()> {
    for device in devices() {
        for on_nonfinite in [OnNonFinite::Raise, OnNonFinite::Skip] {
            let mut network = perceptron(Some(DType::Float16))?;
            network.to(device)?;
            let mut mesh = Mesh::new(&mut network, ROWS, 4)?;
            let (input, target) = (numbers(ROWS * 6), numbers(ROWS * 3));
            let sample = || -> Result<Sample<'_>> {
                Ok(Sample {
                    input: tensor_view(&[ROWS, 6], &input)?,
                    target: Some(Targets::Real(tensor_view(&[ROWS, 3], &target)?)),
                })
            };
            let config = SteppingConfig {
                ticks: 4,
                training: config(1e7, Optimizer::sgd(), on_nonfinite),
                ..SteppingConfig::default()
            };
            let samples: Vec<Sample<'_>> = (0..6).map(|_| sample()).collect::<Result<_>>()?;
            let result = train_stepping(&mut network, &mut mesh, samples, &config);
            match (on_nonfinite, result) {
                (OnNonFinite::Raise, Err(Error::NonFinite(_))) => {}
                (OnNonFinite::Skip, Ok(result)) => assert!(result.skipped_updates > 0),
                (_, other) => panic!("{other:?}"),
            }
            is_usable(&mut network, &numbers(6))?;
        }
    }
    Ok(())
}

#[test]
fn nothing_that_load_refuses_replaces_a_good_file() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("good.loom");
    let spoil: [fn(&mut Network); 3] = [
        |network| network.registry.states[1].content.as_mut_slice::<f32>()[2] = f32::INFINITY,
        |network| {
            let store = network.layer(AT, 1).expect("a layer").store.expect("a store");
            let master = network.registry.stores[store].master_buffer_mut().expect("a master");
            master.as_mut_slice::<f32>()[0] = f32::NAN;
        },
        |network| network.registry.states[0].content.as_mut_slice::<f32>()[0] = f32::NAN,
    ];
    for spoil in spoil {
        let mut network = normalised("cpu")?;
        network.save(&path, SaveOptions::default())?;
        let good = std::fs::read(&path).expect("a file");
        spoil(&mut network);
        let error = network.save(&path, SaveOptions::default()).unwrap_err();
        assert!(matches!(&error, Error::NonFinite(text) if text.contains("layer")), "{error}");
        assert_eq!(std::fs::read(&path).expect("a file"), good);
        Network::load(&path)?;
    }
    Ok(())
}

/// A step that is left out begins no sequence: what stateful layers carry is then what it was, or nothing.
#[test]
fn a_first_step_that_is_refused_carries_nothing() -> Result<()> {
    let carried = |network: &mut Network| network.state(AT, 1, "state_l0");
    for device in devices() {
        for on_nonfinite in [OnNonFinite::Raise, OnNonFinite::Skip] {
            let mut network = Network::with_options([5, 6], [1, 1, 1], Precision::Float32, 3)?;
            network.add(AT, BatchNorm::default())?;
            network.add(AT, Gru { stateful: true, ..Gru::new(4) }.return_sequences())?;
            network.build()?;
            network.to(device)?;
            // Running statistics cannot hold the square of the first input, in training and in the manual loop.
            let wild: Vec<f32> = numbers(ROWS * 30).into_iter().map(|x| x * 1e30).collect();
            let wild = tensor_view(&[ROWS, 5, 6], &wild)?;
            let target = numbers(ROWS * 20);
            let target = tensor_view(&[ROWS, 5, 4], &target)?;
            let calm = numbers((ROWS - 3) * 30);
            let calm = tensor_view(&[ROWS - 3, 5, 6], &calm)?;
            let calm_target = numbers((ROWS - 3) * 20);
            let calm_target = tensor_view(&[ROWS - 3, 5, 4], &calm_target)?;
            let calm = Examples::regression(calm, calm_target);
            let wild = Examples::regression(wild, target);
            let config = config(1e-3, Optimizer::adam(), on_nonfinite);
            let mut trainer = Trainer::new(&mut network, &config, &wild, 100)?;
            let step = |trainer: &mut Trainer, network: &mut Network, examples: &Examples<'_>| {
                trainer.step(network, &[(examples, Rows::First(examples.rows()))])
            };
            let is_left_out = |outcome: Result<StepReport>| match outcome {
                Ok(report) => assert!(report.skipped && on_nonfinite == OnNonFinite::Skip),
                Err(Error::NonFinite(_)) => assert_eq!(on_nonfinite, OnNonFinite::Raise),
                Err(error) => panic!("{error}"),
            };
            let nothing = network.state_names(AT, 1)?;
            assert_eq!(nothing, Vec::<String>::new());
            is_left_out(step(&mut trainer, &mut network, &wild));
            assert_eq!(network.state_names(AT, 1)?, nothing);
            assert!(network.forward(wild.input).is_err(), "the manual loop went on with infinite statistics");
            assert_eq!(network.state_names(AT, 1)?, nothing);
            assert!(carried(&mut network).is_err());
            // So the next batch may have any number of rows.
            step(&mut trainer, &mut network, &calm)?;
            let before = carried(&mut network)?;
            assert_eq!(before.shape()[0], ROWS - 3);
            // Uneven batches are refused before any of them passes.
            let uneven = [(&calm, Rows::First(ROWS - 3)), (&calm, Rows::First(ROWS - 4))];
            assert!(matches!(trainer.step(&mut network, &uneven), Err(Error::State(_))));
            assert_eq!(carried(&mut network)?, before);
            network.reset_states();
            assert!(matches!(trainer.step(&mut network, &uneven), Err(Error::State(_))));
            assert_eq!(network.state_names(AT, 1)?, nothing);
        }
    }
    Ok(())
}

/// What layers keep is as before an explosion; that there was one, and the rate that follows from it, is not
/// forgotten with it.
#[test]
fn an_explosion_over_several_batches_is_noted() -> Result<()> {
    let input = numbers(ROWS * 6);
    let target = numbers(ROWS * 3);
    let wild: Vec<f32> = target.iter().map(|x| x * 1e4).collect();
    let examples = |target| -> Result<_> {
        Ok(Examples::regression(tensor_view(&[ROWS, 6], &input)?, tensor_view(&[ROWS, 3], target)?))
    };
    let (calm, wild) = (examples(&target[..])?, examples(&wild[..])?);
    for device in devices() {
        let mut network = normalised(device)?;
        let config =
            TrainingConfig { watch: Some(Watch::tween()), ..config(1e-3, momentum(), OnNonFinite::Raise) };
        let mut trainer = Trainer::new(&mut network, &config, &calm, 100)?;
        let mut step = |network: &mut Network, second: &Examples<'_>| {
            trainer.step(network, &[(&calm, Rows::First(ROWS)), (second, Rows::First(ROWS))])
        };
        for _ in 0..3 {
            assert!(!step(&mut network, &calm)?.exploded);
        }
        let kept = |network: &mut Network| -> Result<_> {
            Ok([network.state(AT, 0, "running_mean")?, network.state(AT, 0, "running_var")?])
        };
        let before = kept(&mut network)?;
        assert!(step(&mut network, &wild)?.exploded);
        assert_eq!(kept(&mut network)?, before);
        assert_eq!(network.measures().header(Header::Explosions), 1.0);
        assert!(network.measures().header(Header::RateFactor) < 1.0);
        assert!(!step(&mut network, &calm)?.exploded);
        assert_eq!(network.measures().header(Header::Explosions), 1.0);
        assert_ne!(kept(&mut network)?, before);
    }
    Ok(())
}

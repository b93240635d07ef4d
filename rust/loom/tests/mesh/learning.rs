//! Learning from streams: memory through a loop, targets, the same bits, files.

use crate::common::{Memory, bits, floats, link, remembering, stepping, tweened};
use loom::dtype::DType;
use loom::io::SaveOptions;
use loom::layers::{Dense, Dropout};
use loom::mesh::{Given, Mesh, Stepper, SteppingConfig, train_stepping};
use loom::network::Combine;
use loom::ops::pointwise::Activation;
use loom::simd::{Cpu, Isa};
use loom::train::{DepthScale, Optimizer, TrainingConfig, TweenConfig};
use loom::{Network, Precision, Result, tensor_view};

#[test]
fn what_was_shown_some_ticks_ago_is_remembered_through_the_loop() -> Result<()> {
    // The output lags by one tick itself, so the loop must bridge the other three.
    let stream = Memory::new(1500, 16, 4);
    let mut mean = Vec::new();
    for looped in [true, false] {
        let mut network = remembering(7, looped)?;
        let mut mesh = Mesh::new(&mut network, 16, 8)?;
        let result = train_stepping(&mut network, &mut mesh, stream.samples(), &stepping(4))?;
        assert_eq!((result.samples, result.ticks, result.updates), (1500, 1500, 374));
        assert_eq!(result.losses.len(), 1496);
        mean.push(result.losses.iter().rev().take(100).sum::<f64>() / 100.0);
    }
    assert!(mean[0] < 0.05, "with the loop the loss is {}", mean[0]);
    assert!(mean[1] > 0.9, "without the loop there is nothing to remember with: {}", mean[1]);
    Ok(())
}

#[test]
fn chain_rule_targets_move_weights_as_gradients_do_and_are_measured() -> Result<()> {
    let stream = Memory::new(30, 3, 2);
    let plain = SteppingConfig {
        training: TrainingConfig { optimizer: Optimizer::sgd(), ..stepping(2).training },
        ..stepping(2)
    };
    let tween = TweenConfig {
        optimizer: Some(Optimizer::sgd()),
        depth_scale: DepthScale::None,
        ..TweenConfig::tween()
    };
    let mut weights = Vec::new();
    for config in [plain.clone(), tweened(plain, tween)] {
        let mut network = remembering(3, true)?;
        let mut mesh = Mesh::new(&mut network, 3, 6)?;
        let mut stepper = Stepper::new(&mut network, &mesh, &config, false)?;
        for sample in stream.samples() {
            stepper.step(&mut network, &mut mesh, &sample)?;
        }
        weights.push(bits(&network.parameter([0, 0, 0], 0, "weight")?));
        if config.training.tween.is_none() {
            continue;
        }
        assert_eq!(stepper.result.explosions, 0);
        let measures = network.measures();
        assert_eq!(measures.losses.len() as u64, stepper.result.updates);
        // The output's target is a tenth of the gradient of the summed losses away at the two ticks that
        // had targets, and nothing at the other four: of mse, twice the error over its two updates' mean.
        let losses = &stepper.result.losses;
        let newest = &losses[losses.len() - 2..];
        let squared: f64 = newest.iter().map(|loss| 0.2f64.powi(2) * loss * 3.0).sum();
        let expected = (squared / (3.0 * 6.0)).sqrt();
        let output = measures.layer(1).unwrap();
        assert!((output.gap / expected - 1.0).abs() < 1e-5, "{} instead of {expected}", output.gap);
        let hidden = measures.layer(0).unwrap();
        assert!(hidden.gap > 0.0 && hidden.gap.is_finite());
        assert!(hidden.alignment > 0.9 && hidden.gain > 0.0);
    }
    assert_eq!(weights[0], weights[1]);
    Ok(())
}

#[test]
fn what_explodes_is_taken_back() -> Result<()> {
    let stream = Memory::new(60, 3, 2);
    let mut config = tweened(stepping(2), TweenConfig { momentum: 0.0, ..TweenConfig::tween() });
    config.training.gradient_clip = None;
    config.training.learning_rate = 50.0;
    let mut network = remembering(3, true)?;
    let mut mesh = Mesh::new(&mut network, 3, 6)?;
    let mut stepper = Stepper::new(&mut network, &mesh, &config, false)?;
    for sample in stream.samples() {
        stepper.step(&mut network, &mut mesh, &sample)?;
    }
    assert!(stepper.result.explosions > 0);
    assert!(network.parameter([0, 0, 0], 0, "weight")?.to_f64().iter().all(|x| x.is_finite()));
    Ok(())
}

#[test]
fn bits_are_the_same_for_any_number_of_threads() -> Result<()> {
    let mut seen = Vec::new();
    for threads in [1, 3] {
        // Large enough to be run side by side, with one layer that has all threads to itself.
        let mut network = Network::with_options([64], [1, 3, 3], Precision::Float32, 2)?;
        for row in 0..3 {
            for column in 0..3 {
                let units = if row == 1 && column == 1 { 2048 } else { 64 };
                network.add([0, row, column], Dense::new(units).activation(Activation::Tanh))?;
            }
        }
        network.link(link([0, 2, 2], [0, 0, 1], Combine::Add))?;
        let mut mesh = Mesh::new(&mut network, 33, 6)?;
        mesh.set_cpu(Cpu::with_threads(Isa::best(), threads)?);
        let input = floats(33 * 64, 0.5);
        mesh.set_input(&mut network, tensor_view(&[33, 64], &input)?)?;
        mesh.tick(&mut network, 14)?;
        let gradient = floats(33 * 64, 0.9);
        mesh.backward(&mut network, &[Given::newest([0, 2, 2], tensor_view(&[33, 64], &gradient)?)])?;
        let gradients =
            [[0, 2, 2], [0, 2, 1], [0, 1, 1]].map(|cell| network.gradient(cell, 0, "weight").unwrap());
        seen.push((bits(&mesh.output(&network, [0, 2, 2])?), gradients.map(|gradient| bits(&gradient))));
    }
    assert!(seen[0] == seen[1]);
    Ok(())
}

#[test]
fn a_saved_mesh_goes_on_bit_for_bit() -> Result<()> {
    let stream = Memory::new(40, 2, 3);
    let config = stepping(4);
    let mut network = remembering(9, true)?;
    network.add([0, 0, 0], Dropout { rate: 0.2 })?;
    let mut mesh = Mesh::new(&mut network, 2, 5)?;
    let mut stepper = Stepper::new(&mut network, &mesh, &config, false)?;
    for sample in stream.samples().take(20) {
        stepper.step(&mut network, &mut mesh, &sample)?;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mesh.loom");
    mesh.save(&mut network, &path, SaveOptions::resumable())?;
    let rest = |network: &mut Network, mesh: &mut Mesh, mut stepper: Stepper| -> Result<Vec<u64>> {
        for sample in stream.samples().skip(20) {
            stepper.step(network, mesh, &sample)?;
        }
        let losses = stepper.result.losses.iter().rev().take(20).map(|loss| loss.to_bits());
        let weight = bits(&network.parameter([0, 0, 0], 0, "weight")?);
        Ok([losses.collect(), weight, bits(&mesh.output(network, [0, 0, 1])?)].concat())
    };
    let expected = rest(&mut network, &mut mesh, stepper)?;
    let (mut network, mut mesh) = Mesh::load(&path)?;
    assert_eq!((mesh.rows(), mesh.window(), mesh.ticks(), mesh.reach()), (2, 5, 20, 5));
    let stepper = Stepper::new(&mut network, &mesh, &config, true)?;
    assert_eq!(rest(&mut network, &mut mesh, stepper)?, expected);
    // The network alone is there for those who want no clock.
    assert_eq!(Network::load(&path)?.links().len(), 1);
    Ok(())
}

#[test]
fn packed_weights_follow_what_is_learned() -> Result<()> {
    let stream = Memory::new(24, 2, 2);
    let mut network = remembering(4, true)?;
    network.build()?;
    network.morph(DType::Int8)?;
    let mut mesh = Mesh::new(&mut network, 2, 4)?;
    let before = bits(&network.active_parameter([0, 0, 0], 0, "weight")?);
    train_stepping(&mut network, &mut mesh, stream.samples(), &stepping(2))?;
    let after = network.active_parameter([0, 0, 0], 0, "weight")?;
    assert_ne!(bits(&after), before);
    // What the mesh computes from is what the packed weights say.
    mesh.set_training(false)?;
    mesh.reset();
    let input = [1.0f32, -1.0];
    mesh.set_input(&mut network, tensor_view(&[2, 1], &input)?)?;
    mesh.tick(&mut network, 1)?;
    let (weight, bias) = (after.to_f64(), network.parameter([0, 0, 0], 0, "bias")?.to_f64());
    let held = mesh.output(&network, [0, 0, 0])?.to_f64();
    for (unit, (found, bias)) in held.iter().zip(&bias).enumerate() {
        let expected = (weight[unit * 25] + bias).tanh();
        assert!((found - expected).abs() < 1e-5, "{found} instead of {expected}");
    }
    Ok(())
}

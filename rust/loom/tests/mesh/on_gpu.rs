//! Meshes on a GPU, against the processor and themselves.

use crate::common::{Memory, floats, looped, remembering, remembering_in, stepping, tweened};
use loom::io::SaveOptions;
use loom::layers::Dense;
use loom::mesh::{Given, Mesh, Sample, Stepper, SteppingConfig, train_stepping};
use loom::network::{Combine, Link};
use loom::ops::pointwise::Activation;
use loom::train::{Optimizer, TargetMode, Targets, TrainingConfig, TweenConfig};
use loom::{Device, Network, Precision, Result, tensor_view};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a device has counted is the whole process's, so one test at a time uses it.
static ALONE: Mutex<()> = Mutex::new(());

/// The right to use the GPU, if there is one; with `LOOM_REQUIRE_GPU=1` there must be.
fn available() -> Option<MutexGuard<'static, ()>> {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    match Device::open("gpu", Precision::Float32) {
        Ok(_) => Some(alone),
        Err(error) if std::env::var("LOOM_REQUIRE_GPU").is_ok_and(|value| value == "1") => {
            panic!("LOOM_REQUIRE_GPU is set, and {error}")
        }
        Err(_) => None,
    }
}

fn assert_close(what: &str, found: &[f64], expected: &[f64], tolerance: f64) {
    let scale = expected.iter().fold(1e-3f64, |scale, x| scale.max(x.abs()));
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < tolerance * scale, "{what}: {found} instead of {expected}");
    }
}

/// What cells hold after some ticks by changing inputs, and gradients through the window.
fn run(device: &str, precision: Precision, window: usize) -> Result<Vec<(String, Vec<f64>)>> {
    let mut network = looped(precision)?;
    network.to(device)?;
    let mut mesh = Mesh::new(&mut network, 3, window)?;
    let mut seen = Vec::new();
    for (change, count) in [1, 4, 0, 7, 1].into_iter().enumerate() {
        let input = floats(9, change as f64 * 0.29);
        mesh.set_input(&mut network, tensor_view(&[3, 3], &input)?)?;
        mesh.tick(&mut network, count)?;
        for cell in [[0, 0, 0], [0, 0, 1], [0, 1, 1]] {
            let output = mesh.output(&network, cell)?.to_f64();
            seen.push((format!("{cell:?} after change {change}"), output));
        }
    }
    for pass in 0..2 {
        let (newest, older) = (floats(6, 0.3), floats(12, 0.8));
        let mut given = vec![Given::newest([0, 1, 1], tensor_view(&[3, 2], &newest)?)];
        if pass == 0 && window > 1 {
            let gradient = tensor_view(&[3, 4], &older)?;
            given.push(Given { cell: [0, 0, 1], age: 1, gradient });
        }
        let to_input = mesh.backward(&mut network, &given)?.to_f64();
        seen.push((format!("gradient of the input, pass {pass}, window {window}"), to_input));
        mesh.tick(&mut network, 3)?;
    }
    for (cell, layer) in [([0, 0, 0], 0), ([0, 0, 0], 1), ([0, 0, 1], 0), ([0, 1, 1], 0), ([0, 1, 1], 2)] {
        for name in network.parameter_names(cell, layer)? {
            let gradient = network.gradient(cell, layer, &name)?.to_f64();
            seen.push((format!("gradient {cell:?} {layer} {name}, window {window}"), gradient));
        }
    }
    Ok(seen)
}

#[test]
fn a_gpu_holds_and_learns_what_the_processor_does() -> Result<()> {
    let Some(_alone) = available() else { return Ok(()) };
    for window in [1, 6] {
        let single = Precision::Float32;
        let expected = run("cpu", single, window)?;
        for (precision, tolerance) in [(single, 1e-4), (Precision::Mixed, 2e-2)] {
            let found = run("gpu", precision, window)?;
            for ((what, expected), (_, found)) in expected.iter().zip(&found) {
                assert_close(&format!("{what}, {precision:?}"), found, expected, tolerance);
            }
            // And the same bits every time.
            assert_eq!(run("gpu", precision, window)?, found);
        }
    }
    Ok(())
}

#[test]
fn a_stream_is_learned_on_a_gpu_and_goes_on_from_a_file() -> Result<()> {
    let Some(_alone) = available() else { return Ok(()) };
    let several = TweenConfig { local_steps: 3, ..TweenConfig::tween() };
    let layerwise = TweenConfig { mode: TargetMode::Layerwise, ..several.clone() };
    for config in
        [stepping(4), tweened(stepping(4), TweenConfig::tween()), tweened(stepping(4), several.clone())]
    {
        learns_as_the_processor_does(&config, true)?;
    }
    for tween in [several, TweenConfig { local_steps: 1, ..layerwise.clone() }, layerwise] {
        learns_as_the_processor_does(&tweened(stepping(4), tween), false)?;
    }
    Ok(())
}

fn learns_as_the_processor_does(config: &SteppingConfig, looped: bool) -> Result<()> {
    let stream = Memory::new(60, 4, 3);
    let mut losses = Vec::new();
    let mut gaps = Vec::new();
    for device in ["cpu", "gpu"] {
        let mut network = remembering(7, looped)?;
        network.to(device)?;
        let mut mesh = Mesh::new(&mut network, 4, 8)?;
        let mut stepper = Stepper::new(&mut network, &mesh, config, false)?;
        for sample in stream.samples().take(40) {
            stepper.step(&mut network, &mut mesh, &sample)?;
        }
        let bytes = mesh.to_bytes(&mut network, SaveOptions::resumable())?;
        let mut ends = Vec::new();
        for restored in [false, true] {
            if restored {
                network = Network::from_bytes(&bytes)?;
                network.to(device)?;
                mesh = Mesh::restore(&mut network, &bytes)?;
                stepper = Stepper::new(&mut network, &mesh, config, true)?;
            }
            for sample in stream.samples().skip(40) {
                stepper.step(&mut network, &mut mesh, &sample)?;
            }
            ends.push(stepper.result.losses[stepper.result.losses.len() - 20..].to_vec());
        }
        assert_eq!(ends[0], ends[1], "on {device}");
        losses.push(ends.swap_remove(0));
        gaps.push(network.measures().layer(0).map_or(0.0, |layer| layer.gap));
    }
    assert!((gaps[1] - gaps[0]).abs() <= 1e-3 * gaps[0], "{} instead of {}", gaps[1], gaps[0]);
    for (found, expected) in losses[1].iter().zip(&losses[0]) {
        assert!((found - expected).abs() < 1e-3 * expected.max(0.1), "{found} instead of {expected}");
    }
    Ok(())
}

#[test]
fn mixed_precision_learns_on_a_gpu_and_overcomes_overflow() -> Result<()> {
    let Some(_alone) = available() else { return Ok(()) };
    let tween = |mode, local_steps| TweenConfig { mode, local_steps, ..TweenConfig::tween() };
    for (config, with_loop) in [
        (stepping(4), true),
        (tweened(stepping(4), tween(TargetMode::ChainRule, 3)), true),
        (tweened(stepping(4), tween(TargetMode::Layerwise, 2)), false),
    ] {
        let mut losses = Vec::new();
        for (device, precision) in [("cpu", Precision::Float32), ("gpu", Precision::Mixed)] {
            let mut network = remembering_in(precision, 7, with_loop)?;
            network.to(device)?;
            let mut mesh = Mesh::new(&mut network, 4, 8)?;
            let stream = Memory::new(40, 4, 3);
            let result = train_stepping(&mut network, &mut mesh, stream.samples(), &config)?;
            assert_eq!((result.updates, result.skipped_updates), (10, 0));
            losses.push(result.losses);
        }
        for (found, expected) in losses[1].iter().zip(&losses[0]) {
            assert!((found - expected).abs() < 0.02 * expected.max(1.0), "{found} instead of {expected}");
        }
    }
    // A gradient of 500, scaled by 65,536, is beyond binary16: the scale comes down until it is not.
    let mut network = remembering_in(Precision::Mixed, 7, true)?;
    network.to("gpu")?;
    let mut mesh = Mesh::new(&mut network, 1, 4)?;
    let config = SteppingConfig {
        training: TrainingConfig { optimizer: Optimizer::sgd(), ..stepping(1).training },
        ..stepping(1)
    };
    let mut stepper = Stepper::new(&mut network, &mesh, &config, false)?;
    let (input, target) = ([1.0f32], [250.0f32]);
    for _ in 0..20 {
        let target = Some(Targets::Real(tensor_view(&[1, 1], &target)?));
        stepper.step(&mut network, &mut mesh, &Sample { input: tensor_view(&[1, 1], &input)?, target })?;
    }
    let skipped = network.loss_scale().map_or(0, |now| now.skipped_steps);
    assert!(skipped > 0, "nothing has overflowed");
    assert_eq!((stepper.result.skipped_updates, stepper.result.updates), (skipped, 20 - skipped));
    assert!(stepper.result.updates > 5);
    assert!(network.parameter([0, 0, 0], 0, "weight")?.to_f64().iter().all(|x| x.is_finite()));
    Ok(())
}

/// A grid of cells that are alike, the last of which the first one reads, too.
fn alike(device: &str, rows: usize) -> Result<(Network, Mesh)> {
    let mut network = Network::new([5], [1, 3, 4])?;
    for (row, column) in (0..3).flat_map(|row| (0..4).map(move |column| (row, column))) {
        network.add([0, row, column], Dense::new(5).activation(Activation::Tanh))?;
    }
    network.link(Link { source: [0, 2, 3], target: [0, 0, 0], combine: Combine::Add, axis: None })?;
    network.to(device)?;
    let mut mesh = Mesh::new(&mut network, rows, 4)?;
    let input = floats(5 * rows, 0.4);
    mesh.set_input(&mut network, tensor_view(&[rows, 5], &input)?)?;
    Ok((network, mesh))
}

/// Ticks of cells that are alike, and gradients back through some, beside the processor; and how many dispatches a
/// tick takes.
#[test]
fn cells_that_are_alike_are_one_dispatch() -> Result<()> {
    let Some(_alone) = available() else { return Ok(()) };
    for rows in [1, 3] {
        let mut seen = Vec::new();
        for device in ["cpu", "gpu"] {
            let (mut network, mut mesh) = alike(device, rows)?;
            mesh.tick(&mut network, 30)?;
            let mut values = Vec::new();
            for (row, column) in [(0, 0), (1, 2), (2, 3)] {
                values.push(mesh.output(&network, [0, row, column])?.to_f64());
            }
            let given = floats(5 * rows, 0.7);
            mesh.backward(&mut network, &[Given::newest([0, 2, 3], tensor_view(&[rows, 5], &given)?)])?;
            for column in 0..4 {
                for name in ["weight", "bias"] {
                    values.push(network.gradient([0, 2, column], 0, name)?.to_f64());
                }
            }
            seen.push(values);
            let Some(gpu) = loom::gpu::Gpu::of(network.device().engine()) else { continue };
            gpu.reset_statistics();
            mesh.tick(&mut network, 20)?;
            // The sum that the first cell reads, its product and that of all others, and the input that is kept.
            let each = gpu.statistics().dispatches / 20;
            assert!(each <= 4 || gpu.arrayed_operands() == 0, "{each} dispatches a tick");
        }
        for (expected, found) in seen[0].iter().zip(&seen[1]) {
            assert_close(&format!("{rows} rows"), found, expected, 1e-4);
        }
    }
    Ok(())
}

#[test]
fn many_ticks_are_one_frame() -> Result<()> {
    let Some(_alone) = available() else { return Ok(()) };
    let mut network = looped(Precision::Float32)?;
    network.to("gpu")?;
    let Some(gpu) = loom::gpu::Gpu::of(network.device().engine()) else { return Ok(()) };
    let mut mesh = Mesh::new(&mut network, 1, 0)?;
    mesh.tick(&mut network, 4)?;
    gpu.reset_statistics();
    mesh.tick(&mut network, 50)?;
    let statistics = gpu.statistics();
    assert_eq!((statistics.frames, statistics.steps), (1, 50));
    // Links that arrive, products with their activations, a normalisation: nothing is copied.
    assert_eq!(statistics.dispatches % 50, 0);
    assert!(statistics.dispatches / 50 <= 10, "{} dispatches a tick", statistics.dispatches / 50);
    Ok(())
}

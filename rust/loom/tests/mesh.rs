//! Clock mode: what a mesh holds and how it learns, against networks without a clock, differences and itself.

use loom::cpu::{Cpu, Isa};
use loom::dtype::DType;
use loom::io::SaveOptions;
use loom::layers::{
    BatchNorm, Conv2D, Dense, Dropout, Embedding, Flatten, Gru, InitialState, LayerNorm, MultiHeadAttention,
    TiedHead,
};
use loom::mesh::{Given, Mesh, Sample, Stepper, SteppingConfig, train_stepping};
use loom::network::{Combine, Link};
use loom::ops::pointwise::Activation;
use loom::train::{DepthScale, LossConfig, Optimizer, Targets, TrainingConfig, TweenConfig};
use loom::{Error, Network, Precision, Result, tensor_view};

fn numbers(count: usize, seed: f64) -> Vec<f64> {
    (0..count).map(|i| ((i as f64 + 1.0) * 0.754_877_666 + seed).fract() * 2.0 - 1.0).collect()
}

fn floats(count: usize, seed: f64) -> Vec<f32> {
    numbers(count, seed).into_iter().map(|x| x as f32).collect()
}

fn link(source: [usize; 3], target: [usize; 3], combine: Combine) -> Link {
    Link { source, target, combine, axis: None }
}

/// Two rows of cells with a loop through all of them, one through a single cell, and an empty cell.
fn looped(precision: Precision) -> Result<Network> {
    let mut network = Network::with_options([3], [1, 2, 2], precision, 11)?;
    network.add([0, 0, 0], Dense::new(5).activation(Activation::Tanh))?;
    network.add([0, 0, 0], Dense::new(4).activation(Activation::Silu))?;
    network.add([0, 0, 1], LayerNorm::default())?;
    network.add([0, 1, 1], Dense::new(4).activation(Activation::Sigmoid))?;
    network.add([0, 1, 1], Dropout { rate: 0.3 })?;
    network.add([0, 1, 1], Dense::new(2))?;
    // Grown by the output, which depends on the input's extents: inferred in a loop.
    network.link(link([0, 1, 1], [0, 0, 0], Combine::Concat))?;
    network.link(link([0, 0, 1], [0, 0, 1], Combine::Add))?;
    // Into a cell without layers, and on to the next one.
    network.link(link([0, 0, 0], [0, 1, 0], Combine::Add))?;
    Ok(network)
}

/// The same numbers with those of another shape.
fn bits(tensor: &loom::Tensor) -> Vec<u64> {
    tensor.to_f64().iter().map(|x| x.to_bits()).collect()
}

#[test]
fn a_feed_forward_grid_settles_at_what_predict_gives() -> Result<()> {
    let mut network = Network::with_options([2, 6, 6], [1, 2, 2], Precision::Float32, 3)?;
    network.add([0, 0, 0], Conv2D::new(4, [3, 3]).activation(Activation::Relu))?;
    network.add([0, 0, 1], Flatten {})?;
    network.add([0, 0, 1], Dense::new(7).activation(Activation::Tanh))?;
    network.add([0, 1, 0], Dense::new(7).activation(Activation::Gelu))?;
    network.add([0, 1, 1], LayerNorm::default())?;
    network.add([0, 1, 1], Dense::new(3))?;
    network.link(link([0, 0, 1], [0, 1, 1], Combine::Add))?;
    network.build()?;
    let input = floats(5 * 72, 0.2);
    let view = tensor_view(&[5, 2, 6, 6], &input)?;
    let expected = network.predict(view.clone())?;
    for window in [0, 3] {
        let mut mesh = Mesh::new(&mut network, 5, window)?;
        mesh.set_input(&mut network, view.clone())?;
        let depth = mesh.layers();
        assert_eq!(depth, 6);
        mesh.tick(&mut network, depth - 1)?;
        assert_ne!(bits(&mesh.output(&network, [0, 1, 1])?), bits(&expected));
        mesh.tick(&mut network, 1)?;
        assert_eq!(bits(&mesh.output(&network, [0, 1, 1])?), bits(&expected));
        // And stays there, until the input changes.
        mesh.tick(&mut network, 9)?;
        assert_eq!(bits(&mesh.output(&network, [0, 1, 1])?), bits(&expected));
        assert_eq!(mesh.ticks(), 15);
    }
    Ok(())
}

#[test]
fn a_tick_reads_what_was_held_before_it() -> Result<()> {
    // h = tanh(w (x + h) + b), worked out by hand.
    let mut network = Network::with_options([2], [1, 1, 2], Precision::Float64, 5)?;
    network.add([0, 0, 0], Dense::new(2).activation(Activation::Tanh))?;
    network.add([0, 0, 1], Dense::new(1))?;
    network.link(link([0, 0, 0], [0, 0, 0], Combine::Add))?;
    let mut mesh = Mesh::new(&mut network, 1, 0)?;
    let weight = network.parameter([0, 0, 0], 0, "weight")?.to_f64();
    let head = network.parameter([0, 0, 1], 0, "weight")?.to_f64();
    let (mut held, mut shown) = ([0.0; 2], 0.0);
    for tick in 0..7 {
        let input = numbers(2, f64::from(tick) * 0.37);
        mesh.set_input(&mut network, tensor_view(&[1, 2], &input)?)?;
        mesh.tick(&mut network, 1)?;
        let before = held;
        shown = head[0] * before[0] + head[1] * before[1];
        for (unit, held) in held.iter_mut().enumerate() {
            let sum: f64 = (0..2).map(|i| weight[unit * 2 + i] * (input[i] + before[i])).sum();
            *held = sum.tanh();
        }
        let found = mesh.output(&network, [0, 0, 0])?.to_f64();
        assert!((found[0] - held[0]).abs() < 1e-14 && (found[1] - held[1]).abs() < 1e-14);
        assert!((mesh.output(&network, [0, 0, 1])?.to_f64()[0] - shown).abs() < 1e-14);
    }
    assert_ne!(shown, 0.0);
    Ok(())
}

/// The weighted sum of what the output and a cell in the middle held over some ticks, by inputs that change.
fn objective(network: &mut Network, mesh: &mut Mesh, ticks: usize, rows: usize) -> Result<f64> {
    let mut sum = 0.0;
    for tick in 0..ticks {
        if tick != 1 {
            let input = numbers(rows * 3, 0.17 * tick as f64);
            mesh.set_input(network, tensor_view(&[rows, 3], &input)?)?;
        }
        mesh.tick(network, 1)?;
        let weigh = |values: Vec<f64>, seed: f64| -> f64 {
            values.iter().zip(numbers(values.len(), seed)).map(|(x, w)| x * w).sum()
        };
        if tick % 2 == 1 {
            sum += weigh(mesh.output(network, [0, 1, 1])?.to_f64(), 0.3 + tick as f64);
        }
        sum += weigh(mesh.output(network, [0, 0, 1])?.to_f64(), 0.6 + tick as f64);
    }
    Ok(sum)
}

#[test]
fn gradients_through_time_are_those_of_differences() -> Result<()> {
    const STEP: f64 = 1e-5;
    let (rows, before) = (3, 4);
    for window in [1, 2, 5] {
        let mut network = looped(Precision::Float64)?;
        let mut mesh = Mesh::new(&mut network, rows, window)?;
        // What came before the window is a constant.
        objective(&mut network, &mut mesh, before, rows)?;
        let start = mesh.to_bytes(&mut network, SaveOptions::default())?;
        objective(&mut network, &mut mesh, window, rows)?;
        let mut gradients = Vec::new();
        for tick in 0..window {
            let age = window - 1 - tick;
            gradients.push(([0, 0, 1], age, numbers(rows * 4, 0.6 + tick as f64)));
            if tick % 2 == 1 {
                gradients.push(([0, 1, 1], age, numbers(rows * 2, 0.3 + tick as f64)));
            }
        }
        let given: Vec<Given<'_>> = gradients
            .iter()
            .map(|(cell, age, g)| {
                let gradient = tensor_view(&[rows, g.len() / rows], g)?;
                Ok(Given { cell: *cell, age: *age, gradient })
            })
            .collect::<Result<_>>()?;
        assert_eq!(mesh.backward(&mut network, &given)?, window);
        let mut largest = 0.0f64;
        for (cell, layer) in [([0, 0, 0], 0), ([0, 0, 0], 1), ([0, 0, 1], 0), ([0, 1, 1], 0), ([0, 1, 1], 2)]
        {
            for name in network.parameter_names(cell, layer)? {
                let found = network.gradient(cell, layer, &name)?.to_f64();
                let parameter = network.parameter(cell, layer, &name)?;
                let (shape, values) = (parameter.shape().to_vec(), parameter.to_f64());
                for index in 0..values.len() {
                    let at = |value: f64| -> Result<f64> {
                        let (mut network, mut mesh) = Mesh::from_bytes(&start)?;
                        let mut values = values.clone();
                        values[index] = value;
                        network.set_parameter(cell, layer, &name, tensor_view(&shape, &values)?)?;
                        objective(&mut network, &mut mesh, window, rows)
                    };
                    let expected = (at(values[index] + STEP)? - at(values[index] - STEP)?) / (2.0 * STEP);
                    let error = (found[index] - expected).abs();
                    assert!(
                        error < 2e-9,
                        "window {window}, {cell:?} {layer} {name} {index}: {} instead of {expected}",
                        found[index]
                    );
                    largest = largest.max(expected.abs());
                }
            }
        }
        assert!(largest > 0.1);
    }
    Ok(())
}

/// The golden dump of a clock tick, both ways: nothing is copied but the input, sums of gradients come from
/// the tick after, and the layers whose derivatives need no more than their output are not computed again.
#[test]
fn a_tick_as_text() -> Result<()> {
    let mut network = Network::new([3], [1, 1, 2])?;
    network.add([0, 0, 0], Dense::new(4).activation(Activation::Tanh))?;
    network.add([0, 0, 1], Dense::new(4).activation(Activation::Gelu))?;
    network.add([0, 0, 1], Dense::new(2))?;
    network.link(link([0, 0, 1], [0, 0, 0], Combine::Concat))?;
    network.link(link([0, 0, 0], [0, 0, 1], Combine::Add))?;
    let mut mesh = Mesh::new(&mut network, 2, 3)?;
    let dump = mesh.programs(&mut network)?.map(|program| program.to_string()).join("\n\n");
    let golden = include_str!("golden/clock_tick.txt");
    assert_eq!(dump.trim(), golden.trim(), "the programs have changed; if they should have, update the file");
    Ok(())
}

#[test]
fn gradients_add_up_until_they_are_applied() -> Result<()> {
    let mut network = looped(Precision::Float64)?;
    let mut mesh = Mesh::new(&mut network, 1, 3)?;
    objective(&mut network, &mut mesh, 5, 1)?;
    let ones = [1.0; 2];
    let gradient = || tensor_view(&[1, 2], &ones);
    mesh.backward(&mut network, &[Given::newest([0, 1, 1], gradient()?)])?;
    let once = network.gradient([0, 1, 1], 0, "weight")?.to_f64();
    mesh.backward(&mut network, &[Given::newest([0, 1, 1], gradient()?)])?;
    let twice = network.gradient([0, 1, 1], 0, "weight")?.to_f64();
    assert!(once.iter().any(|x| *x != 0.0));
    assert!(once.iter().zip(&twice).all(|(once, twice)| (twice - 2.0 * once).abs() < 1e-12));
    // The first cell's first layer is farther away than the window reaches back, and stays as it is.
    let weight = network.parameter([0, 0, 0], 0, "weight")?;
    network.set_optimizer(Optimizer::sgd())?;
    network.apply_gradients(0.1)?;
    assert_eq!(bits(&network.parameter([0, 0, 0], 0, "weight")?), bits(&weight));
    mesh.tick(&mut network, 1)?;
    mesh.backward(&mut network, &[Given::newest([0, 1, 1], gradient()?)])?;
    Ok(())
}

#[test]
fn layers_that_share_parameters_learn_together() -> Result<()> {
    const STEP: f64 = 1e-5;
    let build = || -> Result<(Network, Mesh)> {
        let mut network = Network::with_options([2], [1, 1, 3], Precision::Float64, 3)?;
        network.add([0, 0, 0], Embedding::new(6, 4))?;
        network.add([0, 0, 1], Dense::new(4).activation(Activation::Tanh))?;
        network.add([0, 0, 2], TiedHead::new(6, [0, 0, 0, 0]))?;
        let mut mesh = Mesh::new(&mut network, 1, 4)?;
        mesh.set_input(&mut network, tensor_view(&[1, 2], &[1.0, 4.0])?)?;
        Ok((network, mesh))
    };
    let weights = numbers(12, 0.4);
    let value = |network: &mut Network, mesh: &mut Mesh| -> Result<f64> {
        mesh.tick(network, 4)?;
        let output = mesh.output(network, [0, 0, 2])?.to_f64();
        Ok(output.iter().zip(&weights).map(|(x, w)| x * w).sum())
    };
    let (mut network, mut mesh) = build()?;
    value(&mut network, &mut mesh)?;
    mesh.backward(&mut network, &[Given::newest([0, 0, 2], tensor_view(&[1, 2, 6], &weights)?)])?;
    let found = network.gradient([0, 0, 0], 0, "weight")?.to_f64();
    let held = network.parameter([0, 0, 0], 0, "weight")?.to_f64();
    for index in 0..held.len() {
        let at = |x: f64| -> Result<f64> {
            let (mut network, mut mesh) = build()?;
            let mut values = held.clone();
            values[index] = x;
            network.set_parameter([0, 0, 0], 0, "weight", tensor_view(&[6, 4], &values)?)?;
            value(&mut network, &mut mesh)
        };
        let expected = (at(held[index] + STEP)? - at(held[index] - STEP)?) / (2.0 * STEP);
        assert!((found[index] - expected).abs() < 1e-8, "{index}: {} for {expected}", found[index]);
    }
    Ok(())
}

#[test]
fn a_second_input_may_come_from_behind() -> Result<()> {
    const STEP: f64 = 1e-5;
    let build = || -> Result<(Network, Mesh)> {
        let mut network = Network::with_options([2, 3], [1, 1, 3], Precision::Float64, 9)?;
        network.add([0, 0, 0], Dense::new(4).activation(Activation::Tanh))?;
        network.add([0, 0, 1], MultiHeadAttention::new(2).cross())?;
        network.add([0, 0, 2], Dense::new(4).activation(Activation::Tanh))?;
        network.link(link([0, 0, 2], [0, 0, 1], Combine::Context))?;
        let mut mesh = Mesh::new(&mut network, 2, 8)?;
        let input = numbers(12, 0.2);
        mesh.set_input(&mut network, tensor_view(&[2, 2, 3], &input)?)?;
        Ok((network, mesh))
    };
    let value = |network: &mut Network, mesh: &mut Mesh| -> Result<f64> {
        mesh.tick(network, 7)?;
        let output = mesh.output(network, [0, 0, 2])?.to_f64();
        Ok(output.iter().zip(numbers(16, 0.5)).map(|(x, w)| x * w).sum())
    };
    let (mut network, mut mesh) = build()?;
    value(&mut network, &mut mesh)?;
    let weights = numbers(16, 0.5);
    mesh.backward(&mut network, &[Given::newest([0, 0, 2], tensor_view(&[2, 2, 4], &weights)?)])?;
    for cell in [[0, 0, 0], [0, 0, 1], [0, 0, 2]] {
        for name in network.parameter_names(cell, 0)? {
            let found = network.gradient(cell, 0, &name)?.to_f64();
            let held = network.parameter(cell, 0, &name)?;
            let (shape, held) = (held.shape().to_vec(), held.to_f64());
            for index in 0..held.len() {
                let at = |x: f64| -> Result<f64> {
                    let (mut network, mut mesh) = build()?;
                    let mut values = held.clone();
                    values[index] = x;
                    network.set_parameter(cell, 0, &name, tensor_view(&shape, &values)?)?;
                    value(&mut network, &mut mesh)
                };
                let expected = (at(held[index] + STEP)? - at(held[index] - STEP)?) / (2.0 * STEP);
                let error = (found[index] - expected).abs();
                assert!(error < 1e-8, "{cell:?} {name} {index}: {} for {expected}", found[index]);
            }
        }
    }
    Ok(())
}

/// A stream of signs, each to be said again some samples later.
struct Memory {
    input: Vec<f32>,
    target: Vec<f32>,
    rows: usize,
}

impl Memory {
    fn new(samples: usize, rows: usize, delay: usize) -> Self {
        let mut state = 12345u32;
        let input: Vec<f32> = (0..samples * rows)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                if state >> 31 == 0 { 1.0 } else { -1.0 }
            })
            .collect();
        let target = [vec![0.0; delay * rows], input[..(samples - delay) * rows].to_vec()].concat();
        Self { input, target, rows }
    }

    fn samples(&self) -> impl Iterator<Item = Sample<'_>> {
        let shape = [self.rows, 1];
        self.input.chunks(self.rows).zip(self.target.chunks(self.rows)).map(move |(input, target)| Sample {
            input: tensor_view(&shape, input).unwrap(),
            target: (target[0] != 0.0).then(|| Targets::Real(tensor_view(&shape, target).unwrap())),
        })
    }
}

/// What a cell with a loop through itself needs to remember.
fn remembering(seed: u64, looped: bool) -> Result<Network> {
    let mut network = Network::with_options([1], [1, 1, 2], Precision::Float32, seed)?;
    network.add([0, 0, 0], Dense::new(24).activation(Activation::Tanh))?;
    network.add([0, 0, 1], Dense::new(1))?;
    if looped {
        network.link(link([0, 0, 0], [0, 0, 0], Combine::Concat))?;
    }
    Ok(network)
}

fn stepping(update_every: usize) -> SteppingConfig {
    SteppingConfig {
        training: TrainingConfig {
            learning_rate: 0.01,
            optimizer: Optimizer::adam(),
            loss: LossConfig::parse("mse").unwrap(),
            gradient_clip: Some(1.0),
            ..TrainingConfig::default()
        },
        update_every,
        ..SteppingConfig::default()
    }
}

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

fn tweened(mut config: SteppingConfig, tween: TweenConfig) -> SteppingConfig {
    config.training.tween = Some(tween);
    config
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
    let several = TweenConfig { local_steps: 2, ..TweenConfig::tween() };
    let refused = Stepper::new(&mut network, &mesh, &tweened(stepping(1), several), false);
    assert!(matches!(refused, Err(Error::Value(_))));
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
    mesh.save(&mut network, &path, SaveOptions { optimizer: true })?;
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

#[test]
fn running_statistics_follow_every_tick_of_training() -> Result<()> {
    let mut network = Network::with_options([2], [1, 1, 1], Precision::Float32, 1)?;
    network.add([0, 0, 0], BatchNorm::default())?;
    network.add([0, 0, 0], Dense::new(2))?;
    let mut mesh = Mesh::new(&mut network, 4, 2)?;
    let input = floats(8, 0.1);
    mesh.set_input(&mut network, tensor_view(&[4, 2], &input)?)?;
    let start = bits(&network.state([0, 0, 0], 0, "running_mean")?);
    mesh.tick(&mut network, 2)?;
    let learned = bits(&network.state([0, 0, 0], 0, "running_mean")?);
    assert_ne!(learned, start);
    // Going back computes them again and must not count them twice.
    let gradient = floats(8, 0.4);
    mesh.backward(&mut network, &[Given::newest([0, 0, 0], tensor_view(&[4, 2], &gradient)?)])?;
    mesh.set_training(false)?;
    mesh.tick(&mut network, 3)?;
    assert_eq!(bits(&network.state([0, 0, 0], 0, "running_mean")?), learned);
    assert!(matches!(
        mesh.backward(&mut network, &[Given::newest([0, 0, 0], tensor_view(&[4, 2], &gradient)?)]),
        Err(Error::State(_))
    ));
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused() -> Result<()> {
    let message = |result: Result<()>| result.unwrap_err().to_string();
    let mut network = looped(Precision::Float32)?;
    assert!(matches!(Mesh::new(&mut network, 0, 1), Err(Error::Value(_))));
    assert!(matches!(Mesh::new(&mut network, 1, usize::MAX), Err(Error::Value(_))));
    // Without a clock there is no order in which such a network could be passed.
    let input = [0.5f32; 3];
    let view = || tensor_view(&[1, 3], &input);
    assert!(message(network.predict(view()?).map(drop)).contains("clock mode"));
    let mut mesh = Mesh::new(&mut network, 1, 2)?;
    let gradient = [1.0f32; 2];
    let given = |age: usize| -> Result<Given<'_>> {
        Ok(Given { cell: [0, 1, 1], age, gradient: tensor_view(&[1, 2], &gradient)? })
    };
    assert!(message(mesh.backward(&mut network, &[given(0)?]).map(drop)).contains("call tick first"));
    assert!(matches!(mesh.set_input(&mut network, tensor_view(&[1, 1], &[1.0f32])?), Err(Error::Shape(_))));
    let two = [0.0f32; 6];
    assert!(matches!(mesh.set_input(&mut network, tensor_view(&[2, 3], &two)?), Err(Error::Shape(_))));
    let bad = [f32::NAN; 3];
    assert!(matches!(mesh.set_input(&mut network, tensor_view(&[1, 3], &bad)?), Err(Error::NonFinite(_))));
    mesh.tick(&mut network, 1)?;
    assert!(message(mesh.backward(&mut network, &[given(1)?]).map(drop)).contains("only 1 ticks"));
    assert!(matches!(mesh.backward(&mut network, &[]), Err(Error::Value(_))));
    assert!(matches!(mesh.backward(&mut network, &[given(0)?, given(0)?]), Err(Error::Value(_))));
    assert!(matches!(mesh.output(&network, [0, 1, 0]), Err(Error::State(_))));
    assert!(matches!(mesh.output(&network, [3, 0, 0]), Err(Error::Index(_))));
    assert!(matches!(mesh.layer_output(&network, [0, 0, 0], 0, 3), Err(Error::Value(_))));
    network.add([0, 1, 1], Dense::new(2))?;
    assert!(message(mesh.tick(&mut network, 1)).contains("have changed"));
    let mut infers = Mesh::new(&mut network, 1, 0)?;
    assert!(matches!(infers.set_training(true), Err(Error::State(_))));
    infers.tick(&mut network, 1)?;
    assert!(message(infers.backward(&mut network, &[given(0)?]).map(drop)).contains("window 0"));

    let mut circle = Network::new([2], [1, 1, 4])?;
    circle.add([0, 0, 0], Dense::new(2))?;
    circle.add([0, 0, 3], Dense::new(2))?;
    circle.link(link([0, 0, 2], [0, 0, 1], Combine::Add))?;
    assert!(message(Mesh::new(&mut circle, 1, 0).map(drop)).contains("circle"));
    let mut growing = Network::new([2], [1, 1, 2])?;
    growing.add([0, 0, 0], LayerNorm::default())?;
    growing.link(link([0, 0, 0], [0, 0, 0], Combine::Concat))?;
    assert!(message(Mesh::new(&mut growing, 1, 0).map(drop)).contains("do not settle"));
    let mut around = Network::new([4, 2], [1, 1, 2])?;
    around.add([0, 0, 0], Gru { initial_state: InitialState::Context, ..Gru::new(3) })?;
    around.add([0, 0, 1], Dense::new(3))?;
    around.link(link([0, 0, 1], [0, 0, 0], Combine::Context))?;
    assert!(message(Mesh::new(&mut around, 1, 0).map(drop)).contains("depends on itself"));
    let mut stateful = Network::new([4, 2], [1, 1, 1])?;
    stateful.add([0, 0, 0], Gru { stateful: true, ..Gru::new(3) })?;
    assert!(message(Mesh::new(&mut stateful, 1, 0).map(drop)).contains("carries a state"));

    let mut network = remembering(1, true)?;
    let mesh = Mesh::new(&mut network, 1, 3)?;
    let refused = Stepper::new(&mut network, &mesh, &stepping(4), false);
    assert!(message(refused.map(drop)).contains("window"));
    let none = SteppingConfig { ticks: 0, ..stepping(1) };
    assert!(message(Stepper::new(&mut network, &mesh, &none, false).map(drop)).contains("ticks"));
    Ok(())
}

#[cfg(feature = "gpu")]
mod on_gpu {
    use super::*;
    use loom::Device;
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

    fn assert_close(what: &str, found: &[f64], expected: &[f64]) {
        let scale = expected.iter().fold(1e-3f64, |scale, x| scale.max(x.abs()));
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-4 * scale, "{what}: {found} instead of {expected}");
        }
    }

    /// What cells hold after some ticks by changing inputs, and gradients through the window.
    fn run(device: &str, window: usize) -> Result<Vec<(String, Vec<f64>)>> {
        let mut network = looped(Precision::Float32)?;
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
            mesh.backward(&mut network, &given)?;
            mesh.tick(&mut network, 3)?;
        }
        for (cell, layer) in [([0, 0, 0], 0), ([0, 0, 0], 1), ([0, 0, 1], 0), ([0, 1, 1], 0), ([0, 1, 1], 2)]
        {
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
            let (expected, found) = (run("cpu", window)?, run("gpu", window)?);
            for ((what, expected), (_, found)) in expected.iter().zip(&found) {
                assert_close(what, found, expected);
            }
            // And the same bits every time.
            assert_eq!(run("gpu", window)?, found);
        }
        Ok(())
    }

    #[test]
    fn a_stream_is_learned_on_a_gpu_and_goes_on_from_a_file() -> Result<()> {
        let Some(_alone) = available() else { return Ok(()) };
        for config in [stepping(4), tweened(stepping(4), TweenConfig::tween())] {
            learns_as_the_processor_does(&config)?;
        }
        Ok(())
    }

    fn learns_as_the_processor_does(config: &SteppingConfig) -> Result<()> {
        let stream = Memory::new(60, 4, 3);
        let mut losses = Vec::new();
        let mut gaps = Vec::new();
        for device in ["cpu", "gpu"] {
            let mut network = remembering(7, true)?;
            network.to(device)?;
            let mut mesh = Mesh::new(&mut network, 4, 8)?;
            let mut stepper = Stepper::new(&mut network, &mesh, config, false)?;
            for sample in stream.samples().take(40) {
                stepper.step(&mut network, &mut mesh, &sample)?;
            }
            let bytes = mesh.to_bytes(&mut network, SaveOptions { optimizer: true })?;
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
    fn many_ticks_are_one_frame() -> Result<()> {
        let Some(_alone) = available() else { return Ok(()) };
        let mut network = looped(Precision::Float32)?;
        network.to("gpu")?;
        let Device::Gpu(gpu) = network.device().clone() else { return Ok(()) };
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
}

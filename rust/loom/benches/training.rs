//! Training steps and single inferences of small networks: `cargo bench --bench training`.
//!
//! The networks are those that benches/peers runs in other frameworks.

use criterion::{Criterion, criterion_group, criterion_main};
use loom::layers::{Conv2D, Dense, Flatten, Lstm, MaxPool2D, Padding};
use loom::ops::pointwise::Activation;
use loom::train::{Examples, LossConfig, Rows, Trainer, TrainingConfig};
use loom::{Network, Result, tensor_view};
use std::hint::black_box;

fn mlp(sizes: &[usize]) -> Result<Network> {
    let mut network = Network::sequential([sizes[0]])?;
    for (index, units) in sizes[1..].iter().enumerate() {
        let activation = if index + 2 < sizes.len() { Activation::Relu } else { Activation::Linear };
        network.add([0, 0, 0], Dense::new(*units).activation(activation))?;
    }
    network.build()?;
    Ok(network)
}

fn cnn() -> Result<Network> {
    let mut network = Network::sequential([1, 28, 28])?;
    for filters in [32, 64] {
        let convolution = Conv2D::new(filters, [3, 3]).padding(Padding::Explicit([1, 1]));
        network.add([0, 0, 0], convolution.activation(Activation::Relu))?;
        network.add([0, 0, 0], MaxPool2D::new([2, 2]))?;
    }
    network.add([0, 0, 0], Flatten {})?;
    network.add([0, 0, 0], Dense::new(128).activation(Activation::Relu))?;
    network.add([0, 0, 0], Dense::new(10))?;
    network.build()?;
    Ok(network)
}

fn lstm() -> Result<Network> {
    let mut network = Network::sequential([32, 64])?;
    network.add([0, 0, 0], Lstm::new(256))?;
    network.add([0, 0, 0], Dense::new(10))?;
    network.build()?;
    Ok(network)
}

/// Numbers around zero that look random.
fn noise(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i as f32 + 1.0) * 0.618_034).fract() * 2.0 - 1.0).collect()
}

fn step(criterion: &mut Criterion, name: &str, mut network: Network, batch: usize) -> Result<()> {
    let shape = [&[batch], &network.input_shape()[..]].concat();
    let input = noise(shape.iter().product());
    let labels: Vec<i32> = (0..batch as i32).map(|i| i % 8).collect();
    let examples = Examples::classified(tensor_view(&shape, &input)?, &labels);
    let config = TrainingConfig {
        batch_size: batch,
        // Thousands of steps on one batch would end in numbers that no training has.
        learning_rate: 1e-6,
        loss: LossConfig::parse("cross_entropy")?,
        ..TrainingConfig::default()
    };
    let mut trainer = Trainer::new(&mut network, &config, &examples, 1 << 20)?;
    criterion.bench_function(name, |bencher| {
        bencher.iter(|| trainer.step(&mut network, &[(&examples, Rows::First(batch))]).map(black_box));
    });
    Ok(())
}

fn steps(criterion: &mut Criterion) -> Result<()> {
    step(criterion, "step/mlp64", mlp(&[784, 512, 512, 10])?, 64)?;
    step(criterion, "step/mlp1024", mlp(&[784, 512, 512, 10])?, 1024)?;
    step(criterion, "step/mlp1", mlp(&[128, 512, 512, 8])?, 1)?;
    step(criterion, "step/cnn64", cnn()?, 64)?;
    step(criterion, "step/lstm32", lstm()?, 32)?;
    let network = mlp(&[128, 512, 512, 8])?;
    let input = noise(128);
    criterion.bench_function("infer/mlp1", |bencher| {
        bencher.iter(|| tensor_view(&[1, 128], &input).and_then(|view| network.predict(view)).map(black_box));
    });
    Ok(())
}

fn bench(criterion: &mut Criterion) {
    if let Err(error) = steps(criterion) {
        panic!("a benchmark failed: {error}");
    }
}

criterion_group!(benches, bench);
criterion_main!(benches);

//! Networks and streams that several tests of meshes use.

use loom::layers::{Dense, Dropout, LayerNorm};
use loom::mesh::{Sample, SteppingConfig};
use loom::network::{Combine, Link};
use loom::ops::pointwise::Activation;
use loom::train::{LossConfig, Optimizer, Targets, TrainingConfig, TweenConfig};
use loom::{Network, Precision, Result, tensor_view};

pub fn numbers(count: usize, seed: f64) -> Vec<f64> {
    (0..count).map(|i| ((i as f64 + 1.0) * 0.754_877_666 + seed).fract() * 2.0 - 1.0).collect()
}

pub fn floats(count: usize, seed: f64) -> Vec<f32> {
    numbers(count, seed).into_iter().map(|x| x as f32).collect()
}

pub fn link(source: [usize; 3], target: [usize; 3], combine: Combine) -> Link {
    Link { source, target, combine, axis: None }
}

/// Two rows of cells with a loop through all of them, one through a single cell, and an empty cell.
pub fn looped(precision: Precision) -> Result<Network> {
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

/// What an array holds, bit by bit.
pub fn bits(tensor: &loom::Tensor) -> Vec<u64> {
    tensor.to_f64().iter().map(|x| x.to_bits()).collect()
}

/// A stream of signs, each to be said again some samples later.
pub struct Memory {
    input: Vec<f32>,
    target: Vec<f32>,
    rows: usize,
}

impl Memory {
    pub fn new(samples: usize, rows: usize, delay: usize) -> Self {
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

    pub fn samples(&self) -> impl Iterator<Item = Sample<'_>> {
        let shape = [self.rows, 1];
        self.input.chunks(self.rows).zip(self.target.chunks(self.rows)).map(move |(input, target)| Sample {
            input: tensor_view(&shape, input).unwrap(),
            target: (target[0] != 0.0).then(|| Targets::Real(tensor_view(&shape, target).unwrap())),
        })
    }
}

/// What a cell with a loop through itself needs to remember.
pub fn remembering(seed: u64, looped: bool) -> Result<Network> {
    remembering_in(Precision::Float32, seed, looped)
}

/// The same in some precision.
pub fn remembering_in(precision: Precision, seed: u64, looped: bool) -> Result<Network> {
    let mut network = Network::with_options([1], [1, 1, 2], precision, seed)?;
    network.add([0, 0, 0], Dense::new(24).activation(Activation::Tanh))?;
    network.add([0, 0, 1], Dense::new(1))?;
    if looped {
        network.link(link([0, 0, 0], [0, 0, 0], Combine::Concat))?;
    }
    Ok(network)
}

pub fn stepping(update_every: usize) -> SteppingConfig {
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

pub fn tweened(mut config: SteppingConfig, tween: TweenConfig) -> SteppingConfig {
    if tween.local_steps > 1 {
        config.training.gradient_clip = None;
    }
    config.training.tween = Some(tween);
    config
}

//! Random networks of every kind of layer, and random ways to train them.

use crate::shared::Shared;
use loom::dtype::DType;
use loom::layers::{
    Chain, CombineMode, Dense, Embedding, Flatten, Layer, Masked, Parallel, Reshape, Residual, Sample,
    Sequential, Softmax, TiedHead, samples,
};
use loom::network::{Combine, Link};
use loom::ops::pointwise::Activation;
use loom::program::Rewrites;
use loom::train::{DepthScale, LossConfig, Optimizer, TargetMode, TrainingConfig, TweenConfig, Watch};
use loom::{Network, Precision, Result, Shape};
use std::sync::Arc;

/// What cells hand to each other.
pub const WIDTH: usize = 6;

/// Numbers that follow from a seed (SplitMix64).
pub struct Choices(u64);

impl Choices {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }

    /// True once in so many times.
    pub fn once_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub fn one_of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }

    /// From -1 to 1.
    pub fn number(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

/// A layer that stands in a network, for another one to share its parameters.
#[derive(Clone)]
struct Standing {
    layer: Arc<dyn Layer>,
    input: Shape,
    place: [usize; 4],
}

/// A network, and what there was to say about it.
pub struct Drawn {
    pub network: Network,
    /// The kinds of its layers that were drawn.
    pub kinds: Vec<&'static str>,
    /// Layers that use the parameters of another one.
    pub shared: usize,
    /// Whether it reads whole numbers, and those below what.
    pub limit: Option<usize>,
}

fn any_activation(choices: &mut Choices) -> Activation {
    choices.one_of(&[
        Activation::Linear,
        Activation::Relu,
        Activation::Tanh,
        Activation::Sigmoid,
        Activation::Gelu,
        Activation::Silu,
    ])
}

fn any_dense(choices: &mut Choices, units: usize) -> Dense {
    let dense = Dense::new(units).activation(any_activation(choices));
    if choices.once_in(4) { dense.without_bias() } else { dense }
}

fn reshape(shape: &Shape) -> Reshape {
    Reshape { shape: shape.iter().map(|extent| *extent as i64).collect() }
}

/// Adds layers to cells and remembers them.
struct Builder<'a> {
    network: &'a mut Network,
    standing: Vec<Standing>,
    shared: usize,
}

impl Builder<'_> {
    fn add(&mut self, cell: [usize; 3], layer: Arc<dyn Layer>) -> Result<()> {
        self.network.add_arc(cell, layer)
    }

    /// Adds a layer whose parameters others may share, or one that shares those of one of its kind
    /// that stands somewhere already.
    fn add_shareable(
        &mut self,
        choices: &mut Choices,
        cell: [usize; 3],
        layer: Arc<dyn Layer>,
        input: &Shape,
    ) -> Result<()> {
        if layer.takes_context() || layer.parameters(std::slice::from_ref(input)).is_empty() {
            return self.add(cell, layer);
        }
        let place = [cell[0], cell[1], cell[2], self.network.cell_len(cell)?];
        self.standing.push(Standing { layer: layer.clone(), input: input.clone(), place });
        let like = |held: &&Standing| held.input == *input && held.layer.config() == layer.config();
        let first = self.standing.iter().find(like).map(|held| held.place).filter(|held| *held != place);
        match first {
            Some(first) if !choices.once_in(3) => {
                self.shared += 1;
                self.standing.pop();
                self.add(cell, Arc::new(Shared { layer, place: first }))
            }
            _ => self.add(cell, layer),
        }
    }
}

/// A layer by itself, or inside layers that hold others.
fn wrapped(choices: &mut Choices, sample: &Sample) -> Arc<dyn Layer> {
    let layer = sample.layer.clone();
    let chain = |layers: Vec<Arc<dyn Layer>>| Chain::new(layers);
    if sample.masked && layer.kind() != "masked" {
        return Arc::new(Masked::new(chain(vec![layer])));
    }
    let back: Vec<Arc<dyn Layer>> = vec![
        layer.clone(),
        Arc::new(Flatten {}),
        Arc::new(any_dense(choices, sample.input.len())),
        Arc::new(reshape(&sample.input)),
    ];
    match choices.below(8) {
        0 => Arc::new(Sequential::new(chain(back))),
        1 => Arc::new(Residual::new(chain(back))),
        // One layer object in two branches is two layers.
        2 => {
            let combine = choices.one_of(&[CombineMode::Add, CombineMode::Concat, CombineMode::Filter]);
            Arc::new(Parallel::new(vec![chain(vec![layer.clone()]), chain(vec![layer])], combine))
        }
        _ => layer,
    }
}

/// A network of some cells, each with a layer of any kind between dense ones.
pub fn network(
    choices: &mut Choices,
    precision: Precision,
    admit: &dyn Fn(&Sample) -> bool,
) -> Result<Drawn> {
    let all: Vec<(&'static str, Sample)> = samples()
        .into_iter()
        .flat_map(|(kind, samples)| samples.into_iter().map(move |sample| (kind, sample)))
        .filter(|(_, sample)| sample.input.len() <= 400 && admit(sample))
        .collect();
    let reads_words = choices.once_in(3);
    let words = Embedding::new(5, 3);
    let (input, limit) = if reads_words { (Shape::from([2]), Some(5)) } else { (Shape::from([4]), None) };
    let count = 2 + choices.below(3);
    let mut drawn = Vec::new();
    for _ in 0..count {
        let kind = choices.below(all.len());
        let repeated: Option<(&'static str, Sample)> = drawn.last().cloned().filter(|_| choices.once_in(3));
        drawn.push(match repeated {
            Some(repeated) => repeated,
            None => all[kind].clone(),
        });
    }
    drawn.retain(|(_, sample)| sample.layer.index_limit().is_none());
    let cells = 2 * drawn.len() + 2;
    let seed = choices.below(1000) as u64;
    let mut network = Network::with_options(input, [1, 1, cells], precision, seed)?;
    let mut b = Builder { network: &mut network, standing: Vec::new(), shared: 0 };
    if reads_words {
        b.add([0, 0, 0], Arc::new(words.clone()))?;
        b.add([0, 0, 0], Arc::new(Flatten {}))?;
    }
    b.add([0, 0, 0], Arc::new(any_dense(choices, WIDTH)))?;
    let width = Shape::from([WIDTH]);
    // A dense layer that several cells may share, as it is each time.
    let middle = any_dense(choices, WIDTH);
    let mut kinds = Vec::new();
    for (number, (kind, sample)) in drawn.iter().enumerate() {
        let [first, second] = [[0, 0, 2 * number + 1], [0, 0, 2 * number + 2]];
        kinds.push(*kind);
        if let Some(context) = &sample.context {
            b.add(first, Arc::new(any_dense(choices, context.len())))?;
            b.add(first, Arc::new(reshape(context)))?;
            b.add(second, Arc::new(Flatten {}))?;
            b.network.link(Link { source: first, target: second, combine: Combine::Context, axis: None })?;
        } else {
            b.add_shareable(choices, first, Arc::new(middle.clone()), &width)?;
            if number > 0 && choices.once_in(2) {
                let source = [0, 0, 2 * choices.below(number)];
                let combine = choices.one_of(&[Combine::Add, Combine::Concat]);
                b.network.link(Link { source, target: second, combine, axis: None })?;
            }
        }
        b.add(second, Arc::new(any_dense(choices, sample.input.len())))?;
        b.add(second, Arc::new(reshape(&sample.input)))?;
        let layer = wrapped(choices, sample);
        b.add_shareable(choices, second, layer, &sample.input)?;
        b.add(second, Arc::new(Flatten {}))?;
        b.add(second, Arc::new(any_dense(choices, WIDTH)))?;
    }
    let last = [0, 0, cells - 1];
    if reads_words && choices.once_in(2) {
        // (2, 3), as the table's rows are.
        b.add(last, Arc::new(reshape(&Shape::from([2, 3]))))?;
        b.add(last, Arc::new(TiedHead::new(5, [0, 0, 0, 0])))?;
        b.add(last, Arc::new(Flatten {}))?;
        b.add(last, Arc::new(Dense::new(WIDTH)))?;
        b.shared += 1;
    } else {
        b.add_shareable(choices, last, Arc::new(middle), &width)?;
    }
    if choices.once_in(3) {
        b.add(last, Arc::new(Softmax::default()))?;
    }
    let shared = b.shared;
    network.build()?;
    Ok(Drawn { network, kinds, shared, limit })
}

/// Layers that are not trained, parameters that are frozen, rates of their own, packed weights.
pub fn settle(choices: &mut Choices, network: &mut Network, packed: bool) -> Result<()> {
    let places: Vec<[usize; 4]> = places(network);
    for [depth, row, column, layer] in places {
        let cell = [depth, row, column];
        if choices.once_in(10) {
            network.set_trainable(cell, layer, false)?;
        }
        let names = network.parameter_names(cell, layer)?;
        if !names.is_empty() && choices.once_in(6) {
            let name = choices.one_of(&names);
            network.set_frozen(cell, layer, &name, true)?;
        }
        if !network.layer(cell, layer)?.is_tied() && choices.once_in(6) {
            network.set_rate_factor(cell, layer, 0.5)?;
        }
    }
    if packed {
        network.morph(choices.one_of(&[DType::Int8, DType::BFloat16, DType::Int4]))?;
    }
    Ok(())
}

pub fn places(network: &Network) -> Vec<[usize; 4]> {
    network
        .layers()
        .map(|placed| {
            let indices = placed.path().indices();
            [indices[0], indices[1], indices[2], indices[3]]
        })
        .collect()
}

pub fn any_optimizer(choices: &mut Choices) -> Optimizer {
    let momentum = Optimizer::Sgd { momentum: 0.9, nesterov: true, weight_decay: 0.01, decay_exempt: true };
    choices.one_of(&[
        Optimizer::sgd(),
        momentum,
        Optimizer::Velocity { momentum: 0.9 },
        Optimizer::adam(),
        Optimizer::default(),
        Optimizer::rms_prop(),
    ])
}

/// How to train, for batches of so many rows.
pub fn config(choices: &mut Choices, rows: usize) -> Result<TrainingConfig> {
    let tween = match choices.below(6) {
        0 => Some(TweenConfig { mode: TargetMode::ChainRule, ..TweenConfig::tween() }),
        1 => Some(TweenConfig {
            mode: choices.one_of(&[TargetMode::Layerwise, TargetMode::Difference]),
            local_steps: 1 + choices.below(2),
            optimizer: Some(any_optimizer(choices)),
            ..TweenConfig::target_prop()
        }),
        _ => None,
    };
    let single_pass = tween.as_ref().is_none_or(|tween| tween.local_steps == 1);
    Ok(TrainingConfig {
        batch_size: rows,
        learning_rate: 0.02,
        optimizer: any_optimizer(choices),
        loss: LossConfig::parse(choices.one_of(&["mse", "cross_entropy", "mae"]))?,
        gradient_clip: (single_pass && choices.once_in(4)).then_some(0.5),
        clip_value: (single_pass && choices.once_in(4)).then_some(0.01),
        accumulate: if single_pass && choices.once_in(4) { 2 } else { 1 },
        depth_scale: choices.one_of(&[DepthScale::None, DepthScale::Geometric]),
        watch: choices.once_in(4).then(Watch::observer),
        tween,
        ..TrainingConfig::default()
    })
}

/// Any of the rewrites.
pub fn rewrites(choices: &mut Choices) -> Rewrites {
    Rewrites {
        bias: choices.once_in(2),
        activation: choices.once_in(2),
        derivative: choices.once_in(2),
        update: choices.once_in(2),
    }
}

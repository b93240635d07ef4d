//! Small networks of any layers: built, run, trained in every way, saved and loaded.

use super::draw::{Draws, input, is_small, network};
use super::{documented, limits};
use loom::io::SaveOptions;
use loom::network::Incoming;
use loom::train::{
    Examples, LossConfig, Optimizer, Rows, TargetMode, Trainer, TrainingConfig, TweenConfig, Watch,
};
use loom::{Network, tensor_view};

/// What a small network may take with all that it computes.
pub const SMALL: usize = 1 << 28;

const LOSSES: [&str; 5] = ["mse", "mae", "huber", "cross_entropy", "binary_cross_entropy"];

/// A small network that was built, if the bytes say one.
pub fn built(draws: &mut Draws<'_>) -> Option<Network> {
    let mut network = documented(network(&draws.fitting()))?;
    if !documented(is_small(&network))? {
        return None;
    }
    documented(network.build())?;
    Some(network)
}

/// What was saved is read as a network that predicts the same bits.
pub fn saved_and_loaded(draws: &mut Draws<'_>, network: &mut Network) {
    let (shape, numbers) = input(draws, network, 2);
    let view = tensor_view(&shape, &numbers).expect("an input is as long as its shape says");
    let Some(before) = documented(network.predict(view.clone())) else { return };
    for options in [SaveOptions::default(), SaveOptions::resumable(), SaveOptions::deployable()] {
        let Some(saved) = documented(network.to_bytes(options)) else { continue };
        let loaded = Network::from_bytes(&saved).expect("what was saved is read");
        let after = loaded.predict(view.clone()).expect("what predicted before does so when it was loaded");
        let bits = |tensor: &loom::Tensor| tensor.to_f64().into_iter().map(f64::to_bits).collect::<Vec<_>>();
        assert_eq!(bits(&before), bits(&after), "{options:?}: {}", network.to_json().unwrap_or_default());
    }
}

pub fn target(data: &[u8]) {
    limits::within(SMALL, || learn(data));
}

fn learn(data: &[u8]) {
    let mut draws = Draws::new(data);
    let Some(mut network) = built(&mut draws) else { return };
    let rows = 1 + draws.below(3);
    let (shape, numbers) = input(&mut draws, &network, rows);
    let view = tensor_view(&shape, &numbers).expect("an input is as long as its shape says");
    documented(network.predict(view.clone()));
    for _ in 0..12 {
        if !draws.more() {
            break;
        }
        match draws.below(6) {
            0 => drop(by_hand(&mut draws, &mut network, view.clone())),
            3 => drop(operated(&mut draws, &mut network)),
            4 => drop(step_by_step(&mut draws, &mut network)),
            1 | 2 => {
                let output = [&[rows], &network.output_shape()[..]].concat();
                let targets = draws.numbers(output.iter().product());
                let labels = vec![draws.below(4) as i32; rows];
                let loss = LossConfig::parse(draws.name(&LOSSES)).or_else(|_| LossConfig::parse("mse"));
                let tween = match draws.below(6) {
                    0 => Some(TweenConfig::tween()),
                    1 => Some(TweenConfig { local_steps: 2, ..TweenConfig::target_prop() }),
                    2 => Some(TweenConfig { mode: TargetMode::Layerwise, ..TweenConfig::target_prop() }),
                    _ => None,
                };
                let config = TrainingConfig {
                    tween,
                    watch: draws.once_in(4).then(Watch::observer),
                    batch_size: rows,
                    learning_rate: draws.real().abs(),
                    optimizer: draws.one_of(Optimizer::ALL).clone(),
                    loss: loss.expect("there is a mean squared error"),
                    gradient_clip: draws.once_in(3).then_some(0.5),
                    ..TrainingConfig::default()
                };
                let classes = config.loss.takes_classes();
                let examples = match classes {
                    true => Examples::classified(view.clone(), &labels),
                    false => match tensor_view(&output, &targets) {
                        Ok(targets) => Examples::regression(view.clone(), targets),
                        Err(_) => continue,
                    },
                };
                let Some(mut trainer) = documented(Trainer::new(&mut network, &config, &examples, 4)) else {
                    continue;
                };
                for _ in 0..=draws.below(2) {
                    documented(trainer.step(&mut network, &[(&examples, Rows::First(rows))]));
                }
            }
            _ => saved_and_loaded(&mut draws, &mut network),
        }
    }
    saved_and_loaded(&mut draws, &mut network);
}

/// A layer taken out, or put in once more.
fn operated(draws: &mut Draws<'_>, network: &mut Network) -> Option<()> {
    let places: Vec<Vec<usize>> = network.layers().map(|placed| placed.path().indices().to_vec()).collect();
    let (from, to) = (draws.one_of(&places), draws.one_of(&places));
    let ([depth, row, column, layer], [z, y, x, place]) =
        (from[..].try_into().ok()?, to[..].try_into().ok()?);
    let shape = network.input_shape().clone();
    let mut changed = Network::from_bytes(&documented(network.to_bytes(SaveOptions::resumable()))?)
        .expect("what was saved is read");
    if draws.once_in(2) {
        documented(changed.remove([depth, row, column], layer))?;
    } else {
        let copy = documented(changed.copy_layer([depth, row, column], layer))?;
        documented(match draws.once_in(2) {
            true => changed.insert([z, y, x], place, Incoming::copy(copy)),
            false => changed.replace([z, y, x], place, Incoming::copy(copy)),
        })?;
    }
    documented(changed.build())?;
    assert_eq!(&shape, changed.input_shape());
    if documented(is_small(&changed))? {
        *network = changed;
    }
    Some(())
}

/// A sequence that comes in parts.
fn step_by_step(draws: &mut Draws<'_>, network: &mut Network) -> Option<()> {
    let capacity = draws.below(6);
    let mut session = documented(network.session(1, capacity))?;
    for _ in 0..3 {
        let steps = draws.below(4);
        let shape: Vec<usize> = [&[1, steps], network.input_shape().get(1..)?].concat();
        let mut numbers = draws.numbers(shape.iter().product());
        if let Some(limit) = network.index_limit() {
            numbers.iter_mut().for_each(|number| *number = (number.abs() * limit as f32).floor());
        }
        let part = tensor_view(&shape, &numbers).ok()?;
        if documented(session.advance(network, part)).is_none() && draws.once_in(2) {
            documented(session.reset(network))?;
        }
    }
    Some(())
}

/// A step of the manual loop, cut short wherever something is refused.
fn by_hand(draws: &mut Draws<'_>, network: &mut Network, view: loom::TensorView<'_>) -> Option<()> {
    let output = documented(network.forward(view))?.output;
    let gradient = draws.numbers(output.shape().iter().product());
    documented(tensor_view(output.shape(), &gradient).and_then(|gradient| network.backward(gradient)))?;
    if draws.once_in(2) {
        documented(network.clip_gradients(1.0))?;
    }
    documented(network.set_optimizer(draws.one_of(Optimizer::ALL).clone()))?;
    documented(network.apply_gradients(draws.real()))
}

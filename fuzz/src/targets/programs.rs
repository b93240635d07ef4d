//! Small networks of any layers: built, run, trained in every way, saved and loaded.

use super::draw::{Draws, input, is_small, network};
use super::{documented, limits};
use loom::io::SaveOptions;
use loom::train::{Examples, LossConfig, Optimizer, Rows, Trainer, TrainingConfig};
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
    while draws.more() {
        match draws.below(4) {
            0 => {
                by_hand(&mut draws, &mut network, view.clone());
            }
            1 | 2 => {
                let output = [&[rows], &network.output_shape()[..]].concat();
                let targets = draws.numbers(output.iter().product());
                let labels = vec![draws.below(4) as i32; rows];
                let loss = LossConfig::parse(draws.name(&LOSSES)).or_else(|_| LossConfig::parse("mse"));
                let config = TrainingConfig {
                    batch_size: rows,
                    learning_rate: draws.real().abs(),
                    optimizer: draws.one_of(Optimizer::ALL).clone(),
                    loss: loss.expect("there is a mean squared error"),
                    gradient_clip: draws.once_in(3).then_some(0.5),
                    ..TrainingConfig::default()
                };
                let examples = match config.loss.takes_classes() {
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

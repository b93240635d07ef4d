//! Numeric types chosen and chosen again, masters dropped and made, with predictions and files in between.

use super::draw::{Draws, input};
use super::programs::{SMALL, built, saved_and_loaded};
use super::{documented, limits};
use loom::dtype::{Calibration, DType, Granularity, Recipe, Rounding};
use loom::network::{Morph, Numerics};
use loom::{Network, tensor_view};

pub fn target(data: &[u8]) {
    limits::within(SMALL, || morph(data));
}

fn recipe(draws: &mut Draws<'_>) -> Recipe {
    let granularity = match draws.below(5) {
        0 => None,
        1 => Some(Granularity::Tensor),
        2 => Some(Granularity::Channel),
        3 => Some(Granularity::Unscaled),
        _ => Some(Granularity::Block(usize::try_from(draws.odd()).unwrap_or(1))),
    };
    let calibration = match draws.below(4) {
        0 | 1 => Calibration::AbsMax,
        2 => Calibration::Percentile(draws.real() * 60.0),
        _ => Calibration::Mse,
    };
    let rounding = if draws.once_in(4) { Rounding::Stochastic } else { Rounding::Nearest };
    Recipe { granularity, calibration, rounding }
}

fn morph(data: &[u8]) {
    let mut draws = Draws::new(data);
    let Some(mut network) = built(&mut draws) else { return };
    let types: Vec<DType> = DType::all().collect();
    let (shape, numbers) = input(&mut draws, &network, 2);
    let view = tensor_view(&shape, &numbers).expect("an input is as long as its shape says");
    // What predicts goes on to do so, whatever is chosen or refused.
    let predicts = documented(network.predict(view.clone())).is_some();
    for _ in 0..16 {
        if !draws.more() {
            break;
        }
        match draws.below(8) {
            0..4 => {
                let activations = draws.once_in(4).then_some(DType::Int8);
                let numerics = Numerics { recipe: recipe(&mut draws), activations };
                let parameters: Option<&[&str]> =
                    [None, None, Some(&["weight"][..]), Some(&["bias", "gain"][..])][draws.below(4)];
                let request = Morph { dtype: *draws.one_of(&types), numerics, parameters };
                let place = draws.below(6);
                let count = draws.once_in(2);
                documented(network.morph_layers(request, |placed| {
                    !count || placed.path().indices().get(3).is_some_and(|layer| layer % 3 == place % 3)
                }));
            }
            4 => drop(documented(network.drop_masters())),
            5 => drop(documented(network.unpack_where(|_| true))),
            6 => drop(documented(network.calibrate(view.clone(), 99.0, 2))),
            _ => saved_and_loaded(&mut draws, &mut network),
        }
        if predicts {
            check(&network, &view);
        }
    }
    saved_and_loaded(&mut draws, &mut network);
}

fn check(network: &Network, view: &loom::TensorView<'_>) {
    match network.predict(view.clone()) {
        Ok(_) | Err(loom::Error::NonFinite(_)) => {}
        Err(error) => panic!("a network that was morphed does not predict: {error}"),
    }
}

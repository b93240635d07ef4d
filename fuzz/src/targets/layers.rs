//! Layers of any settings on inputs of any extents: shapes are inferred or refused, and what is small is built and run.

use super::draw::{Draws, input, is_small, network};
use super::{documented, limits};

/// What shapes of a network may take, a grid of the most cells among them; and a small network, with all that it
/// computes.
const OUTLINE: usize = 1 << 27;
const SMALL: usize = 1 << 28;

pub fn target(data: &[u8]) {
    let mut draws = Draws::new(data);
    let config = draws.loose();
    let Some(network) = limits::within(OUTLINE, || documented(network(&config))) else { return };
    if limits::within(OUTLINE, || documented(is_small(&network))) != Some(true) {
        return;
    }
    let Some(mut network) = limits::within(SMALL, || {
        let mut built = self::network(&config).expect("what was made is made again");
        documented(built.build()).map(|()| built)
    }) else {
        return;
    };
    let (shape, numbers) = input(&mut draws, &network, 2);
    let view = loom::tensor_view(&shape, &numbers).expect("an input is as long as its shape says");
    limits::within(SMALL, || documented(network.predict(view.clone())));
    documented(network.forward(view));
}

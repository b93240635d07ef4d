//! Layers that are put in, taken out and exchanged.

use super::{Incoming, Network, Numerics, Piece};
use crate::dtype::{DType, Recipe, Rounding};
use crate::layers::{BatchNorm, Chain, CombineMode, Dense, Embedding, Parallel, TiedHead};
use crate::network::Morph;
use crate::tensor::Precision;
use crate::{Error, Result, Tensor, tensor_view};
use std::sync::Arc;

const CELL: [usize; 3] = [0, 0, 0];

fn network(seed: u64) -> Result<Network> {
    let mut network = Network::with_options([6], [1, 1, 1], Precision::Float32, seed)?;
    for units in [8, 8, 3] {
        network.add(CELL, Dense::new(units))?;
    }
    network.insert(CELL, 1, Incoming::fresh(BatchNorm::default()))?;
    network.build()?;
    Ok(network)
}

fn outputs(network: &mut Network) -> Result<Tensor> {
    network.build()?;
    let input: Vec<f32> = (0u8..12).map(|i| f32::from(i) * 0.1 - 0.5).collect();
    network.predict(tensor_view(&[2, 6], &input)?)
}

#[test]
fn what_is_taken_out_comes_back_as_it_was() -> Result<()> {
    let mut network = network(1)?;
    let stochastic = Recipe { rounding: Rounding::Stochastic, ..Recipe::default() };
    let numerics = Numerics { recipe: stochastic, activations: None };
    network.morph_layers(Morph { dtype: DType::Int4, numerics, parameters: None }, |_| true)?;
    let before = outputs(&mut network)?;
    for place in 0..4 {
        let (epoch, copy) = (network.registry.epoch(), network.copy_layer(CELL, place)?);
        network.remove(CELL, place)?;
        network.insert(CELL, place, Incoming::copy(copy))?;
        assert_eq!(outputs(&mut network)?, before, "{place}");
        assert!(network.registry.epoch() > epoch);
        let copy = network.copy_layer(CELL, place)?;
        network.replace(CELL, place, Incoming::copy(copy))?;
        assert_eq!(outputs(&mut network)?, before, "{place}");
    }
    let paths: Vec<String> = network.layers().map(|placed| placed.path().to_string()).collect();
    assert_eq!(paths, ["0.0.0.0", "0.0.0.1", "0.0.0.2", "0.0.0.3"]);
    Ok(())
}

#[test]
fn pieces_become_parts_with_their_codes() -> Result<()> {
    let mut sources = [network(1)?, network(2)?];
    let mut pieces = Vec::new();
    let mut expected = Vec::new();
    for (number, source) in sources.iter_mut().enumerate() {
        source.morph(if number == 0 { DType::Int8 } else { DType::BFloat16 })?;
        source.set_trainable(CELL, 3, number == 0)?;
        let output = outputs(source)?;
        expected.push(output);
        for place in 0..4 {
            let copy = Arc::new(source.copy_layer(CELL, place)?);
            pieces.push(Piece { copy, from: String::new(), to: format!("branches.{number}.{place}") });
        }
    }
    let branch =
        || Chain::from(Dense::new(8)).then(BatchNorm::default()).then(Dense::new(8)).then(Dense::new(3));
    let layer = Arc::new(Parallel::new(vec![branch(), branch()], CombineMode::Concat));
    let mut whole = Network::new([6], [1, 1, 1])?;
    whole.insert(CELL, 0, Incoming { layer, pieces: pieces.clone() })?;
    let joined = outputs(&mut whole)?;
    let rows = |tensor: &Tensor| tensor.to_f64();
    let (joined, parts) = (rows(&joined), [rows(&expected[0]), rows(&expected[1])]);
    for row in 0..2 {
        for (number, part) in parts.iter().enumerate() {
            let from = row * 6 + number * 3;
            assert_eq!(joined[from..from + 3], part[row * 3..row * 3 + 3]);
        }
    }
    assert_eq!(whole.layer(CELL, 0)?.frozen(), ["branches.1.3.weight", "branches.1.3.bias"]);
    // Layers with other rates do not become one, and nothing has changed.
    sources[1].set_rate_factor(CELL, 0, 0.5)?;
    pieces[4].copy = Arc::new(sources[1].copy_layer(CELL, 0)?);
    let layer = Arc::new(Parallel::new(vec![branch(), branch()], CombineMode::Concat));
    let refused = whole.replace(CELL, 0, Incoming { layer, pieces });
    assert!(matches!(refused, Err(Error::Value(why)) if why.contains("rate factor is 0.5")));
    assert!(whole.is_built());
    Ok(())
}

#[test]
fn a_tie_that_does_not_fit_loses_nothing() -> Result<()> {
    let mut network = Network::new([5], [1, 1, 1])?;
    network.add(CELL, Embedding::new(11, 4))?;
    network.add(CELL, Dense::new(4))?;
    network.add(CELL, TiedHead::new(11, [0, 0, 0, 0]))?;
    network.build()?;
    let table = network.parameter(CELL, 0, "weight")?;
    assert!(matches!(network.remove(CELL, 0), Err(Error::Value(why)) if why.contains("take it out first")));
    network.replace(CELL, 1, Incoming::fresh(Dense::new(3)))?;
    assert!(matches!(network.build(), Err(Error::Shape(_))));
    network.replace(CELL, 1, Incoming::fresh(Dense::new(4)))?;
    network.build()?;
    assert_eq!(network.parameter(CELL, 0, "weight")?, table);
    Ok(())
}

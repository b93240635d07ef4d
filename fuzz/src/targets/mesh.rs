//! Clock mode: grids of any links, ticked, taught and saved at any moment.

use super::draw::{Draws, input, network};
use super::programs::SMALL;
use super::{documented, limits};
use loom::io::SaveOptions;
use loom::mesh::{Given, Mesh, Sample, Stepper, SteppingConfig};
use loom::train::Targets;
use loom::{Network, tensor_view};
use serde_json::{Value, json};

pub fn target(data: &[u8]) {
    limits::within(SMALL, || run(data));
}

/// A grid of cells that hand four numbers to each other, over links that lead anywhere.
fn grid(draws: &mut Draws<'_>) -> (Value, Vec<[usize; 3]>) {
    let extents = [1 + draws.below(2), 1 + draws.below(2), 1 + draws.below(3)];
    let mut at = Vec::new();
    for depth in 0..extents[0] {
        for row in 0..extents[1] {
            at.extend((0..extents[2]).map(|column| [depth, row, column]));
        }
    }
    let dense = json!({"type": "dense", "units": 4, "activation": "tanh"});
    let kinds = [
        dense.clone(),
        json!({"type": "layer_norm"}),
        json!({"type": "dropout", "rate": 0.25}),
        json!({"type": "batch_norm"}),
        json!({"type": "softmax"}),
        json!({"type": "residual", "layers": [dense]}),
    ];
    let mut cells = Vec::new();
    for place in &at {
        let layers: Vec<Value> = (0..draws.below(3)).map(|_| draws.one_of(&kinds).clone()).collect();
        cells.push(json!({"at": place, "layers": layers}));
    }
    let mut links = Vec::new();
    for _ in 0..draws.below(5) {
        let (source, target) = (*draws.one_of(&at), *draws.one_of(&at));
        let combine = draws.name(&["add", "add", "concat", "context"]);
        links.push(json!({"source": source, "target": target, "combine": combine}));
    }
    (json!({"input_shape": [4], "grid": extents, "cells": cells, "links": links, "seed": 3}), at)
}

fn run(data: &[u8]) -> Option<()> {
    let mut draws = Draws::new(data);
    let (config, cells) = grid(&mut draws);
    let mut network = documented(network(&config))?;
    let rows = 1 + draws.below(2);
    let window = draws.below(5);
    let mut mesh = documented(Mesh::new(&mut network, rows, window))?;
    let (shape, numbers) = input(&mut draws, &network, rows);
    let view = tensor_view(&shape, &numbers).expect("an input is as long as its shape says");
    for _ in 0..24 {
        if !draws.more() {
            break;
        }
        let cell = *draws.one_of(&cells);
        match draws.below(9) {
            0 | 1 => drop(documented(mesh.set_input(&mut network, view.clone()))),
            2 | 3 => drop(documented(mesh.tick(&mut network, draws.below(4)))),
            4 => {
                let age = draws.below(6);
                let Some(output) = documented(mesh.cell_output(&network, cell, age)) else { continue };
                let numbers = draws.numbers(output.shape().iter().product());
                let Ok(gradient) = tensor_view(output.shape(), &numbers) else { continue };
                documented(mesh.backward(&mut network, &[Given { cell, age, gradient }]));
            }
            5 => drop(documented(network.apply_gradients(draws.real()))),
            6 => drop(documented(mesh.set_training(draws.once_in(2)))),
            7 => saved_and_loaded(&mut mesh, &mut network),
            _ => drop(step(&mut draws, &mut network, &mut mesh, cell, view.clone())),
        }
    }
    saved_and_loaded(&mut mesh, &mut network);
    Some(())
}

/// Some samples of a stream.
fn step(
    draws: &mut Draws<'_>,
    network: &mut Network,
    mesh: &mut Mesh,
    cell: [usize; 3],
    view: loom::TensorView<'_>,
) -> Option<()> {
    let config = SteppingConfig {
        ticks: 1 + draws.below(2),
        update_every: 1 + draws.below(2),
        output: draws.once_in(2).then_some(cell),
        ..SteppingConfig::default()
    };
    let mut stepper = documented(Stepper::new(network, mesh, &config, draws.once_in(2)))?;
    let output = documented(mesh.output(network, config.output.unwrap_or(cell)))?;
    let numbers = draws.numbers(output.shape().iter().product());
    for _ in 0..=draws.below(3) {
        let target =
            tensor_view(output.shape(), &numbers).ok().map(Targets::Real).filter(|_| !draws.once_in(3));
        documented(stepper.step(network, mesh, &Sample { input: view.clone(), target }))?;
    }
    Some(())
}

/// What was saved is read as a mesh that is saved as the same.
fn saved_and_loaded(mesh: &mut Mesh, network: &mut Network) {
    let Some(saved) = documented(mesh.to_bytes(network, SaveOptions::resumable())) else { return };
    let (mut loaded, mut clocked) = Mesh::from_bytes(&saved).expect("what was saved is read");
    let again = clocked.to_bytes(&mut loaded, SaveOptions::resumable()).expect("what was read is saved");
    assert!(saved == again, "a mesh that was read is saved as another one");
}

//! Gradients through time against central differences in f64.

use crate::common::{bits, link, looped, numbers};
use loom::io::SaveOptions;
use loom::layers::{Dense, Embedding, MultiHeadAttention, TiedHead};
use loom::mesh::{Given, Mesh};
use loom::network::Combine;
use loom::ops::pointwise::Activation;
use loom::train::Optimizer;
use loom::{Network, Precision, Result, tensor_view};

/// The weighted sum of what the output and a cell in the middle held over some ticks, by inputs that change.
fn objective(network: &mut Network, mesh: &mut Mesh, ticks: usize, rows: usize) -> Result<f64> {
    nudged(network, mesh, ticks, rows, None)
}

/// The same with one element of one tick's input another by some amount.
fn nudged(
    network: &mut Network,
    mesh: &mut Mesh,
    ticks: usize,
    rows: usize,
    nudge: Option<(usize, usize, f64)>,
) -> Result<f64> {
    let mut sum = 0.0;
    for tick in 0..ticks {
        // The second tick reads what the first one did.
        let mut input = numbers(rows * 3, if tick == 1 { 0.0 } else { 0.17 * tick as f64 });
        if let Some((_, index, amount)) = nudge.filter(|(at, ..)| *at == tick) {
            input[index] += amount;
        }
        if tick != 1 || nudge.is_some() {
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
        let to_input = mesh.backward(&mut network, &given)?;
        assert_eq!(to_input.shape(), [window, rows, 3]);
        let to_input = to_input.to_f64();
        for (number, found) in to_input.iter().enumerate() {
            let at = |amount: f64| -> Result<f64> {
                let (mut network, mut mesh) = Mesh::from_bytes(&start)?;
                let nudge = (number / (rows * 3), number % (rows * 3), amount);
                nudged(&mut network, &mut mesh, window, rows, Some(nudge))
            };
            let expected = (at(STEP)? - at(-STEP)?) / (2.0 * STEP);
            assert!((found - expected).abs() < 2e-9, "window {window}, input {number}: {found}, {expected}");
        }
        // A signal needs three ticks to what is looked at first.
        assert_eq!(to_input.iter().any(|g| g.abs() > 1e-3), window > 2);
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

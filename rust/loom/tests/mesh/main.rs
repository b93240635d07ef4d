//! Clock mode: what a mesh holds and how it learns, against networks without a clock, differences and itself.

mod common;
mod gradients;
mod learning;
#[cfg(feature = "gpu")]
mod on_gpu;
mod targets;

use common::{bits, floats, link, looped, numbers, remembering, stepping};
use loom::layers::{BatchNorm, Conv2D, Dense, Flatten, Gru, InitialState, LayerNorm};
use loom::mesh::{Given, Mesh, Stepper, SteppingConfig};
use loom::network::Combine;
use loom::ops::pointwise::Activation;
use loom::{Error, Network, Precision, Result, tensor_view};

#[test]
fn a_feed_forward_grid_settles_at_what_predict_gives() -> Result<()> {
    let mut network = Network::with_options([2, 6, 6], [1, 2, 2], Precision::Float32, 3)?;
    network.add([0, 0, 0], Conv2D::new(4, [3, 3]).activation(Activation::Relu))?;
    network.add([0, 0, 1], Flatten {})?;
    network.add([0, 0, 1], Dense::new(7).activation(Activation::Tanh))?;
    network.add([0, 1, 0], Dense::new(7).activation(Activation::Gelu))?;
    network.add([0, 1, 1], LayerNorm::default())?;
    network.add([0, 1, 1], Dense::new(3))?;
    network.link(link([0, 0, 1], [0, 1, 1], Combine::Add))?;
    network.build()?;
    let input = floats(5 * 72, 0.2);
    let view = tensor_view(&[5, 2, 6, 6], &input)?;
    let expected = network.predict(view.clone())?;
    for window in [0, 3] {
        let mut mesh = Mesh::new(&mut network, 5, window)?;
        mesh.set_input(&mut network, view.clone())?;
        let depth = mesh.layers();
        assert_eq!(depth, 6);
        mesh.tick(&mut network, depth - 1)?;
        assert_ne!(bits(&mesh.output(&network, [0, 1, 1])?), bits(&expected));
        mesh.tick(&mut network, 1)?;
        assert_eq!(bits(&mesh.output(&network, [0, 1, 1])?), bits(&expected));
        // And stays there, until the input changes.
        mesh.tick(&mut network, 9)?;
        assert_eq!(bits(&mesh.output(&network, [0, 1, 1])?), bits(&expected));
        assert_eq!(mesh.ticks(), 15);
    }
    Ok(())
}

#[test]
fn a_cell_without_layers_hands_on_what_arrives() -> Result<()> {
    let mut network = Network::with_options([2], [1, 1, 4], Precision::Float64, 5)?;
    network.add([0, 0, 1], Dense::new(2).activation(Activation::Tanh))?;
    // The input beside what the layer holds, and twice that; the last cell hands it on.
    network.link(link([0, 0, 1], [0, 0, 2], Combine::Add))?;
    network.link(link([0, 0, 0], [0, 0, 2], Combine::Concat))?;
    network.build()?;
    assert_eq!(network.output_shape()[..], [4]);
    assert_eq!(network.cell_output_shape([0, 0, 1])?.map(|shape| shape.to_vec()), Some(vec![2]));
    assert!(matches!(network.cell_output_shape([1, 0, 0]), Err(Error::Index(_))));
    let weight = network.parameter([0, 0, 1], 0, "weight")?.to_f64();
    for window in [0, 2] {
        let mut mesh = Mesh::new(&mut network, 1, window)?;
        assert_eq!(mesh.output(&network, [0, 0, 3])?.to_f64(), [0.0; 4]);
        let input = [0.3, -0.7];
        mesh.set_input(&mut network, tensor_view(&[1, 2], &input)?)?;
        mesh.tick(&mut network, 1)?;
        // What comes in for the next tick is not handed on before it.
        mesh.set_input(&mut network, tensor_view(&[1, 2], &[9.0, 9.0])?)?;
        let held = [0, 1].map(|unit| (weight[unit * 2] * input[0] + weight[unit * 2 + 1] * input[1]).tanh());
        let found = mesh.output(&network, [0, 0, 3])?.to_f64();
        assert_eq!(found[2..], input);
        for (found, held) in found.iter().zip(held) {
            assert!((found - 2.0 * held).abs() < 1e-14, "{found} is not twice {held}");
        }
        assert_eq!(mesh.output(&network, [0, 0, 0])?.to_f64(), input);
    }
    let mut mesh = Mesh::new(&mut network, 1, 2)?;
    let input_alone = SteppingConfig { output: Some([0, 0, 0]), ..stepping(1) };
    let refused = Stepper::new(&mut network, &mesh, &input_alone, false);
    assert!(refused.unwrap_err().to_string().contains("input"));
    mesh.tick(&mut network, 2)?;
    let gradient = [1.0, 2.0, 3.0, 4.0];
    let given = Given::newest([0, 0, 3], tensor_view(&[1, 4], &gradient)?);
    let to_input = mesh.backward(&mut network, &[given])?.to_f64();
    // At rest tanh lets everything through, in the tick that is looked at; the tick before gets nothing.
    let through = |i: usize| 2.0 * (weight[i] * gradient[0] + weight[2 + i] * gradient[1]);
    assert_eq!(to_input[..2], [0.0; 2]);
    assert!((to_input[2] - through(0) - 3.0).abs() < 1e-14 && (to_input[3] - through(1) - 4.0).abs() < 1e-14);
    Ok(())
}

#[test]
fn a_tick_reads_what_was_held_before_it() -> Result<()> {
    // h = tanh(w (x + h) + b), worked out by hand.
    let mut network = Network::with_options([2], [1, 1, 2], Precision::Float64, 5)?;
    network.add([0, 0, 0], Dense::new(2).activation(Activation::Tanh))?;
    network.add([0, 0, 1], Dense::new(1))?;
    network.link(link([0, 0, 0], [0, 0, 0], Combine::Add))?;
    let mut mesh = Mesh::new(&mut network, 1, 0)?;
    let weight = network.parameter([0, 0, 0], 0, "weight")?.to_f64();
    let head = network.parameter([0, 0, 1], 0, "weight")?.to_f64();
    let (mut held, mut shown) = ([0.0; 2], 0.0);
    for tick in 0..7 {
        let input = numbers(2, f64::from(tick) * 0.37);
        mesh.set_input(&mut network, tensor_view(&[1, 2], &input)?)?;
        mesh.tick(&mut network, 1)?;
        let before = held;
        shown = head[0] * before[0] + head[1] * before[1];
        for (unit, held) in held.iter_mut().enumerate() {
            let sum: f64 = (0..2).map(|i| weight[unit * 2 + i] * (input[i] + before[i])).sum();
            *held = sum.tanh();
        }
        let found = mesh.output(&network, [0, 0, 0])?.to_f64();
        assert!((found[0] - held[0]).abs() < 1e-14 && (found[1] - held[1]).abs() < 1e-14);
        assert!((mesh.output(&network, [0, 0, 1])?.to_f64()[0] - shown).abs() < 1e-14);
    }
    assert_ne!(shown, 0.0);
    Ok(())
}

/// The golden dump of a clock tick, both ways: nothing is copied but the input, sums of gradients come from
/// the tick after, and the layers whose derivatives need no more than their output are not computed again.
#[test]
fn a_tick_as_text() -> Result<()> {
    let mut network = Network::new([3], [1, 1, 2])?;
    network.add([0, 0, 0], Dense::new(4).activation(Activation::Tanh))?;
    network.add([0, 0, 1], Dense::new(4).activation(Activation::Gelu))?;
    network.add([0, 0, 1], Dense::new(2))?;
    network.link(link([0, 0, 1], [0, 0, 0], Combine::Concat))?;
    network.link(link([0, 0, 0], [0, 0, 1], Combine::Add))?;
    let mut mesh = Mesh::new(&mut network, 2, 3)?;
    let dump = mesh.programs(&mut network)?.map(|program| program.to_string()).join("\n\n");
    let golden = include_str!("../golden/clock_tick.txt");
    assert_eq!(dump.trim(), golden.trim(), "the programs have changed; if they should have, update the file");
    Ok(())
}

#[test]
fn running_statistics_follow_every_tick_of_training() -> Result<()> {
    let mut network = Network::with_options([2], [1, 1, 1], Precision::Float32, 1)?;
    network.add([0, 0, 0], BatchNorm::default())?;
    network.add([0, 0, 0], Dense::new(2))?;
    let mut mesh = Mesh::new(&mut network, 4, 2)?;
    let input = floats(8, 0.1);
    mesh.set_input(&mut network, tensor_view(&[4, 2], &input)?)?;
    let start = bits(&network.state([0, 0, 0], 0, "running_mean")?);
    mesh.tick(&mut network, 2)?;
    let learned = bits(&network.state([0, 0, 0], 0, "running_mean")?);
    assert_ne!(learned, start);
    // Going back computes them again and must not count them twice.
    let gradient = floats(8, 0.4);
    mesh.backward(&mut network, &[Given::newest([0, 0, 0], tensor_view(&[4, 2], &gradient)?)])?;
    mesh.set_training(false)?;
    mesh.tick(&mut network, 3)?;
    assert_eq!(bits(&network.state([0, 0, 0], 0, "running_mean")?), learned);
    assert!(matches!(
        mesh.backward(&mut network, &[Given::newest([0, 0, 0], tensor_view(&[4, 2], &gradient)?)]),
        Err(Error::State(_))
    ));
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused() -> Result<()> {
    let message = |result: Result<()>| result.unwrap_err().to_string();
    let mut network = looped(Precision::Float32)?;
    assert!(matches!(Mesh::new(&mut network, 0, 1), Err(Error::Value(_))));
    assert!(matches!(Mesh::new(&mut network, 1, usize::MAX), Err(Error::Value(_))));
    // Without a clock there is no order in which such a network could be passed.
    let input = [0.5f32; 3];
    let view = || tensor_view(&[1, 3], &input);
    assert!(message(network.predict(view()?).map(drop)).contains("clock mode"));
    let mut mesh = Mesh::new(&mut network, 1, 2)?;
    let gradient = [1.0f32; 2];
    let given = |age: usize| -> Result<Given<'_>> {
        Ok(Given { cell: [0, 1, 1], age, gradient: tensor_view(&[1, 2], &gradient)? })
    };
    assert!(message(mesh.backward(&mut network, &[given(0)?]).map(drop)).contains("call tick first"));
    assert!(matches!(mesh.set_input(&mut network, tensor_view(&[1, 1], &[1.0f32])?), Err(Error::Shape(_))));
    let two = [0.0f32; 6];
    assert!(matches!(mesh.set_input(&mut network, tensor_view(&[2, 3], &two)?), Err(Error::Shape(_))));
    let bad = [f32::NAN; 3];
    assert!(matches!(mesh.set_input(&mut network, tensor_view(&[1, 3], &bad)?), Err(Error::NonFinite(_))));
    mesh.tick(&mut network, 1)?;
    assert!(message(mesh.backward(&mut network, &[given(1)?]).map(drop)).contains("only 1 ticks"));
    assert!(matches!(mesh.backward(&mut network, &[]), Err(Error::Value(_))));
    assert!(matches!(mesh.backward(&mut network, &[given(0)?, given(0)?]), Err(Error::Value(_))));
    assert!(matches!(mesh.output(&network, [3, 0, 0]), Err(Error::Index(_))));
    assert!(matches!(mesh.layer_output(&network, [0, 0, 0], 0, 3), Err(Error::Value(_))));
    network.add([0, 1, 1], Dense::new(2))?;
    assert!(message(mesh.tick(&mut network, 1)).contains("have changed"));
    let mut infers = Mesh::new(&mut network, 1, 0)?;
    assert!(matches!(infers.set_training(true), Err(Error::State(_))));
    infers.tick(&mut network, 1)?;
    assert!(message(infers.backward(&mut network, &[given(0)?]).map(drop)).contains("window 0"));

    let mut circle = Network::new([2], [1, 1, 4])?;
    circle.add([0, 0, 0], Dense::new(2))?;
    circle.add([0, 0, 3], Dense::new(2))?;
    circle.link(link([0, 0, 2], [0, 0, 1], Combine::Add))?;
    assert!(message(Mesh::new(&mut circle, 1, 0).map(drop)).contains("circle"));
    let mut doubling = Network::new([2], [1, 1, 40])?;
    doubling.add([0, 0, 39], Dense::new(2))?;
    for cell in 1..39 {
        doubling.link(link([0, 0, cell - 1], [0, 0, cell], Combine::Add))?;
    }
    doubling.build()?;
    assert!(
        message(Mesh::new(&mut doubling, 1, 0).map(drop)).contains("lead through cells that hold no layer")
    );
    let mut growing = Network::new([2], [1, 1, 2])?;
    growing.add([0, 0, 0], LayerNorm::default())?;
    growing.link(link([0, 0, 0], [0, 0, 0], Combine::Concat))?;
    assert!(message(Mesh::new(&mut growing, 1, 0).map(drop)).contains("do not settle"));
    let mut around = Network::new([4, 2], [1, 1, 2])?;
    around.add([0, 0, 0], Gru { initial_state: InitialState::Context, ..Gru::new(3) })?;
    around.add([0, 0, 1], Dense::new(3))?;
    around.link(link([0, 0, 1], [0, 0, 0], Combine::Context))?;
    assert!(message(Mesh::new(&mut around, 1, 0).map(drop)).contains("depends on itself"));

    let mut network = remembering(1, true)?;
    let mesh = Mesh::new(&mut network, 1, 3)?;
    let refused = Stepper::new(&mut network, &mesh, &stepping(4), false);
    assert!(message(refused.map(drop)).contains("window"));
    let none = SteppingConfig { ticks: 0, ..stepping(1) };
    assert!(message(Stepper::new(&mut network, &mesh, &none, false).map(drop)).contains("ticks"));
    Ok(())
}

//! Programs as text, fused and unfused, and what awkward trainers ask of the builder.

use loom::layers::{AvgPool2D, Conv2D, Dense, Dropout, Flatten, MaxPool2D, Softmax};
use loom::ops::pointwise::Activation;
use loom::ops::{Direction, Product};
use loom::program::{Builder, Kind, LayerPath, ParameterRef, Phase, Place, Rewrites, Write};
use loom::train::{Examples, LossConfig, Optimizer, Rows, Trainer, TrainingConfig, TweenConfig};
use loom::{Network, Precision, Result, Shape, tensor_view};

fn network() -> Result<Network> {
    let mut network = Network::new([1, 6, 6], [1, 1, 2])?;
    network.add([0, 0, 0], Conv2D::new(4, [3, 3]).activation(Activation::Relu))?;
    network.add([0, 0, 0], MaxPool2D::new([2, 2]))?;
    network.add([0, 0, 1], Flatten {})?;
    network.add([0, 0, 1], Dropout { rate: 0.25 })?;
    network.add([0, 0, 1], Dense::new(5).activation(Activation::Gelu))?;
    network.add([0, 0, 1], Dense::new(3))?;
    network.add([0, 0, 1], Softmax::default())?;
    Ok(network)
}

/// Pooling by the mean, whose gradient the derivative of an activation follows, too.
fn averaging_network() -> Result<Network> {
    let mut network = Network::new([1, 6, 6], [1, 1, 1])?;
    network.add([0, 0, 0], Conv2D::new(4, [3, 3]).activation(Activation::Gelu))?;
    network.add([0, 0, 0], AvgPool2D { stride: Some([1, 1]), ..AvgPool2D::new([2, 2]) })?;
    network.add([0, 0, 0], Flatten {})?;
    network.add([0, 0, 0], Dense::new(3))?;
    Ok(network)
}

fn examples_of(network: &Network, rows: usize) -> (Vec<usize>, Vec<f32>, Vec<i32>) {
    let shape = [&[rows], &network.input_shape()[..]].concat();
    let count: usize = shape.iter().product();
    let input = (0..count).map(|i| (i as f32 * 0.618_034).fract() - 0.5).collect();
    (shape, input, (0..rows as i32).map(|i| i % 3).collect())
}

fn config() -> Result<TrainingConfig> {
    Ok(TrainingConfig {
        batch_size: 4,
        loss: LossConfig::parse("cross_entropy")?,
        optimizer: Optimizer::Sgd { momentum: 0.9, nesterov: false, weight_decay: 0.0, decay_exempt: false },
        gradient_clip: Some(0.5),
        accumulate: 2,
        learning_rate: 0.1,
        ..TrainingConfig::default()
    })
}

/// The golden dump of a training step that accumulates and clips.
#[test]
fn accumulation_with_clipping() -> Result<()> {
    let mut network = network()?;
    let (shape, input, labels) = examples_of(&network, 4);
    let examples = Examples::classified(tensor_view(&shape, &input)?, &labels);
    let trainer = Trainer::new(&mut network, &config()?, &examples, 10)?;
    let dump = trainer.run().program().to_string();
    let golden = include_str!("golden/accumulation_with_clipping.txt");
    assert_eq!(
        dump.trim(),
        golden.trim(),
        "the program has changed; if it should have, update the golden file"
    );
    Ok(())
}

/// The golden dump of two steps toward the same targets, the second of which runs every layer again.
#[test]
fn two_local_steps() -> Result<()> {
    let mut network = Network::new([6], [1, 1, 1])?;
    network.add([0, 0, 0], Dense::new(5).activation(Activation::Tanh))?;
    network.add([0, 0, 0], Dropout { rate: 0.25 })?;
    network.add([0, 0, 0], Dense::new(3))?;
    let (shape, input, labels) = examples_of(&network, 4);
    let examples = Examples::classified(tensor_view(&shape, &input)?, &labels);
    let tween = TweenConfig { local_steps: 2, ..TweenConfig::target_prop() };
    let config =
        TrainingConfig { batch_size: 4, loss: LossConfig::parse("cross_entropy")?, ..tween.training() };
    let trainer = Trainer::new(&mut network, &config, &examples, 10)?;
    let dump = trainer.run().program().to_string();
    let golden = include_str!("golden/two_local_steps.txt");
    assert_eq!(
        dump.trim(),
        golden.trim(),
        "the program has changed; if it should have, update the golden file"
    );
    Ok(())
}

/// Two readers of one weight: the first contribution of a program may replace the gradient,
/// the second must add to it.
#[test]
fn tied_weights() {
    let mut b = Builder::new(Precision::Float32);
    let weight = ParameterRef { store: 0, parameter: Some(0) };
    let x = b.input("input", Shape::from([3]), Kind::Real);
    let w = b.parameter(weight, Shape::from([3, 3]), None);
    assert_eq!(w, b.parameter(weight, Shape::from([3, 3]), None), "one place is one value");
    let forward = || Product::new(Direction::Forward, 1, 3, 3);
    let y = b.apply(forward(), &[x, w], "y", Shape::from([3]));
    let z = b.apply(forward(), &[y, w], "z", Shape::from([3]));
    b.set_phase(Phase::Backward);
    let dz = b.input("output gradient", Shape::from([3]), Kind::Real);
    b.contribute(Product::new(Direction::WeightGradient, 1, 3, 3), &[y, dz], weight, Shape::from([3, 3]));
    let dy = b.apply(Product::new(Direction::InputGradient, 1, 3, 3), &[dz, w], "dy", Shape::from([3]));
    b.contribute(Product::new(Direction::WeightGradient, 1, 3, 3), &[x, dy], weight, Shape::from([3, 3]));
    b.ports.output = Some(z);
    let program = b.finish(2, &Rewrites::default()).unwrap();
    let writes: Vec<Write> = program
        .steps()
        .iter()
        .filter(|step| matches!(program.value(step.writes[0]).place, Place::Gradient(_)))
        .map(|step| step.write)
        .collect();
    assert_eq!(writes, [Write::First, Write::Add]);
    let golden = include_str!("golden/tied_weights.txt");
    assert_eq!(
        program.to_string().trim(),
        golden.trim(),
        "the program has changed; if it should have, update the golden file"
    );
    // Values that live at the same time never share a buffer.
    let buffers = [x, y, z, dz].map(|value| program.value(value).place);
    for (i, one) in buffers.iter().enumerate() {
        assert!(buffers[..i].iter().all(|other| other != one), "{program}");
    }
    assert!(LayerPath::new(0, 0, 0, 1).hash32() != LayerPath::new(0, 0, 1, 0).hash32());
}

/// Fused programs give the bits of unfused ones, and have fewer steps.
#[test]
fn fused_equals_unfused() -> Result<()> {
    type Make = fn() -> Result<Network>;
    let train = |make: Make, rewrites: Rewrites| -> Result<(usize, Vec<f32>, Vec<f32>)> {
        let mut network = make()?;
        network.set_rewrites(rewrites);
        let (shape, input, labels) = examples_of(&network, 4);
        let examples = Examples::classified(tensor_view(&shape, &input)?, &labels);
        let config = TrainingConfig { gradient_clip: None, accumulate: 1, ..config()? };
        let mut trainer = Trainer::new(&mut network, &config, &examples, 10)?;
        for _ in 0..5 {
            trainer.step(&mut network, &[(&examples, Rows::First(4))])?;
        }
        let steps = trainer.run().program().steps().len();
        let weights = network.parameter([0, 0, 0], 0, "weight")?.to_f32();
        Ok((steps, weights, network.predict(tensor_view(&shape, &input)?)?.to_f32()))
    };
    // How many derivatives follow a product or a pooling.
    for (make, derivatives) in [(network as Make, 2), (averaging_network, 1)] {
        let fused = train(make, Rewrites::default())?;
        let unfused = train(make, Rewrites::none())?;
        let bias_only = train(make, Rewrites { bias: true, ..Rewrites::none() })?;
        let derivative_only = train(make, Rewrites { derivative: true, ..Rewrites::none() })?;
        assert!(fused.0 < bias_only.0 && bias_only.0 < unfused.0);
        assert_eq!(derivative_only.0 + derivatives, unfused.0);
        assert_eq!((&fused.1, &fused.2), (&unfused.1, &unfused.2));
        assert_eq!((&fused.1, &fused.2), (&bias_only.1, &bias_only.2));
        assert_eq!((&fused.1, &fused.2), (&derivative_only.1, &derivative_only.2));
    }
    Ok(())
}

/// Clamped gradients are clamped whatever is fused: no weight moves further than the rate allows.
#[test]
fn a_clamped_gradient_is_not_fused_past_its_clamp() -> Result<()> {
    let train = |rewrites: Rewrites| -> Result<Vec<(f32, f32)>> {
        let mut network = network()?;
        network.set_rewrites(rewrites);
        network.build()?;
        let (shape, input, labels) = examples_of(&network, 4);
        let examples = Examples::classified(tensor_view(&shape, &input)?, &labels);
        let config = TrainingConfig {
            gradient_clip: None,
            accumulate: 1,
            clip_value: Some(1e-3),
            learning_rate: 1.0,
            optimizer: Optimizer::Sgd {
                momentum: 0.0,
                nesterov: false,
                weight_decay: 0.0,
                decay_exempt: false,
            },
            ..config()?
        };
        let before = network.parameter([0, 0, 1], 3, "weight")?.to_f32();
        let mut trainer = Trainer::new(&mut network, &config, &examples, 10)?;
        trainer.step(&mut network, &[(&examples, Rows::First(4))])?;
        Ok(before.into_iter().zip(network.parameter([0, 0, 1], 3, "weight")?.to_f32()).collect())
    };
    let fused = train(Rewrites::default())?;
    assert!(fused.iter().any(|(before, after)| (before - after).abs() > 0.9e-3));
    assert!(fused.iter().all(|(before, after)| (before - after).abs() < 1.1e-3));
    assert_eq!(fused, train(Rewrites::none())?);
    Ok(())
}

/// A trainer made for single batches takes several at once, too: the gradients then wait for each other.
#[test]
fn several_batches_at_once_add_up() -> Result<()> {
    let config = TrainingConfig { gradient_clip: None, accumulate: 1, ..config()? };
    let trained = |batches_of: usize| -> Result<Vec<f32>> {
        let mut network = Network::sequential([5])?;
        network.add([0, 0, 0], Dense::new(7).activation(Activation::Tanh))?;
        network.add([0, 0, 0], Dense::new(3))?;
        let (shape, input, labels) = examples_of(&network, 8);
        let examples = Examples::classified(tensor_view(&shape, &input)?, &labels);
        let mut trainer = Trainer::new(&mut network, &config, &examples, 10)?;
        let order: Vec<u32> = (0..8).collect();
        for _ in 0..3 {
            let batches: Vec<_> = order.chunks(batches_of).map(|rows| (&examples, Rows::At(rows))).collect();
            trainer.step(&mut network, &batches)?;
        }
        Ok(network.parameter([0, 0, 0], 0, "weight")?.to_f32())
    };
    for (one, several) in trained(8)?.iter().zip(trained(2)?) {
        assert!((one - several).abs() < 1e-5, "{one} {several}");
    }
    Ok(())
}

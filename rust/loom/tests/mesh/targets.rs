//! Targets that are kept for every tick: against training without a clock, and a transcription in plain loops.

use crate::common::{Memory, bits, link, numbers, remembering, stepping, tweened};
use loom::io::SaveOptions;
use loom::layers::Dense;
use loom::mesh::{Mesh, Sample, Stepper, SteppingConfig};
use loom::network::Combine;
use loom::ops::pointwise::Activation;
use loom::train::{
    DepthScale, Examples, LossConfig, Optimizer, Rows, TargetMode, Targets, Trainer, TrainingConfig,
    TweenConfig, Watch,
};
use loom::{Error, Network, Precision, Result, tensor_view};

/// Rows of numbers.
type Matrix = Vec<Vec<f64>>;

const ROWS: usize = 3;

fn tween(mode: TargetMode, local_steps: usize, gradient_scale: f64) -> TweenConfig {
    let watch = Watch { gradient_scale, explosion: None, ..Watch::tween() };
    let optimizer = Some(Optimizer::sgd());
    TweenConfig { mode, local_steps, optimizer, depth_scale: DepthScale::None, watch, ..TweenConfig::tween() }
}

fn config(loss: &str, update_every: usize, tween: TweenConfig) -> Result<SteppingConfig> {
    let training = TrainingConfig {
        learning_rate: 0.2,
        loss: LossConfig::parse(loss)?,
        gradient_clip: None,
        tween: Some(tween),
        ..TrainingConfig::default()
    };
    Ok(SteppingConfig { training, update_every, ..SteppingConfig::default() })
}

/// Three layers, one after another.
fn chain() -> Result<Network> {
    let mut network = Network::with_options([4], [1, 1, 2], Precision::Float64, 5)?;
    network.add([0, 0, 0], Dense::new(5).activation(Activation::Tanh))?;
    network.add([0, 0, 1], Dense::new(4).activation(Activation::Tanh))?;
    network.add([0, 0, 1], Dense::new(2))?;
    Ok(network)
}

fn weights(network: &Network) -> Result<Vec<f64>> {
    let mut all = Vec::new();
    for (cell, layer) in [([0, 0, 0], 0), ([0, 0, 1], 0), ([0, 0, 1], 1)] {
        if layer < network.cell_len(cell)? {
            for name in ["weight", "bias"] {
                all.extend(network.parameter(cell, layer, name)?.to_f64());
            }
        }
    }
    Ok(all)
}

fn assert_close(what: &str, found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-11, "{what}: {found} instead of {expected}");
    }
}

#[test]
fn with_a_tick_a_layer_a_mesh_learns_as_a_network_without_a_clock() -> Result<()> {
    for (mode, local_steps) in [
        (TargetMode::ChainRule, 1),
        (TargetMode::ChainRule, 3),
        (TargetMode::Layerwise, 1),
        (TargetMode::Layerwise, 3),
    ] {
        // A step of 1 toward a target of the mean over two outputs' squares is one along its gradient.
        let tween = TweenConfig { optimizer: None, ..tween(mode, local_steps, 1.0) };
        let settings = SteppingConfig { ticks: 3, ..config("mse", 1, tween)? };
        let mut network = chain()?;
        let mut mesh = Mesh::new(&mut network, ROWS, 4)?;
        let mut stepper = Stepper::new(&mut network, &mesh, &settings, false)?;
        let mut unclocked = chain()?;
        let before = {
            unclocked.build()?;
            weights(&unclocked)?
        };
        let mut trainer: Option<Trainer> = None;
        for step in 0..6 {
            let (x, y) = (numbers(ROWS * 4, 0.1 * step as f64), numbers(ROWS * 2, 0.3 + 0.2 * step as f64));
            let (x, y) = (tensor_view(&[ROWS, 4], &x)?, tensor_view(&[ROWS, 2], &y)?);
            let sample = Sample { input: x.clone(), target: Some(Targets::Real(y.clone())) };
            stepper.step(&mut network, &mut mesh, &sample)?;
            let examples = Examples::regression(x, y);
            let trainer = match &mut trainer {
                Some(trainer) => trainer,
                None => trainer.insert(Trainer::new(&mut unclocked, &settings.training, &examples, 6)?),
            };
            trainer.step(&mut unclocked, &[(&examples, Rows::At(&[0, 1, 2]))])?;
        }
        let what = format!("{} with {local_steps}", mode.name());
        let found = weights(&network)?;
        assert_close(&what, &found, &weights(&unclocked)?);
        assert!(found.iter().zip(&before).any(|(now, then)| (now - then).abs() > 0.05), "{what}");
    }
    Ok(())
}

/// A dense layer in plain loops.
#[derive(Clone)]
struct Plain {
    weight: Matrix,
    bias: Vec<f64>,
    tanh: bool,
}

impl Plain {
    fn of(network: &Network, cell: [usize; 3], layer: usize, tanh: bool) -> Result<Self> {
        let weight = network.parameter(cell, layer, "weight")?;
        let width = weight.shape()[1];
        let weight = weight.to_f64().chunks(width).map(<[f64]>::to_vec).collect();
        Ok(Self { weight, bias: network.parameter(cell, layer, "bias")?.to_f64(), tanh })
    }

    fn forward(&self, x: &Matrix) -> Matrix {
        let unit = |x: &[f64], unit: usize| {
            let sum: f64 = self.weight[unit].iter().zip(x).map(|(w, x)| w * x).sum();
            if self.tanh { (sum + self.bias[unit]).tanh() } else { sum + self.bias[unit] }
        };
        x.iter().map(|x| (0..self.bias.len()).map(|number| unit(x, number)).collect()).collect()
    }

    /// The gradient before the activation, from that after it.
    fn inner(&self, output: &Matrix, gradient: &Matrix) -> Matrix {
        combine(output, gradient, |a, g| if self.tanh { g * (1.0 - a * a) } else { g })
    }

    fn back(&self, inner: &Matrix) -> Matrix {
        let width = self.weight[0].len();
        let sum = |g: &Vec<f64>, i: usize| g.iter().zip(&self.weight).map(|(g, w)| g * w[i]).sum();
        inner.iter().map(|g| (0..width).map(|i| sum(g, i)).collect()).collect()
    }

    /// The layerwise target of what was read.
    fn means(&self, read: &Matrix, target: &Matrix) -> Matrix {
        let element = |x: &Vec<f64>, t: &Vec<f64>, i: usize| {
            let total: f64 = self.weight.iter().map(|w| w[i].abs()).sum();
            let sum: f64 = self.weight.iter().zip(t).map(|(w, t)| w[i] * t).sum();
            if total < 0.01 { x[i] } else { sum / total }
        };
        let rows = read.iter().zip(target);
        rows.map(|(x, t)| (0..x.len()).map(|i| element(x, t, i).clamp(-0.95, 0.95)).collect()).collect()
    }

    /// What is added to the weights by gradients before the activation, with what was read.
    fn learn(&mut self, terms: &[(Matrix, Matrix)], rate: f64) {
        for (inner, read) in terms {
            for (g, x) in inner.iter().zip(read) {
                for (unit, g) in g.iter().enumerate() {
                    self.bias[unit] -= rate * g;
                    self.weight[unit].iter_mut().zip(x).for_each(|(w, x)| *w -= rate * g * x);
                }
            }
        }
    }

    fn flat(&self) -> Vec<f64> {
        self.weight.concat().into_iter().chain(self.bias.iter().copied()).collect()
    }
}

fn combine(a: &Matrix, b: &Matrix, f: impl Fn(f64, f64) -> f64) -> Matrix {
    let row = |(a, b): (&Vec<f64>, &Vec<f64>)| a.iter().zip(b).map(|(a, b)| f(*a, *b)).collect();
    a.iter().zip(b).map(row).collect()
}

fn zeros(width: usize) -> Matrix {
    vec![vec![0.0; width]; ROWS]
}

fn rows_of(values: &[f64]) -> Matrix {
    values.chunks(values.len() / ROWS).map(<[f64]>::to_vec).collect()
}

#[test]
fn several_local_steps_through_a_loop_are_those_of_plain_loops() -> Result<()> {
    const SCALE: f64 = 0.4;
    let (window, steps) = (4, 3);
    let mut network = Network::with_options([2], [1, 1, 2], Precision::Float64, 8)?;
    network.add([0, 0, 0], Dense::new(5).activation(Activation::Tanh))?;
    network.add([0, 0, 1], Dense::new(2))?;
    network.link(link([0, 0, 0], [0, 0, 0], Combine::Concat))?;
    let mut mesh = Mesh::new(&mut network, ROWS, window)?;
    let settings = config("mse", 2, tween(TargetMode::ChainRule, steps, SCALE))?;
    let mut stepper = Stepper::new(&mut network, &mesh, &settings, false)?;
    let mut hidden = Plain::of(&network, [0, 0, 0], 0, true)?;
    let mut output = Plain::of(&network, [0, 0, 1], 0, false)?;
    // What was held, from tick 0 on, and the gradients of the outputs that wait.
    let (mut inputs, mut h, mut o) = (vec![zeros(2)], vec![zeros(5)], vec![zeros(2)]);
    let mut given: Vec<(usize, Matrix)> = Vec::new();
    for tick in 1..=12 {
        let (x, y) = (numbers(ROWS * 2, 0.1 * tick as f64), numbers(ROWS * 2, 0.4 + 0.3 * tick as f64));
        let sample = Sample {
            input: tensor_view(&[ROWS, 2], &x)?,
            target: Some(Targets::Real(tensor_view(&[ROWS, 2], &y)?)),
        };
        stepper.step(&mut network, &mut mesh, &sample)?;
        inputs.push(rows_of(&x));
        let read = |tick: usize, inputs: &[Matrix], h: &[Matrix]| -> Matrix {
            inputs[tick].iter().zip(&h[tick - 1]).map(|(x, h)| [&x[..], h].concat()).collect()
        };
        let (new_h, new_o) = (hidden.forward(&read(tick, &inputs, &h)), output.forward(&h[tick - 1]));
        h.push(new_h);
        o.push(new_o);
        // The mean over two samples of the mean over all elements.
        let gradient = combine(&o[tick], &rows_of(&y), |o, y| 2.0 * (o - y) / (ROWS * 2) as f64 / 2.0);
        given.push((tick, gradient));
        if tick % 2 == 1 {
            continue;
        }
        let rows = (ROWS * 2) as f64;
        let oldest = tick.saturating_sub(window) + 1;
        let mut of_h: Vec<Option<Matrix>> = vec![None; tick + 1];
        let (mut hidden_terms, mut output_terms) = (Vec::new(), Vec::new());
        // Ticks with targets: what was read, and the target.
        let mut of_hidden: Vec<(Matrix, Matrix)> = Vec::new();
        let mut of_output: Vec<(Matrix, Matrix)> = Vec::new();
        for now in (oldest..=tick).rev() {
            let mut earlier: Option<Matrix> = None;
            if let Some((_, g)) = given.iter().find(|(at, _)| *at == now) {
                earlier = Some(output.back(g));
                of_output.push((h[now - 1].clone(), combine(&o[now], g, |o, g| o - SCALE * rows * g)));
                output_terms.push((g.clone(), h[now - 1].clone()));
            }
            if let Some(g) = of_h[now].clone() {
                let inner = hidden.inner(&h[now], &g);
                let back: Matrix = hidden.back(&inner).into_iter().map(|row| row[2..].to_vec()).collect();
                earlier = Some(match earlier {
                    Some(known) => combine(&known, &back, |a, b| a + b),
                    None => back,
                });
                of_hidden.push((read(now, &inputs, &h), combine(&h[now], &g, |h, g| h - SCALE * rows * g)));
                hidden_terms.push((inner, read(now, &inputs, &h)));
            }
            of_h[now - 1] = earlier;
        }
        hidden.learn(&hidden_terms, 0.2);
        output.learn(&output_terms, 0.2);
        for _ in 1..steps {
            for (layer, targets) in [(&mut hidden, &of_hidden), (&mut output, &of_output)] {
                let toward = |(read, target): &(Matrix, Matrix)| {
                    let made = layer.forward(read);
                    let gradient = combine(&made, target, |a, t| (a - t) / (SCALE * rows));
                    (layer.inner(&made, &gradient), read.clone())
                };
                let terms: Vec<(Matrix, Matrix)> = targets.iter().map(toward).collect();
                layer.learn(&terms, 0.2);
            }
        }
        given.clear();
        let expected = [hidden.flat(), output.flat()].concat();
        assert_close(&format!("tick {tick}"), &weights(&network)?, &expected);
    }
    assert_eq!(stepper.result.updates, 6);
    Ok(())
}

#[test]
fn layerwise_targets_from_tick_to_tick_are_those_of_plain_loops() -> Result<()> {
    const SCALE: f64 = 0.4;
    for (steps, window) in [(1, 5), (3, 5), (2, 2)] {
        let mut network = chain()?;
        let mut mesh = Mesh::new(&mut network, ROWS, window)?;
        let settings = config("cross_entropy", 2, tween(TargetMode::Layerwise, steps, SCALE))?;
        let mut stepper = Stepper::new(&mut network, &mesh, &settings, false)?;
        let mut layers = [
            Plain::of(&network, [0, 0, 0], 0, true)?,
            Plain::of(&network, [0, 0, 1], 0, true)?,
            Plain::of(&network, [0, 0, 1], 1, false)?,
        ];
        // What each held at every tick; the input is read at the tick itself, the others a tick later.
        let mut held = vec![[zeros(5), zeros(4), zeros(2)]];
        let mut inputs = vec![zeros(4)];
        let mut given: Vec<(usize, Matrix, Matrix)> = Vec::new();
        for tick in 1..=10usize {
            let x = numbers(ROWS * 4, 0.1 * tick as f64);
            let labels: Vec<i32> = (0..ROWS).map(|row| ((row + tick) % 2) as i32).collect();
            let sample = Sample {
                input: tensor_view(&[ROWS, 4], &x)?,
                target: Some(Targets::Classes { shape: vec![ROWS], labels: &labels }),
            };
            stepper.step(&mut network, &mut mesh, &sample)?;
            inputs.push(rows_of(&x));
            let before = held[tick - 1].clone();
            held.push([
                layers[0].forward(&inputs[tick]),
                layers[1].forward(&before[0]),
                layers[2].forward(&before[1]),
            ]);
            let aims: Matrix = labels
                .iter()
                .map(|label| (0..2).map(|c| f64::from(u8::from(c == *label))).collect())
                .collect();
            let shares: Matrix = held[tick][2]
                .iter()
                .map(|o| o.iter().map(|x| x.exp() / o.iter().map(|x| x.exp()).sum::<f64>()).collect())
                .collect();
            given.push((tick, combine(&shares, &aims, |p, y| (p - y) / ROWS as f64 / 2.0), aims));
            if tick % 2 == 1 {
                continue;
            }
            let rows = (ROWS * 2) as f64;
            let oldest = tick.saturating_sub(window) + 1;
            // By layer: what was read, the target, and the first gradient.
            let mut lessons: [Vec<(Matrix, Matrix, Matrix)>; 3] = Default::default();
            for (at, gradient, aims) in given.drain(..) {
                let moved = combine(&held[at][2], &gradient, |o, g| o - SCALE * rows * g);
                lessons[2].push((held[at - 1][1].clone(), moved, gradient));
                let mut target = aims;
                for layer in [1, 0] {
                    // One tick earlier for each layer.
                    let Some(now) = (at + layer).checked_sub(2).filter(|now| *now >= oldest) else { break };
                    let read = match layer {
                        0 => inputs[now].clone(),
                        _ => held[now - 1][0].clone(),
                    };
                    target = layers[layer + 1].means(&held[now][layer], &target);
                    let first = combine(&held[now][layer], &target, |a, t| (a - t) / rows);
                    lessons[layer].push((read, target.clone(), first));
                }
            }
            for (number, (layer, lessons)) in layers.iter_mut().zip(&lessons).enumerate() {
                let first: Vec<(Matrix, Matrix)> =
                    lessons.iter().map(|(read, _, gradient)| (gradient.clone(), read.clone())).collect();
                layer.learn(&first, 0.2);
                let factor = if number == 2 { SCALE * rows } else { rows };
                for _ in 1..steps {
                    let terms: Vec<(Matrix, Matrix)> = lessons
                        .iter()
                        .map(|(read, target, _)| {
                            let made = layer.forward(read);
                            (combine(&made, target, |a, t| (a - t) / factor), read.clone())
                        })
                        .collect();
                    layer.learn(&terms, 0.2);
                }
            }
            let expected: Vec<f64> = layers.iter().flat_map(Plain::flat).collect();
            assert_close(&format!("{steps} steps, tick {tick}"), &weights(&network)?, &expected);
        }
        if steps == 1 && window == 5 {
            // Ticks that no target has reached count as met: the first layer's last two of five were.
            let gap = network.measures().layer(0).unwrap().gap;
            assert!(gap > 0.05 && gap.is_finite(), "{gap}");
        }
    }
    Ok(())
}

#[test]
fn one_mesh_may_learn_by_several_outputs() -> Result<()> {
    let mut network = chain()?;
    let mut mesh = Mesh::new(&mut network, ROWS, 3)?;
    let settings = config("mse", 1, tween(TargetMode::Layerwise, 2, 1.0))?;
    let input = numbers(ROWS * 4, 0.2);
    for (output, width) in [([0, 0, 0], 5), ([0, 0, 1], 2), ([0, 0, 0], 5)] {
        let settings = SteppingConfig { output: Some(output), ticks: 3, ..settings.clone() };
        let mut stepper = Stepper::new(&mut network, &mesh, &settings, false)?;
        let target = vec![0.3; ROWS * width];
        for _ in 0..10 {
            let sample = Sample {
                input: tensor_view(&[ROWS, 4], &input)?,
                target: Some(Targets::Real(tensor_view(&[ROWS, width], &target)?)),
            };
            stepper.step(&mut network, &mut mesh, &sample)?;
        }
        let losses = &stepper.result.losses;
        assert!(losses[9] < 0.5 * losses[0], "{output:?}: {losses:?}");
    }
    Ok(())
}

#[test]
fn several_local_steps_are_taken_back_and_go_on_from_a_file() -> Result<()> {
    let stream = Memory::new(60, 3, 2);
    for (mode, looped) in [(TargetMode::ChainRule, true), (TargetMode::Layerwise, false)] {
        let several = TweenConfig { mode, local_steps: 3, momentum: 0.5, ..TweenConfig::tween() };
        let mut wild = tweened(stepping(2), several.clone());
        wild.training.gradient_clip = None;
        wild.training.learning_rate = 50.0;
        let mut network = remembering(3, looped)?;
        let mut mesh = Mesh::new(&mut network, 3, 6)?;
        let mut stepper = Stepper::new(&mut network, &mesh, &wild, false)?;
        for sample in stream.samples() {
            stepper.step(&mut network, &mut mesh, &sample)?;
        }
        assert!(stepper.result.explosions > 0);
        assert!(network.parameter([0, 0, 0], 0, "weight")?.to_f64().iter().all(|x| x.is_finite()));

        let calm = tweened(stepping(2), several);
        let mut network = remembering(3, looped)?;
        let mut mesh = Mesh::new(&mut network, 3, 6)?;
        let mut stepper = Stepper::new(&mut network, &mesh, &calm, false)?;
        for sample in stream.samples().take(30) {
            stepper.step(&mut network, &mut mesh, &sample)?;
        }
        let file = mesh.to_bytes(&mut network, SaveOptions::resumable())?;
        let mut ends = Vec::new();
        for resumed in [false, true] {
            if resumed {
                (network, mesh) = Mesh::from_bytes(&file)?;
                stepper = Stepper::new(&mut network, &mesh, &calm, true)?;
            }
            for sample in stream.samples().skip(30) {
                stepper.step(&mut network, &mut mesh, &sample)?;
            }
            ends.push((
                bits(&network.parameter([0, 0, 0], 0, "weight")?),
                bits(&mesh.output(&network, [0, 0, 1])?),
            ));
        }
        assert!(ends[0] == ends[1], "{}", mode.name());
    }
    Ok(())
}

#[test]
fn targets_that_have_no_way_through_a_mesh_are_refused() -> Result<()> {
    let mut network = remembering(3, true)?;
    let mesh = Mesh::new(&mut network, 3, 6)?;
    for (mode, said) in [
        (TargetMode::Difference, "feedback maps"),
        (TargetMode::DifferenceReconstruction, "feedback maps"),
        (TargetMode::Layerwise, "does not know links"),
    ] {
        let config = tweened(stepping(1), TweenConfig { mode, ..TweenConfig::tween() });
        match Stepper::new(&mut network, &mesh, &config, false) {
            Err(Error::Value(message) | Error::State(message)) => {
                assert!(message.contains(said) && message.contains("chain_rule"), "{message}");
            }
            other => panic!("{other:?}"),
        }
    }
    Ok(())
}

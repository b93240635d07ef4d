//! Layers that use the parameters of another one, against the same network written out: every use with
//! parameters of its own, all the same, moved by the sum of their gradients.

use crate::shared::Shared;
use loom::dtype::DType;
use loom::layers::{
    Chain, CombineMode, Conv2D, Dense, Embedding, Flatten, GeGLU, Gru, Layer, LayerNorm, Lstm, Masked,
    MultiHeadAttention, Parallel, Residual, Sequential, TiedHead,
};
use loom::network::{Combine, Link};
use loom::ops::pointwise::Activation;
use loom::program::Rewrites;
use loom::train::{
    DepthScale, Examples, LossConfig, LossOptions, Optimizer, Rows, Trainer, TrainingConfig, TweenConfig,
    TweenState, Watch, loss_and_gradient,
};
use loom::{Network, Precision, Result, Shape, tensor_view};
use std::collections::BTreeMap;
use std::sync::Arc;

const ROWS: usize = 3;
const STEPS: usize = 4;
const RATE: f64 = 0.05;

/// A layer in a plan: with parameters of its own, and with another one's.
#[derive(Clone)]
struct Planned {
    column: usize,
    own: Arc<dyn Layer>,
    tied: Option<([usize; 4], Arc<dyn Layer>)>,
}

/// A network in which layers share parameters, which can be written out.
#[derive(Clone)]
struct Plan {
    name: &'static str,
    input: Shape,
    /// What whole numbers of the input are below.
    limit: Option<usize>,
    layers: Vec<Planned>,
    links: Vec<Link>,
}

impl Plan {
    fn new(name: &'static str, input: impl Into<Shape>) -> Self {
        Self { name, input: input.into(), limit: None, layers: Vec::new(), links: Vec::new() }
    }

    fn words(self, limit: usize) -> Self {
        Self { limit: Some(limit), ..self }
    }

    /// A layer in the cell of this column.
    fn layer(mut self, column: usize, layer: impl Layer + 'static) -> Self {
        self.layers.push(Planned { column, own: Arc::new(layer), tied: None });
        self
    }

    /// One with the parameters of the layer there: column, and place in its cell.
    fn again(mut self, column: usize, layer: impl Layer + Clone + 'static, [of, place]: [usize; 2]) -> Self {
        let place = [0, 0, of, place];
        let tied = Arc::new(Shared::new(layer.clone(), place));
        self.layers.push(Planned { column, own: Arc::new(layer), tied: Some((place, tied)) });
        self
    }

    /// A head with the table there.
    fn head(mut self, column: usize, vocabulary: usize, [of, place]: [usize; 2]) -> Self {
        let place = [0, 0, of, place];
        let tied = Arc::new(TiedHead::new(vocabulary, place));
        let own = Arc::new(TiedHead { vocabulary, tied_to: None, weight_initializer: None });
        self.layers.push(Planned { column, own, tied: Some((place, tied)) });
        self
    }

    fn link(mut self, source: usize, target: usize) -> Self {
        let [source, target] = [source, target].map(|column| [0, 0, column]);
        self.links.push(Link { source, target, combine: Combine::Add, axis: None });
        self
    }

    fn build(&self, precision: Precision, tied: bool) -> Result<Network> {
        let columns = self.layers.iter().map(|planned| planned.column + 1).max().unwrap_or(1);
        let mut network = Network::with_options(self.input.clone(), [1, 1, columns], precision, 17)?;
        for planned in &self.layers {
            let layer = match &planned.tied {
                Some((_, layer)) if tied => layer.clone(),
                _ => planned.own.clone(),
            };
            network.add_arc([0, 0, planned.column], layer)?;
        }
        self.links.iter().try_for_each(|link| network.link(link.clone()))?;
        network.build()?;
        Ok(network)
    }

    /// The place of each layer with the place of the one whose parameters it uses.
    fn places(&self) -> Vec<([usize; 4], [usize; 4])> {
        let mut counts = BTreeMap::new();
        let place = |planned: &Planned| {
            let count = counts.entry(planned.column).or_insert(0);
            *count += 1;
            let place = [0, 0, planned.column, *count - 1];
            (place, planned.tied.as_ref().map_or(place, |(owner, _)| *owner))
        };
        self.layers.iter().map(place).collect()
    }

    fn data(&self) -> Result<Data> {
        let output = self.build(Precision::Float64, true)?.output_shape().clone();
        let input = (0..ROWS * self.input.len()).map(|i| match self.limit {
            Some(limit) => ((i * 5 + i / 3) % limit) as f64,
            None => f64::from(noise(i, 0.1) as f32),
        });
        let target = (0..ROWS * output.len()).map(|i| f64::from(noise(i, 0.6) as f32));
        let shape = |row: &[usize]| [&[ROWS], row].concat();
        Ok(Data {
            shapes: [shape(&self.input), shape(&output)],
            input: input.collect(),
            target: target.collect(),
        })
    }
}

fn noise(number: usize, seed: f64) -> f64 {
    ((number as f64 + 1.0) * 0.754_877_666 + seed).fract() * 2.0 - 1.0
}

/// A batch, of inputs and of targets like the output.
struct Data {
    shapes: [Vec<usize>; 2],
    input: Vec<f64>,
    target: Vec<f64>,
}

impl Data {
    fn examples(&self) -> Result<Examples<'_>> {
        let input = tensor_view(&self.shapes[0], &self.input)?;
        Ok(Examples::regression(input, tensor_view(&self.shapes[1], &self.target)?))
    }
}

fn dense(units: usize) -> Dense {
    Dense::new(units).activation(Activation::Tanh)
}

/// Every way of sharing there is.
fn plans() -> Vec<Plan> {
    let tower = || Chain::from(dense(6)).then(Dense::new(4));
    let own_head = TiedHead { vocabulary: 7, tied_to: None, weight_initializer: None };
    let shared_cell = dense(4);
    let convolution = Conv2D::new(2, [3, 3])
        .padding(loom::layers::Padding::Named(loom::layers::NamedPadding::Same))
        .activation(Activation::Gelu);
    let lstm = Lstm::new(4).return_sequences();
    let gru = Gru::new(4).return_sequences().bidirectional();
    // A bias of the keys has no gradient but rounding, which Adam would make steps of.
    let attention = MultiHeadAttention::new(2).causal().without_bias();
    let masked = Masked::new(Chain::from(lstm.clone()));
    let residual = Residual::new(tower());
    let parallel = Parallel::new(vec![tower(), Chain::from(dense(4))], CombineMode::Add);
    let sequential = Sequential::new(tower());
    vec![
        Plan::new("a table and its head", [3]).words(7).layer(0, Embedding::new(7, 4)).head(0, 7, [0, 0]),
        Plan::new("a language model", [3])
            .words(7)
            .layer(0, Embedding::new(7, 4))
            .layer(1, attention.clone())
            .layer(1, LayerNorm::default())
            .head(2, 7, [0, 0]),
        Plan::new("several heads of a table", [3])
            .words(7)
            .layer(0, Embedding::new(7, 4))
            .head(0, 7, [0, 0])
            .layer(1, dense(4))
            .head(1, 7, [0, 0])
            .layer(2, dense(4))
            .head(2, 7, [0, 0]),
        Plan::new("two heads without a table", [4]).layer(0, own_head).layer(0, dense(4)).head(0, 7, [0, 0]),
        Plan::new("a dense layer three times", [5])
            .layer(0, dense(4))
            .layer(0, shared_cell.clone())
            .again(0, shared_cell.clone(), [0, 1])
            .again(1, shared_cell.clone(), [0, 1])
            .layer(1, Dense::new(2)),
        Plan::new("a cell that links reuse", [4])
            .layer(0, shared_cell.clone())
            .again(1, shared_cell.clone(), [0, 0])
            .layer(2, dense(4))
            .again(3, shared_cell.clone(), [0, 0])
            .link(0, 2)
            .link(0, 3)
            .link(1, 3),
        Plan::new("a dense layer without bias over steps", [3, 4])
            .layer(0, Dense::new(4).without_bias())
            .again(0, Dense::new(4).without_bias(), [0, 0]),
        Plan::new("a convolution", [2, 4, 4])
            .layer(0, convolution.clone())
            .again(0, convolution, [0, 0])
            .layer(0, Flatten {})
            .layer(0, Dense::new(3)),
        Plan::new("an LSTM", [3, 4]).layer(0, lstm.clone()).again(0, lstm.clone(), [0, 0]),
        Plan::new("a GRU both ways", [3, 4]).layer(0, dense(8)).layer(0, gru.clone()).again(0, gru, [0, 1]),
        Plan::new("attention", [3, 4]).layer(0, attention.clone()).again(0, attention, [0, 0]),
        Plan::new("a norm", [3, 4]).layer(0, LayerNorm::default()).layer(0, dense(4)).again(
            0,
            LayerNorm::default(),
            [0, 0],
        ),
        Plan::new("gated layers", [3, 4]).layer(0, GeGLU::new(5)).again(0, GeGLU::new(5), [0, 0]),
        Plan::new("a residual block", [4]).layer(0, residual.clone()).again(1, residual, [0, 0]),
        Plan::new("parallel branches", [4]).layer(0, parallel.clone()).again(0, parallel, [0, 0]),
        Plan::new("layers in a row", [4]).layer(0, sequential.clone()).again(0, sequential, [0, 0]),
        Plan::new("masked layers", [3, 4]).layer(0, masked.clone()).again(0, masked, [0, 0]),
    ]
}

/// All parameters that a network has, by place and name.
type Weights = BTreeMap<([usize; 4], String), Vec<f64>>;

fn cell_of(place: [usize; 4]) -> ([usize; 3], usize) {
    ([place[0], place[1], place[2]], place[3])
}

fn weights(network: &Network, places: &[([usize; 4], [usize; 4])]) -> Result<Weights> {
    let mut all = Weights::new();
    for (place, owner) in places {
        let (cell, layer) = cell_of(*owner);
        for name in network.parameter_names(cell, layer)? {
            // A layer that shares names no parameters, but finds them.
            let (cell, layer) = cell_of(*place);
            let values = network.parameter(cell, layer, &name)?.to_f64();
            all.insert((*place, name), values);
        }
    }
    Ok(all)
}

/// One update by a rule, as its documentation has it; `moments` begin empty, updates count from 1.
fn update(rule: &Optimizer, rate: f64, number: i32, w: &mut [f64], g: &[f64], moments: &mut [Vec<f64>; 2]) {
    for moment in moments.iter_mut().filter(|moment| moment.is_empty()) {
        *moment = vec![0.0; w.len()];
    }
    let [first, second] = moments;
    for i in 0..w.len() {
        let (m, v) = (&mut first[i], &mut second[i]);
        match *rule {
            Optimizer::Sgd { momentum, nesterov, weight_decay, .. } => {
                let g = g[i] + weight_decay * w[i];
                *m = momentum * *m + g;
                w[i] -= rate * if nesterov { g + momentum * *m } else { *m };
            }
            Optimizer::Velocity { momentum } => {
                *m = momentum * *m - rate * g[i];
                w[i] += *m;
            }
            Optimizer::Adam { beta1, beta2, epsilon, weight_decay, .. } => {
                let g = g[i] + weight_decay * w[i];
                *m = beta1 * *m + (1.0 - beta1) * g;
                *v = beta2 * *v + (1.0 - beta2) * g * g;
                let [m, v] = [*m / (1.0 - beta1.powi(number)), *v / (1.0 - beta2.powi(number))];
                w[i] -= rate * m / (v.sqrt() + epsilon);
            }
            Optimizer::AdamW { beta1, beta2, epsilon, weight_decay, .. } => {
                *m = beta1 * *m + (1.0 - beta1) * g[i];
                *v = beta2 * *v + (1.0 - beta2) * g[i] * g[i];
                let [m, v] = [*m / (1.0 - beta1.powi(number)), *v / (1.0 - beta2.powi(number))];
                w[i] -= rate * (m / (v.sqrt() + epsilon) + weight_decay * w[i]);
            }
            Optimizer::RmsProp { alpha, epsilon, .. } => {
                *v = alpha * *v + (1.0 - alpha) * g[i] * g[i];
                w[i] -= rate * g[i] / (v.sqrt() + epsilon);
            }
            _ => unreachable!("not written out: {rule:?}"),
        }
    }
}

fn optimizers() -> Vec<Optimizer> {
    vec![
        Optimizer::sgd(),
        Optimizer::Sgd { momentum: 0.9, nesterov: true, weight_decay: 0.1, decay_exempt: false },
        Optimizer::Velocity { momentum: 0.9 },
        Optimizer::adam(),
        Optimizer::default(),
        Optimizer::rms_prop(),
    ]
}

/// What the written-out network holds after some steps, its copies kept alike by hand.
fn written_out(plan: &Plan, data: &Data, rule: &Optimizer) -> Result<Weights> {
    let places = plan.places();
    let mut network = plan.build(Precision::Float64, false)?;
    let mut held = weights(&plan.build(Precision::Float64, true)?, &places)?;
    let mut moments: BTreeMap<([usize; 4], String), [Vec<f64>; 2]> = BTreeMap::new();
    for number in 0..STEPS {
        for ((place, name), values) in &held {
            let (cell, layer) = cell_of(*place);
            let shape = network.parameter(cell, layer, name)?.shape().to_vec();
            network.set_parameter(cell, layer, name, tensor_view(&shape, values)?)?;
        }
        network.zero_gradients();
        let output = network.forward(tensor_view(&data.shapes[0], &data.input)?)?.output.to_f64();
        let scale = 2.0 / output.len() as f64;
        let errors: Vec<f64> = output.iter().zip(&data.target).map(|(o, t)| scale * (o - t)).collect();
        network.backward(tensor_view(&data.shapes[1], &errors)?)?;
        let mut sums = Weights::new();
        for (place, owner) in &places {
            let (cell, layer) = cell_of(*place);
            for name in network.parameter_names(cell, layer)? {
                let gradient = network.gradient(cell, layer, &name)?.to_f64();
                let sum = sums.entry((*owner, name)).or_insert_with(|| vec![0.0; gradient.len()]);
                sum.iter_mut().zip(gradient).for_each(|(sum, g)| *sum += g);
            }
        }
        for (key, sum) in &sums {
            let moments = moments.entry(key.clone()).or_default();
            if let Some(values) = held.get_mut(key) {
                update(rule, RATE, number as i32 + 1, values, sum, moments);
            }
        }
        for (place, owner) in &places {
            let moved: Weights = held
                .iter()
                .filter(|((at, _), _)| at == owner)
                .map(|(key, values)| (key.clone(), values.clone()))
                .collect();
            held.extend(moved.into_iter().map(|((_, name), values)| ((*place, name), values)));
        }
    }
    Ok(held)
}

fn config(rule: &Optimizer) -> Result<TrainingConfig> {
    Ok(TrainingConfig {
        batch_size: ROWS,
        loss: LossConfig::parse("mse")?,
        optimizer: rule.clone(),
        learning_rate: RATE,
        ..TrainingConfig::default()
    })
}

/// What it holds after training as everybody does, for some way of doing so.
fn trained(plan: &Plan, data: &Data, network: &mut Network, config: &TrainingConfig) -> Result<Weights> {
    let examples = data.examples()?;
    let mut trainer = Trainer::new(network, config, &examples, STEPS as u64)?;
    for _ in 0..STEPS {
        trainer.step(network, &[(&examples, Rows::First(ROWS))])?;
    }
    network.synchronize()?;
    weights(network, &plan.places())
}

/// What it holds after a loop by hand.
fn by_hand(plan: &Plan, data: &Data, network: &mut Network, rule: &Optimizer) -> Result<Weights> {
    network.set_optimizer(rule.clone())?;
    let examples = data.examples()?;
    for _ in 0..STEPS {
        let output = network.forward(examples.input.clone())?.output;
        let loss = LossConfig::parse("mse")?;
        let (_, gradient) =
            loss_and_gradient(loss, output.view(), &examples.target, None, &LossOptions::default())?;
        network.backward(gradient.view())?;
        network.apply_gradients(RATE)?;
    }
    weights(network, &plan.places())
}

#[track_caller]
fn assert_close(what: &str, found: &Weights, expected: &Weights, tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for ((key, found), (expected_key, expected)) in found.iter().zip(expected) {
        assert_eq!(key, expected_key, "{what}");
        let largest = expected.iter().fold(1e-2f64, |largest, x| largest.max(x.abs()));
        for (number, (found, expected)) in found.iter().zip(expected).enumerate() {
            let error = (found - expected).abs() / largest;
            assert!(error < tolerance, "{what}, {key:?} {number}: {found} for {expected} ({error:.1e})");
        }
    }
}

const FUSED: [fn() -> Rewrites; 2] = [Rewrites::default, Rewrites::none];

#[test]
fn every_use_of_a_parameter_moves_it() -> Result<()> {
    for plan in plans() {
        let data = plan.data()?;
        for rule in optimizers() {
            let expected = written_out(&plan, &data, &rule)?;
            let mut moved = plan.build(Precision::Float64, true)?;
            assert!(weights(&moved, &plan.places())? != expected, "{}: nothing moves", plan.name);
            let what = format!("{} by {}", plan.name, rule.name());
            let found = by_hand(&plan, &data, &mut moved, &rule)?;
            assert_close(&format!("{what}, by hand"), &found, &expected, 1e-10);
            for rewrites in FUSED {
                let mut network = plan.build(Precision::Float64, true)?;
                network.set_rewrites(rewrites());
                let found = trained(&plan, &data, &mut network, &config(&rule)?)?;
                assert_close(&format!("{what}, {:?}", rewrites()), &found, &expected, 1e-10);
            }
        }
    }
    Ok(())
}

/// Chain-rule targets move weights as gradients do.
#[test]
fn targets_move_a_parameter_by_every_use() -> Result<()> {
    let rule = Optimizer::Velocity { momentum: 0.9 };
    let tween =
        TweenConfig { depth_scale: DepthScale::None, watch: Watch::observer(), ..TweenConfig::tween() };
    for plan in plans() {
        let data = plan.data()?;
        let expected = written_out(&plan, &data, &rule)?;
        for rewrites in FUSED {
            let what = format!("{}, {:?}", plan.name, rewrites());
            let config = TrainingConfig { tween: Some(tween.clone()), ..config(&rule)? };
            let mut network = plan.build(Precision::Float64, true)?;
            network.set_rewrites(rewrites());
            let found = trained(&plan, &data, &mut network, &config)?;
            assert_close(&what, &found, &expected, 1e-10);
            let mut network = plan.build(Precision::Float64, true)?;
            network.set_rewrites(rewrites());
            let mut state = TweenState::new(&mut network, &config, false)?;
            for _ in 0..STEPS {
                let Examples { input, target, .. } = data.examples()?;
                state.step(&mut network, input, target, None)?;
            }
            assert_close(&what, &weights(&network, &plan.places())?, &expected, 1e-10);
        }
    }
    Ok(())
}

/// Measuring every layer changes nothing, and neither does a batch that is added up from parts.
#[test]
fn observed_clipped_and_accumulated_training_counts_every_use() -> Result<()> {
    let rule = Optimizer::adam();
    for plan in plans() {
        let data = plan.data()?;
        let expected = written_out(&plan, &data, &rule)?;
        let plain = config(&rule)?;
        let ways = [
            TrainingConfig { watch: Some(Watch::observer()), ..plain.clone() },
            TrainingConfig { gradient_clip: Some(1e6), ..plain.clone() },
            TrainingConfig { clip_value: Some(1e6), ..plain.clone() },
            TrainingConfig { accumulate: 2, ..plain },
        ];
        for way in ways {
            let mut network = plan.build(Precision::Float64, true)?;
            let found = trained(&plan, &data, &mut network, &way)?;
            assert_close(plan.name, &found, &expected, 1e-10);
        }
    }
    Ok(())
}

/// Rounded arithmetic and packed weights: the same bits fused, unfused and by hand.
#[test]
fn shared_parameters_learn_alike_in_every_numeric_type() -> Result<()> {
    for plan in plans() {
        let data = plan.data()?;
        // Adam would make whole steps of rounding where gradients are small.
        let rule = Optimizer::Sgd { momentum: 0.9, nesterov: false, weight_decay: 0.0, decay_exempt: false };
        for (precision, dtype) in [
            (Precision::Float32, None),
            (Precision::Mixed, None),
            (Precision::Float32, Some(DType::Int8)),
            (Precision::Float32, Some(DType::Int4)),
            (Precision::Mixed, Some(DType::Int8)),
        ] {
            let build = |rewrites: Rewrites| -> Result<Network> {
                let mut network = plan.build(precision, true)?;
                network.set_rewrites(rewrites);
                if let Some(dtype) = dtype {
                    network.morph(dtype)?;
                }
                Ok(network)
            };
            let what = format!("{}, {precision:?} {dtype:?}", plan.name);
            let expected = by_hand(&plan, &data, &mut build(Rewrites::none())?, &rule)?;
            for rewrites in FUSED {
                let found = trained(&plan, &data, &mut build(rewrites())?, &config(&rule)?)?;
                assert!(found == expected, "{what}, {:?}", rewrites());
            }
            if dtype.is_none() {
                let tolerance = if precision == Precision::Mixed { 0.05 } else { 1e-4 };
                assert_close(&what, &expected, &written_out(&plan, &data, &rule)?, tolerance);
            }
        }
    }
    Ok(())
}

/// The whole training loop, with all its defaults, on the model that everybody ties.
#[test]
fn a_tied_language_model_trains_with_the_defaults() -> Result<()> {
    let plan = &plans()[1];
    let data = plan.data()?;
    let rule = Optimizer::default();
    let expected = written_out(plan, &data, &rule)?;
    let mut network = plan.build(Precision::Float64, true)?;
    let defaults = TrainingConfig { epochs: STEPS as u64, learning_rate: RATE, ..TrainingConfig::default() };
    loom::train::train(&mut network, &data.examples()?, &defaults)?;
    assert_close(plan.name, &weights(&network, &plan.places())?, &expected, 1e-10);
    Ok(())
}

/// Only a layer that says so shares: one object at two places is two layers.
#[test]
fn a_layer_object_placed_twice_is_two_layers() -> Result<()> {
    let layer: Arc<dyn Layer> = Arc::new(dense(4));
    let build = |layers: [Arc<dyn Layer>; 2]| -> Result<Network> {
        let mut network = Network::with_options([4], [1, 1, 2], Precision::Float64, 17)?;
        network.add_arc([0, 0, 0], layers[0].clone())?;
        network.add_arc([0, 0, 1], layers[1].clone())?;
        let inside = Chain::new(layers.to_vec());
        network.add([0, 0, 1], Sequential::new(inside))?;
        network.build()?;
        Ok(network)
    };
    let mut plan = Plan::new("twice", [4]);
    for column in [0, 1] {
        plan = plan.layer(column, dense(4));
    }
    plan = plan.layer(1, Sequential::new(Chain::from(dense(4)).then(dense(4))));
    let data = plan.data()?;
    let mut twice = build([layer.clone(), layer])?;
    let names = twice.parameter_names([0, 0, 1], 1)?;
    assert_eq!(names, ["0.weight", "0.bias", "1.weight", "1.bias"]);
    let mut apart = build([Arc::new(dense(4)), Arc::new(dense(4))])?;
    let rule = Optimizer::default();
    let found = trained(&plan, &data, &mut twice, &config(&rule)?)?;
    assert!(found == trained(&plan, &data, &mut apart, &config(&rule)?)?);
    assert_close("twice", &found, &written_out(&plan, &data, &rule)?, 1e-10);
    assert!(found[&([0, 0, 0, 0], "weight".into())] != found[&([0, 0, 1, 0], "weight".into())]);
    Ok(())
}

/// A layer that is kept as it is contributes nothing to a parameter that it shares; one that owns it, frozen,
/// keeps it for all.
#[test]
fn what_is_not_trained_does_not_move_a_shared_parameter() -> Result<()> {
    let plan = &plans()[4];
    let rule = Optimizer::sgd();
    let moves = |untrained: &[([usize; 3], usize)]| -> Result<Vec<f64>> {
        let mut seen = Vec::new();
        for rewrites in FUSED {
            let mut network = plan.build(Precision::Float64, true)?;
            network.set_rewrites(rewrites());
            for (cell, layer) in untrained {
                network.set_trainable(*cell, *layer, false)?;
            }
            let before = network.parameter([0, 0, 0], 1, "weight")?.to_f64();
            let after = trained(plan, &plan.data()?, &mut network, &config(&rule)?)?;
            let after = &after[&([0, 0, 0, 1], "weight".into())];
            seen.push(before.iter().zip(after).map(|(before, after)| after - before).collect::<Vec<f64>>());
        }
        let error =
            seen[0].iter().zip(&seen[1]).fold(0.0f64, |most, (one, other)| most.max((one - other).abs()));
        assert!(error < 1e-12, "{error}");
        Ok(seen.swap_remove(0))
    };
    assert!(moves(&[([0, 0, 0], 1)])?.iter().all(|moved| *moved == 0.0));
    let all = moves(&[])?;
    let without_last = moves(&[([0, 0, 1], 0)])?;
    let owner_alone = moves(&[([0, 0, 1], 0), ([0, 0, 0], 2)])?;
    assert!(owner_alone.iter().any(|moved| moved.abs() > 1e-6));
    assert!(all != without_last && without_last != owner_alone);
    Ok(())
}

/// What can only be said of all uses of a parameter is refused at a layer that but uses it.
#[test]
fn settings_of_a_parameter_belong_to_its_owner() -> Result<()> {
    let mut network = plans()[0].build(Precision::Float32, true)?;
    let [owner, user] = [0, 1].map(|layer| ([0, 0, 0], layer));
    for result in
        [network.set_frozen(user.0, user.1, "weight", true), network.set_rate_factor(user.0, user.1, 0.5)]
    {
        let error = result.expect_err("it is another layer's").to_string();
        assert!(error.contains("layer 0.0.0.1") || error.contains("layer 1"), "{error}");
        assert!(error.contains("uses the parameters of layer 0.0.0.0"), "{error}");
    }
    network.set_rate_factor(user.0, user.1, 1.0)?;
    network.set_frozen(user.0, user.1, "weight", false)?;
    network.set_frozen(owner.0, owner.1, "weight", true)?;
    network.set_rate_factor(owner.0, owner.1, 0.5)
}

/// Gradients of shared parameters against central differences.
#[test]
fn shared_gradients_are_those_of_differences() -> Result<()> {
    const STEP: f64 = 1e-5;
    for plan in plans() {
        let data = plan.data()?;
        let mut network = plan.build(Precision::Float64, true)?;
        let input = || tensor_view(&data.shapes[0], &data.input);
        network.forward(input()?)?;
        network.backward(tensor_view(&data.shapes[1], &data.target)?)?;
        let owners: Vec<[usize; 4]> = plan
            .places()
            .into_iter()
            .filter(|(place, owner)| place == owner)
            .map(|(place, _)| place)
            .collect();
        let mut expected = Weights::new();
        let mut found = Weights::new();
        for place in owners {
            let (cell, layer) = cell_of(place);
            for name in network.parameter_names(cell, layer)? {
                found.insert((place, name.clone()), network.gradient(cell, layer, &name)?.to_f64());
            }
        }
        for ((place, name), gradient) in &found {
            let (cell, layer) = cell_of(*place);
            let master = network.parameter(cell, layer, name)?;
            let mut values = master.to_f64();
            let mut differences = Vec::with_capacity(gradient.len());
            for index in 0..values.len() {
                let kept = values[index];
                let mut at = |value: f64| -> Result<f64> {
                    values[index] = value;
                    network.set_parameter(cell, layer, name, tensor_view(master.shape(), &values)?)?;
                    let output = network.predict(input()?)?.to_f64();
                    Ok(output.iter().zip(&data.target).map(|(o, t)| o * t).sum())
                };
                differences.push((at(kept + STEP)? - at(kept - STEP)?) / (2.0 * STEP));
                at(kept)?;
            }
            expected.insert((*place, name.clone()), differences);
        }
        assert_close(plan.name, &found, &expected, 1e-6);
    }
    Ok(())
}

#[cfg(feature = "gpu")]
#[test]
fn every_use_of_a_parameter_moves_it_on_a_gpu() -> Result<()> {
    if !crate::has_gpu() {
        return Ok(());
    }
    // Those that the other devices' kernels tell apart: tables, dense layers, convolutions, recurrence, attention.
    for number in [1, 2, 5, 7, 8, 13] {
        let plan = &plans()[number];
        let data = plan.data()?;
        let rule = Optimizer::Sgd { momentum: 0.9, nesterov: false, weight_decay: 0.0, decay_exempt: false };
        let expected = written_out(plan, &data, &rule)?;
        let mut network = plan.build(Precision::Float32, true)?;
        network.to("gpu")?;
        let found = trained(plan, &data, &mut network, &config(&rule)?)?;
        assert_close(plan.name, &found, &expected, 1e-4);
        // Frames of several steps.
        let mut network = plan.build(Precision::Float32, true)?;
        network.to("gpu")?;
        let config = TrainingConfig { epochs: STEPS as u64, shuffle: false, ..config(&rule)? };
        loom::train::train(&mut network, &data.examples()?, &config)?;
        assert_close(plan.name, &weights(&network, &plan.places())?, &expected, 1e-4);
    }
    Ok(())
}

//! Rules for targets against plain transcriptions of them, on the CPU in f64 and on a GPU.

use super::single_layer::SingleLayer;
use crate::dtype::DType;
use crate::layers::*;
use crate::ops::pointwise::Activation;
use crate::ops::testing::assert_close;
use crate::program::{Builder, Value};

/// What came of lowering a layer and its target.
struct Made {
    target: Vec<f64>,
    /// What the layers inside a stack have made.
    inner: Vec<Vec<f64>>,
}

/// Lowers a target; the layers inside come before it.
fn lower(
    layer: &dyn Layer,
    b: &mut Builder,
    cx: &Context,
    x: Value,
    forward: &Forward,
    above: Value,
) -> Option<Vec<Value>> {
    let made = layer.target_rules().target(b, cx, &[x], forward, above).unwrap()?;
    assert_eq!(b.shape(made), b.shape(x));
    Some(forward.inner.iter().map(|inner| inner.output).chain([made]).collect())
}

/// Compares a target with what it is to be.
#[track_caller]
fn check(trial: &SingleLayer, expected: impl Fn(&SingleLayer, &Made) -> Vec<f64>) {
    let mut inner = trial.run(&lower);
    let target = inner.pop().unwrap();
    let made = Made { target, inner };
    assert_close(&made.target, &expected(trial, &made), 1e-12);
}

/// The rule as it is written, for one step: `weight(o, j)` leads from input j to output o.
fn mean(weight: impl Fn(usize, usize) -> f64, target: &[f64], x: &[f64]) -> Vec<f64> {
    let of = |(j, x): (usize, &f64)| {
        let (mut sum, mut magnitudes) = (0.0, 0.0);
        for (o, target) in target.iter().enumerate() {
            sum += weight(o, j) * target;
            magnitudes += weight(o, j).abs();
        }
        if magnitudes < 0.01 { *x } else { sum / magnitudes }
    };
    x.iter().enumerate().map(of).collect()
}

/// [`mean`] for every real step of every row, or with `last` for the last of each row.
fn means(
    case: &SingleLayer,
    weight: impl Fn(usize, usize) -> f64,
    [inputs, outputs]: [usize; 2],
    last: bool,
    target: &[f64],
    x: &[f64],
) -> Vec<f64> {
    let steps = x.len() / case.rows / inputs;
    let mut made = x.to_vec();
    for row in 0..case.rows {
        let real = (row * steps..(row + 1) * steps).filter(|step| case.is_real(*step));
        let wanted: Vec<usize> = if last { real.last().into_iter().collect() } else { real.collect() };
        for step in wanted {
            let place = if last { row } else { step };
            let x = &x[step * inputs..][..inputs];
            let mean = mean(&weight, &target[place * outputs..][..outputs], x);
            made[step * inputs..][..inputs].copy_from_slice(&mean);
        }
    }
    made
}

fn clamped(x: Vec<f64>, (low, high): (f64, f64)) -> Vec<f64> {
    x.into_iter().map(|x| x.clamp(low, high)).collect()
}

#[test]
fn dense_takes_the_mean_by_its_weight() {
    let expected = |case: &SingleLayer, _: &Made| {
        let (features, units) = (*case.input.last().unwrap(), *case.output.last().unwrap());
        let weight = case.parameter("weight");
        let weight = |o: usize, j: usize| weight[o * features + j];
        means(case, weight, [features, units], false, &case.above, &case.x)
    };
    for rows in [1, 5] {
        check(&SingleLayer::new(Dense::new(1), [1], rows), expected);
        check(&SingleLayer::new(Dense::new(5).activation(Activation::Tanh), [7], rows), expected);
        let mut case = SingleLayer::new(Dense::new(19).without_bias(), [3, 33], rows);
        // Inputs that next to nothing leads away from.
        let mut weight = case.parameter("weight");
        for o in 0..19 {
            weight[o * 33 + 4] = 0.0;
            weight[o * 33 + 20] = 0.0005;
        }
        case.set("weight", &weight);
        check(&case, expected);
    }
}

#[test]
fn masters_are_read_where_the_layer_computes_from_a_packed_weight() {
    let mut case = SingleLayer::new(Dense::new(6), [9], 2);
    let plain = case.run_on::<f32>(&mut case.copy::<f32>(), &lower).unwrap();
    let mut network = case.copy::<f32>();
    network.morph_where(DType::Int8, |_| true).unwrap();
    case.active = Some(DType::Int8);
    assert!(case.run_on::<f32>(&mut network, &lower).unwrap() == plain);
}

/// A recurrent layer by the matrix of its candidates, from the top of the stack down.
fn check_recurrent(
    case: &SingleLayer,
    [units, layers, directions, gates]: [usize; 4],
    sequences: bool,
    tanh: bool,
) {
    check(case, |case, made| {
        let mut target = case.above.clone();
        for layer in (0..layers).rev() {
            let x = if layer == 0 { &case.x } else { &made.inner[layer - 1] };
            let inputs = if layer == 0 { case.input[1] } else { directions * units };
            let weights: Vec<Vec<f64>> = ["", "_reverse"][..directions]
                .iter()
                .map(|suffix| case.parameter(&format!("weight_ih_l{layer}{suffix}")))
                .collect();
            let first = if gates == 1 { 0 } else { 2 * units };
            let weight = |o: usize, j: usize| weights[o / units][(first + o % units) * inputs + j];
            let last = layer + 1 == layers && !sequences;
            target = means(case, weight, [inputs, directions * units], last, &target, x);
            if layer > 0 && tanh {
                target = clamped(target, (-0.95, 0.95));
            }
        }
        target
    });
}

#[test]
fn recurrent_layers_take_the_mean_by_the_candidates_weights() {
    for rows in [1, 4] {
        check_recurrent(&SingleLayer::new(Lstm::new(1), [1, 1], rows), [1, 1, 1, 4], false, true);
        check_recurrent(&SingleLayer::new(Rnn::new(6), [5, 3], rows), [6, 1, 1, 1], false, true);
        check_recurrent(
            &SingleLayer::new(Lstm::new(5).return_sequences(), [4, 3], rows),
            [5, 1, 1, 4],
            true,
            true,
        );
        let both = Gru::new(4).bidirectional();
        check_recurrent(&SingleLayer::new(both.clone(), [5, 7], rows), [4, 1, 2, 3], false, true);
        check_recurrent(
            &SingleLayer::new(both.return_sequences().layers(2), [5, 3], rows),
            [4, 2, 2, 3],
            true,
            true,
        );
        let relu = Rnn { activation: Nonlinearity::Relu, ..Rnn::new(4).layers(2).bidirectional() };
        check_recurrent(&SingleLayer::new(relu, [5, 3], rows), [4, 2, 2, 1], false, false);
    }
}

#[test]
fn recurrent_layers_leave_padding_as_it_is() {
    let masked = |layer: Lstm| SingleLayer::new(layer, [5, 3], 4).masked();
    check_recurrent(&masked(Lstm::new(4).layers(2)), [4, 2, 1, 4], false, true);
    check_recurrent(&masked(Lstm::new(4).return_sequences()), [4, 1, 1, 4], true, true);
}

#[test]
fn attention_takes_the_mean_by_values_and_output() {
    let layers = [
        (MultiHeadAttention::new(2), 6, [2, 2, 3]),
        (MultiHeadAttention::new(4).key_value_heads(2).head_dim(5), 7, [4, 2, 5]),
        (MultiHeadAttention::new(3).key_value_heads(1).causal(), 6, [3, 1, 2]),
    ];
    for (layer, width, [heads, groups, extent]) in layers {
        for rows in [1, 3] {
            let expected = |case: &SingleLayer, _: &Made| {
                let (values, output) = (case.parameter("value_weight"), case.parameter("output_weight"));
                let weight = |o: usize, j: usize| -> f64 {
                    let by_head = |k: usize| {
                        let (head, d) = (k / extent, k % extent);
                        let value = head / (heads / groups) * extent + d;
                        output[o * heads * extent + k] * values[value * width + j]
                    };
                    (0..heads * extent).map(by_head).sum()
                };
                means(case, weight, [width, width], false, &case.above, &case.x)
            };
            check(&SingleLayer::new(layer.clone(), [4, width], rows), expected);
            check(&SingleLayer::new(layer.clone(), [4, width], rows).masked(), expected);
        }
    }
}

#[test]
fn gated_layers_take_the_mean_by_up_and_down() {
    let expected = |case: &SingleLayer, _: &Made| {
        let (up, down) = (case.parameter("up_weight"), case.parameter("down_weight"));
        let width = *case.input.last().unwrap();
        let hidden = up.len() / width;
        let weight = |o: usize, j: usize| -> f64 {
            (0..hidden).map(|k| down[o * hidden + k] * up[k * width + j]).sum()
        };
        means(case, weight, [width, width], false, &case.above, &case.x)
    };
    for rows in [1, 3] {
        check(&SingleLayer::new(SwiGLU::new(11), [5, 6], rows), expected);
        check(&SingleLayer::new(GeGLU { bias: true, ..GeGLU::new(19) }, [7], rows), expected);
    }
}

#[test]
fn layers_in_a_row_pass_targets_down_between_their_bounds() {
    let inner = Chain::from(Dense::new(12).activation(Activation::Sigmoid)).then(Reshape::new([2, 3, 2]));
    let layers = inner.then(Permute { axes: vec![1, 0, 2] }).then(Flatten {}).then(Dense::new(4));
    for rows in [1, 3] {
        check(&SingleLayer::new(Sequential::new(layers.clone()), [5], rows), |case, made| {
            let [first, second] = ["0.weight", "4.weight"].map(|name| case.parameter(name));
            let hidden = &made.inner[3];
            let above = |o: usize, j: usize| second[o * 12 + j];
            let made = means(case, above, [12, 4], false, &case.above, hidden);
            // (3, 2, 2) as it was before its axes changed places.
            let place = |i: usize| i / 12 * 12 + i % 12 / 2 % 3 * 4 + i % 12 / 6 * 2 + i % 2;
            let back = (0..made.len()).map(|i| made[place(i)]).collect();
            let back = clamped(back, (0.05, 0.95));
            means(case, |o, j| first[o * 5 + j], [5, 12], false, &back, &case.x)
        });
    }
}

#[test]
fn layers_without_a_rule_say_so() {
    let none = |trial: SingleLayer| trial.run_on::<f64>(&mut trial.copy::<f64>(), &lower);
    assert!(none(SingleLayer::new(Flatten {}, [2, 3], 1)).is_none());
    assert!(none(SingleLayer::new(LayerNorm::default(), [2, 3], 1)).is_none());
    // Inside others, what reads another number of elements than it makes keeps what it has read.
    let layers = Chain::from(Conv1D::new(5, [3])).then(Dense::new(3));
    check(&SingleLayer::new(Sequential::new(layers), [2, 6], 2), |trial, _| trial.x.clone());
}

#[test]
fn bounds_are_those_of_the_activation() {
    let (tanh, sigmoid) = (Some((-0.95, 0.95)), Some((0.05, 0.95)));
    assert_eq!(Dense::new(2).activation(Activation::Tanh).target_rules().target_range(), tanh);
    assert_eq!(Conv2D::new(2, [3, 3]).activation(Activation::Sigmoid).target_rules().target_range(), sigmoid);
    assert_eq!(ConvTranspose1D::new(2, [3]).activation(Activation::Tanh).target_rules().target_range(), tanh);
    assert_eq!(ActivationLayer { function: Activation::Sigmoid }.target_rules().target_range(), sigmoid);
    assert_eq!(Dense::new(2).target_rules().target_range(), None);
    assert_eq!(Gru::new(2).target_rules().target_range(), tanh);
    assert_eq!(Rnn { activation: Nonlinearity::Relu, ..Rnn::new(2) }.target_rules().target_range(), None);
    let layers = Chain::from(Dense::new(6)).then(ActivationLayer { function: Activation::Tanh });
    assert_eq!(Sequential::new(layers.clone().then(Flatten {})).target_rules().target_range(), tanh);
    assert_eq!(Sequential::new(layers.then(Dense::new(2))).target_rules().target_range(), None);
}

#[test]
fn activations_are_left_out() {
    let dense = Dense::new(3).activation(Activation::Tanh);
    assert_eq!(dense.target_rules().without_activation().unwrap().config(), Dense::new(3).config());
    assert!(Dense::new(3).target_rules().without_activation().is_none());
    let conv = Conv1D::new(3, [2]).stride([2]).without_bias();
    assert_eq!(
        conv.clone().activation(Activation::Relu).target_rules().without_activation().unwrap().config(),
        conv.config()
    );
    let transposed = ConvTranspose3D::new(3, [2, 1, 1]);
    let active = transposed.clone().activation(Activation::Gelu);
    assert_eq!(active.target_rules().without_activation().unwrap().config(), transposed.config());
    assert!(Flatten {}.target_rules().without_activation().is_none());
}

/// Whatever the options: a rule gives as many elements as its layer reads, and finite ones.
#[test]
fn every_rule_gives_what_its_layer_reads() {
    for (kind, samples) in samples() {
        for sample in samples {
            let inputs = std::slice::from_ref(&sample.input);
            // A trial has no second input, no whole numbers and nothing that is kept.
            let lacks = sample.context.is_some() || sample.layer.index_limit().is_some();
            if lacks || !sample.layer.states(inputs).is_empty() {
                continue;
            }
            let mut trial = SingleLayer::of(sample.layer, sample.input, 2);
            if sample.masked && kind != "masked" {
                trial = trial.masked();
            }
            let made = trial.run_on::<f32>(&mut trial.copy::<f32>(), &lower);
            if let Some(target) = made.and_then(|mut made| made.pop()) {
                assert_eq!(target.len(), trial.x.len());
                assert!(target.iter().all(|x| x.is_finite()), "{:?}", trial.layer);
            }
        }
    }
}

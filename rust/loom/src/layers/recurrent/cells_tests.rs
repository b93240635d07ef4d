//! What cells report of themselves, against the formulas written plainly and differences of them.

use super::*;
use crate::layers::tests::single_layer::SingleLayer;
use crate::ops::Op;
use crate::ops::testing::{assert_close, differences};

/// The values of a layer's cells: what the stack's lower layer has made, the states, their gradients, and the
/// gradient of the input without and with them.
fn lower(
    layer: &dyn Layer,
    b: &mut Builder,
    cx: &Context,
    x: Value,
    forward: &Forward,
    above: Value,
) -> Option<Vec<Value>> {
    let want = Want { inputs: true, parameters: false };
    let before = b.steps().len();
    let plain = layer.backward(b, cx, &[x], forward, above, want).unwrap();
    // States are put together for who asks alone.
    assert!(!b.steps()[before..].iter().any(|step| matches!(step.op, Op::Slice(_) | Op::Concat(_))));
    b.cells = Some(Vec::new());
    let asked = layer.backward(b, cx, &[x], forward, above, want).unwrap();
    let mut cells = b.cells.take().unwrap();
    let cell = cells.pop()?;
    assert!(cells.is_empty() && cell.path == cx.path);
    assert_eq!(b.shape(cell.states), b.shape(cell.gradient));
    let inner = forward.inner[0].output;
    Some(vec![inner, cell.states, cell.gradient, plain[0].unwrap(), asked[0].unwrap()])
}

/// The outputs (rows, time, directions, units) and the cells' states of one layer of a stack, with something
/// added to each of these.
fn plain(
    trial: &SingleLayer,
    lstm: bool,
    layer: usize,
    x: &[f64],
    push: &[f64],
    units: usize,
) -> [Vec<f64>; 2] {
    let time = trial.input[0];
    let width = x.len() / trial.rows / time;
    let directions = push.len() / trial.rows / time / units;
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let (mut y, mut states) = (vec![0.0; push.len()], vec![0.0; push.len()]);
    for direction in 0..directions {
        let suffix = ["", "_reverse"][direction];
        let of = |name: &str| trial.parameter(&format!("{name}_l{layer}{suffix}"));
        let (input, hidden) = (of("weight_ih"), of("weight_hh"));
        let (input_bias, hidden_bias) = (of("bias_ih"), of("bias_hh"));
        for row in 0..trial.rows {
            let (mut h, mut c) = (vec![0.0; units], vec![0.0; units]);
            for step in 0..time {
                let t = if direction == 0 { step } else { time - 1 - step };
                if !trial.is_real(row * time + t) {
                    continue;
                }
                let before = h.clone();
                let x = &x[(row * time + t) * width..][..width];
                for unit in 0..units {
                    let dot = |weight: &[f64], gate: usize, x: &[f64]| -> f64 {
                        let row = &weight[(gate * units + unit) * x.len()..][..x.len()];
                        row.iter().zip(x).map(|(w, x)| w * x).sum()
                    };
                    let share = |gate: usize| dot(&input, gate, x) + input_bias[gate * units + unit];
                    let own = |gate: usize| dot(&hidden, gate, &before) + hidden_bias[gate * units + unit];
                    let z = |gate: usize| share(gate) + own(gate);
                    let at = ((row * time + t) * directions + direction) * units + unit;
                    if lstm {
                        c[unit] = sigmoid(z(1)) * c[unit] + sigmoid(z(0)) * z(2).tanh() + push[at];
                        h[unit] = sigmoid(z(3)) * c[unit].tanh();
                        states[at] = c[unit];
                    } else {
                        let n = (share(2) + sigmoid(z(0)) * own(2)).tanh();
                        h[unit] = n + sigmoid(z(1)) * (before[unit] - n) + push[at];
                        states[at] = h[unit];
                    }
                    y[at] = h[unit];
                }
            }
        }
    }
    [y, states]
}

/// Of all outputs, those that the layer hands on: every step's, or each direction's last.
fn handed_on(trial: &SingleLayer, y: Vec<f64>, units: usize) -> Vec<f64> {
    let (rows, time) = (trial.rows, trial.input[0]);
    if trial.output.rank() == 2 {
        return y;
    }
    let directions = y.len() / rows / time / units;
    let mut last = Vec::new();
    for row in 0..rows {
        for direction in 0..directions {
            let real = (0..time).filter(|t| trial.is_real(row * time + t));
            let t = if direction == 0 { real.last() } else { real.min() }.unwrap();
            last.extend_from_slice(&y[((row * time + t) * directions + direction) * units..][..units]);
        }
    }
    last
}

fn check(trial: &SingleLayer, lstm: bool, layers: usize, units: usize) {
    let made = trial.run(&lower);
    let [inner, states, gradient, without, with] = &made[..] else { panic!("five values") };
    let x = if layers > 1 { inner } else { &trial.x };
    let still = vec![0.0; gradient.len()];
    let [_, expected] = plain(trial, lstm, layers - 1, x, &still, units);
    assert!(with == without);
    let real = |i: usize| trial.is_real(i / (states.len() / trial.rows / trial.input[0]));
    let of_real = |x: &[f64]| -> Vec<f64> {
        x.iter().enumerate().map(|(i, x)| if real(i) { *x } else { 0.0 }).collect()
    };
    assert_close(&of_real(states), &expected, 1e-12);
    let expected = differences(&still, |push| {
        let [y, _] = plain(trial, lstm, layers - 1, x, push, units);
        handed_on(trial, y, units).iter().zip(&trial.above).map(|(y, above)| y * above).sum()
    });
    assert_close(gradient, &expected, 1e-7);
}

#[test]
fn cells_report_their_states_and_gradients() {
    for rows in [1, 3] {
        check(&SingleLayer::new(Lstm::new(1), [1, 1], rows), true, 1, 1);
        check(&SingleLayer::new(Gru::new(2), [1, 3], rows), false, 1, 2);
        check(&SingleLayer::new(Lstm::new(3).return_sequences(), [4, 2], rows), true, 1, 3);
        check(&SingleLayer::new(Lstm::new(3).layers(2).bidirectional(), [4, 2], rows), true, 2, 3);
        check(&SingleLayer::new(Gru::new(3).bidirectional().return_sequences(), [4, 2], rows), false, 1, 3);
        check(&SingleLayer::new(Gru::new(3).layers(2).bidirectional(), [4, 2], rows), false, 2, 3);
        let learned = Lstm { initial_state: InitialState::Learned, ..Lstm::new(3) };
        check(&SingleLayer::new(learned, [3, 2], rows), true, 1, 3);
    }
}

#[test]
fn padding_gets_no_gradient() {
    check(&SingleLayer::new(Lstm::new(3).bidirectional(), [5, 2], 3).masked(), true, 1, 3);
    check(&SingleLayer::new(Gru::new(3).return_sequences(), [5, 2], 3).masked(), false, 1, 3);
    check(&SingleLayer::new(Gru::new(3).bidirectional(), [5, 2], 3).masked(), false, 1, 3);
}

#[test]
fn plain_recurrence_has_no_cell() {
    let trial = SingleLayer::new(Rnn::new(3), [4, 2], 2);
    assert!(trial.run_on::<f64>(&mut trial.copy::<f64>(), &lower).is_none());
}

//! The loop against the formulas written plainly, and its gradient against differences.

#[cfg(feature = "gpu")]
mod gpu;

use super::*;
use crate::ops::testing::{Setting, assert_bits, assert_close, assert_gradient, cpus, numbers};
use crate::simd::Real;
use proptest::prelude::*;

/// A loop with its operands.
#[derive(Clone, Debug)]
struct Case {
    op: Recurrent,
    rows: usize,
    /// In the documented order.
    reads: Vec<Vec<f64>>,
}

impl Case {
    fn new(op: Recurrent, rows: usize) -> Self {
        Self::numbered(op, rows, 0)
    }

    /// Other numbers for every number.
    fn numbered(op: Recurrent, rows: usize, number: u64) -> Self {
        let gates = op.cell.gates() * op.units;
        let mut reads: Vec<Vec<f64>> = Vec::new();
        let mut add = |len: usize, scale: f64| {
            let x = numbers::<f64>(100 + 100 * number + reads.len() as u64, len);
            // What is f32 stays the same number in f64.
            reads.push(x.iter().map(|x| f64::from((x * scale) as f32)).collect());
        };
        (0..op.directions).for_each(|_| add(rows * op.time * gates, 1.0));
        (0..op.directions).for_each(|_| add(op.units * gates, 1.0 / (op.units as f64).sqrt()));
        if op.bias {
            (0..op.directions).for_each(|_| add(gates, 0.5));
        }
        match op.initial {
            InitialState::Zeros => (),
            InitialState::Shared => add(op.state_len(), 1.0),
            InitialState::Rows { stride, .. } => add(rows * stride, 1.0),
        }
        if op.mask {
            reads.push((0..rows * op.time).map(|i| f64::from(i % 3 != 1)).collect());
        }
        Self { op, rows, reads }
    }

    fn results(&self) -> Vec<usize> {
        let op = &self.op;
        let mut results = vec![self.rows * op.output_len()];
        if op.keeps {
            results.extend(vec![self.rows * op.time * op.units; op.directions]);
            results.extend(vec![self.rows * op.time * op.cell.saved() * op.units; op.directions]);
        }
        if op.state {
            results.push(self.rows * op.state_len());
        }
        results
    }

    fn setting<T: Real>(&self) -> Setting<T> {
        let reads: Vec<Vec<T>> =
            self.reads.iter().map(|x| x.iter().map(|x| T::from_f64(*x)).collect()).collect();
        let reads: Vec<&[T]> = reads.iter().map(Vec::as_slice).collect();
        Setting::new(self.rows, &reads, &self.results())
    }

    /// The gradient's operation and its setting, from the forward direction's results.
    fn backward<T: Real>(&self, forward: &[Vec<T>], dy: &[T]) -> (Recurrent, Setting<T>) {
        let asked = Recurrent { state: true, cell_gradients: true, ..self.op.clone() };
        let op = Recurrent { direction: Direction::InputGradient, ..asked };
        let directions = op.directions;
        let own = self.setting::<T>();
        let mut reads: Vec<&[T]> = vec![dy];
        reads.extend((0..directions).map(|d| own.reads[directions + d].real()));
        if op.cell.is_gru() {
            reads.extend((0..directions).map(|d| forward[1 + d].as_slice()));
        }
        reads.extend((0..directions).map(|d| forward[1 + directions + d].as_slice()));
        let mut rest = if op.bias { 3 * directions } else { 2 * directions };
        if op.initial != InitialState::Zeros {
            if op.cell == Cell::Lstm {
                reads.push(own.reads[rest].real());
            }
            rest += 1;
        }
        if op.mask {
            reads.push(own.reads[rest].real());
        }
        let gates = self.rows * op.time * op.cell.gates() * op.units;
        let mut writes = vec![gates; directions * if op.cell.splits_gradient() { 2 } else { 1 }];
        writes.extend([self.rows * op.initial_extents().0, self.rows * op.steps_len()]);
        let setting = Setting::new(self.rows, &reads, &writes);
        (op, setting)
    }

    /// y by the formulas, from these operands.
    fn plain(&self, reads: &[Vec<f64>]) -> Vec<f64> {
        self.pushed(reads, &vec![0.0; self.rows * self.op.steps_len()])
    }

    /// The same with something added to an LSTM's c, or to the others' h, after each step.
    fn pushed(&self, reads: &[Vec<f64>], push: &[f64]) -> Vec<f64> {
        self.watched(reads, push, |_| ())
    }

    /// The same case, or the first like it in which no ReLU stands at its kink, where differences see
    /// half a slope.
    fn smooth(op: Recurrent, rows: usize) -> Self {
        let cases = (0..).map(|number| Self::numbered(op.clone(), rows, number));
        let mut smooth = cases.filter(|case| {
            let mut nearest = f64::INFINITY;
            case.watched(&case.reads, &vec![0.0; rows * op.steps_len()], |z| nearest = nearest.min(z.abs()));
            nearest > 1e-3
        });
        smooth.next().unwrap()
    }

    /// The same; tells what each ReLU is given.
    fn watched(&self, reads: &[Vec<f64>], push: &[f64], mut given: impl FnMut(f64)) -> Vec<f64> {
        let op = &self.op;
        let (units, directions) = (op.units, op.directions);
        let gates = op.cell.gates() * units;
        let mut y = vec![0.0; self.rows * op.output_len()];
        let rest = if op.bias { 3 * directions } else { 2 * directions };
        let mask = op.mask.then(|| reads.last().unwrap());
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        for row in 0..self.rows {
            for direction in 0..directions {
                let state = |number: usize, unit: usize| {
                    let at = (direction * op.cell.states() + number) * units + unit;
                    match op.initial {
                        InitialState::Zeros => 0.0,
                        InitialState::Shared => reads[rest][at],
                        InitialState::Rows { offset, stride } => reads[rest][row * stride + offset + at],
                    }
                };
                let mut h: Vec<f64> = (0..units).map(|unit| state(0, unit)).collect();
                let mut c: Vec<f64> = match op.cell {
                    Cell::Lstm => (0..units).map(|unit| state(1, unit)).collect(),
                    _ => vec![0.0; units],
                };
                for step in 0..op.time {
                    let t = if direction == 0 { step } else { op.time - 1 - step };
                    let real = mask.is_none_or(|mask| mask[row * op.time + t] != 0.0);
                    if real {
                        let last = h.clone();
                        let share_of = |state: &[f64], gate: usize, unit: usize| {
                            let column = gate * units + unit;
                            let bias = if op.bias { reads[2 * directions + direction][column] } else { 0.0 };
                            let weight = &reads[directions + direction];
                            bias + (0..units).map(|k| state[k] * weight[k * gates + column]).sum::<f64>()
                        };
                        let share = |gate: usize, unit: usize| share_of(&last, gate, unit);
                        let input = &reads[direction][(row * op.time + t) * gates..][..gates];
                        let reset: Vec<f64> = (0..units)
                            .map(|unit| match op.cell {
                                Cell::ResetFirstGru => sigmoid(input[unit] + share(0, unit)) * last[unit],
                                _ => 0.0,
                            })
                            .collect();
                        for unit in 0..units {
                            let x = |gate: usize| input[gate * units + unit];
                            let z = |gate: usize| x(gate) + share(gate, unit);
                            let push = push[((row * op.time + t) * directions + direction) * units + unit];
                            match op.cell {
                                Cell::Tanh => h[unit] = z(0).tanh() + push,
                                Cell::Relu => {
                                    given(z(0));
                                    h[unit] = z(0).max(0.0) + push;
                                }
                                Cell::Lstm => {
                                    c[unit] = sigmoid(z(1)) * c[unit] + sigmoid(z(0)) * z(2).tanh() + push;
                                    h[unit] = sigmoid(z(3)) * c[unit].tanh();
                                }
                                Cell::Gru => {
                                    let n = (x(2) + sigmoid(z(0)) * share(2, unit)).tanh();
                                    let z = sigmoid(z(1));
                                    h[unit] = (1.0 - z) * n + z * last[unit] + push;
                                }
                                Cell::ResetFirstGru => {
                                    let n = (x(2) + share_of(&reset, 2, unit)).tanh();
                                    let z = sigmoid(z(1));
                                    h[unit] = (1.0 - z) * n + z * last[unit] + push;
                                }
                            }
                        }
                    }
                    for unit in 0..units {
                        let place = if op.sequences { row * op.time + t } else { row };
                        y[(place * directions + direction) * units + unit] =
                            if op.sequences && !real { 0.0 } else { h[unit] };
                    }
                }
            }
        }
        y
    }
}

fn op(cell: Cell, time: usize, units: usize) -> Recurrent {
    Recurrent {
        cell,
        direction: Direction::Forward,
        time,
        units,
        directions: 1,
        sequences: true,
        bias: true,
        initial: InitialState::Zeros,
        mask: false,
        resumes: false,
        keeps: true,
        state: false,
        cell_gradients: false,
        quantized: [false; 2],
    }
}

const CELLS: [Cell; 5] = [Cell::Tanh, Cell::Relu, Cell::Lstm, Cell::Gru, Cell::ResetFirstGru];

fn cells() -> impl Strategy<Value = Cell> {
    prop::sample::select(CELLS.to_vec())
}

/// Every combination of options.
fn loops(time: std::ops::Range<usize>, units: std::ops::Range<usize>) -> impl Strategy<Value = Recurrent> {
    let options = (1..=2usize, any::<[bool; 5]>(), 0..3usize);
    (cells(), time, units, options).prop_map(|(cell, time, units, (directions, flags, initial))| {
        let [sequences, bias, mask, keeps, state] = flags;
        let op = Recurrent { directions, sequences, bias, mask, keeps, state, ..op(cell, time, units) };
        let initial = match initial {
            0 => InitialState::Zeros,
            1 => InitialState::Shared,
            _ => InitialState::Rows { offset: 3, stride: op.state_len() + 5 },
        };
        Recurrent { initial, ..op }
    })
}

fn outputs<T: Real>(case: &Case) -> Vec<Vec<T>> {
    case.setting::<T>().run(&case.op).iter().map(|data| data.real().to_vec()).collect()
}

/// The gradient that differences of the formulas give, by operand.
fn check_gradient(case: &Case) {
    let dy = numbers::<f64>(5, case.rows * case.op.output_len());
    let forward = outputs::<f64>(case);
    let (op, setting) = case.backward(&forward, &dy);
    let gradients: Vec<Vec<f64>> = setting.run(&op).iter().map(|data| data.real().to_vec()).collect();
    let directions = op.directions;
    let value = |operand: usize, x: &[f64]| -> f64 {
        let mut reads = case.reads.clone();
        reads[operand] = x.to_vec();
        case.plain(&reads).iter().zip(&dy).map(|(y, dy)| y * dy).sum()
    };
    for direction in 0..directions {
        assert_gradient(&gradients[direction], &case.reads[direction], |x| value(direction, x));
        // The state's share: its bias and its weight see it.
        let share = &gradients[if op.cell.splits_gradient() { directions } else { 0 } + direction];
        let gates = op.cell.gates() * op.units;
        let resets_first = op.cell == Cell::ResetFirstGru;
        if op.bias {
            // The candidate of a GRU that resets first has a bias, too, beside what is not the state's share.
            let seen = if resets_first { &gradients[direction] } else { share };
            let sums: Vec<f64> =
                (0..gates).map(|gate| seen.chunks(gates).map(|share| share[gate]).sum()).collect();
            let operand = 2 * directions + direction;
            assert_gradient(&sums, &case.reads[operand], |x| value(operand, x));
        }
        let before = &forward[1 + direction];
        let mut weight = vec![0.0; op.units * gates];
        for (h, share) in before.chunks(op.units).zip(share.chunks(gates)) {
            for (k, h) in h.iter().enumerate() {
                share.iter().enumerate().for_each(|(gate, share)| weight[k * gates + gate] += h * share);
            }
        }
        if resets_first {
            // Its weight sees what was reset.
            let saved = forward[1 + directions + direction].chunks(4 * op.units);
            for (saved, input) in saved.zip(gradients[direction].chunks(gates)) {
                for (k, reset) in saved[3 * op.units..].iter().enumerate() {
                    (2 * op.units..gates).for_each(|gate| weight[k * gates + gate] += reset * input[gate]);
                }
            }
        }
        let operand = directions + direction;
        assert_gradient(&weight, &case.reads[operand], |x| value(operand, x));
    }
    // The state after each step, as though something were added to it.
    let cells = gradients.last().unwrap();
    let still = vec![0.0; cells.len()];
    assert_gradient(cells, &still, |push| {
        case.pushed(&case.reads, push).iter().zip(&dy).map(|(y, dy)| y * dy).sum()
    });
    let state = &gradients[directions * if op.cell.splits_gradient() { 2 } else { 1 }];
    let operand = if op.bias { 3 * directions } else { 2 * directions };
    match op.initial {
        InitialState::Zeros => (),
        InitialState::Rows { .. } => assert_gradient(state, &case.reads[operand], |x| value(operand, x)),
        InitialState::Shared => {
            let len = op.state_len();
            let sums: Vec<f64> = (0..len).map(|i| state.chunks(len).map(|state| state[i]).sum()).collect();
            assert_gradient(&sums, &case.reads[operand], |x| value(operand, x));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn values_follow_the_formulas(op in loops(1..6, 1..40), rows in 1..20usize) {
        let case = Case::new(op, rows);
        let expected = case.plain(&case.reads);
        assert_close(&outputs::<f64>(&case)[0], &expected, 1e-13);
        assert_close(&outputs::<f32>(&case)[0], &expected, 4e-6);
    }

    #[test]
    fn gradients_are_those_of_the_values(op in loops(1..4, 1..5), rows in 1..3usize) {
        check_gradient(&Case::smooth(Recurrent { keeps: true, ..op }, rows));
    }

    #[test]
    fn a_row_alone_has_the_bits_it_has_in_a_batch(op in loops(1..5, 1..70), rows in 2..30usize) {
        let op = Recurrent { keeps: true, state: true, ..op };
        let case = Case::new(op.clone(), rows);
        let whole = outputs::<f32>(&case);
        let dy = numbers::<f32>(5, whole[0].len());
        let (backward, setting) = case.backward(&whole, &dy);
        let gradients = setting.run(&backward);
        let row = rows / 2;
        let alone: Vec<Vec<f64>> = case
            .reads
            .iter()
            .enumerate()
            .map(|(number, x)| {
                let shared = (op.directions..op.directions * if op.bias { 3 } else { 2 }).contains(&number)
                    || (number == op.directions * if op.bias { 3 } else { 2 }
                        && op.initial == InitialState::Shared);
                if shared { x.clone() } else { x.chunks(x.len() / rows).nth(row).unwrap().to_vec() }
            })
            .collect();
        let alone = Case { op, rows: 1, reads: alone };
        let found = outputs::<f32>(&alone);
        for (found, whole) in found.iter().zip(&whole) {
            assert_bits(found, whole.chunks(whole.len() / rows).nth(row).unwrap());
        }
        let dy = &dy[row * dy.len() / rows..(row + 1) * dy.len() / rows];
        let (backward, setting) = alone.backward(&found, dy);
        for (found, whole) in setting.run(&backward).iter().zip(&gradients) {
            let whole = whole.real();
            assert_bits(found.real(), whole.chunks(whole.len() / rows).nth(row).unwrap());
        }
    }
}

#[test]
fn long_sequences_and_wide_states() {
    for cell in CELLS {
        let case = Case::new(op(cell, 50, 17), 3);
        let expected = case.plain(&case.reads);
        assert_close(&outputs::<f64>(&case)[0], &expected, 1e-12);
        let case = Case::new(Recurrent { directions: 2, ..op(cell, 3, 150) }, 50);
        assert_close(&outputs::<f32>(&case)[0], &case.plain(&case.reads), 1e-5);
    }
}

#[test]
fn a_state_carried_over_a_cut_continues_the_sequence() {
    for cell in CELLS {
        let whole = Case::new(op(cell, 6, 9), 2);
        let expected = &outputs::<f32>(&whole)[0];
        let gates = cell.gates() * 9;
        let half = |part: usize| -> Vec<f64> {
            whole.reads[0]
                .chunks(6 * gates)
                .flat_map(|row| row[part * 3 * gates..][..3 * gates].to_vec())
                .collect()
        };
        let first = Recurrent { state: true, keeps: false, ..op(cell, 3, 9) };
        let reads = vec![half(0), whole.reads[1].clone(), whole.reads[2].clone()];
        let one = outputs::<f32>(&Case { op: first.clone(), rows: 2, reads: reads.clone() });
        let initial = InitialState::Rows { offset: 0, stride: first.state_len() };
        let mut reads = [vec![half(1)], reads[1..].to_vec()].concat();
        reads.push(one[1].iter().map(|x| f64::from(*x)).collect());
        let two = outputs::<f32>(&Case { op: Recurrent { initial, ..first }, rows: 2, reads });
        for row in 0..2 {
            assert_bits(&one[0][row * 27..][..27], &expected[row * 54..][..27]);
            assert_bits(&two[0][row * 27..][..27], &expected[row * 54 + 27..][..27]);
        }
    }
}

/// The same loop at the beginning of a session and in it: with its own initial state, and with another.
fn resuming(started: &Recurrent) -> [Setting<f32>; 2] {
    let case = Case::new(Recurrent { resumes: false, ..started.clone() }, 3);
    [0, 4].map(|position| {
        let mut setting = case.setting::<f32>();
        setting.reads.push(crate::ops::testing::Data::Real(numbers(9, 3 * case.op.state_len())));
        setting.values.position = position;
        setting
    })
}

#[test]
fn a_session_goes_on_from_the_state_it_has_left() {
    for cell in CELLS {
        let started = Recurrent { initial: InitialState::Shared, state: true, ..op(cell, 3, 9) };
        let op = Recurrent { resumes: true, ..started.clone() };
        let [first, later] = resuming(&started);
        let expected = first.result(&started);
        assert_bits(&first.result(&op), &expected);
        let stride = op.state_len();
        let mut reads = later.reads.clone();
        reads.remove(3);
        let initial = InitialState::Rows { offset: 0, stride };
        let expected = Setting { reads, ..later.clone() }.result(&Recurrent { initial, ..started });
        assert_bits(&later.result(&op), &expected);
    }
}

#[test]
fn a_weight_gradient_is_refused() {
    let op = Recurrent { direction: Direction::WeightGradient, ..op(Cell::Gru, 1, 1) };
    assert!(Setting::<f32>::new(1, &[], &[]).run_on(&op, &cpus()[0]).is_err());
}

//! Steps with quantised states against the formula by plain loops, on every machine and on a GPU.

use super::*;
use crate::dtype::{DType, Granularity, Packing};
use crate::matrix::IntegerWeight;
use crate::ops::testing::{cpus, numbers};
use crate::ops::{Args, Operation, StepValues};
use crate::simd::{Cpu, Isa};

struct Packed {
    packing: Packing,
    bytes: Vec<u8>,
    scales: Vec<f32>,
}

impl Packed {
    fn new(dtype: DType, granularity: Option<Granularity>, k: usize, n: usize) -> Self {
        let granularity = dtype.granularity(granularity).unwrap_or(dtype.row().granularity);
        let packing = Packing::new(dtype, k, n).with(granularity);
        let (mut bytes, mut scales) = (vec![0; packing.bytes()], vec![0.0; packing.scale_words()]);
        packing.encode(None, &numbers::<f32>(5, k * n), &mut bytes, &mut scales).unwrap();
        // Powers of two are found again exactly by dividing what is decoded by its code.
        scales.iter_mut().for_each(|scale: &mut f32| *scale = f32::from_bits(scale.to_bits() & 0xFF80_0000));
        Self { packing, bytes, scales }
    }

    fn weight(&self) -> IntegerWeight<'_> {
        IntegerWeight::new(self.packing, &self.bytes, &self.scales).unwrap()
    }

    /// Row times weight by the documented formula.
    fn product(&self, row: &[f32]) -> Vec<f32> {
        let Packing { rows: k, channels: n, .. } = self.packing;
        let mut decoded = vec![0.0f32; k * n];
        self.packing.decode(Isa::portable(), &self.bytes, &self.scales, &mut decoded);
        let largest = row.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
        let scale = if largest / 127.0 == 0.0 { 1.0 } else { largest / 127.0 };
        let codes: Vec<i64> =
            row.iter().map(|x| (x / scale).round_ties_even().clamp(-127.0, 127.0) as i64).collect();
        let weight = self.weight();
        let of = |column: usize| {
            let (mut sum, mut done) = (0.0f32, 0);
            while done < k {
                let end = weight.group_end(done);
                let code = |k: usize| i64::from(weight.code(k, column));
                let exact: i64 = (done..end).map(|k| codes[k] * code(k)).sum();
                let own = (done..end).find(|k| code(*k) != 0);
                let own = own.map_or(0.0, |k| decoded[k * n + column] / code(k) as f32);
                sum = (exact as f32).mul_add(own, sum);
                done = end;
            }
            sum * scale
        };
        (0..n).map(of).collect()
    }
}

fn op(units: usize, time: usize, directions: usize) -> Recurrent {
    Recurrent {
        cell: Cell::Relu,
        direction: Direction::Forward,
        time,
        units,
        directions,
        sequences: true,
        bias: false,
        initial: InitialState::Shared,
        mask: false,
        resumes: false,
        keeps: false,
        state: false,
        cell_gradients: false,
        quantized: [true; 2],
    }
}

/// What the loop reads but for its weights: the input's share, and a state.
fn operands(op: &Recurrent, rows: usize) -> (Vec<f32>, Vec<f32>) {
    (numbers(1, rows * op.time * op.units), numbers(2, op.state_len()))
}

fn run(
    op: &Recurrent,
    packed: [&Packed; 2],
    cpu: &Cpu,
    rows: usize,
    input: &[f32],
    state: &[f32],
) -> Vec<f32> {
    let mut y = vec![7.0f32; rows * op.output_len()];
    let values = StepValues::default();
    let mut args = Args::new(cpu, rows, &values);
    for (direction, packed) in packed.into_iter().enumerate().take(op.directions) {
        let Packed { packing, bytes, scales } = packed;
        args.set_read(direction, input);
        args.set_packed(op.directions + direction, bytes, *packing, scales);
    }
    args.set_read(2 * op.directions, state);
    args.set_write(0, &mut y);
    op.run::<f32>(&mut args).unwrap();
    y
}

fn expected(op: &Recurrent, packed: [&Packed; 2], rows: usize, input: &[f32], state: &[f32]) -> Vec<f32> {
    let (units, time) = (op.units, op.time);
    let mut y = vec![0.0; rows * op.output_len()];
    for row in 0..rows {
        for direction in 0..op.directions {
            let mut h = state[direction * units..][..units].to_vec();
            for step in 0..time {
                let t = if direction == 0 { step } else { time - 1 - step };
                let made = packed[direction].product(&h);
                let input = &input[(row * time + t) * units..][..units];
                h = input.iter().zip(made).map(|(x, made)| (x + made).max(0.0)).collect();
                y[((row * time + t) * op.directions + direction) * units..][..units].copy_from_slice(&h);
            }
        }
    }
    y
}

const WEIGHTS: [(DType, Option<Granularity>); 5] = [
    (DType::Int8, None),
    (DType::Int4, Some(Granularity::Block(5))),
    (DType::Ternary, Some(Granularity::Tensor)),
    (DType::Binary, None),
    (DType::Int2, None),
];

#[test]
fn steps_are_the_formula_on_every_machine() {
    for (dtype, granularity) in WEIGHTS {
        for (units, time, directions, rows) in [(1, 3, 1, 1), (9, 4, 2, 5), (70, 3, 1, 3)] {
            let op = op(units, time, directions);
            let packed = Packed::new(dtype, granularity, units, units);
            // The other direction's weight may be of another type.
            let other = Packed::new(DType::Int8, Some(Granularity::Block(3)), units, units);
            let (input, state) = operands(&op, rows);
            let weights = [&packed, &other];
            let expected = expected(&op, weights, rows, &input, &state);
            for cpu in cpus() {
                let found = run(&op, weights, cpu, rows, &input, &state);
                assert_eq!(found, expected, "{op} in {dtype} on {cpu:?}");
            }
        }
    }
}

#[test]
fn a_state_with_nan_gives_nan_and_leaves_the_other_rows() {
    let op = op(8, 2, 1);
    let packed = Packed::new(DType::Int8, None, 8, 8);
    let (mut input, state) = operands(&op, 2);
    let before = run(&op, [&packed; 2], &cpus()[0], 2, &input, &state);
    input[3] = f32::NAN;
    let op = Recurrent { cell: Cell::Tanh, ..op };
    let before_tanh = {
        let (input, state) = operands(&op, 2);
        run(&op, [&packed; 2], &cpus()[0], 2, &input, &state)
    };
    let found = run(&op, [&packed; 2], &cpus()[0], 2, &input, &state);
    let row = op.output_len();
    assert_eq!(found[row..], before_tanh[row..]);
    assert!(found[8..row].iter().all(|y| y.is_nan()), "{found:?} {before:?}");
}

#[cfg(feature = "gpu")]
mod gpu {
    use super::*;
    use crate::gpu::testing;
    use crate::ops::Op;
    use crate::ops::testing::{Data, Setting};

    fn found(gpu: &crate::gpu::Gpu, op: &Recurrent, packed: &Packed, rows: usize) -> [Vec<f32>; 2] {
        let gates = op.cell.gates() * op.units;
        let input = numbers::<f32>(1, rows * op.time * gates);
        let state = numbers::<f32>(2, op.state_len());
        let expected = run(op, [packed; 2], Cpu::global().unwrap(), rows, &input, &state);
        let plain = vec![0.0f32; op.units * gates];
        let setting = Setting::new(rows, &[&input, &plain, &state], &[expected.len()]);
        let own = testing::Packed { packing: packed.packing, bytes: &packed.bytes, scales: &packed.scales };
        let made = testing::run(gpu, &Op::from(op.clone()), &setting, Some((1, own))).unwrap();
        let Data::Real(made) = made[0].clone() else { panic!("real numbers") };
        [made, expected]
    }

    /// From the same state the sums are the same integers, so that one step differs by what the functions do.
    #[test]
    fn one_step_is_that_of_the_cpu() {
        let Some(gpu) = testing::gpu() else { return };
        let mut number = 0;
        for cell in [Cell::Tanh, Cell::Relu, Cell::Lstm, Cell::Gru] {
            for (dtype, granularity) in WEIGHTS.into_iter().chain([(DType::Q4_0, None), (DType::Q8_0, None)])
            {
                for (units, rows) in [(1, 1), (9, 5), (70, 3)] {
                    number += 1;
                    if !testing::in_part(number + number / 3, 3) {
                        continue;
                    }
                    let op = Recurrent { cell, ..op(units, 1, 1) };
                    let packed = Packed::new(dtype, granularity, units, cell.gates() * units);
                    let [found, expected] = found(&gpu, &op, &packed, rows);
                    let near =
                        found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 2e-6 * b.abs().max(1.0));
                    assert!(near, "{op} in {dtype}: {found:?} {expected:?}");
                }
            }
        }
    }

    /// Later steps may round a state that differs in its last bits to the next code.
    #[test]
    fn sequences_are_near_those_of_the_cpu() {
        let Some(gpu) = testing::gpu() else { return };
        for cell in [Cell::Tanh, Cell::Lstm, Cell::Gru, Cell::ResetFirstGru] {
            let op = Recurrent { cell, ..op(33, 6, 1) };
            let packed = Packed::new(DType::Int8, None, 33, cell.gates() * 33);
            let [found, expected] = found(&gpu, &op, &packed, 5);
            let near = found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 2e-2);
            assert!(near, "{op}: {found:?} {expected:?}");
        }
    }
}

//! Products on a GPU against those of the CPU, and the plans they are made by.

use super::*;
use crate::dtype::{DType, testing::sample};
use crate::gpu::testing::{self, Packed};
use crate::ops::pointwise::Activation;
use crate::ops::testing::{Data, Setting, numbers};
use crate::ops::{BiasGradient, Op};
use crate::shader::Speeds;
use crate::shader::product::Cut;
use crate::simd::Cpu;
use proptest::prelude::*;

const DIRECTIONS: [Direction; 3] = [Direction::Forward, Direction::InputGradient, Direction::WeightGradient];

fn product(direction: Direction, inputs: usize, outputs: usize) -> Product {
    Product::new(direction, 1, inputs, outputs)
}

/// Operands of the right lengths, and a result that holds numbers.
fn setting(op: &Product, rows: usize) -> Setting<f32> {
    let m = rows * op.multiplier;
    let (x, w, y) = (m * op.inputs, op.inputs * op.outputs, m * op.outputs);
    let (reads, write) = match op.direction {
        Direction::Forward if op.bias => (vec![x, w, op.outputs], y),
        Direction::Forward => (vec![x, w], y),
        Direction::InputGradient => (vec![y, w], x),
        Direction::WeightGradient => (vec![x, y], w),
    };
    let reads: Vec<Vec<f32>> = reads.iter().zip(1..).map(|(len, seed)| numbers(seed, *len)).collect();
    let reads: Vec<&[f32]> = reads.iter().map(Vec::as_slice).collect();
    let mut setting = Setting::new(rows, &reads, &[write]);
    setting.writes = vec![Data::Real(numbers(9, write))];
    setting
}

/// Compares with the CPU, which decodes the same packed weight.
fn check_packed(op: &Product, rows: usize, accumulate: bool, dtype: DType) {
    let Some(gpu) = testing::gpu() else { return };
    let mut setting = setting(op, rows);
    setting.accumulate = accumulate;
    let weight = setting.reads[1].real().to_vec();
    let sample = sample(dtype, &weight, op.outputs);
    setting.reads[1] = Data::Real(sample.decoded());
    let name = Op::from(op.clone());
    let expected = setting.run_on(op, Cpu::global().unwrap()).unwrap();
    let packed = Packed::of(&sample);
    let found = testing::run(&gpu, &name, &setting, Some((1, packed))).unwrap();
    testing::compare(&name, &expected, &found);
}

fn extent() -> impl Strategy<Value = usize> {
    prop_oneof![Just(1usize), Just(10), 1usize..9, 1usize..150, (1usize..20).prop_map(|n| n * 16)]
}

proptest! {
    #![proptest_config(crate::gpu::testing::cases(40))]

    #[test]
    fn any_extents(
        rows in extent(), inputs in extent(), outputs in extent(), multiplier in 1usize..3,
        direction in 0usize..3, accumulate: bool, bias: bool, activation in 0usize..Activation::ALL.len() + 3,
    ) {
        let mut op = Product { multiplier, ..product(DIRECTIONS[direction], inputs, outputs) };
        if op.direction == Direction::Forward {
            op.bias = bias;
            op.activation = Activation::ALL.get(activation).copied();
        }
        let mut setting = setting(&op, rows);
        setting.accumulate = accumulate;
        testing::check(op, &setting);
    }

    #[test]
    fn any_bias_gradient(
        rows in extent(), inputs in extent(), outputs in extent(), accumulate: bool,
    ) {
        check_both(&product(Direction::WeightGradient, inputs, outputs), rows, accumulate);
    }

    #[test]
    fn any_packed_weight(
        rows in extent(), inputs in extent(), outputs in extent(), transposed: bool, accumulate: bool,
        dtype in 0usize..3,
    ) {
        let direction = if transposed { Direction::InputGradient } else { Direction::Forward };
        let dtype = [DType::Float16, DType::BFloat16, DType::Int8][dtype];
        check_packed(&product(direction, inputs, outputs), rows, accumulate, dtype);
    }
}

proptest! {
    #![proptest_config(crate::gpu::testing::cases(12))]

    #[test]
    fn any_mixed_product(
        rows in extent(), inputs in extent(), outputs in extent(), direction in 0usize..3, accumulate: bool,
        fused: bool,
    ) {
        let mut op = product(DIRECTIONS[direction], inputs, outputs);
        if op.direction == Direction::Forward {
            (op.bias, op.activation) = (fused, fused.then_some(Activation::Relu));
        }
        let mut setting = setting(&op, rows);
        setting.accumulate = accumulate;
        testing::check_mixed(op, &setting);
    }
}

/// The gradients of weight and bias made together are the CPU's, and the same bits again.
fn check_both(op: &Product, rows: usize, accumulate: bool) {
    let Some(gpu) = testing::gpu() else { return };
    let mut weight = setting(op, rows);
    weight.accumulate = accumulate;
    let sum = BiasGradient { outer: op.multiplier, channels: op.outputs, inner: 1 };
    let mut bias = Setting::new(rows, &[weight.reads[1].real()], &[op.outputs]);
    bias.accumulate = accumulate;
    bias.writes = vec![Data::Real(numbers(8, op.outputs))];
    let cpu = Cpu::global().unwrap();
    // The bias's gradient sums what is not rounded.
    let plain = Product { mixed: false, ..op.clone() };
    let product = match op.mixed {
        true => weight.with_rounded(testing::to_float16).run_on(&plain, cpu),
        false => weight.run_on(op, cpu),
    };
    let expected = [product.unwrap(), bias.run_on(&sum, cpu).unwrap()].concat();
    let name = Op::from(op.clone());
    weight.writes.append(&mut bias.writes);
    let both = || testing::run_both(&gpu, &name, &weight, &sum, rows.is_multiple_of(2)).unwrap();
    // A bias gradient left to others would still hold what it held before.
    let found = both();
    testing::compare(&name, &expected, &found);
    let again = both();
    for (one, other) in found.iter().zip(&again) {
        let bits = |data: &Data<f32>| data.real().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(one), bits(other), "{name}: two runs differ");
    }
}

#[test]
fn a_bias_gradient_is_made_along() {
    for (rows, inputs, outputs) in
        [(1, 1, 1), (64, 33, 10), (64, 40, 64), (300, 20, 7), (300, 9, 8), (1500, 30, 12), (200, 150, 140)]
    {
        for accumulate in [false, true] {
            for mixed in [false, true] {
                let op = Product { mixed, ..product(Direction::WeightGradient, inputs, outputs) };
                check_both(&op, rows, accumulate);
            }
        }
    }
    let op = Product { multiplier: 3, ..product(Direction::WeightGradient, 12, 20) };
    check_both(&op, 9, true);
}

#[test]
fn few_columns_are_made_at_once() {
    // Every number of columns; whole rounds of four steps, single ones, and a part of one.
    for outputs in 1..=16 {
        let mut op = product(Direction::Forward, [512, 700, 1031, 257][outputs % 4], outputs);
        op.bias = outputs % 2 == 0;
        // None that bounds results: what long sums are off would be measured against 1.
        op.activation = op.bias.then_some(Activation::Relu);
        let mut setting = setting(&op, [5, 64, 300, 1030][outputs / 4 % 4]);
        setting.accumulate = outputs % 3 == 0;
        testing::check(op, &setting);
    }
    for dtype in [DType::Float16, DType::BFloat16, DType::Int8] {
        check_packed(&product(Direction::Forward, 515, 10), 66, false, dtype);
        check_packed(&product(Direction::Forward, 301, 7), 300, true, dtype);
    }
}

#[test]
fn what_binary16_cannot_hold_shows_in_mixed_products() {
    // Ties, what is subnormal or too small in 16 bits, and what is too large for them.
    let corners = [
        1.000_488_3,
        1.001_464_8,
        6.1e-5,
        5.960_464_5e-8,
        8.9e-8,
        2.98e-8,
        2.9e-8,
        -1e-30,
        65_519.0,
        65_520.0,
        -70_000.0,
        f32::INFINITY,
        f32::NAN,
        1e-42,
    ];
    for (rows, outputs) in [(1, 3), (corners.len(), 3), (corners.len(), 40)] {
        for corner in corners {
            let inputs = 9;
            let op = product(Direction::Forward, inputs, outputs);
            let mut setting = setting(&op, rows);
            // One corner a row, alone in its sum.
            let mut x = vec![0.0; rows * inputs];
            for (row, x) in x.chunks_mut(inputs).enumerate() {
                x[row % inputs] = if rows == 1 { corner } else { corners[row] };
            }
            setting.reads = vec![Data::Real(x), Data::Real(vec![1.0; inputs * outputs])];
            let Some(gpu) = testing::gpu() else { return };
            let mixed = Op::from(op.clone()).into_mixed();
            let found = testing::run(&gpu, &mixed, &setting, None).unwrap();
            let expected =
                setting.with_rounded(testing::to_float16).run_on(&op, Cpu::global().unwrap()).unwrap();
            for (found, expected) in found[0].real().iter().zip(expected[0].real()) {
                assert!(
                    found == expected || found.is_nan() && expected.is_nan(),
                    "{found:e} for {expected:e}"
                );
            }
        }
    }
}

#[test]
fn mixed_products_of_every_kernel() {
    for direction in DIRECTIONS {
        // Few rows, few columns, tiles in fours and one by one, parts.
        for (rows, inputs, outputs) in
            [(1, 700, 40), (3, 33, 36), (64, 512, 10), (70, 40, 52), (65, 33, 31), (16, 1500, 24)]
        {
            let op = product(direction, inputs, outputs);
            testing::check_mixed(op.clone(), &setting(&op, rows));
        }
    }
}

#[test]
fn large_mixed_products_go_to_matrix_units_where_there_are_such() {
    let mut number = 0;
    for direction in DIRECTIONS {
        // In fours and not, multiples of the tiles and not, in parts and whole; and as thin as an adapter.
        for (rows, inputs, outputs) in [
            (256, 512, 300),
            (257, 515, 301),
            (128, 1024, 256),
            (66, 770, 1290),
            (2048, 1030, 16),
            (2050, 19, 1024),
        ] {
            let mut op = product(direction, inputs, outputs);
            (op.bias, op.activation) = match direction {
                Direction::Forward => (true, Some(Activation::Relu)),
                _ => (false, None),
            };
            let mut setting = setting(&op, rows);
            number += 1;
            for accumulate in [false, true] {
                setting.accumulate = accumulate;
                if testing::in_part(number + number / 6 + usize::from(accumulate), 2) {
                    testing::check_mixed(op.clone(), &setting);
                }
            }
        }
    }
    let op = Product { mixed: true, ..product(Direction::WeightGradient, 512, 300) };
    check_both(&op, 256, false);
}

#[test]
fn few_columns_are_close_to_the_exact_sums() {
    let Some(gpu) = testing::gpu() else { return };
    let op = product(Direction::Forward, 1031, 10);
    let setting = setting(&op, 64);
    let found = testing::run(&gpu, &op.clone().into(), &setting, None).unwrap();
    let (x, w) = (setting.reads[0].real(), setting.reads[1].real());
    for (at, found) in found[0].real().iter().enumerate() {
        let (row, column) = (at / 10, at % 10);
        let products = (0..1031).map(|k| f64::from(x[row * 1031 + k]) * f64::from(w[k * 10 + column]));
        let (sum, size) = products.fold((0.0, 0.0), |(sum, size), p| (sum + p, size + p.abs()));
        assert!((f64::from(*found) - sum).abs() <= 2e-7 * size, "{row}, {column}: {found} for {sum}");
    }
}

#[test]
fn few_columns_take_one_dispatch() {
    let problem = |rows, columns, depth| Problem {
        rows,
        columns,
        depth,
        left: Matrix::plain(depth),
        right: Matrix::plain(columns),
        storage: Storage::Float32,
        output: Matrix::plain(columns),
        accumulate: false,
        bias: true,
        finish: Finish::None,
        mixed: false,
    };
    let limits =
        Limits { workgroup_bytes: 16384, threads: 256, units: false, speeds: Speeds::SHIPPED, crowd: 1 };
    for (rows, columns, depth) in [(64, 10, 512), (64, 8, 512), (1024, 10, 512)] {
        let Cut::FewColumns(rows_each) = problem(rows, columns, depth).choose(&limits) else {
            panic!("{rows} rows of {columns} columns in parts")
        };
        assert!(rows.div_ceil(rows_each as usize) >= 64);
    }
}

#[test]
fn long_sums_are_cut() {
    for direction in DIRECTIONS {
        for (rows, inputs, outputs) in [(64, 784, 512), (3, 1300, 70), (1, 3000, 33), (700, 20, 10)] {
            let op = product(direction, inputs, outputs);
            testing::check(op.clone(), &setting(&op, rows));
        }
    }
}

#[test]
fn weights_larger_than_a_binding_are_cut() {
    let Some(gpu) = testing::gpu() else { return };
    for direction in DIRECTIONS {
        let mut op = product(direction, 1100, 130);
        op.bias = direction == Direction::Forward;
        op.activation = op.bias.then_some(Activation::Relu);
        let setting = setting(&op, 5);
        let name = Op::from(op);
        let whole = testing::run(&gpu, &name, &setting, None).unwrap();
        let cut = testing::run_within(&gpu, &name, &setting, 400 * 130 * 4);
        testing::compare(&name, &whole, &cut.unwrap());
    }
}

#[test]
fn runs_cover_every_row_once() {
    for (rows, row_bytes, max) in [(1000, 40, 1 << 20), (1000, 40, 40 * 300), (5000, 1, 700), (7, 1 << 20, 1)]
    {
        let mut next = 0;
        for (first, count) in runs(rows, row_bytes, max) {
            assert_eq!(first, next);
            assert!(count > 0 && (first * row_bytes).is_multiple_of(256));
            assert!(count * row_bytes <= max || count <= 256);
            next += count;
        }
        assert_eq!(next, rows);
    }
}

/// Tiles, few rows and few columns, forward and back, in every type and granularity.
#[test]
fn every_type_is_decoded() {
    for (number, dtype) in DType::all().enumerate() {
        if testing::in_part(number, 2) {
            check_packed(&product(Direction::Forward, 37, 12), 3, false, dtype);
        }
        if testing::in_part(number + 1, 2) {
            check_packed(&product(Direction::InputGradient, 66, 35), 20, false, dtype);
        }
    }
}

//! Products of few rows with packed weights, in every type, against exact sums of what the weights decode to.

use super::*;
use crate::dtype::testing::{Sample, sample_by};
use crate::dtype::{DType, Granularity};
use crate::gpu::testing::{self, Packed};
use crate::ops::Op;
use crate::ops::pointwise::Activation;
use crate::ops::testing::{Data, Setting, numbers};

/// Inputs and outputs: multiples of 4, 8, 32 and more, and not; a sum that is cut in parts.
const EXTENTS: [(usize, usize); 9] =
    [(64, 64), (37, 12), (96, 20), (33, 10), (301, 48), (130, 36), (256, 96), (2050, 8), (40, 7)];

/// What shares a scale, where the type lets one ask.
const GRANULARITIES: [Option<Granularity>; 5] = [
    None,
    Some(Granularity::Tensor),
    Some(Granularity::Block(8)),
    Some(Granularity::Block(7)),
    Some(Granularity::Channel),
];

/// Compares each element of the product with the sum in double precision of what the weights stand for; threads
/// add up in registers where the device has subgroups, or in memory.
#[track_caller]
fn check_exact(op: &Product, rows: usize, sample: &Sample, accumulate: bool, in_registers: bool) {
    let Some(gpu) = testing::gpu() else { return };
    let (k, n) = (op.inputs, op.outputs);
    let forward = op.direction == Direction::Forward;
    let (depth, columns) = if forward { (k, n) } else { (n, k) };
    let (x, before) = (numbers::<f32>(3, rows * depth), numbers::<f32>(4, rows * columns));
    let bias = numbers::<f32>(5, columns);
    let mut setting = Setting::new(rows, &[&x, &vec![0.0; k * n], &bias], &[rows * columns]);
    if !op.bias {
        setting.reads.pop();
    }
    setting.writes = vec![Data::Real(before.clone())];
    setting.accumulate = accumulate;
    let name = Op::from(op.clone());
    let found = testing::run_with(&gpu, &name, &setting, Some((1, Packed::of(sample))), |recorder| {
        if !in_registers {
            recorder.subgroup_threads = 0;
        }
    })
    .unwrap();
    let weights: Vec<f64> = sample.decoded();
    for (at, found) in found[0].real().iter().enumerate() {
        let (row, column) = (at / columns, at % columns);
        let start = if accumulate { f64::from(before[at]) } else { 0.0 };
        let start = start + if op.bias { f64::from(bias[column]) } else { 0.0 };
        let terms = (0..depth).map(|d| {
            let weight = if forward { weights[d * n + column] } else { weights[column * n + d] };
            f64::from(x[row * depth + d]) * weight
        });
        let (mut sum, size) = terms.fold((start, start.abs()), |(sum, size), t| (sum + t, size + t.abs()));
        if op.activation.is_some() {
            sum = sum.max(0.0);
        }
        assert!(
            (f64::from(*found) - sum).abs() <= 1e-6 * size.max(1e-3),
            "{name} of {rows} rows in {} by {}: {found} for {sum} at {row}, {column}",
            sample.packing.dtype,
            sample.packing.granularity
        );
    }
}

/// Three numbers of rows a type, all of them over the types: twice forward, once back.
#[test]
fn few_rows_of_every_type_are_close_to_the_exact_sums() {
    for (number, dtype) in DType::all().enumerate() {
        let directions = [Direction::Forward, Direction::Forward, Direction::InputGradient];
        for (turn, direction) in directions.into_iter().enumerate() {
            if !testing::in_part(number + turn, 2) {
                continue;
            }
            let rows = (number + turn * 4) % 9 + 1;
            let (inputs, outputs) = EXTENTS[(number + rows * 2 + turn) % EXTENTS.len()];
            let asked = GRANULARITIES[(number / 2 + rows + turn) % GRANULARITIES.len()];
            let granularity = asked.filter(|asked| dtype.granularity(Some(*asked)).is_ok());
            let weight: Vec<f32> = numbers(number as u64, inputs * outputs);
            let sample = sample_by(dtype, granularity, &weight, outputs);
            let mut op = Product::new(direction, 1, inputs, outputs);
            op.bias = direction == Direction::Forward && rows % 2 == 0;
            op.activation = Some(Activation::Relu).filter(|_| op.bias);
            check_exact(&op, rows, &sample, turn == 1, (number + turn) % 3 > 0);
        }
    }
}

#[test]
fn every_code_of_a_float_is_decoded() {
    // Every magnitude and both signs, subnormal ones among them, by scales that are powers of two.
    for (dtype, largest, least) in [
        (DType::Float8E4M3, 448.0f32, 2.0f32.powi(-9)),
        (DType::Float8E5M2, 57344.0, 2.0f32.powi(-16)),
        (DType::Float4E2M1, 6.0, 0.5),
        (DType::MxFp8E4M3, 448.0, 2.0f32.powi(-9)),
        (DType::MxFp8E5M2, 57344.0, 2.0f32.powi(-16)),
        (DType::MxFp4, 6.0, 0.5),
    ] {
        let (inputs, outputs) = (64, 32);
        let weight: Vec<f32> = (0..inputs * outputs)
            .map(|i| {
                let (row, column) = (i / outputs, i % outputs);
                let sign = if (row + column) % 2 == 0 { 1.0 } else { -1.0 };
                // The largest magnitude in each block, and multiples of the least.
                if row % 32 == 0 { largest } else { sign * least * (row * outputs + column) as f32 / 8.0 }
            })
            .collect();
        let sample = sample_by(dtype, None, &weight, outputs);
        let decoded: Vec<f64> = sample.decoded();
        let Some(gpu) = testing::gpu() else { return };
        // One row after the other is picked out.
        for first in (0..inputs).step_by(8) {
            let mut x = vec![0.0; 8 * inputs];
            (0..8).for_each(|row| x[row * inputs + first + row] = 1.0);
            let op = Product::new(Direction::Forward, 1, inputs, outputs);
            let setting = Setting::new(8, &[&x, &vec![0.0; inputs * outputs]], &[8 * outputs]);
            let found = testing::run(&gpu, &op.into(), &setting, Some((1, Packed::of(&sample)))).unwrap();
            for (at, found) in found[0].real().iter().enumerate() {
                let expected = decoded[first * outputs + at] as f32;
                assert!(*found == expected, "{dtype}: {found} for {expected} at {first}, {at}");
            }
        }
    }
}

/// Where its shapes end: every width of columns and stretch of the depth that a thread may have.
#[test]
fn streams_have_every_shape() {
    let (channel, mut number) = (Some(Granularity::Channel), 0);
    for (dtype, granularity) in [
        (DType::Binary, None),
        (DType::Ternary, None),
        (DType::Uint4, None),
        (DType::Int8, None),
        (DType::Uint2Min, channel),
        (DType::Uint4Min, None),
        (DType::Uint4Min, channel),
        (DType::Uint8Min, None),
    ] {
        for (inputs, outputs) in [(128, 64), (68, 132), (512, 4), (5, 16)] {
            for (direction, rows) in [(Direction::Forward, 2), (Direction::InputGradient, 3)] {
                number += 1;
                if !testing::in_part(number + number / 8, 2) {
                    continue;
                }
                let weight: Vec<f32> = numbers(7, inputs * outputs);
                let sample = sample_by(dtype, granularity, &weight, outputs);
                let in_registers = (inputs + outputs + rows) % 8 > 3;
                check_exact(&Product::new(direction, 1, inputs, outputs), rows, &sample, false, in_registers);
            }
        }
    }
}

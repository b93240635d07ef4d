//! Products of one value on a GPU, with what comes before and after them, against the steps one by one on the CPU.

use super::*;
use crate::dtype::{DType, testing::sample};
use crate::gpu::testing::{self, Packed};
use crate::ops::testing::{Data, Setting, numbers};
use crate::ops::{Direction, Gate, Normalize, Op, Operation};
use crate::simd::Cpu;
use proptest::prelude::*;

/// What an operation makes on the CPU.
fn made(op: &impl Operation, setting: &Setting<f32>) -> Vec<f32> {
    let results = setting.run_on(op, Cpu::global().expect("a CPU")).expect("the CPU to run the operation");
    results[0].real().to_vec()
}

/// Rows of a batch, steps of each, and the inputs of a step.
type Extents = [usize; 3];

/// Operands of the left side, and what it is after them.
fn left_side(left: &LeftSide, [rows, steps, inputs]: Extents) -> (Vec<Vec<f32>>, Vec<f32>) {
    let length = rows * steps * inputs;
    let x = numbers(1, length);
    match left {
        LeftSide::Plain => (vec![x.clone()], x),
        LeftSide::MeanSquare { gain, epsilon } => {
            let op = Normalize {
                direction: Direction::Forward,
                outer: steps,
                channels: inputs,
                inner: 1,
                groups: 1,
                centred: false,
                epsilon: *epsilon,
                gain: *gain,
                bias: false,
            };
            let mut reads = vec![x];
            reads.extend(gain.then(|| numbers(2, inputs)));
            let operands: Vec<&[f32]> = reads.iter().map(Vec::as_slice).collect();
            let y = made(&op, &Setting::new(rows, &operands, &[length, rows * steps]));
            (reads, y)
        }
        LeftSide::Gated(activation) => {
            let other = numbers(3, length);
            let op = Gate { direction: Direction::Forward, activation: *activation };
            let y = made(&op, &Setting::new(rows, &[&x, &other], &[length]));
            (vec![x, other], y)
        }
        LeftSide::Attention(op) => {
            let others = rows * op.keys * op.key_value_heads * op.head_dim;
            let (k, v) = (numbers(4, others), numbers(5, others));
            let mut setting = Setting::new(rows, &[&x, &k, &v], &[length, rows * steps * op.heads]);
            setting.values.position = position(op);
            let y = made(&**op, &setting);
            (vec![x, k, v], y)
        }
    }
}

/// Where a session stands whose cache is nearly full.
fn position(op: &Attention) -> u64 {
    if op.cached { (op.keys - op.queries) as u64 } else { 0 }
}

/// Compares products of these many outputs, the first with a weight of this type; gives the dispatches recorded.
#[track_caller]
fn check(
    left: LeftSide,
    [rows, steps, inputs]: Extents,
    outputs: &[usize],
    residual: bool,
    dtype: DType,
) -> usize {
    let Some(gpu) = testing::gpu() else { return 0 };
    let (mut reads, x) = left_side(&left, [rows, steps, inputs]);
    let first = reads.len();
    let (mut products, mut expected, mut packed) = (Vec::new(), Vec::new(), None);
    for (number, &width) in outputs.iter().enumerate() {
        let mut product = Product::new(Direction::Forward, steps, inputs, width);
        product.bias = number % 2 == 1;
        product.activation = (number == 2).then_some(Activation::Relu);
        let mut weight = numbers(6 + number as u64, inputs * width);
        if number == 0 && dtype != DType::Float32 {
            let held = sample(dtype, &weight, width);
            weight = held.decoded();
            packed = Some(held);
        }
        let bias = numbers(9, width);
        let operands: Vec<&[f32]> = [&x, &weight, &bias].into_iter().map(Vec::as_slice).collect();
        let count = 2 + usize::from(product.bias);
        expected.push(made(&product, &Setting::new(rows, &operands[..count], &[rows * steps * width])));
        reads.push(weight);
        reads.extend(product.bias.then_some(bias));
        // They are not rounded, even where a device may round them.
        products.push(Product { mixed: number == 0, ..product });
    }
    if residual {
        let last = expected.last_mut().expect("a product");
        let added = numbers(10, last.len());
        last.iter_mut().zip(&added).for_each(|(sum, x)| *sum += x);
        reads.push(added);
    }
    let operands: Vec<&[f32]> = reads.iter().map(Vec::as_slice).collect();
    let mut lengths: Vec<usize> = expected.iter().map(Vec::len).collect();
    if let LeftSide::Attention(op) = &left {
        lengths.extend([x.len(), rows * steps * op.heads]);
    }
    let mut setting = Setting::new(rows, &operands, &lengths);
    if let LeftSide::Attention(op) = &left {
        setting.values.position = position(op);
    }
    let together = Products { left, products: products.clone(), residual };
    let packed = packed.as_ref().map(|held| (first, Packed::of(held)));
    let mut dispatches = 0;
    let found = testing::run_recorded(&gpu, &setting, packed, |recorder| {
        // Devices without subgroups add up in memory.
        if residual {
            recorder.subgroup_threads = 0;
        }
        assert!(together.record_together(recorder)?, "{together:?} of {rows} rows was not made together");
        dispatches = recorder.recorded.len();
        Ok(())
    })
    .unwrap_or_else(|error| panic!("{together:?}: {error}"));
    for ((product, expected), found) in products.into_iter().zip(expected).zip(found) {
        testing::compare(&Op::from(product), &[Data::Real(expected)], &[found]);
    }
    dispatches
}

/// Attention of this many queries over a cache.
fn attention(queries: usize, keys: usize, heads: (usize, usize), head_dim: usize) -> LeftSide {
    let op = Attention::new((queries, keys), heads, head_dim);
    LeftSide::Attention(Box::new(Attention { causal: true, cached: true, ..op }))
}

#[test]
fn what_queries_gather_is_joined_where_products_load_it() {
    let dtypes = [DType::Float32, DType::Float16, DType::Q4_0];
    for (number, (rows, steps, keys, heads, head_dim)) in [
        (1, 1, 640, (9, 3), 64),
        (2, 3, 300, (2, 1), 32),
        (1, 1, 4000, (1, 1), 64),
        (3, 1, 1025, (4, 4), 8),
        // What is made whole: few keys, many rows, heads that are not in fours, and no cache.
        (1, 1, 40, (2, 2), 16),
        (12, 2, 200, (8, 2), 16),
    ]
    .into_iter()
    .enumerate()
    {
        let inputs = heads.0 * head_dim;
        let left = attention(steps, keys, heads, head_dim);
        let dispatches = check(left, [rows, steps, inputs], &[32], number % 2 == 0, dtypes[number % 3]);
        // Whoever has no subgroups makes it whole, too.
        assert!(dispatches == 0 || dispatches == 2 || (keys > 1024 && dispatches == 3), "{dispatches}");
    }
    let odd = Attention { causal: true, ..Attention::new((2, 200), (4, 2), 7) };
    check(LeftSide::Attention(Box::new(odd)), [1, 2, 28], &[8], true, DType::Float32);
}

proptest! {
    // Software adapters take seconds to compile a kernel of many rows.
    #![proptest_config(testing::cases(5))]

    #[test]
    fn any_products_of_few_rows(
        rows in 1..14usize, inputs in 1..20usize, outputs in prop::collection::vec(1..12usize, 1..3),
        left in 0..4usize, residual: bool,
    ) {
        let left = match left {
            0 => LeftSide::Plain,
            1 => LeftSide::MeanSquare { gain: residual, epsilon: 1e-5 },
            2 => LeftSide::MeanSquare { gain: true, epsilon: 1e-3 },
            _ => LeftSide::Gated(Activation::Silu),
        };
        let outputs: Vec<usize> = outputs.into_iter().map(|count| count * 4).collect();
        check(left, [rows, 1, inputs * 4], &outputs, residual, DType::Float32);
    }
}

#[test]
fn many_rows_are_made_in_groups() {
    let norm = || LeftSide::MeanSquare { gain: true, epsilon: 1e-5 };
    check(norm(), [9, 1, 32], &[8, 12], false, DType::Float32);
    check(norm(), [11, 2, 64], &[36], true, DType::Float16);
    check(LeftSide::Gated(Activation::Silu), [32, 1, 32], &[8], true, DType::Q4_0);
    check(LeftSide::Plain, [10, 1, 20], &[4], true, DType::Int8);
}

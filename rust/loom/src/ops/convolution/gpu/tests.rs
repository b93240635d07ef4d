//! Every way the kernels go, against the CPU's.

use crate::dtype::{DType, testing::sample};
use crate::gpu::testing::{self, Packed, check};
use crate::ops::convolution::Convolution;
use crate::ops::convolution::tests::{convolution, deep, geometries, square};
use crate::ops::pointwise::Activation;
use crate::ops::testing::{Data, Setting, numbers};
use crate::ops::{BiasGradient, Direction, Geometry, Op};
use crate::simd::Cpu;
use proptest::prelude::*;

/// What is folded over: its geometry, channels in and out, groups, and rows.
type Shape = (Geometry, [usize; 2], usize, usize);

/// All three directions; the weight's gradient set and added to. By software each case has only some of what is done
/// along with them, another case the rest.
fn check_all(number: usize, (geometry, channels, groups, rows): Shape) {
    let beside = |turn: usize| testing::in_part(number + turn, 2);
    let forward = convolution(Direction::Forward, geometry, channels, groups);
    let [image, weights, output] = forward.lengths(rows);
    let x: Vec<f32> = numbers(1, image);
    let w: Vec<f32> = numbers(2, weights);
    let dy: Vec<f32> = numbers(3, output);
    let bias: Vec<f32> = numbers(4, channels[1]);
    if beside(0) {
        check(forward.clone(), &Setting::new(rows, &[&x, &w], &[output]));
    }
    if beside(1) {
        let fused = Convolution { bias: true, activation: Some(Activation::Relu), ..forward };
        check(fused, &Setting::new(rows, &[&x, &w, &bias], &[output]));
    }
    let back = convolution(Direction::InputGradient, geometry, channels, groups);
    if beside(0) {
        check(back.clone(), &Setting::new(rows, &[&dy, &w], &[image]));
    }
    if beside(1) {
        // As a transposed convolution.
        let fused = Convolution { bias: true, activation: Some(Activation::Relu), ..back };
        let bias: Vec<f32> = numbers(4, channels[0]);
        check(fused, &Setting::new(rows, &[&dy, &w, &bias], &[image]));
    }
    let gradient = convolution(Direction::WeightGradient, geometry, channels, groups);
    let mut setting = Setting::new(rows, &[&x, &dy], &[weights]);
    if beside(0) {
        check(gradient.clone(), &setting);
    }
    setting.writes = vec![Data::Real(numbers(5, weights))];
    setting.accumulate = true;
    if beside(1) {
        check(gradient.clone(), &setting);
    }
    for accumulate in [false, true].into_iter().filter(|added| beside(usize::from(!added))) {
        check_both(&gradient, &Setting { accumulate, ..setting.clone() }, rows.is_multiple_of(2));
    }
}

/// The weight's gradient together with the bias's, each as by itself on the CPU.
fn check_both(gradient: &Convolution, setting: &Setting<f32>, bias_first: bool) {
    let Some(gpu) = testing::gpu() else { return };
    let cpu = Cpu::global().unwrap();
    let sum = BiasGradient { outer: 1, channels: gradient.outputs, inner: gradient.geometry.volumes().1 };
    let plain = Convolution { mixed: false, ..gradient.clone() };
    let weight_expected = match gradient.mixed {
        // The bias's gradient sums what is not rounded.
        true => setting.with_rounded(testing::to_float16).run_on(&plain, cpu).unwrap(),
        false => setting.run_on(gradient, cpu).unwrap(),
    };
    let bias = Data::Real(numbers(6, gradient.outputs));
    let of_bias =
        Setting { reads: vec![setting.reads[1].clone()], writes: vec![bias.clone()], ..setting.clone() };
    let bias_expected = of_bias.run_on(&sum, cpu).unwrap();
    let op: Op = gradient.clone().into();
    let both = Setting { writes: vec![setting.writes[0].clone(), bias], ..setting.clone() };
    let found = testing::run_both(&gpu, &op, &both, &sum, bias_first).unwrap();
    testing::compare(&op, &weight_expected, &found[..1]);
    testing::compare(&sum.into(), &bias_expected, &found[1..]);
}

#[test]
fn shapes_that_go_each_way() {
    let shapes: [Shape; 26] = [
        // Few terms, and few inputs on the way back: pixels by themselves.
        (square(28, 3, 1, 1), [1, 32], 1, 3),
        // The same where pixels do not come in fours.
        (square(7, 3, 1, 1), [1, 20], 1, 2),
        // Few tiles whose terms are shared out; the weight's gradient in large tiles.
        (square(6, 3, 1, 1), [32, 64], 1, 2),
        // Many tiles of 64 by 128.
        (square(16, 3, 1, 1), [2, 64], 1, 4),
        // Of 64 by 64, of 32 by 256, and back of 16 by 256.
        (square(14, 3, 1, 1), [16, 72], 1, 2),
        (square(16, 3, 1, 1), [20, 32], 1, 9),
        // Strides, with channels that are no multiples of anything.
        (square(13, 3, 2, 1), [18, 33], 1, 2),
        (square(13, 5, 3, 2), [3, 17], 1, 2),
        // On the way back by residues of pixels, as many of each or not, in groups, and with terms in whole tiles.
        (square(16, 5, 2, 2), [20, 24], 1, 2),
        (square(14, 5, 3, 2), [34, 32], 2, 2),
        (square(11, 4, 2, 0), [16, 48], 1, 3),
        (square(12, 3, 3, 0), [17, 16], 1, 2),
        // Depthwise, rows of four pixels and others, and groups of several.
        (square(12, 3, 1, 1), [6, 12], 6, 2),
        (square(8, 5, 1, 2), [3, 3], 3, 2),
        (deep(square(8, 3, 1, 1), [3, 2, 1, 1]), [4, 4], 4, 2),
        (square(10, 3, 1, 1), [24, 24], 24, 2),
        (square(9, 3, 2, 1), [40, 80], 2, 3),
        // Channels of a group that come in whole tiles.
        (square(5, 3, 1, 1), [64, 32], 2, 3),
        (square(5, 3, 2, 1), [64, 16], 2, 3),
        // One pixel and one tap: a plain product.
        (square(1, 1, 1, 0), [40, 50], 1, 20),
        (square(3, 1, 1, 0), [64, 36], 1, 9),
        // Volumes, in tiles and by themselves, with strides and without.
        (deep(square(6, 3, 1, 1), [4, 3, 1, 1]), [8, 32], 1, 2),
        (deep(square(7, 3, 2, 1), [5, 3, 2, 1]), [18, 20], 1, 2),
        (deep(square(5, 3, 2, 1), [3, 2, 1, 0]), [4, 4], 4, 2),
        // A large window, and one larger than the image.
        (square(12, 9, 1, 4), [5, 6], 1, 2),
        (square(2, 5, 1, 2), [17, 20], 1, 1),
    ];
    for (number, shape) in shapes.into_iter().enumerate() {
        check_all(number, shape);
    }
}

#[test]
fn no_images_make_no_gradient() {
    for (channels, geometry) in [([2, 3], square(5, 3, 1, 1)), ([40, 40], square(5, 3, 1, 1))] {
        let op = convolution(Direction::WeightGradient, geometry, channels, 1);
        let weights = op.lengths(0)[1];
        let mut setting = Setting::new(0, &[&[], &[]], &[weights]);
        check(op.clone(), &setting);
        setting.accumulate = true;
        check(op.clone(), &setting);
        for accumulate in [false, true] {
            check_both(&op, &Setting { accumulate, ..setting.clone() }, accumulate);
        }
        let forward = convolution(Direction::Forward, geometry, channels, 1);
        check(forward, &Setting::new(0, &[&[], &vec![1.0; weights]], &[0]));
    }
}

/// Packed weights give what their decoded values give.
fn check_packed(dtype: DType, geometry: Geometry, channels: [usize; 2], groups: usize) {
    let Some(gpu) = testing::gpu() else { return };
    let cpu = Cpu::global().unwrap();
    for direction in [Direction::Forward, Direction::InputGradient] {
        let op = convolution(direction, geometry, channels, groups);
        let [image, weights, output] = op.lengths(2);
        let (from, to) = if direction == Direction::Forward { (image, output) } else { (output, image) };
        let w: Vec<f32> = numbers(7, weights);
        let sample = sample(dtype, &w, channels[1]);
        let decoded = sample.decoded::<f32>();
        let source: Vec<f32> = numbers(8, from);
        let setting = Setting::new(2, &[&source, &decoded], &[to]);
        let expected = setting.run_on(&op, cpu).unwrap();
        let op: Op = op.into();
        let packed = Packed::of(&sample);
        let found = testing::run(&gpu, &op, &setting, Some((1, packed))).unwrap();
        testing::compare(&op, &expected, &found);
    }
}

#[test]
fn packed_weights_are_decoded() {
    for dtype in [DType::Float16, DType::BFloat16, DType::Int8, DType::Uint4, DType::MxFp4] {
        for (geometry, channels, groups) in [
            (square(9, 3, 1, 1), [6, 40], 1),
            (square(9, 3, 2, 1), [8, 8], 8),
            (square(8, 3, 1, 1), [20, 34], 1),
            (square(6, 3, 1, 1), [1, 8], 1),
            (square(5, 1, 1, 0), [30, 10], 2),
        ] {
            check_packed(dtype, geometry, channels, groups);
        }
    }
}

#[test]
fn operands_that_do_not_fit_are_refused() {
    let Some(gpu) = testing::gpu() else { return };
    let op = convolution(Direction::Forward, square(5, 3, 1, 1), [2, 3], 1);
    let refused = |op: &Convolution, rows: usize, x: usize, w: usize, y: usize| {
        let (x, w) = (vec![0.0; x], vec![0.0; w]);
        testing::run(&gpu, &op.clone().into(), &Setting::new(rows, &[&x, &w], &[y]), None).is_err()
    };
    assert!(!refused(&op, 1, 50, 54, 75));
    assert!(refused(&op, 1, 49, 54, 75) && refused(&op, 1, 50, 53, 75) && refused(&op, 2, 50, 54, 75));
    assert!(refused(&Convolution { groups: 0, ..op.clone() }, 1, 50, 54, 75));
    assert!(refused(&Convolution { groups: 2, ..op }, 1, 50, 27, 75));
}

/// The three directions in mixed precision, against plain ones of rounded operands.
fn check_all_mixed(geometry: Geometry, channels: [usize; 2], groups: usize, rows: usize) {
    for direction in [Direction::Forward, Direction::InputGradient, Direction::WeightGradient] {
        let op = convolution(direction, geometry, channels, groups);
        let [image, weights, output] = op.lengths(rows);
        let (reads, write) = match direction {
            Direction::Forward => ([image, weights], output),
            Direction::InputGradient => ([output, weights], image),
            Direction::WeightGradient => ([image, output], weights),
        };
        let [one, other]: [Vec<f32>; 2] = [numbers(3, reads[0]), numbers(4, reads[1])];
        let setting = Setting::new(rows, &[&one, &other], &[write]);
        testing::check_mixed(op.clone(), &setting);
        if direction == Direction::WeightGradient {
            check_both(&Convolution { mixed: true, ..op }, &setting, true);
        }
    }
}

#[test]
fn mixed_convolutions_round_their_operands() {
    for (geometry, channels, groups, rows) in [
        (square(9, 3, 1, 1), [6, 40], 1, 2),
        (square(9, 3, 2, 1), [8, 8], 8, 2),
        (square(8, 3, 1, 1), [32, 36], 1, 3),
        (square(8, 3, 2, 1), [16, 20], 1, 3),
        (square(6, 3, 1, 1), [1, 8], 1, 5),
        // Depthwise: the row under four windows at once, and pixel by pixel.
        (square(12, 3, 1, 1), [6, 12], 6, 2),
        (square(7, 3, 1, 1), [3, 3], 3, 2),
        (deep(square(6, 3, 1, 1), [4, 3, 1, 1]), [8, 32], 1, 2),
        (square(5, 1, 1, 0), [30, 10], 2, 2),
    ] {
        check_all_mixed(geometry, channels, groups, rows);
    }
}

proptest! {
    #![proptest_config(crate::gpu::testing::cases(12))]

    #[test]
    fn any_shape_is_as_on_the_cpu(
        geometry in geometries(),
        groups in 1usize..4,
        inputs in 1usize..22,
        outputs in 1usize..40,
        rows in 1usize..4,
    ) {
        check_all(rows, (geometry, [inputs * groups, outputs * groups], groups, rows));
    }
}

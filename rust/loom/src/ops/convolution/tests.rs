//! Kernels against the scalar order, bit for bit; the order against a plain convolution in `f64`;
//! gradients against differences.

use super::{Convolution, reference};
use crate::dtype::{DType, testing::sample};
use crate::ops::pointwise::Activation;
use crate::ops::{Args, Direction, Geometry, Operation, StepValues};
use crate::simd::{Cpu, Isa, Real};
use proptest::prelude::*;
use std::sync::LazyLock;

/// Every instruction set, each on one, two and three threads.
pub(super) static MACHINES: LazyLock<Vec<Cpu>> = LazyLock::new(|| {
    Isa::available()
        .into_iter()
        .flat_map(|isa| [1, 2, 3].map(|threads| Cpu::with_threads(isa, threads).unwrap()))
        .collect()
});

/// Numbers between -1 and 1 that are the same every time.
pub(super) fn numbers<T: Real>(len: usize, seed: u64) -> Vec<T> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    (0..len).map(|_| T::from_f64(next())).collect()
}

pub(super) fn convolution(
    direction: Direction,
    geometry: Geometry,
    channels: [usize; 2],
    groups: usize,
) -> Convolution {
    let [inputs, outputs] = channels;
    let [bias, mixed, quantized] = [false; 3];
    Convolution { direction, geometry, inputs, outputs, groups, bias, activation: None, mixed, quantized }
}

/// A square window with as many outputs as fit.
pub(super) fn square(input: usize, kernel: usize, stride: usize, padding: usize) -> Geometry {
    let output = (input + 2 * padding - kernel) / stride + 1;
    Geometry {
        input: [1, input, input],
        output: [1, output, output],
        kernel: [1, kernel, kernel],
        stride: [1, stride, stride],
        padding: [0, padding, padding],
        dilation: [1; 3],
    }
}

/// The same window through a depth of its own: input, kernel, stride and padding.
pub(super) fn deep(geometry: Geometry, [input, kernel, stride, padding]: [usize; 4]) -> Geometry {
    let deepened = |of: [usize; 3], depth: usize| [depth, of[1], of[2]];
    Geometry {
        input: deepened(geometry.input, input),
        output: deepened(geometry.output, (input + 2 * padding - kernel) / stride + 1),
        kernel: deepened(geometry.kernel, kernel),
        stride: deepened(geometry.stride, stride),
        padding: deepened(geometry.padding, padding),
        dilation: geometry.dilation,
    }
}

impl Convolution {
    pub(super) fn lengths(&self, rows: usize) -> [usize; 3] {
        let (input, output) = self.geometry.volumes();
        [rows * self.inputs * input, self.weights(), rows * self.outputs * output]
    }

    fn run_on<T: Real>(&self, cpu: &Cpu, rows: usize, reads: &[&[T]], accumulate: bool, result: &mut [T]) {
        let values = StepValues::default();
        let mut args = Args::new(cpu, rows, &values);
        args.accumulate = accumulate;
        for (index, read) in reads.iter().enumerate() {
            args.set_read(index, read);
        }
        args.set_write(0, result);
        self.run::<T>(&mut args).unwrap();
    }
}

#[track_caller]
fn same<T: Real>(what: &str, found: &[T], expected: &[T]) {
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!(
            found.to_bits_u64() == expected.to_bits_u64() || (found.is_nan() && expected.is_nan()),
            "{what}: element {i} is {found}, expected {expected}"
        );
    }
}

/// All three directions on every machine against the scalar order.
fn check<T: Real>(geometry: Geometry, channels: [usize; 2], groups: usize, rows: usize) {
    let forward = convolution(Direction::Forward, geometry, channels, groups);
    let forward = Convolution { bias: true, ..forward };
    let input_gradient = convolution(Direction::InputGradient, geometry, channels, groups);
    let weight_gradient = convolution(Direction::WeightGradient, geometry, channels, groups);
    let lengths = forward.lengths(rows);
    let [x, w, dy] = [0, 1, 2].map(|i| numbers::<T>(lengths[i], 7 + i as u64));
    let bias = numbers::<T>(forward.outputs, 3);
    let old = numbers::<T>(lengths[1], 4);

    let [mut dx, mut dw, mut y] = lengths.map(|len| vec![T::ZERO; len]);
    reference::forward(&forward, rows, &x, &w, Some(&bias), &mut y);
    reference::input_gradient(&forward, rows, &dy, &w, None, &mut dx);
    // As a transposed convolution it may have a bias and an activation.
    let transposed = Convolution { bias: true, activation: Some(Activation::Relu), ..input_gradient.clone() };
    let bias_in = numbers::<T>(channels[0], 5);
    let mut z = vec![T::ZERO; dx.len()];
    reference::input_gradient(&forward, rows, &dy, &w, Some(&bias_in), &mut z);
    for z in &mut z {
        *z = Activation::Relu.value(*z);
    }
    reference::weight_gradient(&forward, rows, &x, &dy, false, &mut dw);
    let mut added = old.clone();
    reference::weight_gradient(&forward, rows, &x, &dy, true, &mut added);

    for cpu in MACHINES.iter() {
        let place = format!("on {} with {} threads", cpu.isa(), cpu.pool().threads());
        // What is there before must not matter.
        let mut out = vec![T::NAN; y.len()];
        forward.run_on(cpu, rows, &[&x, &w, &bias], false, &mut out);
        same(&format!("{forward} {place}"), &out, &y);
        let mut out = vec![T::NAN; dx.len()];
        input_gradient.run_on(cpu, rows, &[&dy, &w], false, &mut out);
        same(&format!("{input_gradient} {place}"), &out, &dx);
        let mut out = vec![T::NAN; dx.len()];
        transposed.run_on(cpu, rows, &[&dy, &w, &bias_in], false, &mut out);
        same(&format!("{transposed} {place}"), &out, &z);
        let mut out = vec![T::NAN; dw.len()];
        weight_gradient.run_on(cpu, rows, &[&x, &dy], false, &mut out);
        same(&format!("{weight_gradient} {place}"), &out, &dw);
        let mut out = old.clone();
        weight_gradient.run_on(cpu, rows, &[&x, &dy], true, &mut out);
        same(&format!("adding {weight_gradient} {place}"), &out, &added);
    }
}

/// Shapes that reach every tile: wide and narrow images, many and few channels, bands, blocks of images.
#[test]
fn kernels_equal_the_scalar_order() {
    for (geometry, channels, groups, rows) in [
        (square(14, 3, 1, 1), [5, 64], 1, 2),
        (square(28, 3, 1, 1), [1, 32], 1, 2),
        (square(4, 3, 1, 1), [9, 40], 1, 11),
        (square(3, 1, 1, 0), [30, 17], 1, 9),
        (square(9, 3, 2, 1), [8, 33], 1, 3),
        (square(11, 5, 3, 2), [3, 13], 1, 2),
        (square(30, 3, 1, 0), [4, 48], 1, 1),
        (square(10, 3, 1, 1), [24, 24], 24, 2),
        (square(8, 3, 2, 1), [12, 36], 12, 2),
        // Depthwise: whole tiles, tiles that overlap, few rows, several outputs of an input, strides.
        (square(28, 3, 1, 1), [5, 5], 5, 2),
        (Geometry { input: [1, 4, 16], output: [1, 4, 16], ..square(4, 3, 1, 1) }, [3, 3], 3, 2),
        (Geometry { input: [1, 6, 49], output: [1, 6, 49], ..square(6, 3, 1, 1) }, [3, 3], 3, 1),
        (square(13, 3, 1, 1), [6, 12], 6, 2),
        (Geometry { input: [1, 3, 40], output: [1, 3, 40], ..square(3, 3, 1, 1) }, [4, 4], 4, 1),
        (
            Geometry { input: [1, 1, 90], output: [1, 1, 86], kernel: [1, 1, 5], ..Geometry::POINT },
            [4, 4],
            4,
            2,
        ),
        (square(35, 5, 1, 2), [3, 3], 3, 1),
        (square(33, 3, 2, 1), [17, 17], 17, 2),
        (square(7, 3, 1, 1), [32, 32], 2, 2),
        (square(7, 3, 1, 1), [24, 48], 3, 2),
        (square(6, 3, 1, 1), [20, 20], 5, 3),
        (square(1, 1, 1, 0), [19, 50], 1, 20),
        (square(40, 7, 2, 3), [3, 20], 1, 1),
        (square(2, 3, 1, 1), [70, 3], 1, 5),
    ] {
        check::<f32>(geometry, channels, groups, rows);
        check::<f64>(geometry, channels, groups, rows.min(3));
    }
}

/// Volumes: planes beyond the border, strides and distances along the depth, groups.
#[test]
fn volumes_equal_the_scalar_order() {
    let dilated = |geometry: Geometry, dilation: usize| Geometry { dilation: [dilation, 1, 1], ..geometry };
    for (geometry, channels, groups, rows) in [
        (deep(square(8, 3, 1, 1), [5, 3, 1, 1]), [4, 20], 1, 2),
        (deep(square(7, 3, 2, 1), [7, 3, 2, 1]), [3, 13], 1, 2),
        (deep(square(5, 1, 1, 0), [4, 1, 1, 0]), [20, 16], 1, 3),
        (deep(square(5, 1, 1, 0), [4, 2, 2, 1]), [20, 36], 2, 2),
        (deep(square(6, 3, 1, 1), [4, 3, 1, 1]), [24, 24], 24, 2),
        (dilated(deep(square(4, 3, 1, 1), [6, 4, 1, 3]), 2), [5, 14], 1, 3),
        (deep(square(3, 3, 1, 1), [1, 3, 1, 1]), [6, 12], 1, 9),
    ] {
        check::<f32>(geometry, channels, groups, rows);
        check::<f64>(geometry, channels, groups, rows);
    }
}

/// Images whose bands do not fit one task, and more images than there are chunks.
#[test]
fn bands_and_chunks_equal_the_scalar_order() {
    check::<f32>(square(90, 3, 1, 1), [20, 4], 1, 1);
    check::<f32>(square(60, 3, 2, 1), [40, 16], 1, 1);
    check::<f32>(square(5, 3, 1, 1), [3, 16], 1, 37);
    check::<f32>(square(260, 1, 1, 0), [2, 16], 1, 1);
}

prop_compose! {
    pub(super) fn geometries()(
        depth in prop::option::weighted(0.4, 1usize..6),
        plane in prop::array::uniform2(1usize..14),
        kernel in prop::array::uniform3(1usize..5),
        stride in prop::array::uniform3(1usize..4),
        padding in prop::array::uniform3(0usize..3),
        dilation in prop::array::uniform3(1usize..3),
        beyond in prop::array::uniform3(0usize..3),
    ) -> Geometry {
        // The border at the end differs from the one before by what `beyond` says; a window
        // may then be larger than the image, or see nothing of it.
        let [height, width] = plane;
        let input = [depth.unwrap_or(1), height, width];
        let output = [0, 1, 2].map(|i| {
            let reach = dilation[i] * (kernel[i] - 1) + 1;
            (input[i] + padding[i] + beyond[i]).saturating_sub(reach) / stride[i] + 1
        });
        let mut geometry = Geometry { input, output, kernel, stride, padding, dilation };
        if depth.is_none() {
            (geometry.output[0], geometry.kernel[0], geometry.padding[0]) = (1, 1, 0);
        }
        geometry
    }
}

/// The convolution as textbooks define it, over a volume with a border of its own.
fn textbook(op: &Convolution, rows: usize, x: &[f64], w: &[f64]) -> Vec<f64> {
    let Geometry { input, output, kernel, stride, padding, dilation } = op.geometry;
    let (per_group_in, per_group_out) = (op.inputs / op.groups, op.outputs / op.groups);
    let places = |[depth, height, width]: [usize; 3]| {
        (0..depth * height * width).map(move |i| [i / width / height, i / width % height, i % width])
    };
    let mut y = Vec::new();
    for n in 0..rows {
        for o in 0..op.outputs {
            for place in places(output) {
                let mut sum = 0.0;
                for c in 0..per_group_in {
                    let channel = o / per_group_out * per_group_in + c;
                    for (tap, offset) in places(kernel).enumerate() {
                        let at = [0, 1, 2].map(|i| {
                            (place[i] * stride[i] + offset[i] * dilation[i]) as i64 - padding[i] as i64
                        });
                        if (0..3).all(|i| at[i] >= 0 && at[i] < input[i] as i64) {
                            let [plane, row, column] = at.map(|at| at as usize);
                            let volume = (n * op.inputs + channel) * input[0] + plane;
                            let weight = (c * op.geometry.taps() + tap) * op.outputs + o;
                            sum += x[(volume * input[1] + row) * input[2] + column] * w[weight];
                        }
                    }
                }
                y.push(sum);
            }
        }
    }
    y
}

/// The sum of y times dy, whose gradients the other two directions compute.
fn objective(op: &Convolution, rows: usize, x: &[f64], w: &[f64], dy: &[f64]) -> f64 {
    textbook(op, rows, x, w).iter().zip(dy).map(|(y, dy)| y * dy).sum()
}

/// The forward pass is the textbook's, and the gradients are its central differences.
fn check_meaning(geometry: Geometry, channels: [usize; 2], groups: usize, rows: usize) {
    let op = convolution(Direction::Forward, geometry, channels, groups);
    let cpu = &MACHINES[MACHINES.len() - 1];
    let lengths = op.lengths(rows);
    let [x, w, dy] = [0, 1, 2].map(|i| numbers::<f64>(lengths[i], 11 + i as u64));
    let [mut dx, mut dw, mut y] = lengths.map(|len| vec![0.0; len]);
    op.run_on(cpu, rows, &[&x, &w], false, &mut y);
    for (found, expected) in y.iter().zip(textbook(&op, rows, &x, &w)) {
        assert!((found - expected).abs() < 1e-12, "{op}: {found}, expected {expected}");
    }
    convolution(Direction::InputGradient, geometry, channels, groups).run_on(
        cpu,
        rows,
        &[&dy, &w],
        false,
        &mut dx,
    );
    convolution(Direction::WeightGradient, geometry, channels, groups).run_on(
        cpu,
        rows,
        &[&x, &dy],
        false,
        &mut dw,
    );
    let step = 1e-3;
    let differences = |which: usize, gradient: &[f64]| {
        // A stride that leaves out most elements of long operands, but no position for good.
        for index in (0..gradient.len()).step_by(gradient.len() / 40 + 1) {
            let [above, below] = [step, -step].map(|step| {
                let mut moved = [x.clone(), w.clone()];
                moved[which][index] += step;
                objective(&op, rows, &moved[0], &moved[1], &dy)
            });
            let expected = (above - below) / (2.0 * step);
            let found = gradient[index];
            assert!(
                (found - expected).abs() < 1e-6,
                "{op}: gradient {index} is {found}, expected {expected}"
            );
        }
    };
    differences(0, &dx);
    differences(1, &dw);
}

/// A sample's result does not depend on what else is in the batch, on any machine.
#[test]
fn a_sample_alone_and_in_a_batch_have_the_same_bits() {
    for (geometry, channels, groups) in [
        (square(28, 3, 1, 1), [1, 32], 1),
        (square(14, 3, 1, 1), [32, 64], 1),
        (square(3, 3, 1, 1), [16, 128], 1),
        (square(12, 3, 2, 1), [16, 16], 16),
    ] {
        for direction in [Direction::Forward, Direction::InputGradient] {
            let op = convolution(direction, geometry, channels, groups);
            let [image, weights, result] = op.lengths(64);
            let (from, to) = if direction == Direction::Forward { (image, result) } else { (result, image) };
            let (source, w) = (numbers::<f32>(from, 5), numbers::<f32>(weights, 6));
            let mut expected = vec![0.0; to];
            op.run_on(&MACHINES[MACHINES.len() - 1], 64, &[&source, &w], false, &mut expected);
            let (from, to) = (from / 64, to / 64);
            for cpu in MACHINES.iter().filter(|cpu| cpu.isa() != Isa::portable()) {
                for rows in [1, 7] {
                    let mut found = vec![f32::NAN; rows * to];
                    op.run_on(cpu, rows, &[&source[20 * from..(20 + rows) * from], &w], false, &mut found);
                    same(
                        &format!("{rows} of 64 samples of {op}"),
                        &found,
                        &expected[20 * to..(20 + rows) * to],
                    );
                }
            }
        }
    }
}

fn check_packed<T: Real>(dtype: DType, geometry: Geometry, channels: [usize; 2], groups: usize) {
    let cpu = &MACHINES[MACHINES.len() - 2];
    for direction in [Direction::Forward, Direction::InputGradient] {
        let op = convolution(direction, geometry, channels, groups);
        let [image, weights, result] = op.lengths(2);
        let (from, to) = if direction == Direction::Forward { (image, result) } else { (result, image) };
        let source = numbers::<T>(from, 5);
        let packed = sample(dtype, &numbers::<T>(weights, 6), op.outputs);
        let w = packed.decoded::<T>();
        let [mut expected, mut found] = [T::ZERO, T::NAN].map(|value| vec![value; to]);
        op.run_on(cpu, 2, &[&source, &w], false, &mut expected);
        let values = StepValues::default();
        let mut args = Args::new(cpu, 2, &values);
        args.set_read(0, &source);
        args.set_packed(1, packed.bytes(), packed.packing, &packed.scales);
        args.set_write(0, &mut found);
        op.run::<T>(&mut args).unwrap();
        same(&format!("{op} with weights in {dtype}"), &found, &expected);
    }
}

#[test]
fn packed_weights_are_the_decoded_ones() {
    for dtype in [DType::BFloat16, DType::Int8, DType::Uint4, DType::Binary, DType::Q4_0] {
        for (geometry, channels, groups) in [
            (square(9, 3, 1, 1), [6, 40], 1),
            (square(9, 3, 2, 1), [8, 8], 8),
            (square(5, 1, 1, 0), [30, 10], 2),
        ] {
            check_packed::<f32>(dtype, geometry, channels, groups);
            check_packed::<f64>(dtype, geometry, channels, groups);
        }
    }
}

/// Wide images so that rows come in bands, one channel or many as lanes.
#[test]
fn a_fused_activation_is_the_one_applied_afterwards() {
    for (geometry, channels) in
        [(square(14, 3, 1, 1), [8, 40]), (square(28, 3, 1, 1), [1, 7]), (square(90, 3, 1, 1), [20, 24])]
    {
        let plain = Convolution { bias: true, ..convolution(Direction::Forward, geometry, channels, 1) };
        let [image, weights, result] = plain.lengths(2);
        let (x, w) = (numbers::<f32>(image, 1), numbers::<f32>(weights, 2));
        let bias = numbers::<f32>(channels[1], 3);
        for cpu in MACHINES.iter().filter(|cpu| cpu.isa() != Isa::portable()) {
            let mut expected = vec![0.0; result];
            plain.run_on(cpu, 2, &[&x, &w, &bias], false, &mut expected);
            for activation in [Activation::Relu, Activation::Tanh] {
                let fused = Convolution { activation: Some(activation), ..plain.clone() };
                let mut found = vec![f32::NAN; result];
                fused.run_on(cpu, 2, &[&x, &w, &bias], false, &mut found);
                let expected: Vec<_> = expected.iter().map(|&z| activation.value(z)).collect();
                same(&fused.to_string(), &found, &expected);
            }
        }
    }
}

/// The border multiplies weights like any zero: an infinite weight makes NaN there.
#[test]
fn the_border_counts_as_zeros() {
    let op = convolution(Direction::Forward, square(14, 3, 1, 1), [1, 16], 1);
    let [image, weights, result] = op.lengths(1);
    let (x, mut w) = (vec![1.0f32; image], vec![1.0f32; weights]);
    w[0] = f32::INFINITY;
    for cpu in MACHINES.iter() {
        let mut y = vec![0.0; result];
        op.run_on(cpu, 1, &[&x, &w], false, &mut y);
        assert!(y[0].is_nan() && y[13].is_nan() && y[14].is_nan());
        assert!(y[15] == f32::INFINITY && y[196] == 4.0);
    }
}

#[test]
fn no_images_make_no_gradient() {
    let op = convolution(Direction::WeightGradient, square(5, 3, 1, 1), [2, 3], 1);
    let cpu = &MACHINES[0];
    let mut dw = vec![1.0f32; op.lengths(0)[1]];
    op.run_on(cpu, 0, &[&[], &[]], true, &mut dw);
    assert!(dw.iter().all(|&dw| dw == 1.0));
    op.run_on(cpu, 0, &[&[], &[]], false, &mut dw);
    assert!(dw.iter().all(|&dw| dw == 0.0));
    let forward = Convolution { direction: Direction::Forward, ..op };
    forward.run_on::<f32>(cpu, 0, &[&[], &dw], false, &mut []);
}

#[test]
fn operands_that_do_not_fit_are_refused() {
    let values = StepValues::default();
    let geometry = square(5, 3, 1, 1);
    let refused = |op: &Convolution, rows: usize, x: usize, w: usize, y: usize| {
        let (x, w, mut y) = (vec![0.0f32; x], vec![0.0f32; w], vec![0.0f32; y]);
        let mut args = Args::new(&MACHINES[0], rows, &values);
        args.set_read(0, &x);
        args.set_read(1, &w);
        args.set_read(2, &[0.0f32; 2]);
        args.set_write(0, &mut y);
        op.run::<f32>(&mut args).is_err()
    };
    let op = convolution(Direction::Forward, geometry, [2, 3], 1);
    assert!(!refused(&op, 1, 50, 54, 75));
    assert!(refused(&op, 1, 49, 54, 75) && refused(&op, 1, 50, 53, 75) && refused(&op, 2, 50, 54, 75));
    assert!(refused(&Convolution { bias: true, ..op.clone() }, 1, 50, 54, 75));
    assert!(refused(&Convolution { groups: 2, ..op.clone() }, 1, 50, 27, 75));
    assert!(refused(&Convolution { groups: 0, ..op.clone() }, 1, 50, 54, 75));
    let geometry = Geometry { stride: [1, 0, 1], ..geometry };
    assert!(refused(&Convolution { geometry, ..op }, 1, 50, 54, 75));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn kernels_equal_the_scalar_order_for_any_shape(
        geometry in geometries(),
        groups in 1usize..5,
        inputs in 1usize..7,
        outputs in 1usize..20,
        rows in 1usize..4,
        double in any::<bool>(),
    ) {
        let channels = [inputs * groups, outputs * groups];
        if double {
            check::<f64>(geometry, channels, groups, rows);
        } else {
            check::<f32>(geometry, channels, groups, rows);
        }
    }

    #[test]
    fn values_and_gradients_are_the_textbooks_for_any_shape(
        geometry in geometries(),
        groups in 1usize..4,
        inputs in 1usize..4,
        outputs in 1usize..15,
        rows in 1usize..3,
    ) {
        check_meaning(geometry, [inputs * groups, outputs * groups], groups, rows);
    }
}

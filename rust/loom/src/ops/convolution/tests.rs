//! Kernels against the scalar order, bit for bit; the order against a plain convolution in `f64`;
//! gradients against differences.

use super::{Convolution, Geometry2D, reference};
use crate::cpu::{Args, Cpu, Isa, Real, StepValues};
use crate::ops::{Direction, Operation};
use proptest::prelude::*;
use std::sync::LazyLock;

/// Every instruction set, each on one, two and three threads.
static MACHINES: LazyLock<Vec<Cpu>> = LazyLock::new(|| {
    Isa::available()
        .into_iter()
        .flat_map(|isa| [1, 2, 3].map(|threads| Cpu::with_threads(isa, threads).unwrap()))
        .collect()
});

/// Numbers between -1 and 1 that are the same every time.
fn numbers<T: Real>(len: usize, seed: u64) -> Vec<T> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    (0..len).map(|_| T::from_f64(next())).collect()
}

fn convolution(
    direction: Direction,
    geometry: Geometry2D,
    channels: [usize; 2],
    groups: usize,
) -> Convolution {
    let [inputs, outputs] = channels;
    Convolution { direction, geometry, inputs, outputs, groups, bias: false, activation: None }
}

/// A square window with as many outputs as fit.
fn square(input: usize, kernel: usize, stride: usize, padding: usize) -> Geometry2D {
    Geometry2D {
        input: [input; 2],
        output: [(input + 2 * padding - kernel) / stride + 1; 2],
        kernel: [kernel; 2],
        stride: [stride; 2],
        padding: [padding; 2],
        dilation: [1; 2],
    }
}

impl Convolution {
    fn lengths(&self, rows: usize) -> [usize; 3] {
        let Geometry2D { input, output, .. } = self.geometry;
        let image = rows * self.inputs * input[0] * input[1];
        [image, self.weights(), rows * self.outputs * output[0] * output[1]]
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
fn check<T: Real>(geometry: Geometry2D, channels: [usize; 2], groups: usize, rows: usize) {
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
    reference::input_gradient(&forward, rows, &dy, &w, &mut dx);
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

/// Images whose bands do not fit one task, and more images than there are chunks.
#[test]
fn bands_and_chunks_equal_the_scalar_order() {
    check::<f32>(square(90, 3, 1, 1), [20, 4], 1, 1);
    check::<f32>(square(60, 3, 2, 1), [40, 16], 1, 1);
    check::<f32>(square(5, 3, 1, 1), [3, 16], 1, 37);
    check::<f32>(square(260, 1, 1, 0), [2, 16], 1, 1);
}

prop_compose! {
    fn geometries()(
        input in prop::array::uniform2(1usize..14),
        kernel in prop::array::uniform2(1usize..5),
        stride in prop::array::uniform2(1usize..4),
        padding in prop::array::uniform2(0usize..3),
        dilation in prop::array::uniform2(1usize..3),
        beyond in prop::array::uniform2(0usize..3),
    ) -> Geometry2D {
        // The border at the end differs from the one before by what `beyond` says; a window
        // may then be larger than the image, or see nothing of it.
        let output = [0, 1].map(|i| {
            let reach = dilation[i] * (kernel[i] - 1) + 1;
            (input[i] + padding[i] + beyond[i]).saturating_sub(reach) / stride[i] + 1
        });
        Geometry2D { input, output, kernel, stride, padding, dilation }
    }
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
}

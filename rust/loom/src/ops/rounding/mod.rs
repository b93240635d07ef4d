//! Operands of mixed products on the CPU: rounded to bfloat16, and kept as the numbers they then are.
//!
//! A product of two such numbers is exact in single precision, and the sums go on in order with
//! fused multiply-add, so every instruction set gives the same bits.

mod pairs;

pub(super) use pairs::with_pairs;

use super::element_loops::PASS;
use crate::simd::{Cpu, Kernel, Real, Vector, to_bfloat16};
use crate::tensor::{Buffer, Precision};
use std::cell::Cell;
use std::thread::LocalKey;

thread_local! {
    /// The first operand of a product, rounded; it only grows.
    static LEFT: Cell<Buffer> = Cell::default();
    /// The second one.
    static RIGHT: Cell<Buffer> = Cell::default();
}

/// Which of a product's operands, for both to be there at once.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operand {
    Left,
    Right,
}

impl Operand {
    fn memory(self) -> &'static LocalKey<Cell<Buffer>> {
        match self {
            Operand::Left => &LEFT,
            Operand::Right => &RIGHT,
        }
    }

    /// Lends so many elements of memory that the thread keeps; what they hold does not matter.
    fn with_room<T: Real, R>(self, len: usize, then: impl FnOnce(&mut [T]) -> R) -> R {
        // Taken out for the duration, so that a product inside may round on its own.
        let mut buffer = self.memory().take();
        if buffer.len_bytes() < len * size_of::<T>() {
            drop(std::mem::take(&mut buffer));
            buffer = Buffer::working::<T>(len);
        }
        let result = then(&mut buffer.as_mut_slice::<T>()[..len]);
        self.memory().set(buffer);
        result
    }
}

/// Shows `elements` as a product is to multiply them: rounded to bfloat16 where it is `mixed`, in
/// memory that the thread keeps.
pub(super) fn with_operand<T: Real, R>(
    cpu: &Cpu,
    mixed: bool,
    operand: Operand,
    elements: &[T],
    then: impl FnOnce(&[T]) -> R,
) -> R {
    if !mixed {
        return then(elements);
    }
    operand.with_room(elements.len(), |rounded: &mut [T]| {
        let isa = cpu.isa();
        cpu.pool().for_each_chunk(rounded, PASS, |index, rounded| {
            let elements = &elements[index * PASS..][..rounded.len()];
            T::dispatch(isa, Round { elements, rounded });
        });
        then(rounded)
    })
}

/// Rounds some elements.
struct Round<'a, T> {
    elements: &'a [T],
    rounded: &'a mut [T],
}

impl<T: Real> Kernel<T> for Round<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        match T::PRECISION {
            Precision::Float32 | Precision::Mixed => {
                let elements: &[f32] = bytemuck::cast_slice(self.elements);
                let rounded: &mut [f32] = bytemuck::cast_slice_mut(self.rounded);
                for (to, from) in rounded.iter_mut().zip(elements) {
                    *to = to_bfloat16(*from);
                }
            }
            // Networks in double precision have no mixed products.
            Precision::Float64 => self.rounded.copy_from_slice(self.elements),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::{DType, testing::sample};
    use crate::ops::geometry::Geometry;
    use crate::ops::pointwise::Activation;
    use crate::ops::testing::{Data, Setting, cpus, numbers};
    use crate::ops::update::Optimizer;
    use crate::ops::{Convolution, Direction, Operation, Product, ProductUpdate, Update};
    use half::bf16;
    use proptest::prelude::*;

    const DIRECTIONS: [Direction; 3] =
        [Direction::Forward, Direction::InputGradient, Direction::WeightGradient];

    /// What an operation makes of its operands is what it makes plainly of the rounded ones, bit for
    /// bit, on every machine.
    #[track_caller]
    fn check<O: Operation + Clone>(plain: &O, mixed: &O, setting: &Setting<f32>) {
        let expected = setting.with_rounded(|x| bf16::from_f32(x).to_f32()).run(plain);
        let found = setting.run(mixed);
        for (expected, found) in expected.iter().zip(&found) {
            crate::ops::testing::assert_bits(found.real(), expected.real());
        }
    }

    fn product_setting(op: &Product, rows: usize, accumulate: bool) -> Setting<f32> {
        let m = rows * op.multiplier;
        let (x, w, y) = (m * op.inputs, op.inputs * op.outputs, m * op.outputs);
        let (reads, write) = match op.direction {
            Direction::Forward => (vec![x, w, op.outputs], y),
            Direction::InputGradient => (vec![y, w, x], x),
            Direction::WeightGradient => (vec![x, y], w),
        };
        let reads: Vec<Vec<f32>> = reads.iter().zip(1..).map(|(len, seed)| numbers(seed, *len)).collect();
        let reads: Vec<&[f32]> = reads.iter().map(Vec::as_slice).collect();
        let mut setting = Setting::new(rows, &reads, &[write]);
        setting.writes = vec![Data::Real(numbers(9, write))];
        setting.accumulate = accumulate;
        setting
    }

    fn geometry(input: [usize; 3], kernel: [usize; 3], stride: [usize; 3]) -> Geometry {
        let padding = [0, 1, 1];
        let output = [0, 1, 2].map(|i| (input[i] + 2 * padding[i] - kernel[i]) / stride[i] + 1);
        Geometry { input, output, kernel, stride, padding, dilation: [1; 3] }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn products_multiply_rounded_operands(
            rows in 1usize..40, inputs in 1usize..70, outputs in 1usize..70, direction in 0usize..3,
            accumulate: bool, fused: bool,
        ) {
            let mut plain = Product::new(DIRECTIONS[direction], 1, inputs, outputs);
            match plain.direction {
                Direction::Forward => (plain.bias, plain.activation) = (fused, fused.then_some(Activation::Relu)),
                Direction::InputGradient => plain.derivative = fused.then_some(Activation::Tanh),
                Direction::WeightGradient => {}
            }
            let mixed = Product { mixed: true, ..plain.clone() };
            check(&plain, &mixed, &product_setting(&plain, rows, accumulate));
        }

        #[test]
        fn convolutions_multiply_rounded_operands(
            rows in 1usize..4, inputs in 1usize..9, outputs in 1usize..20, groups in 1usize..3,
            direction in 0usize..3, (height, width) in (3usize..9, 3usize..9), stride in 1usize..3,
        ) {
            let geometry = geometry([1, height, width], [1, 3, 2], [1, stride, 1]);
            let (inputs, outputs) = (inputs * groups, outputs * groups);
            let plain = Convolution {
                direction: DIRECTIONS[direction],
                geometry,
                inputs,
                outputs,
                groups,
                bias: direction == 0,
                activation: None,
                mixed: false,
                quantized: false,
            };
            let x = rows * inputs * height * width;
            let y = rows * outputs * geometry.volumes().1;
            let w = inputs / groups * 6 * outputs;
            let (reads, write) = [(vec![x, w, outputs], y), (vec![y, w], x), (vec![x, y], w)][direction].clone();
            let reads: Vec<Vec<f32>> = reads.iter().zip(3..).map(|(len, seed)| numbers(seed, *len)).collect();
            let reads: Vec<&[f32]> = reads.iter().map(Vec::as_slice).collect();
            let mixed = Convolution { mixed: true, ..plain.clone() };
            check(&plain, &mixed, &Setting::new(rows, &reads, &[write]));
        }
    }

    #[test]
    fn updates_use_the_product_of_rounded_operands() {
        let (rows, inputs, outputs) = (7, 33, 20);
        let len = inputs * outputs;
        let update = Update::new(Optimizer::sgd(), len);
        let product = Product::new(Direction::WeightGradient, 1, inputs, outputs);
        let (x, dy): (Vec<f32>, Vec<f32>) = (numbers(1, rows * inputs), numbers(2, rows * outputs));
        let mut setting = Setting::new(rows, &[&x, &dy, &vec![0.0; len]], &[]);
        setting.writes =
            (0..1 + update.optimizer.slots().len()).map(|i| Data::Real(numbers(i as u64, len))).collect();
        setting.values.rate = 0.1;
        let plain = ProductUpdate { product, update, offset: 0 };
        let product = Product { mixed: true, ..plain.product.clone() };
        check(&plain, &ProductUpdate { product, ..plain.clone() }, &setting);
    }

    #[test]
    fn packed_weights_are_rounded_after_they_are_decoded() {
        for dtype in DType::all() {
            for direction in [Direction::Forward, Direction::InputGradient] {
                let plain = Product::new(direction, 1, 40, 24);
                let setting = product_setting(&plain, 5, false);
                let weight = setting.reads[1].real();
                let sample = sample(dtype, weight, 24);
                let decoded = sample.decoded::<f32>();
                let mut unpacked = setting.clone();
                unpacked.reads[1] = Data::Real(decoded);
                let op = Product { mixed: true, ..plain };
                for cpu in cpus() {
                    let expected = unpacked.run_on(&op, cpu).unwrap();
                    let mut found = vec![0.0f32; expected[0].real().len()];
                    let mut args = crate::ops::Args::new(cpu, 5, &setting.values);
                    args.set_read(0, setting.reads[0].real());
                    args.set_packed(1, sample.bytes(), sample.packing, &sample.scales);
                    args.set_write(0, &mut found);
                    op.run::<f32>(&mut args).unwrap();
                    crate::ops::testing::assert_bits(&found, expected[0].real());
                }
            }
        }
    }

    #[test]
    fn every_machine_rounds_as_the_half_crate_does() {
        let stream = crate::random::Stream::new(4, 0, 0, crate::random::Use::Initialize);
        let mut elements: Vec<f32> =
            (0..3 * PASS as u64 + 5).map(|i| f32::from_bits(stream.word(i))).collect();
        elements[..8].copy_from_slice(&[
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::from_bits(0x7FFF_FFFF),
            f32::from_bits(0xFF80_0001),
            f32::MAX,
            -0.0,
            f32::from_bits(1),
            f32::from_bits(0x3F80_8000),
        ]);
        for cpu in cpus() {
            with_operand(cpu, true, Operand::Left, &elements, |rounded| {
                for (found, x) in rounded.iter().zip(&elements) {
                    let expected = bf16::from_f32(*x).to_f32();
                    assert!(found.to_bits() == expected.to_bits() || found.is_nan() && x.is_nan(), "{x:e}");
                }
            });
            with_operand(cpu, false, Operand::Right, &elements, |same| {
                assert!(std::ptr::eq(same, elements.as_slice()));
            });
        }
    }
}

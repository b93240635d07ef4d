//! The dense layer's products on the CPU's matrix product.

use super::Product;
use crate::dtype::{DType, Granularity, Packing};
use crate::matrix::{
    Bfloat16Panels, Bias, Epilogue, Int8Panels, IntegerPart, IntegerWeight, NoEpilogue, Output, PackedPanels,
    PanelSource, Start, Strided, TurnedPanels, integer_product, integer_products, product,
};
use crate::ops::pointwise::{self, Activation};
use crate::ops::rounding::{self, with_operand};
use crate::ops::{Args, Direction, Operation, View};
use crate::simd::{Cpu, Isa, Real};
use crate::tensor::{Buffer, Precision};
use crate::{Error, Result};
use std::cell::RefCell;

/// An activation applied to finished elements while they are in the cache.
struct Activate(Activation);

impl<T: Real> Epilogue<T> for Activate {
    fn is_none(&self) -> bool {
        self.0 == Activation::Linear
    }

    fn apply(&self, isa: Isa, _row: usize, _column: usize, piece: &mut [T]) {
        self.0.apply(isa, piece);
    }
}

/// Multiplies a finished gradient by an activation's derivative while it is in the cache.
pub(super) struct Derive<'a, T> {
    pub activation: Activation,
    /// What the activation has saved, as many elements a row as the product has columns.
    pub saved: &'a [T],
    pub columns: usize,
}

impl<T: Real> Epilogue<T> for Derive<'_, T> {
    fn apply(&self, isa: Isa, row: usize, column: usize, piece: &mut [T]) {
        let saved = &self.saved[row * self.columns + column..][..piece.len()];
        pointwise::derive_in_place(isa, self.activation, saved, piece);
    }
}

/// The same as a thing to keep.
struct Finished<'a> {
    bias: Option<Bias<'a, f32>>,
    activation: Option<Activation>,
}

impl Epilogue<f32> for Finished<'_> {
    fn is_none(&self) -> bool {
        self.bias.is_none() && self.activation.is_none()
    }

    fn apply(&self, isa: Isa, row: usize, column: usize, piece: &mut [f32]) {
        if let Some(bias) = &self.bias {
            bias.apply(isa, row, column, piece);
        }
        if let Some(activation) = self.activation {
            activation.apply(isa, piece);
        }
    }
}

/// What follows a product: a bias for each column where there is one, then an activation.
pub(super) fn finish<T: Real, R>(
    bias: Option<Bias<'_, T>>,
    activation: Option<Activation>,
    then: impl FnOnce(&dyn Epilogue<T>) -> R,
) -> R {
    match (bias, activation) {
        (None, None) => then(&NoEpilogue),
        (Some(bias), None) => then(&bias),
        (None, Some(activation)) => then(&Activate(activation)),
        (Some(bias), Some(activation)) => then(&(bias, Activate(activation))),
    }
}

thread_local! {
    /// Decoded weights, for types and directions without a decoder of their own.
    static DECODED: RefCell<Buffer> = RefCell::default();
}

/// Shows a weight as plain elements, decoded into memory the thread keeps where it is packed.
pub(in crate::ops) fn with_decoded<T: Real, R>(
    isa: Isa,
    weight: View<'_>,
    len: usize,
    then: impl FnOnce(&[T]) -> R,
) -> Result<R> {
    let Some(packing) = weight.packed else { return Ok(then(weight.elements())) };
    // Taken out for the duration, so that a product inside may decode on its own.
    let mut buffer = DECODED.take();
    if buffer.len_bytes() < len * size_of::<T>() {
        buffer = Buffer::working::<T>(len);
    }
    let elements = &mut buffer.as_mut_slice::<T>()[..len];
    packing.decode(isa, weight.bytes, weight.scales, elements);
    let result = then(elements);
    DECODED.set(buffer);
    Ok(result)
}

/// Whether there is vector code that decodes exactly this.
fn has_panels_of_its_own(packing: &Packing) -> bool {
    matches!((packing.dtype, packing.granularity), (DType::BFloat16, _) | (DType::Int8, Granularity::Channel))
}

/// Shows a (depth, columns) weight as the right operand of a product that may be mixed.
pub(in crate::ops) fn with_right<T: Real, R>(
    cpu: &Cpu,
    mixed: bool,
    weight: View<'_>,
    depth: usize,
    columns: usize,
    then: impl FnOnce(&dyn PanelSource<T>) -> R,
) -> Result<R> {
    if let Some(packing) = weight.packed.filter(|packing| !mixed && !has_panels_of_its_own(packing)) {
        return Ok(then(&PackedPanels::new(packing, weight.bytes, weight.scales)));
    }
    let found = weight.packed.map(|packing| (packing.dtype, packing.granularity));
    match (found, T::PRECISION) {
        // Of these, rounding would change nothing.
        (Some((DType::BFloat16, _)), Precision::Float32) => {
            Ok(then(&Bfloat16Panels::new(bytemuck::cast_slice(weight.bytes), depth, columns)))
        }
        (Some((DType::Int8, Granularity::Channel)), Precision::Float32) if !mixed => {
            let scales: &[T] = bytemuck::cast_slice(weight.scales);
            Ok(then(&Int8Panels::new(bytemuck::cast_slice(weight.bytes), scales, depth, columns)))
        }
        _ => with_decoded(cpu.isa(), weight, depth * columns, |plain: &[T]| {
            with_operand(cpu, mixed, rounding::Operand::Right, plain, |plain| {
                then(&Strided::right(plain, depth, columns))
            })
        }),
    }
}

impl Product {
    /// How the weight of a product with quantised activations is packed, as (summed extent, results).
    pub(super) fn quantized_packing(&self, packing: Packing) -> Result<Packing> {
        match self.direction {
            Direction::Forward if !packing.turned => Ok(packing),
            Direction::InputGradient if packing.turned && self.derivative.is_none() => {
                Ok(packing.as_stored())
            }
            _ => Err(Error::Internal(format!("{self} is not for this direction"))),
        }
    }

    /// What a product with quantised activations multiplies with, what follows it, and where it goes: the forward
    /// direction, or the way back through a weight in blocks along its rows, which is such a product with the transpose.
    fn quantized_part<'a>(&self, args: &mut Args<'a>) -> Result<IntegerPart<'a, Finished<'a>>> {
        let view = args.view(1);
        let Some(packing) = view.packed else {
            return Err(Error::Internal(format!("{self}: the weight is not packed")));
        };
        let packing = self.quantized_packing(packing)?;
        let bias = self.bias.then(|| Bias::Columns(args.read::<f32>(2)));
        Ok(IntegerPart {
            weight: IntegerWeight::new(packing, view.bytes, view.scales)?,
            start: if args.accumulate { Start::Continue } else { Start::Zero },
            epilogue: Finished { bias, activation: self.activation },
            c: Output::new(args.write(0), args.rows * self.multiplier, packing.channels),
        })
    }

    /// The most products that [`run_beside`](Product::run_beside) takes.
    pub const MOST_BESIDE: usize = 3;

    /// Runs forward products with quantised activations of one left operand, two or three of them.
    ///
    /// # Errors
    /// As each of them by itself.
    pub fn run_beside(parts: &mut [(&Self, Args<'_>)]) -> Result<()> {
        match parts {
            [one, two] => {
                let made = [one.0.quantized_part(&mut one.1)?, two.0.quantized_part(&mut two.1)?];
                integer_products(one.1.cpu, one.1.read::<f32>(0), made);
            }
            [one, two, three] => {
                let made = [
                    one.0.quantized_part(&mut one.1)?,
                    two.0.quantized_part(&mut two.1)?,
                    three.0.quantized_part(&mut three.1)?,
                ];
                integer_products(one.1.cpu, one.1.read::<f32>(0), made);
            }
            _ => return Err(Error::Internal(format!("{} products beside each other", parts.len()))),
        }
        Ok(())
    }

    fn run_quantized(&self, args: &mut Args<'_>) -> Result<()> {
        let IntegerPart { weight, start, epilogue, c } = self.quantized_part(args)?;
        integer_product(args.cpu, args.read::<f32>(0), &weight, start, &epilogue, c);
        Ok(())
    }
}

impl Operation for Product {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let (rows, inputs, outputs) = (args.rows * self.multiplier, self.inputs, self.outputs);
        let start = if args.accumulate { Start::Continue } else { Start::Zero };
        if self.quantized {
            return match T::PRECISION {
                Precision::Float32 => self.run_quantized(args),
                _ => Err(Error::Internal(format!("{self} is not for this precision"))),
            };
        }
        let (cpu, mixed) = (args.cpu, self.mixed);
        if self.pairs_pay(cpu, T::PRECISION, rows) {
            return self.run_pairs(args);
        }
        let (left, right) = (rounding::Operand::Left, rounding::Operand::Right);
        match self.direction {
            Direction::Forward => {
                let bias = self.bias.then(|| Bias::Columns(args.read::<T>(2)));
                let weight = args.view(1);
                let y = Output::new(args.write(0), rows, outputs);
                with_operand(cpu, mixed, left, args.read::<T>(0), |x| {
                    let x = Strided::left(x, rows, inputs);
                    finish(bias, self.activation, |epilogue| {
                        with_right(cpu, mixed, weight, inputs, outputs, |w| {
                            product(cpu, &x, w, start, epilogue, y);
                        })
                    })
                })
            }
            Direction::InputGradient => {
                let weight = args.view(1);
                let derivative = self.derivative.map(|activation| Derive {
                    activation,
                    saved: args.read::<T>(2),
                    columns: inputs,
                });
                let dx = Output::new(args.write(0), rows, inputs);
                // Turned, the weight is what a product of the forward direction reads.
                let turned = weight.packed.filter(|packing| packing.turned && !mixed);
                with_operand(cpu, mixed, left, args.read::<T>(0), |dy| {
                    let dy = Strided::left(dy, rows, outputs);
                    if let Some(packing) = turned {
                        let w = PackedPanels::new(packing.as_stored(), weight.bytes, weight.scales);
                        match derivative {
                            Some(derive) => product(cpu, &dy, &w, start, &derive, dx),
                            None => product(cpu, &dy, &w, start, &NoEpilogue, dx),
                        }
                        return Ok(());
                    }
                    if let Some(packing) = weight.packed.filter(|packing| !packing.turned && !mixed) {
                        let w = TurnedPanels::new(packing, weight.bytes, weight.scales);
                        match derivative {
                            Some(derive) => product(cpu, &dy, &w, start, &derive, dx),
                            None => product(cpu, &dy, &w, start, &NoEpilogue, dx),
                        }
                        return Ok(());
                    }
                    with_decoded(cpu.isa(), weight, inputs * outputs, |plain: &[T]| {
                        with_operand(cpu, mixed, right, plain, |plain| {
                            let w = Strided::right_transposed(plain, outputs, inputs);
                            match derivative {
                                Some(derive) => product(cpu, &dy, &w, start, &derive, dx),
                                None => product(cpu, &dy, &w, start, &NoEpilogue, dx),
                            }
                        });
                    })
                })
            }
            Direction::WeightGradient => {
                let dw = Output::new(args.write(0), inputs, outputs);
                with_operand(cpu, mixed, left, args.read::<T>(0), |x| {
                    with_operand(cpu, mixed, right, args.read::<T>(1), |dy| {
                        let x = Strided::left_transposed(x, inputs, rows);
                        let dy = Strided::right(dy, rows, outputs);
                        product(cpu, &x, &dy, start, &NoEpilogue, dw);
                    });
                });
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::StepValues;
    use crate::ops::testing::numbers;

    const TYPES: [DType; 3] = [DType::Q8_0, DType::Q4_0, DType::MxFp4];

    struct Packed {
        packing: Packing,
        bytes: Vec<u8>,
    }

    impl Packed {
        fn new(dtype: DType, k: usize, n: usize) -> Self {
            let packing = Packing::new(dtype, k, n);
            let mut bytes = vec![0; packing.bytes()];
            packing.encode(None, &numbers::<f32>((k + n) as u64, k * n), &mut bytes, &mut []).unwrap();
            Self { packing, bytes }
        }
    }

    fn forward(k: usize, n: usize) -> Product {
        Product { quantized: true, ..Product::new(Direction::Forward, 1, k, n) }
    }

    fn args<'a>(
        values: &'a StepValues,
        rows: usize,
        x: &'a [f32],
        (weight, packing): (&'a Packed, Packing),
        bias: &'a [f32],
        y: &'a mut [f32],
    ) -> Args<'a> {
        let mut args = Args::new(Cpu::global().unwrap(), rows, values);
        args.set_read(0, x);
        args.set_packed(1, &weight.bytes, packing, &[]);
        args.set_read(2, bias);
        args.set_write(0, y);
        args
    }

    fn bits(y: &[f32]) -> Vec<u32> {
        y.iter().map(|y| y.to_bits()).collect()
    }

    /// The way back through a table in blocks along its rows is the product with the table's transpose.
    #[test]
    fn heads_quantise_what_they_read() {
        let (width, words, values) = (70, 45, StepValues::default());
        for dtype in TYPES {
            let packed = Packed::new(dtype, width, words);
            for rows in [1, 3, 9] {
                let x = numbers::<f32>(rows as u64, rows * width);
                let (mut expected, mut found) = (vec![7.0; rows * words], vec![8.0; rows * words]);
                let op = forward(width, words);
                let mut own = args(&values, rows, &x, (&packed, packed.packing), &[], &mut expected);
                op.run::<f32>(&mut own).unwrap();
                let turned = Packing { turned: true, rows: words, channels: width, ..packed.packing };
                let op =
                    Product { quantized: true, ..Product::new(Direction::InputGradient, 1, words, width) };
                op.run::<f32>(&mut args(&values, rows, &x, (&packed, turned), &[], &mut found)).unwrap();
                assert_eq!(bits(&found), bits(&expected), "{dtype}, {rows} rows");
            }
        }
    }

    /// Products of one value that begin together are those alone, whatever follows them.
    #[test]
    fn products_beside_each_other_are_those_alone() {
        let (k, values) = (96, StepValues::default());
        for (dtype, other) in [(TYPES[0], TYPES[0]), (TYPES[1], TYPES[1]), (TYPES[2], TYPES[1])] {
            let weights = [Packed::new(dtype, k, 200), Packed::new(other, k, 33), Packed::new(dtype, k, 16)];
            for rows in [1, 4, 9] {
                let (x, bias) = (numbers::<f32>(5, rows * k), numbers::<f32>(6, 200));
                let ops = [
                    Product { bias: true, activation: Some(Activation::Silu), ..forward(k, 200) },
                    forward(k, 33),
                    Product { bias: true, ..forward(k, 16) },
                ];
                let alone: Vec<Vec<f32>> = ops
                    .iter()
                    .zip(&weights)
                    .map(|(op, weight)| {
                        let mut y = vec![0.0; rows * op.outputs];
                        let weight = (weight, weight.packing);
                        op.run::<f32>(&mut args(&values, rows, &x, weight, &bias[..op.outputs], &mut y))
                            .unwrap();
                        y
                    })
                    .collect();
                for count in [2, 3] {
                    let mut made: Vec<Vec<f32>> = alone.iter().map(|y| vec![9.0; y.len()]).collect();
                    let parts = ops.iter().zip(&weights).zip(&mut made).take(count);
                    let mut parts: Vec<_> = parts
                        .map(|((op, weight), y)| {
                            let weight = (weight, weight.packing);
                            (op, args(&values, rows, &x, weight, &bias[..op.outputs], y))
                        })
                        .collect();
                    Product::run_beside(&mut parts).unwrap();
                    drop(parts);
                    for (made, alone) in made.iter().zip(&alone).take(count) {
                        assert_eq!(
                            bits(made),
                            bits(alone),
                            "{dtype} and {other}, {rows} rows, {count} products"
                        );
                    }
                }
            }
        }
    }
}

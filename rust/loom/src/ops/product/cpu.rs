//! The dense layer's products on the CPU's matrix product.

use super::Product;
use crate::dtype::{DType, Granularity, Packing};
use crate::matrix::{
    Bfloat16Panels, Bias, Epilogue, Int8Panels, IntegerWeight, NoEpilogue, Output, PackedPanels, PanelSource,
    Start, Strided, TurnedPanels, integer_product, product,
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
struct Derive<'a, T> {
    activation: Activation,
    /// What the activation has saved, as many elements a row as the product has columns.
    saved: &'a [T],
    columns: usize,
}

impl<T: Real> Epilogue<T> for Derive<'_, T> {
    fn apply(&self, isa: Isa, row: usize, column: usize, piece: &mut [T]) {
        let saved = &self.saved[row * self.columns + column..][..piece.len()];
        pointwise::derive_in_place(isa, self.activation, saved, piece);
    }
}

/// What follows a product: a bias for each column where there is one, then an activation.
fn finish<T: Real, R>(
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
    /// The forward direction with quantised activations.
    fn run_quantized(&self, args: &mut Args<'_>) -> Result<()> {
        let rows = args.rows * self.multiplier;
        let weight = args.view(1);
        let Some(packing) = weight.packed else {
            return Err(Error::Internal(format!("{self}: the weight is not packed")));
        };
        let codes = IntegerWeight::new(packing, weight.bytes, weight.scales)?;
        let start = if args.accumulate { Start::Continue } else { Start::Zero };
        let bias = self.bias.then(|| Bias::Columns(args.read::<f32>(2)));
        let y = Output::new(args.write(0), rows, self.outputs);
        finish(bias, self.activation, |epilogue| {
            integer_product(args.cpu, args.read::<f32>(0), &codes, start, epilogue, y);
        });
        Ok(())
    }
}

impl Operation for Product {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let (rows, inputs, outputs) = (args.rows * self.multiplier, self.inputs, self.outputs);
        let start = if args.accumulate { Start::Continue } else { Start::Zero };
        if self.quantized {
            return match (T::PRECISION, self.direction) {
                (Precision::Float32, Direction::Forward) => self.run_quantized(args),
                _ => Err(Error::Internal(format!("{self} is not for this direction or precision"))),
            };
        }
        let (cpu, mixed) = (args.cpu, self.mixed);
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

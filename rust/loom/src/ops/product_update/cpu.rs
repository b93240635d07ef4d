//! Some rows of the gradient at a time, updated while they are in the cache.

use super::ProductUpdate;
use crate::Result;
use crate::matrix::{NoEpilogue, Output, Rows, Start, Strided, product_of_pairs_serial, product_serial};
use crate::ops::rounding::{self, with_operand, with_pairs};
use crate::ops::update::Slots;
use crate::ops::{Args, Operation};
use crate::simd::Real;
use crate::tensor::Buffer;
use std::cell::Cell;

/// Elements of the gradient that one task makes and uses up: half of the first-level cache.
const CHUNK: usize = 1 << 12;

thread_local! {
    /// Where this thread keeps its rows of the gradient; it only grows.
    static ROWS: Cell<Buffer> = Cell::default();
}

impl Operation for ProductUpdate {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let (cpu, mixed) = (args.cpu, self.product.mixed);
        let (left, right) = (rounding::Operand::Left, rounding::Operand::Right);
        let (inputs, outputs) = (self.product.inputs, self.product.outputs);
        let rows = args.rows * self.product.multiplier;
        // Rounded once, not again for every few rows of the gradient.
        if self.product.pairs_pay(cpu, T::PRECISION, rows) {
            with_pairs(cpu, left, (args.read(0), inputs, Rows::Across), |x| {
                with_pairs(cpu, right, (args.read(1), outputs, Rows::Across), |dy| {
                    self.run_by_rows::<T>(args, |first, count, dw| {
                        let output = Output::new(bytemuck::cast_slice_mut(dw), count, outputs);
                        product_of_pairs_serial(
                            cpu.isa(),
                            (x.from_lane(first), dy, rows),
                            Start::Zero,
                            output,
                        );
                    });
                });
            });
            return Ok(());
        }
        with_operand(cpu, mixed, left, args.read::<T>(0), |x| {
            with_operand(cpu, mixed, right, args.read::<T>(1), |dy| {
                self.run_by_rows(args, |first, count, dw| {
                    // Column `first` of x and the next ones are the rows of its transpose.
                    let x = Strided::new(&x[first..], rows, count, inputs, 1);
                    let dy = Strided::right(dy, rows, outputs);
                    let output = Output::new(dw, count, outputs);
                    product_serial(cpu.isa(), &x, &dy, Start::Zero, &NoEpilogue, output);
                });
            })
        });
        Ok(())
    }
}

impl ProductUpdate {
    /// Has `gradient` write some rows of the weight's gradient at a time, and updates by them.
    fn run_by_rows<T: Real>(
        &self,
        args: &mut Args<'_>,
        gradient_rows: impl Fn(usize, usize, &mut [T]) + Sync,
    ) {
        let (inputs, outputs) = (self.product.inputs, self.product.outputs);
        let gradient = args.read::<T>(2);
        let (cpu, values) = (args.cpu, args.values);
        let mut slots = Slots::of(&self.update, args, 3);
        let weight = self.offset..self.offset + inputs * outputs;
        self.update.run_plain(cpu, values, 0..weight.start, &mut slots, gradient);
        let chunk = (CHUNK / outputs).max(1) * outputs;
        self.update.run_range(cpu, values, weight.clone(), chunk, &mut slots, |part, update| {
            let (first, count) = (part.start / outputs, part.len() / outputs);
            // Taken out for the duration; the product has scratch memory of its own.
            let mut buffer = ROWS.take();
            if buffer.len_bytes() < part.len() * size_of::<T>() {
                buffer = Buffer::working::<T>(part.len());
            }
            let dw = &mut buffer.as_mut_slice::<T>()[..part.len()];
            gradient_rows(first, count, dw);
            update(dw);
            ROWS.set(buffer);
        });
        self.update.run_plain(cpu, values, weight.end..self.update.len, &mut slots, gradient);
    }
}

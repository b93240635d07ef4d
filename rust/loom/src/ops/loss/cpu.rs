//! Runs a loss: cuts the rows into tasks, hands each to the kernel of its kind.

use super::Loss;
use super::class::{ClassRows, Target};
use super::element::{ElementRows, PlaceRows};
use super::rows::Rows;
use super::targets::{validate_labels, validate_output};
use crate::ops::element_loops::{TRANSCENDENTAL, rows_per_task};
use crate::ops::{Args, Operation};
use crate::simd::Real;
use crate::{Error, Result};

impl Operation for Loss {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        if self.class_targets && !self.is_over_classes() {
            return Err(Error::Value(format!(
                "{self} takes real targets like its output, not class indices"
            )));
        }
        let output = args.read::<T>(0);
        let weights = if self.weighted { args.read::<T>(2) } else { &[] };
        let target = if self.class_targets {
            Target::Classes(args.read::<i32>(1))
        } else {
            Target::Real(args.read::<T>(1))
        };
        if let Target::Classes(labels) = target {
            validate_labels(self, labels)?;
        }
        validate_output(self, output)?;
        let scale = if self.scaled { f64::from(args.values.loss_scale) } else { 1.0 };
        let (isa, divisor) = (args.cpu.isa(), args.values.loss_divisor / scale);
        let losses = args.write::<T>(0);
        // Where each step has a weight of its own, it is a row, and rows add up their steps.
        let of_steps = self.of_steps();
        let (op, steps) = of_steps.as_ref().map_or((self, 1), |op| (op, self.outer));
        let mut of_rows = vec![T::ZERO; if steps > 1 { losses.len() * steps } else { 0 }];
        let found = if steps > 1 { &mut of_rows[..] } else { &mut *losses };
        let (row, rows) = (op.elements(), rows_per_task(op.elements(), TRANSCENDENTAL));
        let task = |task: usize, losses: &mut [T], gradient: &mut [T]| {
            let first = task * rows;
            let output = &output[first * row..][..losses.len() * row];
            let places = if op.weighs_inner() { op.inner } else { 0 };
            let each = places.max(1);
            let weights =
                if self.weighted { &weights[first * each..][..losses.len() * each] } else { weights };
            let rows = Rows { output, weights, places, divisor, losses, gradient };
            let target = target.from(first, row, op.positions());
            match target {
                target if op.is_over_classes() => T::dispatch(isa, ClassRows { op, rows, target }),
                Target::Real(target) if places > 0 => {
                    T::dispatch(isa, PlaceRows { function: op.function, rows, target, row });
                }
                Target::Real(target) => {
                    T::dispatch(isa, ElementRows { function: op.function, rows, target, row });
                }
                Target::Classes(_) => {} // refused above
            }
        };
        if self.gradient {
            let gradient = args.write::<T>(1);
            args.cpu.pool().for_each_chunk2((&mut *found, rows), (gradient, rows * row), task);
        } else {
            args.cpu.pool().for_each_chunk(&mut *found, rows, |index, losses| task(index, losses, &mut []));
        }
        for (loss, steps) in losses.iter_mut().zip(of_rows.chunks_exact(steps)) {
            *loss = steps.iter().fold(T::ZERO, |sum, step| sum + *step);
        }
        Ok(())
    }
}

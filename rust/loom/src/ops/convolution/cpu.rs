//! Runs convolutions: operands rounded where they are, weights decoded where they are packed.

use super::window::Sweep;
use super::{Convolution, correlate, scratch, sweep};
use crate::ops::rounding::{self, with_operand};
use crate::ops::{Args, Direction, Operation, View};
use crate::simd::{Cpu, Real};
use crate::{Error, Result};

impl Operation for Convolution {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        if self.quantized && self.direction == Direction::Forward {
            return self.forward_quantized::<T>(args);
        }
        let (cpu, mixed) = (args.cpu, self.mixed);
        let first = args.read::<T>(0);
        with_operand(cpu, mixed, rounding::Operand::Left, first, |first| match self.direction {
            Direction::Forward => self.sweep(args, Sweep::Forward, first),
            Direction::InputGradient => self.sweep(args, Sweep::InputGradient, first),
            Direction::WeightGradient => {
                let second = args.read::<T>(1);
                with_operand(cpu, mixed, rounding::Operand::Right, second, |second| {
                    self.correlate(args, first, second)
                })
            }
        })
    }
}

impl Convolution {
    fn correlate<T: Real>(&self, args: &mut Args<'_>, input: &[T], gradient: &[T]) -> Result<()> {
        let (cpu, rows, accumulate) = (args.cpu, args.rows, args.accumulate);
        let destination = args.write::<T>(0);
        self.check(rows, input.len(), destination.len(), gradient.len())?;
        correlate::run(self, cpu, rows, correlate::Operands { input, gradient, accumulate, destination })
    }

    fn sweep<T: Real>(&self, args: &mut Args<'_>, sweep: Sweep, source: &[T]) -> Result<()> {
        let (cpu, rows) = (args.cpu, args.rows);
        let destination = args.write::<T>(0);
        self.with_weight(cpu, args.view(1), |weight: &[T]| {
            match sweep {
                Sweep::Forward => self.check(rows, source.len(), weight.len(), destination.len())?,
                Sweep::InputGradient => self.check(rows, destination.len(), weight.len(), source.len())?,
            }
            if rows == 0 {
                return Ok(());
            }
            let bias = if self.bias { args.read::<T>(2) } else { &[] };
            let channels = if sweep == Sweep::Forward { self.outputs } else { self.inputs };
            if self.bias && bias.len() != channels {
                return Err(Error::Internal(format!("{self}: a bias of {} elements", bias.len())));
            }
            let activation = self.activation;
            sweep::run(
                self,
                sweep,
                cpu,
                rows,
                sweep::Operands { source, weight, bias, activation, destination },
            )
        })
    }

    /// The weight in the computation's precision, decoded where it is packed, rounded where operands are.
    fn with_weight<T: Real>(
        &self,
        cpu: &Cpu,
        view: View<'_>,
        body: impl FnOnce(&[T]) -> Result<()>,
    ) -> Result<()> {
        let rounded = |weight: &[T]| with_operand(cpu, self.mixed, rounding::Operand::Right, weight, body);
        let Some(packed) = view.packed else { return rounded(view.elements()) };
        scratch::lend(&scratch::DECODED, self.weights(), |weight| {
            packed.decode(cpu.isa(), view.bytes, view.scales, weight);
            rounded(weight)
        })
    }
}

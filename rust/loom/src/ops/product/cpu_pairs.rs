//! The dense layer's mixed products on processors that multiply two numbers of bfloat16 at a time.

use super::Product;
use super::cpu::{Derive, finish, with_decoded};
use crate::Result;
use crate::matrix::{Bias, NoEpilogue, Output, Rows, Start, pairs_pay, product_of_pairs};
use crate::ops::rounding::{Operand, with_pairs};
use crate::ops::{Args, Direction};
use crate::precision::Precision;
use crate::simd::Cpu;

impl Product {
    /// Whether [`run_pairs`](Self::run_pairs) is there for so many rows, and the faster way.
    pub(in crate::ops) fn pairs_pay(&self, cpu: &Cpu, precision: Precision, rows: usize) -> bool {
        let fewest = rows.min(self.inputs).min(self.outputs);
        self.mixed && precision == Precision::Float32 && pairs_pay(cpu.isa(), fewest)
    }

    /// The product of rounded operands: what plain ones give, bit for bit.
    pub(super) fn run_pairs(&self, args: &mut Args<'_>) -> Result<()> {
        let (cpu, rows, inputs, outputs) = (args.cpu, args.rows * self.multiplier, self.inputs, self.outputs);
        let start = if args.accumulate { Start::Continue } else { Start::Zero };
        let (left, right) = (Operand::Left, Operand::Right);
        match self.direction {
            Direction::Forward => {
                let bias = self.bias.then(|| Bias::Columns(args.read::<f32>(2)));
                let weight = args.view(1);
                let y = Output::new(args.write(0), rows, outputs);
                with_pairs(cpu, left, (args.read(0), inputs, Rows::Along), |x| {
                    with_decoded(cpu.isa(), weight, inputs * outputs, |weight| {
                        with_pairs(cpu, right, (weight, outputs, Rows::Across), |w| {
                            finish(bias, self.activation, |epilogue| {
                                product_of_pairs(cpu, (x, w, inputs), start, epilogue, y);
                            });
                        });
                    })
                })
            }
            Direction::InputGradient => {
                let weight = args.view(1);
                let derivative = self.derivative.map(|activation| Derive {
                    activation,
                    saved: args.read::<f32>(2),
                    columns: inputs,
                });
                let dx = Output::new(args.write(0), rows, inputs);
                with_pairs(cpu, left, (args.read(0), outputs, Rows::Along), |dy| {
                    with_decoded(cpu.isa(), weight, inputs * outputs, |weight| {
                        with_pairs(cpu, right, (weight, outputs, Rows::Along), |w| match derivative {
                            Some(derive) => product_of_pairs(cpu, (dy, w, outputs), start, &derive, dx),
                            None => product_of_pairs(cpu, (dy, w, outputs), start, &NoEpilogue, dx),
                        });
                    })
                })
            }
            Direction::WeightGradient => {
                let dw = Output::new(args.write(0), inputs, outputs);
                with_pairs(cpu, left, (args.read(0), inputs, Rows::Across), |x| {
                    with_pairs(cpu, right, (args.read(1), outputs, Rows::Across), |dy| {
                        product_of_pairs(cpu, (x, dy, rows), start, &NoEpilogue, dw);
                    });
                });
                Ok(())
            }
        }
    }
}

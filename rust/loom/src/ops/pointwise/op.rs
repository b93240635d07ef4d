//! An activation over a whole value, and its derivative times a gradient.

use super::{Activation, backward, forward};
use crate::Result;
use crate::ops::{Args, Direction, Operation};
use crate::simd::Real;
use std::fmt;

/// Elements that one task takes: a few microseconds of the dearest function.
const CHUNK: usize = 1 << 13;

/// `y = f(x)`, or its gradient.
///
/// - forward reads x, writes y;
/// - input gradient reads what [`Activation::saved`] names (y or x) and dy, writes `dx = dy f'`.
#[derive(Clone, Debug)]
pub struct Pointwise {
    /// The function.
    pub activation: Activation,
    /// Forward or input gradient.
    pub direction: Direction,
}

impl Pointwise {
    /// `y = f(x)`.
    pub fn forward(activation: Activation) -> Self {
        Self { activation, direction: Direction::Forward }
    }

    /// `dx = dy f'`.
    pub fn backward(activation: Activation) -> Self {
        Self { activation, direction: Direction::InputGradient }
    }

    /// The function, where this is a forward pass.
    pub fn forward_activation(&self) -> Option<Activation> {
        (self.direction == Direction::Forward).then_some(self.activation)
    }
}

impl Operation for Pointwise {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let isa = args.cpu.isa();
        let saved = args.read::<T>(0);
        let gradient = match self.direction {
            Direction::Forward => None,
            _ => Some(args.read::<T>(1)),
        };
        let out = args.write::<T>(0);
        args.cpu.pool().for_each_chunk(out, CHUNK, |chunk, out| {
            let start = chunk * CHUNK;
            let saved = &saved[start..start + out.len()];
            match gradient {
                None => forward(isa, self.activation, saved, out),
                Some(gradient) => {
                    backward(isa, self.activation, saved, &gradient[start..start + out.len()], out);
                }
            }
        });
        Ok(())
    }
}

impl fmt::Display for Pointwise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pointwise.{} {}", self.direction, self.activation)
    }
}

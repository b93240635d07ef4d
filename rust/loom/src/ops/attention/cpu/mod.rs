//! Attention on the CPU: products of tiles, and the weights between them.

mod backward;
mod biases;
mod drops;
mod forward;
mod tiles;
mod weights;

use super::Attention;
use crate::ops::{Args, Direction, Operation};
use crate::simd::Real;
use crate::{Error, Result};

impl Operation for Attention {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        match self.direction {
            Direction::Forward => forward::run::<T>(self, args),
            Direction::InputGradient if !self.cached => backward::run::<T>(self, args),
            _ => return Err(Error::Internal("attention has no such gradient".into())),
        }
        Ok(())
    }
}

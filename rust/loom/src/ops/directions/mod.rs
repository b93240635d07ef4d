//! The directions of rules that look at a whole parameter at once, made beside it before anything is written.

mod adafactor;
mod gpu;
mod gpu_adafactor;
mod gpu_muon;
mod memory;
mod muon;
mod part;
#[cfg(test)]
mod tests;

use super::update::Optimizer;
use super::{Args, Operation, Update};
use crate::shader::OFFSET_ELEMENTS;
use crate::simd::Real;
use crate::weights::ParameterInfo;
use crate::{Error, Result};
use memory::Memory;
use std::fmt;

pub use part::Part;

/// What a store's update goes by under a rule whose directions are made beside it.
///
/// Reads the store's gradient, master and moments. Writes the direction of every weight and each moment as it is
/// to become, all as long as the store, and scratch memory of [`Directions::scratch`] elements. Between
/// parameters and for frozen ones directions and moments are 0.
///
/// Sums go by the 16-lane rule along a row or a chunk of 4,096 elements, over columns row by row; totals of those
/// in order in `f64`. Products sum in order.
#[derive(Clone, Debug)]
pub struct Directions {
    /// What is about to be done with the store.
    pub update: Box<Update>,
    /// What it consists of.
    pub parts: Vec<Part>,
}

impl Directions {
    /// What the parameters of a store are about to be moved by.
    pub(crate) fn new(update: &Update, parameters: &[ParameterInfo]) -> Self {
        let parts = parameters.iter().flat_map(|info| Part::of(info, &update.optimizer)).collect();
        Self { update: Box::new(update.clone()), parts }
    }

    /// Elements of the memory that it works in.
    pub fn scratch(&self) -> usize {
        let of_part = |part: &Part| match self.update.optimizer {
            Optimizer::Muon { .. } if part.matrix => {
                let short = part.rows.min(part.columns);
                let whole = |elements: usize| elements.next_multiple_of(OFFSET_ELEMENTS);
                2 * (whole(part.len()) + whole(short * short))
            }
            Optimizer::Adafactor { .. } if part.matrix => part.rows + part.columns,
            _ => 0,
        };
        self.parts.iter().map(of_part).max().unwrap_or(0).max(1)
    }

    /// The parts that are about to move.
    fn moving(&self) -> impl Iterator<Item = &Part> {
        let frozen = &self.update.frozen;
        self.parts.iter().filter(|part| !frozen.iter().any(|frozen| frozen.contains(&part.start)))
    }
}

impl fmt::Display for Directions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "directions.{} {}", self.update.optimizer.name(), self.update.len)
    }
}

impl Operation for Directions {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let slots = self.update.optimizer.slots().len();
        let mut memory = Memory {
            gradient: args.read::<T>(0),
            master: args.read::<T>(1),
            moments: (0..slots).map(|slot| args.read::<T>(2 + slot)).collect(),
            direction: args.write::<T>(0),
            next: (0..slots).map(|slot| args.write::<T>(1 + slot)).collect(),
            scratch: args.write::<T>(1 + slots),
        };
        memory.direction.fill(T::ZERO);
        memory.next.iter_mut().for_each(|next| next.fill(T::ZERO));
        let number = self.update.number(args.values);
        for part in self.moving() {
            match self.update.optimizer {
                Optimizer::Adafactor {
                    decay_power,
                    clip_threshold,
                    epsilon,
                    scale_by_weights,
                    least_scale,
                    ..
                } => {
                    let rule = adafactor::Rule {
                        news: libm::pow(number, -decay_power),
                        clip_threshold,
                        epsilon,
                        least_scale: scale_by_weights.then_some(least_scale),
                    };
                    rule.run(args.cpu, part, &mut memory);
                }
                Optimizer::Muon { momentum, nesterov, beta1, beta2, epsilon, match_adam, .. } => {
                    let rule = muon::Rule { momentum, nesterov, beta1, beta2, epsilon, match_adam, number };
                    rule.run(args.cpu, part, &mut memory);
                }
                _ => return Err(Error::Internal(format!("{self}: its rule has no directions"))),
            }
        }
        Ok(())
    }
}

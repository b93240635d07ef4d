//! Memory for gradients, kept from one shard to the next.

use crate::simd::Real;
use std::any::Any;
use std::fmt;

/// Vectors as long as a gradient that nobody needs at present.
#[derive(Default)]
pub(super) struct Spare(Option<Box<dyn Any + Send + Sync>>);

impl fmt::Debug for Spare {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Spare")
    }
}

impl Spare {
    fn all<T: Real>(&mut self) -> Option<&mut Vec<Vec<T>>> {
        self.0.as_mut().and_then(|all| all.downcast_mut())
    }

    /// So many numbers, of which nothing is known.
    pub(super) fn take<T: Real>(&mut self, count: usize) -> Vec<T> {
        let found = self.all::<T>().and_then(|all| {
            let place = all.iter().position(|vector| vector.len() == count)?;
            Some(all.swap_remove(place))
        });
        found.unwrap_or_else(|| vec![T::ZERO; count])
    }

    /// Keeps a vector for later.
    pub(super) fn give<T: Real>(&mut self, vector: Vec<T>) {
        match self.all::<T>() {
            // Others are of a gradient that has other numbers.
            Some(all) if all.iter().all(|other| other.len() == vector.len()) => all.push(vector),
            _ => self.0 = Some(Box::new(vec![vector])),
        }
    }
}

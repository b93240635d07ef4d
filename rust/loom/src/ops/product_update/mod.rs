//! A weight gradient that goes into the optimizer's update without ever being stored whole.

mod cpu;
mod gpu;

use super::{Product, Update};
use std::fmt;

/// [`Product`] in the weight direction followed by [`Update`] of the store it contributes to.
///
/// Reads x, dy, the flat gradient (for the store's other parameters) and what else the update reads,
/// changes what the update changes. The bits are those of the two operations it replaces.
#[derive(Clone, Debug)]
pub struct ProductUpdate {
    /// The weight's gradient.
    pub product: Product,
    /// The store's update.
    pub update: Update,
    /// Where the weight starts in the store.
    pub offset: usize,
}

impl fmt::Display for ProductUpdate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} +{}", self.product, self.update)
    }
}

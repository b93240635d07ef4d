//! What layers declare to keep, and to carry.

use crate::ops::CacheType;
use crate::tensor::{Precision, Shape};
use std::borrow::Cow;

/// Something that a layer keeps beside its parameters: saved, but moved by no optimizer.
#[derive(Clone, Debug, PartialEq)]
pub struct StateSpec {
    /// Its name in the layer, such as `running_mean`.
    pub name: Cow<'static, str>,
    /// Its extents; there is no batch axis.
    pub shape: Shape,
    /// What every element starts as.
    pub initial: f64,
}

/// Something that a layer carries from call to call of a session, for every row by itself.
#[derive(Clone, Debug, PartialEq)]
pub struct CarriedSpec {
    /// Its name in the layer, such as `hidden`.
    pub name: Cow<'static, str>,
    /// One row's extents, for a session of at most `length` steps.
    pub shape: Shape,
    /// What every element starts as.
    pub initial: f64,
    /// Whether it is carried from batch to batch of training, too.
    pub in_training: bool,
    /// Whether each step has a part of its own, so that a session forgets its last steps by counting them no more.
    pub by_place: bool,
    /// Numbers of the vectors that each step's part consists of, which sessions may pack; those that its last axis
    /// holds one after the other.
    pub packable: Option<usize>,
}

impl CarriedSpec {
    /// The same with the room that it takes packed, where it is.
    pub(crate) fn packed(mut self, cache: CacheType, precision: Precision) -> Self {
        let mut extents = self.shape.to_vec();
        if let (Some(numbers), Some(last)) = (self.packable, extents.last_mut()) {
            *last = *last / numbers * cache.elements(precision, numbers);
            self.shape = Shape::from(&extents[..]);
        }
        self
    }
}

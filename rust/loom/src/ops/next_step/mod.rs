//! Sequences that go on by themselves: the class that a session's network finds best is its next step, or one that is
//! drawn.

mod cpu;
mod draw;
mod gpu;
mod gpu_draw;
#[cfg(test)]
mod tests;

use std::fmt;

pub use draw::{Change, Sampling};

/// Keeps the best class of a call's last step as the step after it: reads y (classes,), writes its place at place
/// position + time of chosen (capacity + 1,), and leaves the others as they are.
///
/// Of several that are the largest the first is the best; where one is NaN or infinite, -1 is kept: there is none.
#[derive(Clone, Debug)]
pub struct Choose {
    /// Steps of the call.
    pub time: usize,
    /// How many classes there are.
    pub classes: usize,
    /// The most steps of the session.
    pub capacity: usize,
}

/// Draws a class by a call's last scores, and keeps it as the step after it: reads y (classes,), draws (capacity + 1,)
/// from 0 to below 1, one for each place, and sampling ([`Sampling::NUMBERS`],); writes the class at place position +
/// time of chosen (capacity + 1,), and leaves the others as they are. What changes scores is a list of [`Change`]s in
/// each row's part of (`Draw::changes(classes)`,): first how many each row has, then the first of each row, the second of
/// each, and so on. Where earlier steps count, it takes note of what is drawn.
///
/// Where a score is NaN or infinite, -1 is kept: there is none.
#[derive(Clone, Debug)]
pub struct Draw {
    /// Steps of the call.
    pub time: usize,
    /// How many classes there are.
    pub classes: usize,
    /// The most steps of the session.
    pub capacity: usize,
}

/// The step that the call before has chosen: reads chosen (capacity + 1,), writes its place `position` as x (1,).
#[derive(Clone, Debug)]
pub struct Recall {
    /// The most steps of the session.
    pub capacity: usize,
}

impl fmt::Display for Choose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "choose {} of {}", self.time, self.classes)
    }
}

impl fmt::Display for Draw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "draw {} of {}", self.time, self.classes)
    }
}

impl fmt::Display for Recall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "recall {}", self.capacity)
    }
}

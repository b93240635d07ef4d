//! Adding to each step of a sequence what belongs to its place.

mod cpu;
mod gpu;

use super::Direction;
use super::constants::Constants;
use crate::Result;
use std::fmt;
use std::sync::Arc;

/// `y[t] = x[t] + table[t]`, or the gradient of the table.
///
/// - forward reads x (time, width), and the table (places, width) where it is a parameter, and writes
///   y like x; with `positioned`, step t takes row position + t of the table;
/// - weight gradient reads dy (time, width), writes the table's gradient (places, width), adding to it
///   where the step says so; rows past `time` gather nothing.
///
/// Order of sums: as [`BiasGradient`](super::BiasGradient)'s over the rows of the batch.
#[derive(Clone, Debug)]
pub struct Positions {
    /// Forward or weight gradient.
    pub direction: Direction,
    /// Steps of the sequence.
    pub time: usize,
    /// Elements of a step.
    pub width: usize,
    /// Rows of the table.
    pub places: usize,
    /// Whether places count from the session's position.
    pub positioned: bool,
    /// The table, where it is no parameter.
    fixed: Option<Arc<Constants>>,
}

impl Positions {
    /// Adds a parameter's rows.
    pub fn learned(direction: Direction, time: usize, width: usize, places: usize) -> Self {
        Self { direction, time, width, places, positioned: false, fixed: None }
    }

    /// Adds waves (Vaswani et al. 2017): element 2 i at place p is sin(p base^(-2 i / width)), element
    /// 2 i + 1 the cosine.
    ///
    /// # Errors
    /// As [`extents::check`](crate::extents::check), and where there is no memory for the waves.
    pub fn sinusoidal(time: usize, width: usize, base: f64, places: usize) -> Result<Self> {
        let wave = |i: usize| {
            let angle = (i / width) as f64 * libm::pow(base, -((i % width / 2 * 2) as f64) / width as f64);
            if (i % width).is_multiple_of(2) { libm::sin(angle) } else { libm::cos(angle) }
        };
        let table = Constants::new("waves", [places, width], (0..places.saturating_mul(width)).map(wave))?;
        Ok(Self { fixed: Some(Arc::new(table)), ..Self::learned(Direction::Forward, time, width, places) })
    }
}

impl fmt::Display for Positions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "positions.{} {}x{} of {}", self.direction, self.time, self.width, self.places)
    }
}

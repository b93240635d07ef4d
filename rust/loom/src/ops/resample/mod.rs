//! An axis with more elements, or with fewer: each a weighted mean of neighbours.

mod cpu;
mod gpu;
#[cfg(test)]
mod tests;

use super::Direction;
use std::fmt;

/// Which elements of the axis make one of the result, and by which weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resampling {
    /// The element that lies there; the result's extent is a multiple of the operand's.
    Nearest,
    /// The two whose centres lie to either side, by their distance; at the ends the last one alone. The
    /// result's extent is a multiple of the operand's.
    Linear,
    /// The mean of those from `floor(i input / output)` to before `ceil((i + 1) input / output)`.
    Means,
}

/// Resampling of one axis: x is (rows, outer, input, inner), y (rows, outer, output, inner).
///
/// - forward reads x, writes y;
/// - input gradient reads dy, writes dx.
///
/// Order of sums: the elements of the operand one after the other, the first of them first; the same for
/// gradients, whose elements gather what they have been part of.
#[derive(Clone, Debug)]
pub struct Resample {
    /// Forward or input gradient.
    pub direction: Direction,
    /// What makes an element.
    pub resampling: Resampling,
    /// Lines along the axis that lie one behind the other, in one row of the batch.
    pub outer: usize,
    /// The axis' extent in x.
    pub input: usize,
    /// The axis' extent in y.
    pub output: usize,
    /// Elements that lie side by side at one place of the axis.
    pub inner: usize,
}

impl Resample {
    /// The gradient of this one.
    #[must_use]
    pub fn gradient(&self) -> Self {
        Self { direction: Direction::InputGradient, ..self.clone() }
    }

    /// The axis' extent in what is read and in what is written.
    fn extents(&self) -> (usize, usize) {
        match self.direction {
            Direction::Forward => (self.input, self.output),
            _ => (self.output, self.input),
        }
    }

    /// Which elements of the operand make element `place` of the result: the first, and the one after the last.
    fn band(&self, place: usize) -> (usize, usize) {
        let (input, output) = (self.input, self.output);
        let scale = output / input;
        match (self.direction, self.resampling) {
            (Direction::Forward, Resampling::Nearest) => (place / scale, place / scale + 1),
            (_, Resampling::Nearest) => (place * scale, (place + 1) * scale),
            (Direction::Forward, Resampling::Linear) => {
                let (first, rest) = (self.centre(place) / (2 * scale), self.centre(place) % (2 * scale));
                (first, first + 1 + usize::from(rest > 0))
            }
            (_, Resampling::Linear) => (
                (2 * scale * place + 1).saturating_sub(scale) / 2,
                ((2 * scale * place + 3 * scale) / 2).min(output),
            ),
            (Direction::Forward, Resampling::Means) => {
                (place * input / output, ((place + 1) * input).div_ceil(output))
            }
            (_, Resampling::Means) => (place * output / input, ((place + 1) * output).div_ceil(input)),
        }
    }

    /// Where the centre of an element of y lies in x, in steps of half an element of y.
    fn centre(&self, place: usize) -> usize {
        let scale = self.output / self.input;
        (2 * place + 1).saturating_sub(scale).min(2 * scale * (self.input - 1))
    }

    /// What element `from` of the operand counts in element `place` of the result, whose band it is in.
    fn weight(&self, place: usize, from: usize) -> f64 {
        let (x, y) = if self.direction == Direction::Forward { (from, place) } else { (place, from) };
        match self.resampling {
            Resampling::Nearest => 1.0,
            Resampling::Linear => {
                let whole = 2 * (self.output / self.input);
                1.0 - self.centre(y).abs_diff(whole * x) as f64 / whole as f64
            }
            Resampling::Means => {
                let first = y * self.input / self.output;
                1.0 / (((y + 1) * self.input).div_ceil(self.output) - first) as f64
            }
        }
    }
}

impl fmt::Display for Resample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { direction, outer, input, output, inner, .. } = self;
        let name = match self.resampling {
            Resampling::Nearest => "nearest",
            Resampling::Linear => "linear",
            Resampling::Means => "means",
        };
        write!(f, "resample.{name}.{direction} {outer}x{input}x{inner} to {output}")
    }
}

//! The states of recurrent cells at every step, for those that measure them.

use super::stack::Stack;
use super::{Cell, Forward, Shape};
use crate::ops::{Concat, Slice};
use crate::program::{Builder, Value};

impl Stack {
    /// Whether the cells have a state that is more than their output.
    pub fn has_cells(&self) -> bool {
        self.cell == Cell::Lstm || self.cell.is_gru()
    }

    /// The cells' states after each step, (time, directions x units), from the lowering of one layer of the
    /// stack: an LSTM's c, a GRU's h. `None` for other cells, and where nothing is kept for a gradient.
    ///
    /// Of padding an LSTM's is what it was, and a GRU's zero where the output has every step.
    pub fn cell_states(&self, b: &mut Builder, layer: &Forward) -> Option<Value> {
        let (input, kept) = layer.saved.split_first()?;
        if !self.has_cells() || kept.len() < 2 * self.directions {
            return None;
        }
        let (time, units) = (b.shape(*input)[0], self.units);
        let of_direction = |b: &mut Builder, direction: usize| match self.cell {
            Cell::Lstm => {
                let (saved, total) = (kept[self.directions + direction], self.cell.saved() * units);
                let (start, length) = (total - units, units);
                let c = Slice { outer: time, total, start, length, guarded: false };
                b.apply(c, &[saved], "c", Shape::from([time, units]))
            }
            _ => self.hidden_states(b, kept[direction], layer.output, (direction, time)),
        };
        if self.cell.is_gru() && b.shape(layer.output).rank() == 2 {
            return Some(layer.output);
        }
        let parts: Vec<Value> = (0..self.directions).map(|direction| of_direction(b, direction)).collect();
        if let [only] = parts[..] {
            return Some(only);
        }
        let total = self.directions * units;
        let parts_of = (0..self.directions).map(|direction| (direction * units, units)).collect();
        let op = Concat { outer: time, total, parts: parts_of };
        Some(b.apply(op, &parts, "cell states", Shape::from([time, total])))
    }

    /// h after each step of a direction (time, units), from h before each step and the last one of all.
    fn hidden_states(
        &self,
        b: &mut Builder,
        before: Value,
        last: Value,
        (direction, time): (usize, usize),
    ) -> Value {
        let units = self.units;
        let slice = |total, start, length| Slice { outer: 1, total, start, length, guarded: false };
        let steps = |count| Shape::from([count, units]);
        let place = slice(self.directions * units, direction * units, units);
        let last = b.apply(place, &[last], "h", steps(1));
        if time == 1 {
            return last;
        }
        // h before a step is h after the one before it, which backward in time is the next.
        let (total, rest) = (time * units, (time - 1) * units);
        let others = slice(total, if direction == 0 { units } else { 0 }, rest);
        let others = b.apply(others, &[before], "h", steps(time - 1));
        let (parts, values) = match direction {
            0 => (vec![(0, rest), (rest, units)], [others, last]),
            _ => (vec![(0, units), (units, rest)], [last, others]),
        };
        b.apply(Concat { outer: 1, total, parts }, &values, "h", steps(time))
    }
}

//! What enters a cell: named inputs, taken out of the row in which they travel and joined where they are several.

use super::Network;
use super::named::NamedInput;
use super::ports::{MOST_PARTS, places, slice};
use crate::ops::{Concat, Slice};
use crate::program::{Builder, Value};
use crate::simd::Real;
use crate::tensor::Shape;
use crate::{Error, Result};
use std::ops::Range;

/// The named inputs that enter one cell.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    /// Where each of them lies in a row of all inputs, and its extents.
    parts: Vec<(Range<usize>, Shape)>,
    /// How they are put together, where they are several.
    join: Option<Concat>,
    shape: Shape,
    /// Elements of a row of all inputs.
    total: usize,
}

impl Entry {
    /// The same of rows that begin with so many other numbers.
    pub(crate) fn behind(mut self, prefix: usize) -> Self {
        for (place, _) in &mut self.parts {
            *place = place.start + prefix..place.end + prefix;
        }
        Self { total: self.total + prefix, ..self }
    }

    /// Extents of what enters.
    pub(crate) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Lowers what enters, from a row of all inputs.
    pub(crate) fn lower(&self, b: &mut Builder, row: Value) -> Value {
        let part = |(place, shape): &(Range<usize>, Shape)| slice(b, row, self.total, place, shape.clone());
        let parts: Vec<Value> = self.parts.iter().map(part).collect();
        match &self.join {
            None => parts[0],
            Some(op) => b.apply(op.clone(), &parts, "joined", self.shape.clone()),
        }
    }

    /// Lowers the gradients of the inputs from that of what enters: each with its place in the row.
    pub(crate) fn lower_backward(&self, b: &mut Builder, gradient: Value) -> Vec<(Range<usize>, Value)> {
        let Some(op) = &self.join else { return vec![(self.parts[0].0.clone(), gradient)] };
        let part = |(number, (place, shape)): (usize, &(Range<usize>, Shape))| {
            (place.clone(), b.apply(Slice::of(op, number), &[gradient], "part", shape.clone()))
        };
        self.parts.iter().enumerate().map(part).collect()
    }

    /// What enters, out of rows of all inputs.
    pub(crate) fn of_rows<T: Real>(&self, rows: &[T]) -> Vec<T> {
        let mut entered = Vec::with_capacity(rows.len() / self.total.max(1) * self.shape.len());
        for row in rows.chunks_exact(self.total.max(1)) {
            for (place, length) in self.pieces() {
                entered.extend_from_slice(&row[place..place + length]);
            }
        }
        entered
    }

    /// The gradient of rows of all inputs, from that of what enters.
    pub(crate) fn to_rows<T: Real>(&self, gradient: &[T]) -> Vec<T> {
        let width = self.shape.len().max(1);
        let mut rows = vec![T::ZERO; gradient.len() / width * self.total];
        for (row, gradient) in rows.chunks_exact_mut(self.total.max(1)).zip(gradient.chunks_exact(width)) {
            let mut rest = gradient;
            for (place, length) in self.pieces() {
                let (piece, behind) = rest.split_at(length);
                row[place..place + length].copy_from_slice(piece);
                rest = behind;
            }
        }
        rows
    }

    /// Where the pieces of what enters lie in a row of all inputs, and how long they are, in order.
    fn pieces(&self) -> impl Iterator<Item = (usize, usize)> {
        let outer = self.join.as_ref().map_or(1, |join| join.outer).max(1);
        (0..outer).flat_map(move |number| {
            self.parts.iter().map(move |(place, shape)| {
                let length = shape.len() / outer;
                (place.start + number * length, length)
            })
        })
    }
}

impl Network {
    /// Extents of the named inputs; with `steps`, for sequences of so many.
    pub(crate) fn named_input_shapes(&self, steps: Option<usize>) -> Vec<Shape> {
        let shape = |input: &NamedInput| match steps {
            Some(steps) => with_steps(&input.shape, steps),
            None => input.shape.clone(),
        };
        self.inputs.iter().map(shape).collect()
    }

    /// What of inputs of these extents enters a cell; `None` where nothing does.
    ///
    /// # Errors
    /// [`Error::Value`] for too many of them, [`Error::Shape`] for some that cannot be joined.
    pub(crate) fn entry(&self, cell: usize, inputs: &[Shape]) -> Result<Option<Entry>> {
        let entering = self.entering(cell);
        let all = places(inputs.iter().map(|shape| shape.len()));
        let total = all.last().map_or(0, |place| place.end);
        let part = |number: &usize| Some((all.get(*number)?.clone(), inputs[*number].clone()));
        let parts: Vec<(Range<usize>, Shape)> = entering.iter().filter_map(part).collect();
        if parts.len() < 2 {
            return Ok(parts.first().cloned().map(|(place, shape)| Entry {
                parts: vec![(place, shape.clone())],
                join: None,
                shape,
                total,
            }));
        }
        if parts.len() > MOST_PARTS {
            return Err(Error::Value(format!(
                "{} inputs enter one cell, which takes {MOST_PARTS}; give some of them cells of their own, and link \
                 these",
                parts.len()
            )));
        }
        let names: Vec<&str> = entering.iter().map(|number| &*self.inputs[*number].name).collect();
        let shapes: Vec<&Shape> = parts.iter().map(|(_, shape)| shape).collect();
        let (join, shape) = Concat::along(&shapes, None)
            .map_err(|why| Error::Shape(format!("inputs {} enter one cell: {why}", names.join(", "))))?;
        Ok(Some(Entry { parts, join: Some(join), shape, total }))
    }

    /// Refuses inputs that enter one cell and would be joined one behind the other in time.
    pub(crate) fn check_entries_are_stepwise(&self) -> Result<()> {
        for cell in 0..self.cells.len() {
            let entering = self.entering(cell);
            if entering.len() > 1 && entering.iter().any(|number| self.inputs[*number].shape.rank() == 1) {
                let names: Vec<&str> = entering.iter().map(|number| &*self.inputs[*number].name).collect();
                return Err(Error::State(format!(
                    "inputs {} enter one cell one behind the other, so the network cannot run in a session; let each \
                     enter a cell of its own",
                    names.join(", ")
                )));
            }
        }
        Ok(())
    }
}

/// A sequence's extents with so many steps.
pub(crate) fn with_steps(shape: &Shape, steps: usize) -> Shape {
    let mut extents = shape.to_vec();
    if let Some(first) = extents.first_mut() {
        *first = steps;
    }
    Shape::new(extents)
}

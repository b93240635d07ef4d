//! Whose steps flow where: of sequences that rows of one call hold in different lengths.
//!
//! Each input that has no fixed time is of sequences of its own lengths. Inputs whose steps meet, where a link joins
//! them or they enter one cell, have the same lengths. A row begins with one number for each length that may differ
//! from the others, and layers are told which steps are real by the mask of whose steps they read.

use super::shapes::StepFlow;
use super::{Combine, NamedInput, NamedOutput, Network, at_layer};
use crate::layers::{Steps, class_extents};
use crate::ops::{Concat, LengthMask, Slice};
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::{Error, Result};

/// What flows: the input whose steps it has, and whether time is its only axis.
#[derive(Clone, Copy, Debug, Default)]
struct Flowing {
    steps: Option<usize>,
    alone: bool,
}

/// The inputs whose lengths are the same: each points to an earlier one, or to itself.
struct Same(Vec<usize>);

impl Same {
    fn first(&self, mut input: usize) -> usize {
        while self.0[input] != input {
            input = self.0[input];
        }
        input
    }

    fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.first(one), self.first(other));
        self.0[one.max(other)] = one.min(other);
    }
}

impl Network {
    /// Whose steps flow where, with rows of different lengths; `cells` is what cells hand on.
    ///
    /// # Errors
    /// [`Error::Value`] naming a layer, link or cell that would take padding for real.
    pub(super) fn flow_of_steps(&self, cells: &[Shape]) -> Result<StepFlow> {
        let of_time: Vec<bool> = match self.inputs.is_empty() {
            true => vec![self.variable_axes().first() == Some(&0)],
            false => self.inputs.iter().map(NamedInput::is_of_time).collect(),
        };
        let mut same = Same((0..of_time.len()).collect());
        let (mut arriving, mut leaving): (Vec<Flowing>, Vec<Flowing>) = (Vec::new(), Vec::new());
        let mut now = Flowing::default();
        if self.inputs.is_empty() && of_time[0] {
            // Where time is the only axis, whatever works along the last one mixes steps.
            now = Flowing { steps: Some(0), alone: self.input_shape.rank() == 1 };
        }
        for (number, cell) in self.cells.iter().enumerate() {
            if let Some(entered) = self.entering_steps(number, &of_time, &mut same)? {
                now = entered;
            }
            let mut context = None;
            for (source, link) in self.links_to(number)? {
                let there = match leaving.get(source) {
                    Some(there) => *there,
                    None if of_time.contains(&true) => {
                        let error = "sequences of different lengths cannot take a link that points back";
                        return Err(Error::Value(error.into()));
                    }
                    None => Flowing::default(),
                };
                match (link.combine, now.steps, there.steps) {
                    (Combine::Context, _, steps) => context = steps,
                    (Combine::Replace, ..) => now = there,
                    (_, None, None) => {}
                    (combine, Some(one), Some(other)) => {
                        let rank = cells[source].rank();
                        if combine == Combine::Concat && Concat::axis_of(rank, link.axis) == 0 {
                            return Err(Error::Value(format!(
                                "{} joins sequences one behind the other, and those of different lengths end in \
                                 padding",
                                link.named()
                            )));
                        }
                        same.join(one, other);
                        now.alone &= there.alone;
                    }
                    _ => {
                        return Err(Error::Value(
                            "sequences of different lengths cannot take a link that joins them with what has no steps"
                                .into(),
                        ));
                    }
                }
            }
            arriving.push(now);
            for placed in cell {
                if placed.layer.takes_context() && (now.steps.is_some() || context.is_some()) {
                    let error = "a second input cannot be of sequences of different lengths, nor beside them";
                    return Err(at_layer(placed, Error::Value(error.into())));
                }
                let reads_indices = placed.layer.index_limit().is_some();
                let whole = placed.layer.steps() == Steps::Whole || (now.alone && !reads_indices);
                now.alone &= !reads_indices;
                match placed.layer.steps() {
                    _ if now.steps.is_some() && whole => {
                        return Err(at_layer(
                            placed,
                            Error::Value("it would take the padding of shorter sequences for real".into()),
                        ));
                    }
                    Steps::Pooled => now.steps = None,
                    _ => {}
                }
            }
            leaving.push(now);
        }
        Ok(numbered(&of_time, &same, &arriving, &leaving))
    }

    /// What enters a cell; `None` where nothing does.
    fn entering_steps(&self, cell: usize, of_time: &[bool], same: &mut Same) -> Result<Option<Flowing>> {
        let entering = self.entering(cell);
        let Some(first) = entering.first() else { return Ok(None) };
        let timed: Vec<usize> = entering.iter().copied().filter(|input| of_time[*input]).collect();
        let Some(input) = timed.first() else { return Ok(Some(Flowing::default())) };
        let rank = self.inputs[*first].shape.rank();
        if entering.len() > 1 && (timed.len() < entering.len() || Concat::axis_of(rank, None) == 0) {
            let names: Vec<&str> = entering.iter().map(|input| &*self.inputs[*input].name).collect();
            return Err(Error::Value(format!(
                "inputs {} enter one cell, where sequences of different lengths would be joined one behind the other, \
                 or with what has no steps; let each enter a cell of its own",
                names.join(", ")
            )));
        }
        timed.iter().for_each(|other| same.join(*input, *other));
        Ok(Some(Flowing { steps: Some(*input), alone: rank == 1 }))
    }

    /// How many steps sequences of a length have room for.
    pub(super) fn steps_of_length(&self, length: usize) -> usize {
        let flow = &self.variable.flow;
        let input = flow.inputs.iter().position(|found| *found == Some(length)).unwrap_or(0);
        let shape = self.inputs.get(input).map_or(&self.input_shape, |input| &input.shape);
        shape.first().copied().unwrap_or(1)
    }

    /// How many steps each named output has, where rows have lengths: 1 for one that has none.
    pub(crate) fn output_steps(&self) -> Vec<usize> {
        let steps = |length: Option<usize>| length.map_or(1, |length| self.steps_of_length(length));
        self.output_lengths().into_iter().map(steps).collect()
    }

    /// How many places each named output has that may count by weights of their own: its steps where rows have lengths,
    /// and otherwise all that have classes, such as pixels.
    pub(crate) fn output_weights(&self) -> Vec<usize> {
        let shapes = self.named_output_shapes();
        let places = |(length, shape): (Option<usize>, Shape)| match length {
            Some(length) => self.steps_of_length(length),
            None => {
                let (outer, _, inner) = class_extents(&shape);
                outer * inner
            }
        };
        self.output_lengths().into_iter().zip(shapes).map(places).collect()
    }

    /// The length of the steps of each named output, where rows have lengths; `None` for one that has no steps.
    pub fn output_lengths(&self) -> Vec<Option<usize>> {
        let length = |output: &NamedOutput| {
            let cell = self.cell_index(output.cell).ok().filter(|_| self.has_lengths());
            self.variable.flow.leaving.get(cell?).copied().flatten()
        };
        self.outputs.iter().map(length).collect()
    }

    /// Takes the lengths out of a row: which steps are real, for each length.
    pub(super) fn lower_masks(&self, b: &mut Builder, row: Value) -> Vec<Value> {
        let total = self.row_prefix() + self.input_shape.len();
        let part = |start, length| Slice { outer: 1, total, start, length, guarded: false };
        if self.variable.packed {
            let steps = self.row_prefix();
            return vec![b.apply(part(0, steps), &[row], "sequences", Shape::from(steps))];
        }
        let mask = |number| {
            let steps = self.steps_of_length(number);
            let length = b.apply(part(number, 1), &[row], "length", Shape::from(1));
            b.apply(LengthMask { steps }, &[length], "mask", Shape::from(steps))
        };
        (0..self.row_prefix()).map(mask).collect()
    }

    /// Takes the input without a name out of a row that begins with lengths.
    pub(super) fn lower_sequence(&self, b: &mut Builder, row: Value) -> Value {
        let (prefix, length) = (self.row_prefix(), self.input_shape.len());
        let op = Slice { outer: 1, total: prefix + length, start: prefix, length, guarded: false };
        b.apply(op, &[row], "sequence", self.input_shape.clone())
    }

    /// The length whose mask tells which steps of what arrives in a cell are real.
    pub(super) fn mask_of_cell(&self, cell: usize) -> Option<usize> {
        match self.variable.packed {
            // Such networks have no links, and no layer after which there are no steps.
            true => Some(0),
            false => self.variable.flow.arriving.get(cell).copied().flatten(),
        }
    }
}

/// Counts the lengths that there are.
fn numbered(of_time: &[bool], same: &Same, arriving: &[Flowing], leaving: &[Flowing]) -> StepFlow {
    let mut first: Vec<usize> = Vec::new();
    let inputs = (0..of_time.len()).map(|input| {
        let root = of_time[input].then(|| same.first(input))?;
        let known = first.iter().position(|other| *other == root);
        Some(known.unwrap_or_else(|| {
            first.push(root);
            first.len() - 1
        }))
    });
    let inputs: Vec<Option<usize>> = inputs.collect();
    let length = |flowing: &Flowing| inputs[flowing.steps?];
    let arriving = arriving.iter().map(length).collect();
    let leaving = leaving.iter().map(length).collect();
    StepFlow { count: first.len(), arriving, leaving, inputs }
}

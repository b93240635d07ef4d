//! How the steps of sequences lie in rows of the input and of the output, which several named ones share.

use crate::network::Network;
use crate::network::entry::with_steps;
use crate::network::ports::IndexRange;
use crate::network::rows::check_rows;
use crate::tensor::{Shape, TensorView};
use crate::{Error, Result};

/// One output of a session.
#[derive(Clone, Debug)]
pub(crate) struct SteppingOutput {
    /// Whether there is one for each step, and not one for all of them.
    pub(crate) sequence: bool,
    /// Its extents for one step.
    pub(crate) shape: Shape,
}

impl SteppingOutput {
    /// Its elements for so many steps.
    pub(crate) fn len(&self, steps: usize) -> usize {
        self.shape.len() * if self.sequence { steps } else { 1 }
    }

    /// Its extents for so many steps.
    pub(crate) fn extents(&self, steps: usize) -> Shape {
        if self.sequence { with_steps(&self.shape, steps) } else { self.shape.clone() }
    }
}

/// The elements of one step of each input, in the order in which inputs lie in a row: all steps of one, then
/// those of the next.
#[derive(Clone, Debug)]
pub(in crate::network) struct StepWidths(Vec<usize>);

impl StepWidths {
    /// Those of a network's inputs.
    pub(in crate::network) fn of(network: &Network) -> Self {
        let width = |shape: &Shape| shape.iter().skip(1).product();
        match network.inputs.is_empty() {
            true => Self(vec![width(&network.input_shape)]),
            false => Self(network.inputs.iter().map(|input| width(&input.shape)).collect()),
        }
    }

    /// How many steps an input brings.
    ///
    /// # Errors
    /// [`Error::Shape`] for an input of other extents; [`Error::NonFinite`] and [`Error::Value`] for one that holds
    /// what it must not.
    pub(in crate::network) fn check(&self, network: &Network, input: &TensorView<'_>) -> Result<usize> {
        let steps = match network.inputs.is_empty() {
            true => {
                let steps = input.shape().get(1).copied().unwrap_or(0);
                check_rows(input, &with_steps(&network.input_shape, steps), "input")?;
                steps
            }
            false => {
                let (one, all) = (self.total(), input.shape().get(1).copied().unwrap_or(0));
                if input.shape().len() != 2 || !all.is_multiple_of(one.max(1)) {
                    return Err(Error::Shape(format!(
                        "a row of all named inputs holds {one} elements for each step, got shape {}",
                        Shape::from(input.shape())
                    )));
                }
                all / one.max(1)
            }
        };
        crate::tensor::check_finite(input, "input")?;
        network.check_step_indices(input, self.ranges(network, steps))?;
        Ok(steps)
    }

    fn total(&self) -> usize {
        self.0.iter().sum()
    }

    /// Where whole numbers lie in rows of so many steps.
    fn ranges<'a>(&self, network: &'a Network, steps: usize) -> Vec<IndexRange<'a>> {
        if network.inputs.is_empty() {
            let range = 0..self.total() * steps;
            return network
                .index_limit()
                .map(|limit| IndexRange { name: None, range, limit })
                .into_iter()
                .collect();
        }
        let mut start = 0;
        let mut found = Vec::new();
        for ((input, width), limit) in network.inputs.iter().zip(&self.0).zip(network.index_limits()) {
            let range = start..start + width * steps;
            start = range.end;
            found.extend(limit.map(|limit| IndexRange { name: Some(&input.name), range, limit }));
        }
        found
    }

    /// Copies `count` steps of a row that has `steps` of them, from the one after `done` on.
    pub(in crate::network) fn copy<T: Copy>(
        &self,
        row: &[T],
        (steps, done): (usize, usize),
        to: &mut [T],
        count: usize,
    ) {
        let (mut from, mut at) = (0, 0);
        for width in &self.0 {
            let first = from + done * width;
            to[at..at + count * width].copy_from_slice(&row[first..first + count * width]);
            from += steps * width;
            at += count * width;
        }
    }
}

impl Network {
    /// The outputs of a session, in the order in which they lie in a row.
    ///
    /// # Errors
    /// As [`session`](Self::session).
    pub(crate) fn stepping_outputs(&self) -> Result<Vec<SteppingOutput>> {
        let [one, two] = [self.infer_shapes_for(1)?, self.infer_shapes_for(2)?];
        self.check_links_are_stepwise(&one, &two)?;
        self.check_entries_are_stepwise()?;
        let of_cell = |cell: usize| {
            let extent = |cells: &[Shape]| cells.get(cell).and_then(|output| output.first().copied());
            SteppingOutput {
                sequence: extent(&one) == Some(1) && extent(&two) == Some(2),
                shape: one.get(cell).cloned().unwrap_or_default(),
            }
        };
        match self.outputs.is_empty() {
            true => Ok(vec![of_cell(one.len().saturating_sub(1))]),
            false => self.outputs.iter().map(|output| Ok(of_cell(self.cell_index(output.cell)?))).collect(),
        }
    }
}

//! Links: a cell's output handed to a later cell, beside what flows to it anyway.

use super::{Coordinates, Network};
use crate::ops::{Concat, LossFunction, Slice};
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// What a link's value becomes where it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Combine {
    /// Added to the target cell's input, whose shape it has.
    Add,
    /// Put behind the target cell's input along one axis.
    Concat,
    /// The second input of those layers of the target cell that take one.
    Context,
}

/// A cell's output handed to another cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// The cell whose output is handed over.
    pub source: Coordinates,
    /// The cell that gets it.
    pub target: Coordinates,
    /// What becomes of it there.
    pub combine: Combine,
    /// The axis along which values are put together; the last one, or the channels of images and
    /// volumes, unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub axis: Option<usize>,
}

impl Network {
    /// Hands the output of a cell to another one, beside what flows there anyway. Several links into one
    /// cell are taken in the order in which they were made. Either cell may be without layers: the source then
    /// hands over what arrives there, the target hands on what it has become; behind the last layer that is
    /// the network's output.
    ///
    /// A link that points back (to its own cell or an earlier one) is for clock mode only
    /// ([`Mesh`](crate::mesh::Mesh)): the network then cannot run as a feed-forward one.
    ///
    /// # Errors
    /// [`Error::Index`] for a cell that is not there, [`Error::Value`] for an axis without
    /// concatenation, or for a second context of one cell.
    pub fn link(&mut self, link: Link) -> Result<()> {
        self.cell_index(link.source)?;
        self.cell_index(link.target)?;
        if link.axis.is_some() && link.combine != Combine::Concat {
            return Err(Error::Value("only links that concatenate have an axis".into()));
        }
        let is_context = |held: &Link| held.combine == Combine::Context && held.target == link.target;
        if link.combine == Combine::Context && self.links.iter().any(is_context) {
            return Err(Error::Value(format!("cell {} has a context already", Shape::from(link.target))));
        }
        self.links.push(link);
        self.built = false;
        self.invalidate();
        Ok(())
    }

    /// The links, in the order in which they were made.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// The links into a cell, with the number of the cell that each comes from.
    ///
    /// # Errors
    /// [`Error::State`] for one that points back.
    pub(crate) fn links_into(&self, cell: usize) -> Result<Vec<(usize, &Link)>> {
        let found = self.links_to(cell)?;
        match found.iter().find(|(source, _)| *source >= cell) {
            Some((_, link)) => Err(Error::State(format!(
                "{} points back; such links are for clock mode only, where every layer fires at every tick: \
                 make a mesh of the network",
                link.named()
            ))),
            None => Ok(found),
        }
    }

    /// The links into a cell from wherever, with the number of the cell that each comes from.
    ///
    /// # Errors
    /// [`Error::Index`] for one from a cell that is not there.
    pub(crate) fn links_to(&self, cell: usize) -> Result<Vec<(usize, &Link)>> {
        let mut found = Vec::new();
        for link in &self.links {
            if self.cell_index(link.target)? == cell {
                found.push((self.cell_index(link.source)?, link));
            }
        }
        Ok(found)
    }

    /// The last layer, by number, where the network's output is what it makes; `None` where links arrive
    /// behind it.
    pub(crate) fn output_layer(&self) -> Option<usize> {
        let last = self.cells.iter().rposition(|cell| !cell.is_empty())?;
        let changes = |link: &Link| {
            link.combine != Combine::Context && self.cell_index(link.target).is_ok_and(|target| target > last)
        };
        match self.links.iter().any(changes) {
            true => None,
            false => Some(self.layers().count() - 1),
        }
    }

    /// The loss that equals `loss` after the network, but computed from its last layer's input.
    pub(crate) fn absorb_loss(&self, loss: &LossFunction) -> Option<LossFunction> {
        let last = self.output_layer()?;
        self.layers().nth(last)?.layer.absorb_loss(loss)
    }

    /// Refuses a context that no layer of its cell reads.
    pub(crate) fn check_contexts_are_read(&self) -> Result<()> {
        for link in self.links.iter().filter(|link| link.combine == Combine::Context) {
            let cell = &self.cells[self.cell_index(link.target)?];
            if !cell.iter().any(|placed| placed.layer.takes_context()) {
                return Err(Error::Value(format!(
                    "{} brings a context, but no layer of cell {} takes a second input; put one there, or use \
                     combine=\"add\" or \"concat\"",
                    link.named(),
                    Shape::from(link.target)
                )));
            }
        }
        Ok(())
    }

    /// Refuses links that do not bring one step for each step of a sequence; `one` and `two` are what cells hand
    /// on for sequences of one and two steps.
    pub(crate) fn check_links_are_stepwise(&self, one: &[Shape], two: &[Shape]) -> Result<()> {
        let [short, long] = [self.arrivals(1, one)?, self.arrivals(2, two)?];
        for ((link, one), (_, two)) in short.iter().zip(&long) {
            let axis = Concat::axis_of(one[0].rank(), link.axis);
            let grows = |(one, two): (&Shape, &Shape)| one.get(axis) != two.get(axis);
            if link.combine == Combine::Concat && one.iter().zip(two).any(grows) {
                return Err(Error::State(format!(
                    "{} joins sequences one behind the other, so the network cannot run in a session; join them \
                     along another axis",
                    link.named()
                )));
            }
        }
        Ok(())
    }

    /// Every link that changes its target's input, with the shapes of that input and of what the link brings,
    /// for sequences of so many steps, for which `cells` is what cells hand on.
    fn arrivals(&self, steps: usize, cells: &[Shape]) -> Result<Vec<(&Link, [Shape; 2])>> {
        let mut shape = self.input_shape.to_vec();
        if let Some(first) = shape.first_mut() {
            *first = steps;
        }
        let mut shape = Shape::new(shape);
        let mut found = Vec::new();
        for (cell, handed_on) in cells.iter().enumerate() {
            for (source, link) in self.links_to(cell)? {
                if link.combine != Combine::Context {
                    let joined = link.combined_shape(&shape, &cells[source])?;
                    found.push((link, [std::mem::replace(&mut shape, joined), cells[source].clone()]));
                }
            }
            shape = handed_on.clone();
        }
        Ok(found)
    }
}

impl Link {
    pub(crate) fn named(&self) -> String {
        format!("the link from cell {} to cell {}", Shape::from(self.source), Shape::from(self.target))
    }

    /// The error of a link whose source's shape cannot be found out.
    pub(crate) fn unknown_source(&self) -> Error {
        Error::Shape(format!("what {} brings depends on itself: its shape cannot be found out", self.named()))
    }

    /// The shape of the target's input once this value has arrived.
    ///
    /// # Errors
    /// [`Error::Shape`] where the two do not fit.
    pub(crate) fn combined_shape(&self, input: &Shape, linked: &Shape) -> Result<Shape> {
        match self.combine {
            Combine::Context => Ok(input.clone()),
            Combine::Add if input == linked => Ok(input.clone()),
            Combine::Add => Err(Error::Shape(format!(
                "{} adds {linked} to the cell's input {input}; shapes must be equal (or use combine=\"concat\")",
                self.named()
            ))),
            Combine::Concat => {
                let joined = Concat::along(&[input, linked], self.axis)
                    .map_err(|why| Error::Shape(format!("{}: {why}", self.named())))?;
                Ok(joined.1)
            }
        }
    }

    /// Lowers the arrival of `linked` at a cell's `input`.
    pub(crate) fn lower(&self, b: &mut Builder, input: Value, linked: Value) -> Result<Value> {
        match self.combine {
            Combine::Context => Ok(input),
            Combine::Add => b
                .sum(&[input, linked])
                .ok_or_else(|| Error::Internal("a sum of two values has no operand".into())),
            Combine::Concat => {
                let shapes = [b.shape(input), b.shape(linked)];
                let (op, shape) = Concat::along(&shapes, self.axis).map_err(Error::Shape)?;
                Ok(b.apply(op, &[input, linked], "joined", shape))
            }
        }
    }

    /// Lowers the gradients of the cell's input and of the linked value from that of what they became.
    pub(crate) fn lower_backward(
        &self,
        b: &mut Builder,
        input: &Shape,
        linked: &Shape,
        gradient: Value,
    ) -> Result<(Value, Option<Value>)> {
        match self.combine {
            Combine::Context => Ok((gradient, None)),
            Combine::Add => Ok((gradient, Some(gradient))),
            Combine::Concat => {
                let (op, _) = Concat::along(&[input, linked], self.axis).map_err(Error::Shape)?;
                let part = |b: &mut Builder, number: usize, shape: &Shape| {
                    b.apply(Slice::of(&op, number), &[gradient], "part", shape.clone())
                };
                let to_input = part(b, 0, input);
                Ok((to_input, Some(part(b, 1, linked))))
            }
        }
    }
}

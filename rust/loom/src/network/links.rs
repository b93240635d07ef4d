//! The links of a network, and what follows from where they lead.

use super::Network;
use super::entry::with_steps;
use super::link::{Combine, Link};
use super::named::NamedOutput;
use crate::ops::{Concat, LossFunction};
use crate::tensor::Shape;
use crate::{Error, Result};

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
        let arrives = |held: &Link| held.combine != Combine::Context && held.target == link.target;
        if link.combine == Combine::Replace && self.links.iter().any(arrives) {
            return Err(Error::Value(format!(
                "{} replaces what other links have brought already; make it the first link to cell {}",
                link.named(),
                Shape::from(link.target)
            )));
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

    /// Whether a link takes the place of what flows to a cell.
    pub(crate) fn is_replaced(&self, cell: usize) -> bool {
        self.links.iter().any(|link| {
            link.combine == Combine::Replace
                && self.cell_index(link.target).is_ok_and(|target| target == cell)
        })
    }

    /// The last layer, by number, where the network's output is what it makes; `None` where links arrive
    /// behind it, or outputs have names.
    pub(crate) fn output_layer(&self) -> Option<usize> {
        let last = self.cells.len().checked_sub(1).filter(|_| self.outputs.is_empty())?;
        self.layer_before(last)
    }

    /// The layer, by number, that makes what a cell hands on; `None` where links or an input arrive behind it.
    fn layer_before(&self, cell: usize) -> Option<usize> {
        let last = self.cells[..=cell].iter().rposition(|cell| !cell.is_empty())?;
        let behind = last + 1..=cell;
        let arrives = |link: &Link| {
            link.combine != Combine::Context
                && self.cell_index(link.target).is_ok_and(|target| behind.contains(&target))
        };
        match self.links.iter().any(arrives) || behind.clone().any(|cell| self.enters(cell)) {
            true => None,
            false => self.cells[..=last].iter().map(Vec::len).sum::<usize>().checked_sub(1),
        }
    }

    /// The loss that equals `loss` after the network, but computed from its last layer's input.
    pub(crate) fn absorb_loss(&self, loss: &LossFunction) -> Option<LossFunction> {
        let last = self.output_layer()?;
        self.layers().nth(last)?.layer.absorb_loss(loss)
    }

    /// The loss that equals `loss` after a named output, but computed from the input of the layer that makes it, with
    /// that layer's number.
    pub(crate) fn absorb_loss_of(
        &self,
        output: &NamedOutput,
        loss: &LossFunction,
    ) -> Option<(usize, LossFunction)> {
        let last = self.layer_before(self.cell_index(output.cell).ok()?)?;
        Some((last, self.layers().nth(last)?.layer.absorb_loss(loss)?))
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
        let mut shape = with_steps(&self.input_shape, steps);
        let named = self.named_input_shapes(Some(steps));
        let mut found = Vec::new();
        for (cell, handed_on) in cells.iter().enumerate() {
            if let Some(entry) = self.entry(cell, &named)? {
                shape = entry.shape().clone();
            }
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

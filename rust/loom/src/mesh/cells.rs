//! What cells hand on: of those without layers, what arrives there, put together from what is kept; and the
//! gradients of that, taken apart again.

use super::tick::{INPUT, output_of};
use super::wiring::Read;
use super::{Mesh, lost_ring};
use crate::network::{Combine, Coordinates, Link, Network};
use crate::ops::Concat;
use crate::precision::in_precision;
use crate::simd::Real;
use crate::tensor::{Buffer, Shape, Tensor, TensorView};
use crate::{Error, Result, extents};

/// The gradient of a loss with respect to what a cell handed on.
#[derive(Clone, Debug)]
pub struct Given<'a> {
    /// The cell; where it has no layer, the gradient goes to whatever arrived there.
    pub cell: Coordinates,
    /// How many ticks ago; 0 is the newest.
    pub age: usize,
    /// Of the shape of what the cell handed on.
    pub gradient: TensorView<'a>,
}

impl<'a> Given<'a> {
    /// For what a cell hands on now.
    pub fn newest(cell: Coordinates, gradient: TensorView<'a>) -> Self {
        Self { cell, age: 0, gradient }
    }
}

/// Gradients of what layers held, and of what the network's input was.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// By layer and age, one each.
    pub(super) layers: Vec<((usize, usize), Buffer)>,
    /// By age, one each.
    pub(super) input: Vec<(usize, Buffer)>,
}

impl Shares {
    fn add<T: Real>(&mut self, layer: Option<usize>, age: usize, gradient: &[T]) -> Result<()> {
        let known = match layer {
            Some(layer) => self.layers.iter_mut().find(|(at, _)| *at == (layer, age)).map(|(_, held)| held),
            None => self.input.iter_mut().find(|(at, _)| *at == age).map(|(_, held)| held),
        };
        if let Some(held) = known {
            add(held.as_mut_slice::<T>(), gradient);
            return Ok(());
        }
        let mut content = Buffer::of::<T>(gradient.len())?;
        content.as_mut_slice::<T>().copy_from_slice(gradient);
        match layer {
            Some(layer) => self.layers.push(((layer, age), content)),
            None => self.input.push((age, content)),
        }
        Ok(())
    }
}

fn add<T: Real>(sum: &mut [T], by: &[T]) {
    sum.iter_mut().zip(by).for_each(|(sum, x)| *sum += *x);
}

impl Mesh {
    /// What is read for what a cell hands on.
    pub(super) fn read_of(&self, network: &Network, cell: Coordinates) -> Result<&Read> {
        let read = self.wiring.cells.get(network.cell_index(cell)?);
        read.ok_or_else(|| Error::Internal("a mesh knows fewer cells than its network has".into()))
    }

    /// What a cell handed on `age` ticks ago; 0 is now: what its last layer held, or, where it has no layer, what
    /// arrived there, with the input of that tick.
    ///
    /// # Errors
    /// [`Error::Index`] for a cell that is not there, [`Error::Value`] for an age beyond the window;
    /// [`Error::Device`] where a GPU was lost.
    pub fn cell_output(&self, network: &Network, cell: Coordinates, age: usize) -> Result<Tensor> {
        self.check_device(network)?;
        self.check_age(age)?;
        let read = self.read_of(network, cell)?;
        let shape = [&[self.rows], &self.wiring.shape_of(read)?[..]].concat();
        in_precision!(network.precision(), T => Tensor::new(shape, self.assemble::<T>(read, age)?))
    }

    /// What was read `age` ticks ago.
    fn assemble<T: Real>(&self, read: &Read, age: usize) -> Result<Vec<T>> {
        let Some(ring) = &self.ring else { return Err(lost_ring()) };
        match read {
            Read::Input => extents::copied(ring.download(INPUT, age)?.as_slice::<T>()),
            Read::Entered(entry) => Ok(entry.of_rows(ring.download(INPUT, age)?.as_slice::<T>())),
            Read::Layer(layer) => extents::copied(ring.download(output_of(*layer), age)?.as_slice::<T>()),
            Read::Arrived { link, input, linked } => {
                let mut held = self.assemble::<T>(input, age)?;
                let brought = self.assemble::<T>(linked, age)?;
                let Some([first, second]) = self.widths(link, input, linked)? else {
                    add(&mut held, &brought);
                    return Ok(held);
                };
                let pieces = held.chunks_exact(first).zip(brought.chunks_exact(second));
                Ok(pieces.flat_map(|(held, brought)| [held, brought]).flatten().copied().collect())
            }
        }
    }

    /// What gradients of cells' outputs are gradients of in the end; those that meet are added.
    pub(super) fn shares<T: Real>(&self, network: &Network, gradients: &[Given<'_>]) -> Result<Shares> {
        let mut shares = Shares::default();
        for given in gradients {
            let mut gradient = vec![T::ZERO; given.gradient.elements().len()];
            given.gradient.copy_to(&mut gradient);
            self.share(self.read_of(network, given.cell)?, given.age, gradient, &mut shares)?;
        }
        Ok(shares)
    }

    fn share<T: Real>(&self, read: &Read, age: usize, gradient: Vec<T>, shares: &mut Shares) -> Result<()> {
        match read {
            Read::Input => shares.add(None, age, &gradient)?,
            Read::Entered(entry) => shares.add(None, age, &entry.to_rows(&gradient))?,
            Read::Layer(layer) => shares.add(Some(*layer), age, &gradient)?,
            Read::Arrived { link, input, linked } => {
                let (to_input, to_linked) = match self.widths(link, input, linked)? {
                    None => (gradient.clone(), gradient),
                    Some([first, second]) => {
                        let pieces = || gradient.chunks_exact(first + second);
                        let part = |piece: &[T]| piece[..first].to_vec();
                        let rest = |piece: &[T]| piece[first..].to_vec();
                        (pieces().flat_map(part).collect(), pieces().flat_map(rest).collect())
                    }
                };
                self.share(input, age, to_input, shares)?;
                self.share(linked, age, to_linked, shares)?;
            }
        }
        Ok(())
    }

    /// How many elements of a cell's input, and of what a link puts behind them, follow each other at a time;
    /// `None` where the link adds.
    fn widths(&self, link: &Link, input: &Read, linked: &Read) -> Result<Option<[usize; 2]>> {
        if link.combine == Combine::Add {
            return Ok(None);
        }
        let shapes: [Shape; 2] = [self.wiring.shape_of(input)?, self.wiring.shape_of(linked)?];
        let (op, _) = Concat::along(&[&shapes[0], &shapes[1]], link.axis).map_err(Error::Shape)?;
        Ok(Some([op.parts[0].1, op.parts[1].1]))
    }
}

//! What sequences give back whose steps go through the network in several pieces.

use super::steps::SteppingOutput;
use crate::extents;
use crate::program::Run;
use crate::simd::Real;
use crate::tensor::Tensor;
use crate::{Error, Result};

/// The outputs of some rows, put together piece by piece.
pub(in crate::network) struct Outputs<'a, T> {
    rows: usize,
    steps: usize,
    /// What a row holds, one behind the other.
    outputs: &'a [SteppingOutput],
    /// Whether several outputs share a row.
    named: bool,
    /// Whether of sequences the last step is all that is wanted.
    last: bool,
    done: usize,
    elements: Vec<T>,
}

impl<'a, T: Real> Outputs<'a, T> {
    /// Of so many rows and steps, before any piece.
    pub(in crate::network) fn new(
        rows: usize,
        steps: usize,
        (outputs, named): (&'a [SteppingOutput], bool),
        last: bool,
    ) -> Self {
        Self { rows, steps, outputs, named, last, done: 0, elements: Vec::new() }
    }

    /// How many steps have gone through the network.
    pub(in crate::network) fn done(&self) -> usize {
        self.done
    }

    /// Whether what the last piece has made is all that is given back.
    fn single(&self) -> bool {
        self.last || !self.outputs.iter().any(|output| output.sequence)
    }

    /// Takes what a run has made of the next steps.
    ///
    /// # Errors
    /// [`Error::Memory`], and those of fetching from a device.
    pub(in crate::network) fn take(&mut self, run: &mut Run, count: usize) -> Result<()> {
        let before = self.done;
        self.done += count;
        if self.single() && self.done < self.steps {
            return Ok(());
        }
        let Some(port) = run.program().ports().output else {
            return Err(Error::Internal("a program lacks its output".into()));
        };
        run.fetch(&[port])?;
        let made = run.read::<T>(port);
        // Some rows may have been computed for nobody.
        let made = &made[..made.len() / run.rows.max(1) * self.rows];
        if self.single() {
            self.elements = extents::copied(made)?;
            return Ok(());
        }
        let width: usize = self.outputs.iter().map(|output| output.len(self.steps)).sum();
        if before == 0 {
            self.elements = extents::zeros(extents::elements("the output", self.rows, width)?)?;
        }
        // Steps of one output lie together.
        let made_width = made.len() / self.rows;
        for (row, from) in self.elements.chunks_exact_mut(width).zip(made.chunks_exact(made_width)) {
            let (mut start, mut rest) = (0, from);
            for output in self.outputs {
                let (piece, behind) = rest.split_at(output.len(count));
                let first = start + if output.sequence { before * output.shape.len() } else { 0 };
                row[first..first + piece.len()].copy_from_slice(piece);
                start += output.len(self.steps);
                rest = behind;
            }
        }
        Ok(())
    }

    /// All of them, the rows first.
    ///
    /// # Errors
    /// [`Error::Shape`] where not all steps have been taken.
    pub(in crate::network) fn into_tensor(self) -> Result<Tensor> {
        let steps = if self.last { 1 } else { self.steps };
        let shape = match (self.named, self.outputs) {
            (false, [output]) => output.extents(steps).to_vec(),
            _ => vec![self.outputs.iter().map(|output| output.len(steps)).sum()],
        };
        Tensor::new([&[self.rows], &shape[..]].concat(), self.elements)
    }
}

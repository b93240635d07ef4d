//! What sequences give back whose steps go through the network in several pieces.

use crate::extents;
use crate::program::Run;
use crate::simd::Real;
use crate::tensor::Tensor;
use crate::{Error, Result};

/// The outputs of some rows, put together piece by piece.
pub(in crate::network) struct Outputs<T> {
    rows: usize,
    steps: usize,
    /// Whether a row has one output, of the last step or of all of them, and not one for each step.
    single: bool,
    done: usize,
    /// Of a row.
    shape: Vec<usize>,
    elements: Vec<T>,
}

impl<T: Real> Outputs<T> {
    /// Of so many rows and steps, before any piece.
    pub(in crate::network) fn new(rows: usize, steps: usize, single: bool) -> Self {
        Self { rows, steps, single, done: 0, shape: Vec::new(), elements: Vec::new() }
    }

    /// How many steps have gone through the network.
    pub(in crate::network) fn done(&self) -> usize {
        self.done
    }

    /// Takes what a run has made of the next steps.
    ///
    /// # Errors
    /// [`Error::Memory`], and those of fetching from a device.
    pub(in crate::network) fn take(&mut self, run: &mut Run, count: usize) -> Result<()> {
        let before = self.done;
        self.done += count;
        if self.single && self.done < self.steps {
            return Ok(());
        }
        let Some(port) = run.program().ports().output else {
            return Err(Error::Internal("a program lacks its output".into()));
        };
        run.fetch(&[port])?;
        let made = run.read::<T>(port);
        let shape = run.program().value(port).shape.to_vec();
        if self.single {
            (self.shape, self.elements) = (shape, extents::zeros(made.len())?);
            self.elements.copy_from_slice(made);
            return Ok(());
        }
        let per_row = made.len() / self.rows;
        let per_step = per_row / count;
        if before == 0 {
            self.shape = shape;
            self.shape[0] = self.steps;
            let all = extents::elements("the output", self.steps, per_step * self.rows)?;
            self.elements = extents::zeros(all)?;
        }
        // Those of a row lie together.
        for (row, from) in made.chunks_exact(per_row).enumerate() {
            self.elements[(row * self.steps + before) * per_step..][..per_row].copy_from_slice(from);
        }
        Ok(())
    }

    /// All of them, the rows first.
    ///
    /// # Errors
    /// [`Error::Shape`] where not all steps have been taken.
    pub(in crate::network) fn into_tensor(self) -> Result<Tensor> {
        let extents: Vec<usize> = [self.rows].into_iter().chain(self.shape).collect();
        Tensor::new(extents, self.elements)
    }
}

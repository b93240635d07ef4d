//! Masters that are freed once their packed versions are all that is used, and made again from those.

use super::layout::Layout;
use super::store::WeightStore;
use super::version::{Choice, Version};
use crate::precision::in_precision;
use crate::simd::{Cpu, Isa, Real};
use crate::tensor::{Buffer, Precision};
use crate::{Error, Result};
use std::borrow::Cow;

impl WeightStore {
    /// Parameters of these names and layouts without a master, of which none is there until
    /// [`set_version`](WeightStore::set_version) or [`fill`](WeightStore::fill) brings it.
    ///
    /// # Errors
    /// [`Error::Shape`] for a parameter without elements.
    pub(crate) fn without_master(
        precision: Precision,
        parameters: &[(impl Into<Cow<'static, str>> + Clone, Layout, bool)],
    ) -> Result<Self> {
        let mut store = Self::described(precision.stored(), parameters)?;
        store.kept = vec![Buffer::default(); store.parameters.len()];
        Ok(store)
    }

    /// What parameters of these choices are, without memory for any: to be looked at.
    pub(crate) fn outlined(mut self, choices: &[Choice]) -> Result<Self> {
        self.is_outline = true;
        for ((info, version), choice) in self.parameters.iter().zip(&mut self.versions).zip(choices) {
            *version = match *choice {
                Some((dtype, recipe)) => Some(Version::outline(info, dtype, recipe.checked(dtype)?)),
                None => None,
            };
        }
        Ok(self)
    }

    /// Refuses a store whose master the forward pass still reads.
    ///
    /// # Errors
    /// [`Error::State`] then.
    pub(crate) fn check_droppable(&self) -> Result<()> {
        if self.is_packed() || self.parameters.iter().all(|info| !info.morphable) {
            return Ok(());
        }
        Err(Error::State(
            "the weights are used in full precision; morph them before dropping the master".into(),
        ))
    }

    /// Frees the master of what is packed; parameters that stay float are kept.
    ///
    /// A store with nothing to pack stays as it is.
    ///
    /// Inference goes on as it was. Training, other numeric types and reading the
    /// full-precision weights are refused from here on.
    ///
    /// # Errors
    /// [`Error::State`] where the forward pass still reads the master.
    pub fn drop_master(&mut self) -> Result<()> {
        self.check_droppable()?;
        // What was lent is all there is from here on.
        self.lent = false;
        if !self.is_packed() || self.master.is_none() {
            return Ok(());
        }
        self.refresh(Cpu::global()?)?;
        self.keep_floats()
    }

    /// Frees the master but for what stays float.
    pub(super) fn keep_floats(&mut self) -> Result<()> {
        let keep = |index: usize| match self.versions[index] {
            Some(_) => Ok(Buffer::default()),
            None => self.float_bytes(Some(index)).and_then(Buffer::from_slice),
        };
        self.kept = (0..self.parameters.len()).map(keep).collect::<Result<_>>()?;
        self.master = None;
        Ok(())
    }

    /// Whether the master was dropped.
    pub fn is_dropped(&self) -> bool {
        self.master.is_none() && !self.is_outline
    }

    /// Makes a dropped master again from the packed version: each weight is what its code stands for.
    ///
    /// The version stays as it is, so that what is computed stays the same, too, until the master moves.
    ///
    /// # Errors
    /// [`Error::State`] where the master was not dropped.
    pub fn unpack(&mut self) -> Result<()> {
        if self.master.is_some() {
            return Err(Error::State(
                "the full-precision master of these weights is there, so there is nothing to unpack; only what \
                 drop_master has freed is made again"
                    .into(),
            ));
        }
        let mut master = Buffer::large(self.len * self.precision.size())?;
        for index in 0..self.parameters.len() {
            in_precision!(self.precision, T => self.unpack_part::<T>(index, &mut master)?)
        }
        self.master = Some(master);
        self.kept.clear();
        self.epoch += 1;
        let epoch = Some(self.epoch);
        self.versions.iter_mut().flatten().for_each(|version| version.epoch = epoch);
        Ok(())
    }

    fn unpack_part<T: Real>(&self, index: usize, master: &mut Buffer) -> Result<()> {
        let info = &self.parameters[index];
        let part = &mut master.as_mut_slice::<T>()[info.offset..info.offset + info.len()];
        if let Some(dtype) = self.dtype_of(index) {
            let (packing, bytes, scales) = self.version(dtype, index)?;
            packing.decode(Isa::portable(), bytes, scales, part);
        } else {
            part.copy_from_slice(self.kept[index].as_slice());
        }
        Ok(())
    }
}

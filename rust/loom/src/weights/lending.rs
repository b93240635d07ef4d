//! Stores whose packed weights are lent, and whose masters are made of those once they are needed.

use super::lent::Lent;
use super::parameter::ParameterInfo;
use super::store::WeightStore;
use super::version::{Content, Version};
use crate::dtype::{DType, Recipe};
use crate::tensor::Buffer;
use crate::{Error, Result};

/// A parameter that is lent to a store.
#[derive(Clone, Debug)]
pub struct LentParameter {
    /// Its name in the layer.
    pub name: String,
    /// The numeric type of its codes.
    pub dtype: DType,
    /// What shares a scale, where that is not the type's own.
    pub recipe: Recipe,
    /// Whether codes and scales are those of the transpose, such as blocks along the rows of a table.
    pub by_rows: bool,
    /// Codes and scales.
    pub content: Lent,
}

impl WeightStore {
    /// Has the forward pass read these parameters as they are lent. The master goes; it is made of what was lent
    /// by [`thaw`](WeightStore::thaw), and whatever else is in it stays.
    ///
    /// # Errors
    /// [`Error::Serialization`] for another number of bytes, [`Error::State`] for a store whose master was dropped.
    pub(crate) fn lend(&mut self, parts: &[(usize, &LentParameter)]) -> Result<()> {
        let bare = self.is_bare();
        if !bare {
            self.check_master()?;
        }
        let mut lent = Vec::new();
        for (index, part) in parts {
            let info = &self.parameters[*index];
            let recipe = part.recipe.checked(part.dtype)?;
            let packing = Version::packing(info, part.dtype, recipe, part.by_rows);
            if part.content.extents().is_some_and(|bytes| bytes != packing.bytes()) {
                return Err(Error::Serialization(format!(
                    "\"{}\" takes {} bytes as {}, and other than that are lent",
                    info.name,
                    packing.bytes(),
                    part.dtype
                )));
            }
            lent.push((
                *index,
                Version { packing, recipe, content: Content::Lent(part.content.clone()), epoch: None },
            ));
        }
        self.epoch += 1;
        for (index, version) in lent {
            self.versions[index] = Some(Version { epoch: Some(self.epoch), ..version });
        }
        match bare {
            true => self.kept = self.zeros_kept()?,
            false => self.keep_floats()?,
        }
        self.lent = true;
        Ok(())
    }

    /// Whether there is nothing yet: neither a master nor anything packed.
    fn is_bare(&self) -> bool {
        self.master.is_none() && !self.is_packed() && !self.lent && !self.is_outline
    }

    /// Makes a master of zeros, where there is nothing yet.
    pub(crate) fn fill_bare(&mut self) -> Result<()> {
        if self.is_bare() {
            self.master = Some(Buffer::large(self.len * self.precision.size())?);
            self.kept.clear();
        }
        Ok(())
    }

    /// Zeros for what stays float.
    fn zeros_kept(&self) -> Result<Vec<Buffer>> {
        let kept = |(version, info): (&Option<Version>, &ParameterInfo)| match version {
            Some(_) => Ok(Buffer::default()),
            None => Buffer::zeroed(info.len() * self.precision.size()),
        };
        self.versions.iter().zip(&self.parameters).map(kept).collect()
    }

    /// Whether a parameter of a lent store stays float, so that it is set without a master.
    pub(crate) fn keeps(&self, index: usize) -> bool {
        self.is_lent() && self.versions[index].is_none()
    }

    /// Whether a master that is not there is made as soon as one is needed.
    pub fn is_lent(&self) -> bool {
        self.lent && self.master.is_none()
    }

    /// Marks a store without a master as one that [`thaw`](WeightStore::thaw)s.
    pub(crate) fn mark_lent(&mut self) {
        self.lent = self.master.is_none();
    }

    /// Makes the master of what was lent, which the forward pass reads from here on.
    ///
    /// # Errors
    /// As [`unpack`](WeightStore::unpack).
    pub(crate) fn thaw(&mut self) -> Result<()> {
        self.unpack()?;
        self.lent = false;
        self.versions.iter_mut().for_each(|version| *version = None);
        Ok(())
    }
}

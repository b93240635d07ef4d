//! The packed form of a parameter, and what it is made from.

use super::lent::Lent;
use super::parameter::ParameterInfo;
use crate::dtype::{DType, Packing, Recipe};
use crate::tensor::Buffer;
use crate::{Error, Result};

/// The packed form of one parameter.
#[derive(Clone, Debug)]
pub(super) struct Version {
    pub(super) packing: Packing,
    /// How it is made, its granularity named.
    pub(super) recipe: Recipe,
    pub(super) content: Content,
    /// The master's epoch it was made at; `None` before the first time.
    pub(super) epoch: Option<u64>,
}

/// The codes and scales of a version.
#[derive(Clone, Debug)]
pub(super) enum Content {
    /// Its own.
    Own { bytes: Buffer, scales: Buffer },
    /// Somebody else's.
    Lent(Lent),
}

impl Content {
    fn zeroed(packing: &Packing) -> Result<Self> {
        let scales = Buffer::of::<f32>(packing.scale_words())?;
        Ok(Self::Own { bytes: Buffer::lasting(packing.bytes())?, scales })
    }
}

impl Version {
    /// Without memory for what is packed.
    pub(super) fn outline(info: &ParameterInfo, dtype: DType, recipe: Recipe) -> Self {
        let packing = Self::packing(info, dtype, recipe, false);
        let content = Content::Own { bytes: Buffer::default(), scales: Buffer::default() };
        Self { packing, recipe, content, epoch: None }
    }

    /// Zeros, packed as [`packing`](Version::packing) says.
    pub(super) fn zeroed(packing: Packing, recipe: Recipe) -> Result<Self> {
        Ok(Self { packing, recipe, content: Content::zeroed(&packing)?, epoch: None })
    }

    pub(super) fn empty(info: &ParameterInfo, dtype: DType, recipe: Recipe) -> Result<Self> {
        Self::zeroed(Self::packing(info, dtype, recipe, false), recipe)
    }

    /// How a parameter is packed by a checked recipe; `by_rows` where the blocks of a table lie along its rows.
    pub(super) fn packing(info: &ParameterInfo, dtype: DType, recipe: Recipe, by_rows: bool) -> Packing {
        let own = info.packing(dtype);
        Packing { turned: by_rows, ..own.with(recipe.granularity.unwrap_or(own.granularity)) }
    }

    /// Codes and scales.
    pub(super) fn parts(&self) -> Result<(&[u8], &[f32])> {
        match &self.content {
            Content::Own { bytes, scales } => Ok((bytes.bytes(), scales.as_slice())),
            Content::Lent(lent) => {
                let (bytes, scales) = lent.content()?;
                let fit = bytes.len() == self.packing.bytes() && scales.len() == self.packing.scale_words();
                fit.then_some((bytes, scales)).ok_or_else(|| {
                    Error::Internal(format!("what is lent is not packed as {:?}", self.packing))
                })
            }
        }
    }

    /// Codes and scales to write; what was lent stays as it is.
    pub(super) fn parts_mut(&mut self) -> Result<(&mut [u8], &mut [f32])> {
        if matches!(self.content, Content::Lent(_)) {
            self.content = Content::zeroed(&self.packing)?;
        }
        match &mut self.content {
            Content::Own { bytes, scales } => Ok((bytes.bytes_mut(), scales.as_mut_slice())),
            Content::Lent(_) => Err(Error::Internal("what is lent cannot be written".into())),
        }
    }

    pub(super) fn is(&self, dtype: DType, recipe: Recipe) -> bool {
        self.packing.dtype == dtype && self.recipe == recipe
    }
}

/// What a parameter is packed as, and by which recipe; `None` where the forward pass reads the master.
pub type Choice = Option<(DType, Recipe)>;

/// The versions of a store's parameters before it changes over to them.
#[derive(Debug)]
pub(crate) struct Staged(pub(super) Vec<Option<Version>>);

/// A parameter's version, told of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VersionInfo {
    /// The parameter's number.
    pub parameter: usize,
    /// How it is packed.
    pub packing: Packing,
    /// How it is made, its granularity named.
    pub recipe: Recipe,
    /// Whether the master has not moved since it was made.
    pub current: bool,
}

/// What stochastic rounding draws from, and what a search for scales weighs errors by.
#[derive(Clone, Debug, Default)]
pub(super) struct Sources {
    pub(super) seed: u64,
    /// The layer's number.
    pub(super) path: u32,
    /// Updates that the optimizer has made.
    pub(super) updates: u64,
    /// For each parameter what the squared error of each row counts; empty where that was not measured.
    pub(super) importance: Vec<Vec<f32>>,
}

//! The packed form of a parameter, and what it is made from.

use super::parameter::ParameterInfo;
use crate::Result;
use crate::dtype::{DType, Packing, Recipe};
use crate::tensor::Buffer;

/// The packed form of one parameter.
#[derive(Clone, Debug)]
pub(super) struct Version {
    pub(super) packing: Packing,
    /// How it is made, its granularity named.
    pub(super) recipe: Recipe,
    pub(super) bytes: Buffer,
    pub(super) scales: Buffer,
    /// The master's epoch it was made at; `None` before the first time.
    pub(super) epoch: Option<u64>,
}

impl Version {
    /// Without memory for what is packed.
    pub(super) fn outline(info: &ParameterInfo, dtype: DType, recipe: Recipe) -> Self {
        let own = info.packing(dtype);
        let packing = own.with(recipe.granularity.unwrap_or(own.granularity));
        Self { packing, recipe, bytes: Buffer::default(), scales: Buffer::default(), epoch: None }
    }

    pub(super) fn empty(info: &ParameterInfo, dtype: DType, recipe: Recipe) -> Result<Self> {
        let mut version = Self::outline(info, dtype, recipe);
        version.scales = Buffer::of::<f32>(version.packing.scale_words())?;
        version.bytes = Buffer::zeroed(version.packing.bytes())?;
        Ok(version)
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

//! Packed versions of a master: how they are made anew once it has moved, and how they are read.

use super::WeightStore;
use crate::cpu::{Cpu, Isa, Real};
use crate::dtype::{self, DType, Granularity, Packing, Recipe, Rounding, Rule};
use crate::random::{Stream, Use, path_within};
use crate::tensor::{Buffer, Precision, Tensor};
use crate::{Error, Result};

/// The packed form of a store's morphable parameters in one type.
#[derive(Clone, Debug)]
pub(super) struct Version {
    /// How it is made, its granularity named.
    recipe: Recipe,
    /// Which elements share a scale.
    granularity: Granularity,
    /// Packed bytes and scales of each parameter; empty for those that stay float.
    parts: Vec<(Buffer, Buffer)>,
    /// The master's epoch they were made at; `None` before the first time.
    pub(super) epoch: Option<u64>,
}

/// What stochastic rounding draws from, and what a search for scales weighs errors by.
#[derive(Clone, Debug, Default)]
pub(super) struct Sources {
    seed: u64,
    /// The layer's number.
    path: u32,
    /// Updates that the optimizer has made.
    updates: u64,
    /// For each parameter what the squared error of each row counts; empty where that was not measured.
    importance: Vec<Vec<f32>>,
}

impl WeightStore {
    /// Whether what the forward pass reads is encoded by the host even where the master is on a GPU.
    #[cfg(feature = "gpu")]
    pub(crate) fn encodes_on_host(&self) -> bool {
        let Some(dtype) = self.active else { return false };
        let recipe = self.recipe(dtype);
        let packing = Packing::new(dtype, 1, 1).with(self.granularity(dtype));
        !(packing.encodes_on_gpu() && recipe.is_plain()) && self.parameters.iter().any(|info| info.morphable)
    }

    /// A parameter as the forward pass reads it, in the outside's layout.
    ///
    /// # Errors
    /// [`Error::State`] where the master was dropped and there is no version to read.
    pub fn decoded(&self, index: usize) -> Result<Tensor> {
        let info = &self.parameters[index];
        let Some(dtype) = self.active.filter(|_| info.morphable) else { return self.get(index) };
        let (packing, packed, scales) = self.version(dtype, index)?;
        let (shape, layout) = (info.layout.outside_shape(), &info.layout);
        match self.precision {
            Precision::Float32 | Precision::Mixed => {
                let mut stored = vec![0.0f32; info.len()];
                packing.decode(Isa::portable(), packed, scales, &mut stored);
                Tensor::new(shape, layout.to_outside(&stored))
            }
            Precision::Float64 => {
                let mut stored = vec![0.0f64; info.len()];
                packing.decode(Isa::portable(), packed, scales, &mut stored);
                Tensor::new(shape, layout.to_outside(&stored))
            }
        }
    }

    /// Makes the version of this type from the master, unless it is there and up to date.
    ///
    /// # Errors
    /// [`Error::DType`] for a type that cannot be used, [`Error::Value`] and [`Error::NonFinite`]
    /// naming a parameter that the type cannot hold, [`Error::State`] where the master was dropped.
    pub fn encode(&mut self, dtype: DType) -> Result<()> {
        self.encode_with(None, dtype, self.recipe(dtype))
    }

    /// Which elements share a scale in the version of this type, or would unless asked otherwise.
    pub fn granularity(&self, dtype: DType) -> Granularity {
        self.versions.get(&dtype).map_or(dtype.row().granularity, |version| version.granularity)
    }

    /// How the version of this type is made, or would be unless asked otherwise.
    pub fn recipe(&self, dtype: DType) -> Recipe {
        self.versions.get(&dtype).map_or(Recipe::default(), |version| version.recipe)
    }

    fn encode_with(&mut self, cpu: Option<&Cpu>, dtype: DType, recipe: Recipe) -> Result<()> {
        let recipe = recipe.checked(dtype)?;
        let known = self.versions.get(&dtype).filter(|version| version.recipe == recipe);
        if known.is_some_and(|version| version.epoch == Some(self.epoch)) {
            return Ok(());
        }
        self.check_master()?;
        let mut version = match self.versions.remove(&dtype) {
            Some(version) if version.recipe == recipe => version,
            _ => self.empty_version(dtype, recipe),
        };
        version.epoch = None;
        let encoded = match self.precision {
            Precision::Float32 | Precision::Mixed => self.encode_parts::<f32>(cpu, dtype, &mut version),
            Precision::Float64 => self.encode_parts::<f64>(cpu, dtype, &mut version),
        };
        if encoded.is_ok() {
            version.epoch = Some(self.epoch);
        }
        self.versions.insert(dtype, version);
        encoded
    }

    fn empty_version(&self, dtype: DType, recipe: Recipe) -> Version {
        let granularity = recipe.granularity.unwrap_or(dtype.row().granularity);
        let parts = self
            .parameters
            .iter()
            .map(|info| {
                if info.morphable {
                    let packing = info.packing(dtype).with(granularity);
                    (Buffer::zeroed(packing.bytes()), Buffer::of::<f32>(packing.scale_words()))
                } else {
                    Default::default()
                }
            })
            .collect();
        Version { recipe, granularity, parts, epoch: None }
    }

    fn encode_parts<T: Real>(&self, cpu: Option<&Cpu>, dtype: DType, version: &mut Version) -> Result<()> {
        for (index, info) in self.parameters.iter().enumerate().filter(|(_, info)| info.morphable) {
            let (packed, scales) = &mut version.parts[index];
            let packing = info.packing(dtype).with(version.granularity);
            let (bytes, scales) = (packed.bytes_mut(), scales.as_mut_slice());
            let rule = self.rule(&version.recipe, index);
            dtype::encode_as(&packing, &rule, cpu, &info.name, self.part::<T>(index)?, bytes, scales)?;
        }
        Ok(())
    }

    /// What encoding a parameter goes by. Draws are keyed by how often the optimizer has moved the master, so
    /// that they are the same however often, where and when a version is made of one state of a training.
    fn rule(&self, recipe: &Recipe, index: usize) -> Rule<'_> {
        let Sources { seed, path, updates, importance } = &self.sources;
        let stream = || Stream::new(*seed, *updates, path_within(*path, index as u32), Use::Rounding);
        Rule {
            calibration: recipe.calibration,
            importance: importance.get(index).map_or(&[], |importance| importance),
            draws: (recipe.rounding == Rounding::Stochastic).then(stream),
        }
    }

    /// Sets what random draws are keyed by beside the optimizer's updates: the network's seed and the layer's
    /// number.
    pub(crate) fn key_draws(&mut self, seed: u64, path: u32) {
        (self.sources.seed, self.sources.path) = (seed, path);
    }

    /// Takes note of how many updates the optimizer has made.
    pub(crate) fn set_updates(&mut self, updates: u64) {
        self.sources.updates = updates;
    }

    /// What the squared error of each row of a parameter counts; empty where that was not measured.
    pub fn importance(&self, index: usize) -> &[f32] {
        self.sources.importance.get(index).map_or(&[], |importance| importance)
    }

    /// Sets what the squared error of each row of a parameter counts in a search for scales. A version that
    /// depends on it is stale from here on.
    ///
    /// # Errors
    /// [`Error::Value`] for another number of rows, or numbers that are negative or not finite.
    pub(crate) fn set_importance(&mut self, index: usize, importance: Vec<f32>) -> Result<()> {
        let info = &self.parameters[index];
        let (rows, _) = info.layout.storage_matrix();
        if importance.len() != rows || importance.iter().any(|x| !(x.is_finite() && *x >= 0.0)) {
            return Err(Error::Value(format!(
                "the mean squares of what \"{}\" multiplies must be {rows} finite numbers of at least 0",
                info.name
            )));
        }
        self.sources.importance.resize_with(self.parameters.len(), Vec::new);
        self.sources.importance[index] = importance;
        let searched = |dtype| self.recipe(dtype).calibration == dtype::Calibration::Mse;
        if self.master.is_some() && self.active.is_some_and(searched) {
            self.epoch += 1;
        }
        Ok(())
    }

    /// Makes the version of this type by a recipe, beside what the forward pass reads.
    ///
    /// A version by another recipe that the forward pass reads is replaced.
    ///
    /// # Errors
    /// As [`encode`](WeightStore::encode), and [`Error::DType`] for a recipe that the type cannot have.
    pub fn encode_by(&mut self, dtype: DType, recipe: impl Into<Recipe>) -> Result<()> {
        let before = self.versions.get(&dtype).cloned();
        let encoded = self.encode_with(None, dtype, recipe.into());
        if encoded.is_err() {
            // What is read stays readable.
            match before {
                Some(before) => self.versions.insert(dtype, before),
                None => self.versions.remove(&dtype),
            };
        }
        encoded
    }

    /// Chooses what the forward pass computes from: a version that was encoded, or the master.
    ///
    /// # Errors
    /// [`Error::State`] where that is not there.
    pub fn activate(&mut self, dtype: Option<DType>) -> Result<()> {
        match dtype {
            Some(dtype) => {
                self.encode(dtype)?;
                // One version beside the master is what a forward pass needs.
                self.versions.retain(|kept, _| *kept == dtype);
            }
            None => {
                self.check_master()?;
                self.versions.clear();
            }
        }
        self.active = dtype;
        Ok(())
    }

    /// Makes the active version anew where the master has moved on, on the threads of `cpu`.
    ///
    /// # Errors
    /// As [`encode`](WeightStore::encode).
    pub fn refresh(&mut self, cpu: &Cpu) -> Result<()> {
        match self.active {
            Some(dtype) if self.master.is_some() => self.encode_with(Some(cpu), dtype, self.recipe(dtype)),
            _ => Ok(()),
        }
    }

    /// How a parameter is packed, its bytes, and its scales.
    ///
    /// # Errors
    /// [`Error::Internal`] for a version that is not there or that the master has left behind.
    pub(crate) fn version(&self, dtype: DType, index: usize) -> Result<(Packing, &[u8], &[f32])> {
        match self.versions.get(&dtype) {
            Some(version) if version.epoch == Some(self.epoch) => {
                let (packed, scales) = &version.parts[index];
                let packing = self.parameters[index].packing(dtype).with(version.granularity);
                Ok((packing, packed.bytes(), scales.as_slice()))
            }
            _ => Err(Error::Internal(format!("the {dtype} version of a store is stale or missing"))),
        }
    }

    /// Takes packed bytes and scales, as they were saved, for the version of the present epoch.
    ///
    /// # Errors
    /// [`Error::Serialization`] for another number of bytes or scales, or for scales that are not finite.
    pub(crate) fn set_version(
        &mut self,
        dtype: DType,
        recipe: impl Into<Recipe>,
        index: usize,
        (packed, scales): (&[u8], &[f32]),
    ) -> Result<()> {
        let recipe = recipe.into().checked(dtype)?;
        let mut version = match self.versions.remove(&dtype) {
            Some(version) if version.recipe == recipe => version,
            _ => self.empty_version(dtype, recipe),
        };
        let (own_packed, own_scales) = &mut version.parts[index];
        if own_packed.len_bytes() != packed.len() || own_scales.as_slice::<f32>().len() != scales.len() {
            return Err(Error::Serialization(format!(
                "the {dtype} version of \"{}\" has {} bytes and {} scales, expected {} and {}",
                self.parameters[index].name,
                packed.len(),
                scales.len(),
                own_packed.len_bytes(),
                own_scales.as_slice::<f32>().len()
            )));
        }
        // The other words of a group are integers.
        let words = self.parameters[index].packing(dtype).group_words().max(1);
        if scales.iter().step_by(words).any(|scale| !scale.is_finite()) {
            return Err(Error::Serialization(format!(
                "the {dtype} scales of \"{}\" hold NaN or infinity",
                self.parameters[index].name
            )));
        }
        own_packed.bytes_mut().copy_from_slice(packed);
        own_scales.as_mut_slice::<f32>().copy_from_slice(scales);
        version.epoch = Some(self.epoch);
        self.versions.insert(dtype, version);
        self.active = Some(dtype);
        Ok(())
    }

    /// Bytes of what the forward pass reads: the active version and the parameters that stay float.
    pub fn active_bytes(&self) -> usize {
        match self.active {
            Some(dtype) => self.nbytes(dtype),
            None => self.parameter_count() * self.precision.size(),
        }
    }

    /// Bytes the parameters take with weights in this type: codes, scales, and floats for the rest.
    pub fn nbytes(&self, dtype: DType) -> usize {
        let granularity = self.granularity(dtype);
        self.parameters
            .iter()
            .map(|info| match info.morphable {
                true => info.packing(dtype).with(granularity).nbytes(),
                false => info.len() * self.precision.size(),
            })
            .sum()
    }

    /// The types that there are versions of, with their granularity, and whether they are up to date.
    pub fn versions(&self) -> impl Iterator<Item = (DType, Granularity, bool)> + '_ {
        let epoch = Some(self.epoch);
        self.versions
            .iter()
            .map(move |(dtype, version)| (*dtype, version.granularity, version.epoch == epoch))
    }
}

//! Packed versions of parameters: how they are made anew once the master has moved, and how they are read.

use super::parameter::ParameterInfo;
use super::store::WeightStore;
use super::version::{Choice, Sources, Staged, Version, VersionInfo};
use crate::dtype::{self, DType, Packing, Recipe, Rounding, Rule};
use crate::precision::in_precision;
use crate::random::{Stream, Use, path_within};
use crate::simd::{Cpu, Isa, Real};
use crate::tensor::Tensor;
use crate::{Error, Result, extents};

impl WeightStore {
    /// Whether what the forward pass reads is encoded by the host even where the master is on a GPU.
    pub(crate) fn encodes_on_host(&self) -> bool {
        let by_host = |version: &Version| !(version.packing.encodes_on_gpu() && version.recipe.is_plain());
        self.master.is_some() && self.versions.iter().flatten().any(by_host)
    }

    /// Whether the forward pass reads anything packed.
    pub fn is_packed(&self) -> bool {
        self.versions.iter().any(Option::is_some)
    }

    /// The type the forward pass reads a parameter in; `None` for the master.
    pub fn dtype_of(&self, index: usize) -> Option<DType> {
        self.versions.get(index)?.as_ref().map(|version| version.packing.dtype)
    }

    /// What a parameter is packed as, and by which recipe.
    pub fn choice(&self, index: usize) -> Choice {
        self.versions.get(index)?.as_ref().map(|version| (version.packing.dtype, version.recipe))
    }

    /// A parameter as the forward pass reads it, in the outside's layout.
    ///
    /// # Errors
    /// [`Error::State`] where the master was dropped and there is no version to read.
    pub fn decoded(&self, index: usize) -> Result<Tensor> {
        let info = &self.parameters[index];
        let Some(dtype) = self.dtype_of(index) else { return self.get(index) };
        let (packing, packed, scales) = self.version(dtype, index)?;
        let (shape, layout) = (info.layout.outside_shape(), &info.layout);
        in_precision!(self.precision, T => {
            let mut stored = extents::zeros::<T>(info.len())?;
            packing.decode(Isa::portable(), packed, scales, &mut stored);
            Tensor::new(shape, layout.to_outside(&stored)?)
        })
    }

    /// The same choice for every parameter that takes on the layer's type, and none for the others.
    pub fn of_layer(&self, choice: Choice) -> Vec<Choice> {
        self.parameters.iter().map(|info| choice.filter(|_| info.morphable)).collect()
    }

    /// Has the forward pass read every parameter that takes on the layer's type packed as this one, or from the
    /// master; the others from the master.
    ///
    /// # Errors
    /// As [`choose`](WeightStore::choose).
    pub fn morph(&mut self, dtype: Option<DType>, recipe: impl Into<Recipe>) -> Result<()> {
        let recipe = recipe.into();
        self.choose(&self.of_layer(dtype.map(|dtype| (dtype, recipe))))
    }

    /// Has the forward pass read each parameter as it is chosen here.
    ///
    /// # Errors
    /// [`Error::DType`] for a type that cannot be used or a recipe that it cannot have, [`Error::Value`] and
    /// [`Error::NonFinite`] naming a parameter that the type cannot hold, [`Error::State`] where the master was
    /// dropped. The store is then as before.
    pub fn choose(&mut self, choices: &[Choice]) -> Result<()> {
        let staged = self.stage(choices)?;
        self.adopt(staged);
        Ok(())
    }

    /// Makes the versions that [`adopt`](WeightStore::adopt) changes over to.
    ///
    /// # Errors
    /// As [`choose`](WeightStore::choose).
    pub(crate) fn stage(&self, choices: &[Choice]) -> Result<Staged> {
        let mut staged = Vec::with_capacity(self.parameters.len());
        for (index, choice) in choices.iter().enumerate() {
            let known = self.versions[index].as_ref();
            let Some((dtype, recipe)) = *choice else {
                // Packed weights whose master is gone have nothing else to be read from.
                if known.is_some() {
                    self.check_master()?;
                }
                staged.push(None);
                continue;
            };
            let recipe = recipe.checked(dtype)?;
            let current = known.filter(|known| known.is(dtype, recipe) && known.epoch == Some(self.epoch));
            staged.push(Some(match current {
                Some(known) => known.clone(),
                None => {
                    self.check_master()?;
                    let mut version = Version::empty(&self.parameters[index], dtype, recipe)?;
                    self.make(None, index, &mut version)?;
                    version
                }
            }));
        }
        Ok(Staged(staged))
    }

    /// Changes over to what was staged since the master moved last.
    pub(crate) fn adopt(&mut self, staged: Staged) {
        self.versions = staged.0;
    }

    /// Makes a parameter's version from the master.
    fn make(&self, cpu: Option<&Cpu>, index: usize, version: &mut Version) -> Result<()> {
        version.epoch = None;
        in_precision!(self.precision, T => self.make_in::<T>(cpu, index, version)?);
        version.epoch = Some(self.epoch);
        Ok(())
    }

    fn make_in<T: Real>(&self, cpu: Option<&Cpu>, index: usize, version: &mut Version) -> Result<()> {
        let rule = self.rule(&version.recipe, index);
        let packing = version.packing;
        let (bytes, scales) = version.parts_mut()?;
        let name = &self.parameters[index].name;
        let master = self.part::<T>(index)?;
        extents::caught(|| packing.encode_parameter(name, &rule, cpu, master, bytes, scales))
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
        let searched = |version: &Version| version.recipe.calibration == dtype::Calibration::Mse;
        if self.master.is_some() && self.versions.iter().flatten().any(searched) {
            self.epoch += 1;
        }
        Ok(())
    }

    /// Takes over parameters of other stores of the same layouts, as they are packed there: pairs of a parameter
    /// here and one there.
    ///
    /// # Errors
    /// [`Error::State`] where a master was dropped.
    pub(crate) fn take_over(&mut self, parts: &[(usize, &WeightStore, usize)]) -> Result<()> {
        let size = self.precision.size();
        for (index, from, other) in parts {
            let values = from.float_bytes(Some(*other))?;
            let start = self.parameters[*index].offset * size;
            self.master_buffer_mut()?.bytes_mut()[start..start + values.len()].copy_from_slice(values);
        }
        for (index, from, other) in parts {
            let importance = from.importance(*other);
            if !importance.is_empty() {
                self.sources.importance.resize_with(self.parameters.len(), Vec::new);
                self.sources.importance[*index] = importance.to_vec();
            }
            self.versions[*index] = from.versions[*other].clone().map(|version| {
                let epoch = (version.epoch == Some(from.epoch)).then_some(self.epoch);
                Version { epoch, ..version }
            });
        }
        Ok(())
    }

    /// Whether no version is older than the master; there is nothing to make one of where that was dropped.
    pub(crate) fn is_current(&self) -> bool {
        self.master.is_none()
            || self.versions.iter().flatten().all(|version| version.epoch == Some(self.epoch))
    }

    /// Makes every version anew that the master has left behind, on the threads of `cpu`.
    ///
    /// # Errors
    /// As [`choose`](WeightStore::choose), of the first that cannot be made anew; such are not readable until they
    /// were, all others are.
    pub fn refresh(&mut self, cpu: &Cpu) -> Result<()> {
        if self.master.is_none() {
            return Ok(());
        }
        let mut outcome = Ok(());
        for index in 0..self.versions.len() {
            let stale = |version: &mut Version| version.epoch != Some(self.epoch);
            let Some(mut version) = self.versions[index].take_if(stale) else { continue };
            let made = self.make(Some(cpu), index, &mut version);
            self.versions[index] = Some(version);
            outcome = outcome.and(made);
        }
        outcome
    }

    /// How a parameter is packed, its bytes, and its scales.
    ///
    /// # Errors
    /// [`Error::Internal`] for a version that is not there, [`Error::State`] for one that the master has left behind
    /// and that could not be made of it since.
    pub(crate) fn version(&self, dtype: DType, index: usize) -> Result<(Packing, &[u8], &[f32])> {
        match &self.versions[index] {
            Some(version) if version.packing.dtype == dtype && version.epoch == Some(self.epoch) => {
                let (bytes, scales) = version.parts()?;
                Ok((version.packing, bytes, scales))
            }
            Some(version) if version.packing.dtype == dtype => Err(Error::State(format!(
                "the weights of \"{}\" as {dtype} are older than the weights themselves: an update has failed half \
                 way, and {dtype} may not hold what it has left; set the parameter, load the network from its \
                 file, or choose another numeric type by morph()",
                self.parameters[index].name
            ))),
            _ => Err(Error::Internal(format!(
                "a program reads \"{}\" as {dtype}, which it is not packed as",
                self.parameters[index].name
            ))),
        }
    }

    /// The largest magnitude that a parameter's version holds.
    pub(crate) fn most_held(&self, index: usize) -> f32 {
        self.versions[index].as_ref().map_or(f32::MAX, |version| version.packing.dtype.most_held())
    }

    /// A magnitude up to which weights are surely held by every type that they are packed as.
    pub(crate) fn most_packed(&self) -> f64 {
        let versions = self.versions.iter().flatten();
        versions.map(|version| version.packing.dtype.surely_held()).fold(f64::INFINITY, f64::min)
    }

    /// How a parameter's version is packed; `None` where the forward pass reads the master.
    pub(crate) fn packing_of(&self, index: usize) -> Option<Packing> {
        self.versions.get(index)?.as_ref().map(|version| version.packing)
    }

    /// Takes the packed bytes and scales that `read` brings, as they were saved, for the parameter's version of the
    /// present epoch; `by_rows` where the blocks of a table lie along its rows.
    ///
    /// # Errors
    /// What `read` says; [`Error::Serialization`] for scales that are not finite.
    pub(crate) fn set_version(
        &mut self,
        dtype: DType,
        recipe: impl Into<Recipe>,
        index: usize,
        by_rows: bool,
        read: impl FnOnce(&mut [u8], &mut [f32]) -> Result<()>,
    ) -> Result<()> {
        let info = &self.parameters[index];
        let recipe = recipe.into().checked(dtype)?;
        let mut version = Version::zeroed(Version::packing(info, dtype, recipe, by_rows), recipe)?;
        let packing = version.packing;
        let (bytes, scales) = version.parts_mut()?;
        read(bytes, scales)?;
        if packing.has_odd_scales(scales) {
            return Err(Error::Serialization(format!(
                "the {dtype} scales of \"{}\" hold NaN or infinity",
                info.name
            )));
        }
        version.epoch = Some(self.epoch);
        self.versions[index] = Some(version);
        Ok(())
    }

    /// Bytes of what the forward pass reads of a parameter: codes and scales, or the master.
    pub fn active_bytes_of(&self, index: usize) -> usize {
        match self.packing_of(index) {
            Some(packing) => packing.nbytes(),
            None => self.parameters[index].len() * self.precision.size(),
        }
    }

    /// Bytes of what the forward pass reads.
    pub fn active_bytes(&self) -> usize {
        (0..self.parameters.len()).map(|index| self.active_bytes_of(index)).sum()
    }

    /// Bytes the parameters take with the layer's weights in this type: codes, scales, and floats for the rest.
    /// What is packed as this type already counts with its own granularity.
    pub fn nbytes(&self, dtype: DType) -> usize {
        let bytes = |(index, info): (usize, &ParameterInfo)| {
            let own = self.packing_of(index).filter(|packing| packing.dtype == dtype);
            match info.morphable {
                true => own.unwrap_or(info.packing(dtype)).nbytes(),
                false => info.len() * self.precision.size(),
            }
        };
        self.parameters.iter().enumerate().map(bytes).sum()
    }

    /// The packed versions that the forward pass reads, in the order of parameters.
    pub fn versions(&self) -> impl Iterator<Item = VersionInfo> + '_ {
        let versions = self.versions.iter().enumerate();
        versions.filter_map(|(parameter, version)| {
            let version = version.as_ref()?;
            let Version { packing, recipe, .. } = *version;
            Some(VersionInfo { parameter, packing, recipe, current: version.epoch == Some(self.epoch) })
        })
    }
}

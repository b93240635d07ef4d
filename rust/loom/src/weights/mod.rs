//! The weights of one layer: a full-precision master and packed versions of it.
//!
//! The master is the only truth and the only thing optimizers touch. Versions are made
//! from it by `encode`; each remembers the master's epoch it was made at, and an older
//! one is never handed out.

mod layout;

pub use layout::Layout;

use crate::cpu::{Cpu, Isa, Real};
use crate::dtype::{self, DType, Granularity, Packing};
use crate::tensor::{Buffer, Precision, Shape, Tensor, TensorView};
use crate::{Error, Result};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Parameters start at multiples of this many elements: 256 bytes in single precision, where
/// vectors find them aligned and every GPU can bind them.
const ALIGNMENT: usize = 64;

/// One parameter's place in the flat master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterInfo {
    /// Its name in the layer.
    pub name: Cow<'static, str>,
    /// How it is stored and seen.
    pub layout: Layout,
    /// Whether it takes on the layer's numeric type.
    pub morphable: bool,
    /// Where it starts in the flat master, in elements.
    pub offset: usize,
}

impl ParameterInfo {
    /// How many elements it has.
    pub fn len(&self) -> usize {
        let (rows, columns) = self.layout.storage_matrix();
        rows * columns
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many output channels it has: columns as stored.
    pub fn channels(&self) -> usize {
        self.layout.storage_matrix().1
    }

    /// How it is packed in a type, with the type's own granularity.
    pub fn packing(&self, dtype: DType) -> Packing {
        let (rows, channels) = self.layout.storage_matrix();
        Packing::new(dtype, rows, channels)
    }
}

/// The packed form of a store's morphable parameters in one type.
#[derive(Clone, Debug)]
struct Version {
    /// Which elements share a scale.
    granularity: Granularity,
    /// Packed bytes and scales of each parameter; empty for those that stay float.
    parts: Vec<(Buffer, Buffer)>,
    /// The master's epoch they were made at; `None` before the first time.
    epoch: Option<u64>,
}

/// The weights of one layer.
#[derive(Clone, Debug)]
pub struct WeightStore {
    precision: Precision,
    parameters: Vec<ParameterInfo>,
    len: usize,
    /// `None` once dropped.
    master: Option<Buffer>,
    /// What is left of a dropped master: each parameter that stays float, by index.
    kept: Vec<Buffer>,
    versions: BTreeMap<DType, Version>,
    /// The type the forward pass computes from; `None` for the master.
    active: Option<DType>,
    epoch: u64,
}

impl WeightStore {
    /// Zeroed parameters of these names and layouts; the flag says which of them take on a
    /// packed type.
    ///
    /// # Errors
    /// [`Error::Shape`] for a parameter without elements.
    pub fn new<T: Real>(parameters: &[(impl Into<Cow<'static, str>> + Clone, Layout, bool)]) -> Result<Self> {
        let mut offset = 0;
        let mut infos = Vec::with_capacity(parameters.len());
        for (name, layout, morphable) in parameters {
            let name: Cow<'static, str> = name.clone().into();
            let info =
                ParameterInfo { name: name.clone(), layout: layout.clone(), morphable: *morphable, offset };
            if info.is_empty() {
                return Err(Error::Shape(format!("parameter \"{name}\" has no elements")));
            }
            offset += info.len().next_multiple_of(ALIGNMENT);
            infos.push(info);
        }
        Ok(Self {
            precision: T::PRECISION,
            parameters: infos,
            len: offset,
            master: Some(Buffer::of::<T>(offset)),
            kept: Vec::new(),
            versions: BTreeMap::new(),
            active: None,
            epoch: 0,
        })
    }

    /// The parameters, in the order the layer asked for them.
    pub fn parameters(&self) -> &[ParameterInfo] {
        &self.parameters
    }

    /// Elements of the flat master, padding between parameters counted in.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no parameter.
    pub fn is_empty(&self) -> bool {
        self.parameters.is_empty()
    }

    /// How many trained numbers there are.
    pub fn parameter_count(&self) -> usize {
        self.parameters.iter().map(ParameterInfo::len).sum()
    }

    /// The precision of the master.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// A number that grows with every change of the master.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The type the forward pass computes from; `None` for the master.
    pub fn active(&self) -> Option<DType> {
        self.active
    }

    /// Whether what the forward pass reads is encoded by the host even where the master is on a GPU.
    #[cfg(feature = "gpu")]
    pub(crate) fn encodes_on_host(&self) -> bool {
        let Some(dtype) = self.active else { return false };
        let packing = Packing::new(dtype, 1, 1).with(self.granularity(dtype));
        !packing.encodes_on_gpu() && self.parameters.iter().any(|info| info.morphable)
    }

    /// Refuses a store whose master was dropped.
    ///
    /// # Errors
    /// [`Error::State`] then.
    pub fn check_master(&self) -> Result<()> {
        self.master.as_ref().map(|_| ()).ok_or_else(dropped)
    }

    /// The flat master, to change: versions are stale from here on.
    ///
    /// # Errors
    /// [`Error::State`] where it was dropped.
    pub(crate) fn master_buffer_mut(&mut self) -> Result<&mut Buffer> {
        let master = self.master.as_mut().ok_or_else(dropped)?;
        self.epoch += 1;
        Ok(master)
    }

    /// Takes note that the master was changed on a device: what the host holds is stale until it
    /// is copied to [`device_copy`](WeightStore::device_copy). Returns the new epoch.
    #[cfg(feature = "gpu")]
    pub(crate) fn moved_on_device(&mut self) -> u64 {
        self.epoch += 1;
        self.epoch
    }

    /// Where a device's newer master is copied to; the epoch stays, since it is that of the copy.
    #[cfg(feature = "gpu")]
    pub(crate) fn device_copy(&mut self) -> Result<&mut [u8]> {
        self.master.as_mut().map(Buffer::bytes_mut).ok_or_else(dropped)
    }

    /// The elements of one parameter in full precision, or of the whole flat master.
    ///
    /// # Errors
    /// [`Error::State`] for what went with a dropped master.
    pub(crate) fn float_bytes(&self, parameter: Option<usize>) -> Result<&[u8]> {
        let size = self.precision.size();
        match (&self.master, parameter) {
            (Some(master), None) => Ok(master.bytes()),
            (Some(master), Some(index)) => {
                let info = &self.parameters[index];
                Ok(&master.bytes()[info.offset * size..(info.offset + info.len()) * size])
            }
            (None, Some(index)) if !self.parameters[index].morphable => Ok(self.kept[index].bytes()),
            (None, _) => Err(dropped()),
        }
    }

    /// Refuses a store whose master the forward pass still reads.
    ///
    /// # Errors
    /// [`Error::State`] then.
    pub(crate) fn check_droppable(&self) -> Result<()> {
        if self.active.is_some() || self.parameters.iter().all(|info| !info.morphable) {
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
        let Some(dtype) = self.active.filter(|_| self.master.is_some()) else { return Ok(()) };
        self.encode(dtype)?;
        let keep = |(index, info): (usize, &ParameterInfo)| {
            if info.morphable {
                return Ok(Buffer::default());
            }
            self.float_bytes(Some(index)).map(Buffer::from_slice)
        };
        self.kept = self.parameters.iter().enumerate().map(keep).collect::<Result<_>>()?;
        self.master = None;
        Ok(())
    }

    /// Whether the master was dropped.
    pub fn is_dropped(&self) -> bool {
        self.master.is_none()
    }

    /// One parameter of the master, in storage order.
    fn part<T: Real>(&self, index: usize) -> Result<&[T]> {
        self.float_bytes(Some(index)).map(bytemuck::cast_slice)
    }

    /// Sets a parameter from numbers in storage order, rounded to the master's precision.
    ///
    /// # Errors
    /// [`Error::Shape`] for another number of them, [`Error::NonFinite`] where one is not finite in
    /// that precision, [`Error::State`] where the master was dropped.
    pub fn set_storage(&mut self, index: usize, values: &[f64]) -> Result<()> {
        match self.precision {
            Precision::Float32 | Precision::Mixed => {
                let values: Vec<f32> = values.iter().map(|value| *value as f32).collect();
                self.write_part(index, &values)
            }
            Precision::Float64 => self.write_part(index, values),
        }
    }

    fn write_part<T: Real>(&mut self, index: usize, values: &[T]) -> Result<()> {
        let info = self.parameters[index].clone();
        if values.len() != info.len() {
            return Err(Error::Shape(format!(
                "parameter \"{}\" has {} elements, got {}",
                info.name,
                info.len(),
                values.len()
            )));
        }
        if values.iter().any(|value| !value.is_finite()) {
            return Err(Error::NonFinite(format!(
                "values for parameter \"{}\" are beyond the range of {}",
                info.name,
                self.precision.dtype()
            )));
        }
        let master = self.master_buffer_mut()?.as_mut_slice::<T>();
        master[info.offset..info.offset + info.len()].copy_from_slice(values);
        Ok(())
    }

    /// Sets a parameter from the outside's layout.
    ///
    /// # Errors
    /// [`Error::Shape`] for other extents, [`Error::NonFinite`] for infinity and NaN,
    /// [`Error::State`] where the master was dropped.
    pub fn set(&mut self, index: usize, values: &TensorView<'_>) -> Result<()> {
        let info = &self.parameters[index];
        let expected = info.layout.outside_shape();
        if values.shape() != expected {
            return Err(Error::Shape(format!(
                "parameter \"{}\" has shape {}, got {}",
                info.name,
                Shape::new(expected),
                Shape::from(values.shape())
            )));
        }
        if values.first_non_finite().is_some() {
            return Err(Error::NonFinite(format!(
                "values for parameter \"{}\" hold NaN or infinity",
                info.name
            )));
        }
        match self.precision {
            Precision::Float32 | Precision::Mixed => self.set_in::<f32>(index, values),
            Precision::Float64 => self.set_in::<f64>(index, values),
        }
    }

    fn set_in<T: Real>(&mut self, index: usize, values: &TensorView<'_>) -> Result<()> {
        let layout = &self.parameters[index].layout;
        let mut outside = vec![T::ZERO; values.elements().len()];
        values.copy_to(&mut outside);
        let stored = layout.to_storage(&outside);
        self.write_part(index, &stored)
    }

    /// A parameter's master in the outside's layout.
    ///
    /// # Errors
    /// [`Error::State`] where the master was dropped.
    pub fn get(&self, index: usize) -> Result<Tensor> {
        let layout = &self.parameters[index].layout;
        match self.precision {
            Precision::Float32 | Precision::Mixed => {
                Tensor::new(layout.outside_shape(), layout.to_outside(self.part::<f32>(index)?))
            }
            Precision::Float64 => {
                Tensor::new(layout.outside_shape(), layout.to_outside(self.part::<f64>(index)?))
            }
        }
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
        let granularity = self.granularity(dtype);
        self.encode_with(None, dtype, granularity)
    }

    /// Which elements share a scale in the version of this type, or would unless asked otherwise.
    pub fn granularity(&self, dtype: DType) -> Granularity {
        self.versions.get(&dtype).map_or(dtype.row().granularity, |version| version.granularity)
    }

    fn encode_with(&mut self, cpu: Option<&Cpu>, dtype: DType, granularity: Granularity) -> Result<()> {
        let known = self.versions.get(&dtype).filter(|version| version.granularity == granularity);
        if known.is_some_and(|version| version.epoch == Some(self.epoch)) {
            return Ok(());
        }
        self.check_master()?;
        let granularity = dtype.granularity(Some(granularity))?;
        let mut version = match self.versions.remove(&dtype) {
            Some(version) if version.granularity == granularity => version,
            _ => self.empty_version(dtype, granularity),
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

    fn empty_version(&self, dtype: DType, granularity: Granularity) -> Version {
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
        Version { granularity, parts, epoch: None }
    }

    fn encode_parts<T: Real>(&self, cpu: Option<&Cpu>, dtype: DType, version: &mut Version) -> Result<()> {
        for (index, info) in self.parameters.iter().enumerate().filter(|(_, info)| info.morphable) {
            let (packed, scales) = &mut version.parts[index];
            let packing = info.packing(dtype).with(version.granularity);
            let (bytes, scales) = (packed.bytes_mut(), scales.as_mut_slice());
            dtype::encode_as(&packing, cpu, &info.name, self.part::<T>(index)?, bytes, scales)?;
        }
        Ok(())
    }

    /// Makes the version of this type with scales for these elements, beside what the forward pass reads.
    ///
    /// A version of another granularity that the forward pass reads is replaced.
    ///
    /// # Errors
    /// As [`encode`](WeightStore::encode), and [`Error::DType`] for a granularity that the type cannot have.
    pub fn encode_by(&mut self, dtype: DType, granularity: Option<Granularity>) -> Result<()> {
        let granularity = dtype.granularity(granularity)?;
        let before = self.versions.get(&dtype).cloned();
        let encoded = self.encode_with(None, dtype, granularity);
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
            Some(dtype) if self.master.is_some() => {
                self.encode_with(Some(cpu), dtype, self.granularity(dtype))
            }
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
        granularity: Granularity,
        index: usize,
        (packed, scales): (&[u8], &[f32]),
    ) -> Result<()> {
        let granularity = dtype.granularity(Some(granularity))?;
        let mut version = match self.versions.remove(&dtype) {
            Some(version) if version.granularity == granularity => version,
            _ => self.empty_version(dtype, granularity),
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

fn dropped() -> Error {
    Error::State(
        "the full-precision master of these weights was dropped; load a checkpoint that has it to train, \
         to change the numeric type, or to read or set the weights"
            .into(),
    )
}

#[cfg(test)]
mod tests;

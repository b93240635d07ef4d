//! The store of one layer's weights, and its master.

use super::layout::Layout;
use super::parameter::ParameterInfo;
use super::version::{Sources, Version};
use crate::precision::in_precision;
use crate::simd::Real;
use crate::tensor::{Buffer, Precision, Shape, Tensor, TensorView, first_non_finite};
use crate::{Error, Result, extents};
use std::borrow::Cow;

/// Parameters start at multiples of this many elements: 256 bytes in single precision, where
/// vectors find them aligned and every GPU can bind them.
const ALIGNMENT: usize = 64;

/// The weights of one layer.
#[derive(Clone, Debug)]
pub struct WeightStore {
    pub(super) precision: Precision,
    pub(super) parameters: Vec<ParameterInfo>,
    pub(super) len: usize,
    /// `None` once dropped.
    pub(super) master: Option<Buffer>,
    /// What is left of a dropped master: each parameter that stays float, by index.
    pub(super) kept: Vec<Buffer>,
    /// Whether a master is made as soon as it is needed, where there is none.
    pub(super) lent: bool,
    /// What the forward pass reads of each parameter; `None` for the master.
    pub(super) versions: Vec<Option<Version>>,
    pub(super) epoch: u64,
    pub(super) sources: Sources,
    /// Whether it tells what there will be, and has no memory for it.
    pub(super) is_outline: bool,
}

impl WeightStore {
    /// Zeroed parameters of these names and layouts; the flag says which of them take on a
    /// packed type.
    ///
    /// # Errors
    /// [`Error::Shape`] for a parameter without elements.
    pub fn new<T: Real>(parameters: &[(impl Into<Cow<'static, str>> + Clone, Layout, bool)]) -> Result<Self> {
        let mut store = Self::described(T::PRECISION, parameters)?;
        store.master = Some(Buffer::large(store.len.saturating_mul(size_of::<T>()))?);
        Ok(store)
    }

    /// Parameters of these names and layouts, their numbers yet to come.
    pub(super) fn described(
        precision: Precision,
        parameters: &[(impl Into<Cow<'static, str>> + Clone, Layout, bool)],
    ) -> Result<Self> {
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
            precision,
            parameters: infos,
            len: offset,
            master: None,
            kept: Vec::new(),
            lent: false,
            versions: vec![None; parameters.len()],
            epoch: 0,
            sources: Sources::default(),
            is_outline: false,
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

    /// Numbers what is there anew, by an epoch after all others: versions stay as current as they were.
    pub(crate) fn renumber(&mut self, epoch: u64) {
        let before = std::mem::replace(&mut self.epoch, epoch);
        for version in self.versions.iter_mut().flatten().filter(|version| version.epoch == Some(before)) {
            version.epoch = Some(epoch);
        }
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
    pub fn moved_on_device(&mut self) -> u64 {
        self.epoch += 1;
        self.epoch
    }

    /// Where a device's newer master is copied to; the epoch stays, since it is that of the copy.
    ///
    /// # Errors
    /// [`Error::State`] where the master was dropped.
    pub fn device_copy(&mut self) -> Result<&mut [u8]> {
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
            (None, Some(index)) if self.versions[index].is_none() => {
                let bytes = self.kept.get(index).map_or(&[][..], Buffer::bytes);
                match bytes.len() == self.parameters[index].len() * size {
                    true => Ok(bytes),
                    false => Err(unset(&self.parameters[index].name)),
                }
            }
            (None, _) => Err(dropped()),
        }
    }

    /// One parameter of the master, in storage order.
    pub(super) fn part<T: Real>(&self, index: usize) -> Result<&[T]> {
        self.float_bytes(Some(index)).map(bytemuck::cast_slice)
    }

    /// Sets a parameter from numbers in storage order, rounded to the master's precision.
    ///
    /// # Errors
    /// [`Error::Shape`] for another number of them, [`Error::NonFinite`] where one is not finite in
    /// that precision, [`Error::State`] where the master was dropped.
    pub fn set_storage(&mut self, index: usize, values: &[f64]) -> Result<()> {
        self.check_count(index, values.len())?;
        self.set_storage_from(index, 0, values)
    }

    /// [`set_storage`](WeightStore::set_storage) of some elements, from the `first` on.
    ///
    /// # Errors
    /// As [`set_storage`](WeightStore::set_storage).
    pub(crate) fn set_storage_from(&mut self, index: usize, first: usize, values: &[f64]) -> Result<()> {
        in_precision!(self.precision, T => self.write_part::<T, f64>(index, first, values))
    }

    fn check_count(&self, index: usize, count: usize) -> Result<()> {
        let info = &self.parameters[index];
        if count == info.len() {
            return Ok(());
        }
        Err(Error::Shape(format!("parameter \"{}\" has {} elements, got {count}", info.name, info.len())))
    }

    fn write_part<T: Real, S: Real>(&mut self, index: usize, first: usize, values: &[S]) -> Result<()> {
        let info = self.parameters[index].clone();
        if first + values.len() > info.len() {
            return Err(Error::Internal(format!("parameter \"{}\" has fewer elements", info.name)));
        }
        let rounded = |value: &S| T::from_f64(value.to_f64());
        if values.iter().any(|value| !rounded(value).is_finite()) {
            return Err(Error::NonFinite(format!(
                "values for parameter \"{}\" are beyond the range of {}",
                info.name,
                self.precision.dtype()
            )));
        }
        let all = if self.keeps(index) {
            self.renumber(self.epoch + 1);
            self.kept[index].as_mut_slice::<T>()
        } else {
            &mut self.master_buffer_mut()?.as_mut_slice::<T>()[info.offset..]
        };
        all[first..].iter_mut().zip(values).for_each(|(to, value)| *to = rounded(value));
        Ok(())
    }

    /// Refuses extents that are not a parameter's in the outside's layout.
    ///
    /// # Errors
    /// [`Error::Shape`] then.
    pub(crate) fn check_shape(&self, index: usize, shape: &[usize]) -> Result<()> {
        let info = &self.parameters[index];
        let expected = info.layout.outside_shape();
        if shape == expected {
            return Ok(());
        }
        Err(Error::Shape(format!(
            "parameter \"{}\" has shape {}, got {}",
            info.name,
            Shape::new(expected),
            Shape::from(shape)
        )))
    }

    /// Sets a parameter from the outside's layout.
    ///
    /// # Errors
    /// [`Error::Shape`] for other extents, [`Error::NonFinite`] for infinity and NaN,
    /// [`Error::State`] where the master was dropped.
    pub fn set(&mut self, index: usize, values: &TensorView<'_>) -> Result<()> {
        self.check_shape(index, values.shape())?;
        let info = &self.parameters[index];
        if values.first_non_finite().is_some() {
            return Err(Error::NonFinite(format!(
                "values for parameter \"{}\" hold NaN or infinity",
                info.name
            )));
        }
        in_precision!(self.precision, T => self.set_in::<T>(index, values))
    }

    fn set_in<T: Real>(&mut self, index: usize, values: &TensorView<'_>) -> Result<()> {
        let layout = &self.parameters[index].layout;
        let mut outside = extents::zeros::<T>(values.elements().len())?;
        values.copy_to(&mut outside);
        let stored = layout.to_storage(&outside)?;
        self.check_count(index, stored.len())?;
        self.write_part::<T, T>(index, 0, &stored)
    }

    /// Fills one parameter in full precision with what `read` brings in the outside's layout: straight into its
    /// place where it is stored so. Of a dropped master that is what stays beside packed weights.
    ///
    /// # Errors
    /// What `read` says; [`Error::NonFinite`] for infinity and NaN.
    pub(crate) fn fill(&mut self, index: usize, read: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<()> {
        let (info, size) = (self.parameters[index].clone(), self.precision.size());
        let bytes = info.len() * size;
        let own = match &mut self.master {
            Some(master) => &mut master.bytes_mut()[info.offset * size..][..bytes],
            None => {
                self.kept[index] = Buffer::zeroed(bytes)?;
                self.kept[index].bytes_mut()
            }
        };
        if info.layout.is_outside() {
            read(own)?;
        } else {
            // Goes whole, and leaves no hole behind in which the next does not fit.
            let mut outside = Buffer::large(bytes)?;
            read(outside.bytes_mut())?;
            in_precision!(self.precision, T => {
                info.layout.store(outside.as_slice::<T>(), bytemuck::cast_slice_mut::<u8, T>(own));
            });
        }
        let odd = in_precision!(self.precision, T => first_non_finite(bytemuck::cast_slice::<u8, T>(own)));
        if odd.is_some() {
            let name = &info.name;
            return Err(Error::NonFinite(format!("values for parameter \"{name}\" hold NaN or infinity")));
        }
        self.epoch += 1;
        Ok(())
    }

    /// A parameter's master in the outside's layout; what it would be, where it is made as it is needed.
    ///
    /// # Errors
    /// [`Error::State`] where the master was dropped.
    pub fn get(&self, index: usize) -> Result<Tensor> {
        if self.is_lent() && self.versions[index].is_some() {
            return self.decoded(index);
        }
        let layout = &self.parameters[index].layout;
        in_precision!(self.precision, T => Tensor::new(layout.outside_shape(), layout.to_outside(self.part::<T>(index)?)?))
    }
}

pub(super) fn dropped() -> Error {
    Error::State(
        "the full-precision master of these weights was dropped; unpack() makes one of the packed weights, and \
         a checkpoint may still have it, to train, to change the numeric type, or to read or set the weights"
            .into(),
    )
}

fn unset(name: &str) -> Error {
    Error::State(format!("the network was built without weights, and \"{name}\" was not set since"))
}

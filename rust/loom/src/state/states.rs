//! What layers keep beside their parameters, and what they carry from call to call.

use super::place::LayerPath;
use crate::precision::in_precision;
use crate::shader::{Accelerator, Allocation};
use crate::simd::Real;
use crate::state::{CarriedSpec, StateSpec};
use crate::tensor::{Buffer, Precision, Shape, Tensor, TensorView, check_finite};
use crate::{Error, Result, extents};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// One thing that a layer keeps: saved with the network, moved by no optimizer.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) spec: StateSpec,
    pub(crate) content: Buffer,
}

impl State {
    /// As the layer wants it to start.
    pub(crate) fn new(spec: StateSpec, precision: Precision) -> Result<Self> {
        let content = filled(precision, spec.shape.len(), spec.initial)?;
        Ok(Self { spec, content })
    }

    /// One that is only told of.
    pub(crate) fn outlined(spec: StateSpec) -> Self {
        Self { spec, content: Buffer::default() }
    }

    /// The content with its extents.
    pub(crate) fn tensor(&self, precision: Precision) -> Result<Tensor> {
        shaped(self.spec.shape.to_vec(), &self.content, precision)
    }

    /// Replaces the content.
    ///
    /// # Errors
    /// [`Error::Shape`] and [`Error::NonFinite`] for values that do not fit.
    pub(crate) fn set(&mut self, values: &TensorView<'_>) -> Result<()> {
        check_values(&self.spec.name, &self.spec.shape, values)?;
        copy_into(&mut self.content, values);
        Ok(())
    }
}

fn check_values(name: &str, shape: &[usize], values: &TensorView<'_>) -> Result<()> {
    if values.shape() != shape {
        return Err(Error::Shape(format!(
            "\"{name}\" has shape {}, got {}",
            Shape::from(shape),
            Shape::from(values.shape())
        )));
    }
    check_finite(values, name)
}

/// Copies values into a buffer of as many elements, in the buffer's precision.
fn copy_into(buffer: &mut Buffer, values: &TensorView<'_>) {
    let single = buffer.len_bytes() == values.elements().len() * size_of::<f32>();
    if single {
        values.copy_to(buffer.as_mut_slice::<f32>());
    } else {
        values.copy_to(buffer.as_mut_slice::<f64>());
    }
}

fn shaped(shape: Vec<usize>, content: &Buffer, precision: Precision) -> Result<Tensor> {
    in_precision!(precision, T => Tensor::new(shape, extents::copied(content.as_slice::<T>())?))
}

fn filled(precision: Precision, len: usize, value: f64) -> Result<Buffer> {
    fn of<T: Real>(len: usize, value: f64) -> Result<Buffer> {
        let mut buffer = Buffer::large(len.saturating_mul(size_of::<T>()))?;
        buffer.as_mut_slice::<T>().fill(T::from_f64(value));
        Ok(buffer)
    }
    in_precision!(precision, T => of::<T>(len, value))
}

/// Something that a layer carries, with the layer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CarriedPlace {
    pub(crate) path: LayerPath,
    pub(crate) spec: CarriedSpec,
}

/// What the layers of a network carry from call to call, for each row: recurrent states, keys and
/// values of attention.
#[derive(Debug)]
pub struct Carried {
    /// Tells this memory from any other: what was recorded over one is not for another.
    id: u64,
    precision: Precision,
    rows: usize,
    /// Whether a batch has passed or somebody has set it: until then it is memory that was made ready, and
    /// nothing is carried.
    pub(crate) begun: bool,
    /// Whether rows say themselves of which sequence they are, so that steps see all of them.
    pub(crate) by_sequence: bool,
    places: Vec<CarriedPlace>,
    /// On the processor.
    pub(crate) buffers: Vec<Buffer>,
    /// On the device that the network was on when this was made, where that has memory of its own.
    pub(crate) on_device: Option<DeviceMemory>,
    /// Grows with every change of what is carried.
    changes: u64,
}

/// What was carried at one moment, on the host.
#[derive(Clone, Debug)]
pub(crate) struct CarriedCopy {
    /// The memory that it is of, and how often that had changed.
    of: (u64, u64),
    places: Vec<CarriedPlace>,
    rows: usize,
    contents: Arc<Vec<Buffer>>,
}

impl CarriedCopy {
    /// Whether this is what the memory holds now.
    pub(crate) fn is_of(&self, carried: &Carried) -> bool {
        self.of == (carried.id, carried.changes)
    }

    /// What it is of.
    pub(crate) fn places(&self) -> &[CarriedPlace] {
        &self.places
    }

    /// Memory with this content, on a device with memory of its own if one is given.
    ///
    /// # Errors
    /// [`Error::Device`] and [`Error::Memory`] where there is no room.
    pub(crate) fn placed_on(
        &self,
        precision: Precision,
        device: Option<&Arc<dyn Accelerator>>,
    ) -> Result<Carried> {
        let mut carried = Carried::new(self.places.clone(), self.rows, precision, device)?;
        carried.restore(self.contents.to_vec());
        carried.begun = true;
        Ok(carried)
    }
}

/// A device with what is carried there.
#[derive(Debug)]
pub(crate) struct DeviceMemory {
    device: Arc<dyn Accelerator>,
    pub(crate) allocations: Vec<Allocation>,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl Carried {
    /// Memory for `rows` rows, on a device with memory of its own if one is given, as it starts.
    pub(crate) fn new(
        places: Vec<CarriedPlace>,
        rows: usize,
        precision: Precision,
        device: Option<&Arc<dyn Accelerator>>,
    ) -> Result<Self> {
        for CarriedSpec { name, shape, .. } in places.iter().map(|place| &place.spec) {
            extents::check(format_args!("\"{name}\", carried from call to call,"), shape)?;
            extents::elements(format_args!("\"{name}\", carried from call to call"), rows, shape.len())?;
        }
        let mut carried = Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            precision,
            rows,
            begun: false,
            by_sequence: false,
            places,
            buffers: Vec::new(),
            on_device: None,
            changes: 0,
        };
        if let Some(device) = device {
            let bytes = |place: &CarriedPlace| (place.spec.shape.len() * rows * precision.size()) as u64;
            let allocate = |place| device.storage("state carried from call to call", bytes(place));
            let allocations = carried.places.iter().map(allocate).collect::<Result<_>>()?;
            carried.on_device = Some(DeviceMemory { device: device.clone(), allocations });
        }
        carried.reset()?;
        Ok(carried)
    }

    /// The name of what is carried under this number.
    pub(crate) fn name(&self, number: usize) -> Option<&str> {
        self.places.get(number).map(|place| &*place.spec.name)
    }

    /// A number that no other memory has: what an engine recorded over one is not for another.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// How precise the numbers are.
    pub(crate) fn precision(&self) -> Precision {
        self.precision
    }

    /// How many rows there are.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// What is carried, in the order of the numbers that programs know it by.
    pub(crate) fn places(&self) -> &[CarriedPlace] {
        &self.places
    }

    /// Forgets everything.
    ///
    /// # Errors
    /// [`Error::Memory`] where there is no room for it.
    pub(crate) fn reset(&mut self) -> Result<()> {
        let bytes = |place: &CarriedPlace| {
            place.spec.shape.len().saturating_mul(self.rows).saturating_mul(self.precision.size())
        };
        let mut contents = Buffer::together(&self.places.iter().map(bytes).collect::<Vec<_>>())?;
        for (content, place) in contents.iter_mut().zip(&self.places) {
            // Zeros are there already, and take no memory before something is written.
            if place.spec.initial != 0.0 {
                in_precision!(self.precision, T => {
                    content.as_mut_slice::<T>().fill(T::from_f64(place.spec.initial));
                });
            }
        }
        self.restore(contents);
        Ok(())
    }

    /// A copy of everything.
    ///
    /// # Errors
    /// [`Error::Device`] where it is on a GPU that was lost.
    pub(crate) fn contents(&self) -> Result<Vec<Buffer>> {
        if let Some(memory) = &self.on_device {
            let read = |(place, allocation): (&CarriedPlace, _)| {
                let mut content = Buffer::zeroed(place.spec.shape.len() * self.rows * self.precision.size())?;
                memory.device.read_back(allocation, 0, content.bytes_mut())?;
                Ok(content)
            };
            return self.places.iter().zip(&memory.allocations).map(read).collect();
        }
        Ok(self.buffers.clone())
    }

    /// Notes that what is carried has changed.
    pub(crate) fn note_change(&mut self) {
        self.changes += 1;
    }

    /// A copy of everything that knows what it is of.
    ///
    /// # Errors
    /// As [`contents`](Self::contents).
    pub(crate) fn copy(&self) -> Result<CarriedCopy> {
        Ok(CarriedCopy {
            of: (self.id, self.changes),
            places: self.places.clone(),
            rows: self.rows,
            contents: Arc::new(self.contents()?),
        })
    }

    /// Puts such a copy back.
    pub(crate) fn restore(&mut self, contents: Vec<Buffer>) {
        self.note_change();
        if let Some(memory) = &self.on_device {
            for (allocation, content) in memory.allocations.iter().zip(&contents) {
                memory.device.upload(allocation, 0, content.bytes());
            }
            return;
        }
        self.buffers = contents;
    }

    /// Makes the first `count` steps of one sequence those of another, of what is carried under the first numbers, which
    /// has a part of its own for each step.
    ///
    /// # Errors
    /// [`Error::Device`] where a GPU was lost or has no room.
    pub(crate) fn copy_sequence(
        &mut self,
        numbers: usize,
        (from, to): (usize, usize),
        count: usize,
    ) -> Result<()> {
        if from == to {
            return Ok(());
        }
        self.note_change();
        let size = self.precision.size();
        for (number, place) in self.places.iter().enumerate().take(numbers) {
            let elements = place.spec.shape.len();
            let step = elements / place.spec.shape.first().copied().unwrap_or(1).max(1);
            let part = (count * step).min(elements) * size;
            let (from, to) = (from * elements * size, to * elements * size);
            match &self.on_device {
                Some(memory) => {
                    memory.device.copy_within(&memory.allocations[number], from..from + part, to)?
                }
                None => self.buffers[number].bytes_mut().copy_within(from..from + part, to),
            }
        }
        Ok(())
    }

    /// For how many rows of a call steps see what is carried.
    pub(crate) fn rows_of(&self, rows: usize) -> usize {
        if self.by_sequence { self.rows } else { rows }
    }

    /// The same on another device.
    ///
    /// # Errors
    /// [`Error::Device`] where a GPU was lost or has no room.
    pub(crate) fn moved_to(&self, device: Option<&Arc<dyn Accelerator>>) -> Result<Self> {
        let mut moved = Self::new(self.places.clone(), self.rows, self.precision, device)?;
        moved.restore(self.contents()?);
        moved.begun = self.begun;
        Ok(moved)
    }

    /// The same for layers that may be others, or elsewhere: what is theirs goes on, the rest begins. `None` where
    /// nothing goes on.
    ///
    /// # Errors
    /// As [`moved_to`](Self::moved_to).
    pub(crate) fn arranged(
        self,
        places: Vec<CarriedPlace>,
        device: Option<&Arc<dyn Accelerator>>,
    ) -> Result<Option<Self>> {
        if self.places == places {
            return Ok(Some(self));
        }
        let held = self.contents()?;
        let mut arranged = Self::new(places, self.rows, self.precision, device)?;
        let mut contents = arranged.contents()?;
        for (content, place) in contents.iter_mut().zip(&arranged.places) {
            if let Some(number) = self.places.iter().position(|other| other == place) {
                *content = held[number].clone();
                arranged.begun = true;
            }
        }
        arranged.restore(contents);
        Ok(Some(arranged).filter(|arranged| arranged.begun))
    }

    /// Takes note of where layers are now; what belongs to layers that are nowhere is forgotten when this is
    /// [arranged](Self::arranged).
    pub(crate) fn relocate(&mut self, moved: impl Fn(&LayerPath) -> Option<LayerPath>) {
        for place in &mut self.places {
            place.path = moved(&place.path).unwrap_or_default();
        }
    }

    /// What one layer carries, by name.
    ///
    /// # Errors
    /// As [`contents`](Self::contents).
    pub(crate) fn of_layer(&self, path: &LayerPath) -> Result<Vec<(String, Tensor)>> {
        let own = self.places.iter().enumerate().filter(|(_, place)| place.path == *path);
        own.map(|(number, place)| Ok((place.spec.name.to_string(), self.tensor(number)?))).collect()
    }

    /// One of them: (rows, ...).
    ///
    /// # Errors
    /// As [`contents`](Self::contents).
    pub(crate) fn tensor(&self, number: usize) -> Result<Tensor> {
        shaped(self.shape(number), &self.contents()?[number], self.precision)
    }

    /// One of them as it is stored, to look at it alone: (rows, ...).
    ///
    /// # Errors
    /// As [`contents`](Self::contents).
    pub(crate) fn content(&self, number: usize) -> Result<Buffer> {
        let Some(place) = self.places.get(number) else {
            return Err(crate::Error::Internal("nothing is carried under this number".into()));
        };
        let Some(memory) = &self.on_device else { return Ok(self.buffers[number].clone()) };
        let mut content = Buffer::zeroed(place.spec.shape.len() * self.rows * self.precision.size())?;
        memory.device.read_back(&memory.allocations[number], 0, content.bytes_mut())?;
        Ok(content)
    }

    /// Writes one of them as it is stored, and no other: (rows, ...), or the first of these rows.
    pub(crate) fn write<T: Real>(&mut self, number: usize, content: &[T]) {
        self.note_change();
        match &self.on_device {
            Some(memory) => {
                memory.device.upload(&memory.allocations[number], 0, bytemuck::cast_slice(content));
            }
            None => self.buffers[number].as_mut_slice::<T>()[..content.len()].copy_from_slice(content),
        }
    }

    /// Replaces one of them.
    ///
    /// # Errors
    /// [`Error::Shape`] and [`Error::NonFinite`] for values that do not fit, and as
    /// [`contents`](Self::contents).
    pub(crate) fn set(&mut self, number: usize, values: &TensorView<'_>) -> Result<()> {
        check_values(&self.places[number].spec.name, &self.shape(number), values)?;
        let mut contents = self.contents()?;
        copy_into(&mut contents[number], values);
        self.restore(contents);
        Ok(())
    }

    fn shape(&self, number: usize) -> Vec<usize> {
        [&[self.rows], &self.places[number].spec.shape[..]].concat()
    }
}

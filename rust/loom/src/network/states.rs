//! What layers keep beside their parameters, and what they carry from call to call.

use super::check_finite;
use crate::cpu::Real;
use crate::layers::{CarriedSpec, StateSpec};
use crate::tensor::{Buffer, Precision, Shape, Tensor, TensorView};
use crate::{Device, Error, Result};

/// One thing that a layer keeps: saved with the network, moved by no optimizer.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) spec: StateSpec,
    pub(crate) content: Buffer,
}

impl State {
    /// As the layer wants it to start.
    pub(crate) fn new(spec: StateSpec, precision: Precision) -> Self {
        let content = filled(precision, spec.shape.len(), spec.initial);
        Self { spec, content }
    }

    /// The content with its extents.
    pub(crate) fn tensor(&self, precision: Precision) -> Result<Tensor> {
        let shape = self.spec.shape.to_vec();
        match precision {
            Precision::Float32 | Precision::Mixed => {
                Tensor::new(shape, self.content.as_slice::<f32>().to_vec())
            }
            Precision::Float64 => Tensor::new(shape, self.content.as_slice::<f64>().to_vec()),
        }
    }

    /// Replaces the content.
    ///
    /// # Errors
    /// [`Error::Shape`] and [`Error::NonFinite`] for values that do not fit.
    pub(crate) fn set(&mut self, values: &TensorView<'_>) -> Result<()> {
        if values.shape() != &self.spec.shape[..] {
            return Err(Error::Shape(format!(
                "\"{}\" has shape {}, got {}",
                self.spec.name,
                self.spec.shape,
                Shape::from(values.shape())
            )));
        }
        check_finite(values, &self.spec.name)?;
        let single = self.content.len_bytes() == self.spec.shape.len() * size_of::<f32>();
        if single {
            values.copy_to(self.content.as_mut_slice::<f32>());
        } else {
            values.copy_to(self.content.as_mut_slice::<f64>());
        }
        Ok(())
    }
}

fn filled(precision: Precision, len: usize, value: f64) -> Buffer {
    fn of<T: Real>(len: usize, value: f64) -> Buffer {
        let mut buffer = Buffer::of::<T>(len);
        buffer.as_mut_slice::<T>().fill(T::from_f64(value));
        buffer
    }
    match precision {
        Precision::Float32 | Precision::Mixed => of::<f32>(len, value),
        Precision::Float64 => of::<f64>(len, value),
    }
}

/// What the layers of a network carry from call to call, for each row: recurrent states, keys and
/// values of attention.
#[derive(Debug)]
pub struct Carried {
    precision: Precision,
    rows: usize,
    specs: Vec<CarriedSpec>,
    /// On the processor.
    pub(crate) buffers: Vec<Buffer>,
    /// On the GPU that the network was on when this was made.
    #[cfg(feature = "gpu")]
    pub(crate) on_device: Option<DeviceMemory>,
}

/// A GPU with what is carried there.
#[cfg(feature = "gpu")]
#[derive(Debug)]
pub(crate) struct DeviceMemory {
    gpu: std::sync::Arc<crate::gpu::Gpu>,
    pub(crate) allocations: Vec<crate::gpu::Allocation>,
}

impl Carried {
    /// Memory for `rows` rows on a device, as it starts.
    pub(crate) fn new(
        specs: Vec<CarriedSpec>,
        rows: usize,
        precision: Precision,
        device: &Device,
    ) -> Result<Self> {
        let mut carried = Self {
            precision,
            rows,
            specs,
            buffers: Vec::new(),
            #[cfg(feature = "gpu")]
            on_device: None,
        };
        match device {
            Device::Cpu => carried.buffers = carried.initial(),
            #[cfg(feature = "gpu")]
            Device::Gpu(gpu) => {
                let bytes = |spec: &CarriedSpec| (spec.shape.len() * rows * precision.size()) as u64;
                let allocate = |spec| gpu.storage("state carried from call to call", bytes(spec));
                let allocations = carried.specs.iter().map(allocate).collect::<Result<_>>()?;
                carried.on_device = Some(DeviceMemory { gpu: gpu.clone(), allocations });
                carried.reset();
            }
        }
        Ok(carried)
    }

    /// How many rows there are.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    fn initial(&self) -> Vec<Buffer> {
        let fresh = |spec: &CarriedSpec| filled(self.precision, spec.shape.len() * self.rows, spec.initial);
        self.specs.iter().map(fresh).collect()
    }

    /// Forgets everything.
    pub(crate) fn reset(&mut self) {
        let initial = self.initial();
        #[cfg(feature = "gpu")]
        if let Some(memory) = &self.on_device {
            for (allocation, content) in memory.allocations.iter().zip(&initial) {
                memory.gpu.upload(allocation, 0, content.bytes());
            }
            return;
        }
        self.buffers = initial;
    }
}

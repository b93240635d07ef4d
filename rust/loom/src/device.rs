//! What a network computes on: this machine's processor, or one of its GPUs.

use crate::cpu::{Access, execute};
use crate::ops::StepValues;
use crate::program::{Phase, Program, Run, Value};
use crate::shader::Accelerator;
use crate::simd::Cpu;
use crate::state::Mirror;
use crate::tensor::Precision;
use crate::{Error, Result};
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// What a network computes on.
#[derive(Clone, Debug, Default)]
pub enum Device {
    /// The processor.
    #[default]
    Cpu,
    /// A GPU, by way of wgpu.
    #[cfg(feature = "gpu")]
    Gpu(Arc<crate::gpu::Gpu>),
}

impl Device {
    /// The device of this name: `cpu`; `gpu`, the first GPU; `gpu:1`, the second one; or `auto`, the
    /// first GPU that is hardware for a network in single precision, and the processor where there is none.
    /// The environment variable `LOOM_DEVICE` names another device for `auto` to stand for.
    ///
    /// # Errors
    /// [`Error::Device`] for a GPU that is not there, saying what is and what to install;
    /// [`Error::Value`] for another name.
    pub fn open(name: &str, precision: Precision) -> Result<Self> {
        let index = match name {
            "cpu" => return Ok(Device::Cpu),
            "auto" => {
                return match std::env::var("LOOM_DEVICE") {
                    Ok(chosen) if chosen != "auto" && precision != Precision::Float64 => {
                        Self::open(&chosen, precision)
                    }
                    _ => Self::best(precision),
                };
            }
            "gpu" => 0,
            other => match other.strip_prefix("gpu:").map(str::parse) {
                Some(Ok(index)) => index,
                _ => {
                    return Err(Error::Value(format!(
                        "unknown device \"{name}\"; known are \"auto\", \"cpu\", \"gpu\" and \"gpu:<number>\""
                    )));
                }
            },
        };
        if precision == Precision::Float64 {
            return Err(Error::Device(format!(
                "float64 networks run on the device \"cpu\" alone; make the network in float32 to use \"{name}\""
            )));
        }
        Self::gpu(index)
    }

    #[cfg(feature = "gpu")]
    fn gpu(index: usize) -> Result<Self> {
        Ok(Device::Gpu(crate::gpu::open(index)?))
    }

    #[cfg(not(feature = "gpu"))]
    fn gpu(index: usize) -> Result<Self> {
        Err(Error::Device(format!(
            "gpu:{index} cannot be used: this build has no GPU engine (the crate's feature \"gpu\" is off); use \
             the device \"cpu\""
        )))
    }

    #[cfg(feature = "gpu")]
    fn best(precision: Precision) -> Result<Self> {
        match crate::gpu::first_hardware() {
            Some(index) if precision != Precision::Float64 => Self::gpu(index),
            _ => Ok(Device::Cpu),
        }
    }

    #[cfg(not(feature = "gpu"))]
    fn best(_precision: Precision) -> Result<Self> {
        Ok(Device::Cpu)
    }

    /// Whether both are the same.
    pub(crate) fn is_same(&self, other: &Device) -> bool {
        match (self, other) {
            (Device::Cpu, Device::Cpu) => true,
            #[cfg(feature = "gpu")]
            (Device::Gpu(one), Device::Gpu(other)) => Arc::ptr_eq(one, other),
            #[cfg(feature = "gpu")]
            _ => false,
        }
    }

    /// The device's own memory, where it has such.
    pub(crate) fn accelerator(&self) -> Option<Arc<dyn Accelerator>> {
        match self {
            Device::Cpu => None,
            #[cfg(feature = "gpu")]
            Device::Gpu(gpu) => Some(gpu.clone()),
        }
    }

    /// Room for copies of a registry, where the device has memory of its own.
    pub(crate) fn mirror(&self) -> Option<Box<dyn Mirror>> {
        match self {
            Device::Cpu => None,
            #[cfg(feature = "gpu")]
            Device::Gpu(gpu) => Some(Box::new(crate::gpu::Mirror::new(gpu.clone()))),
        }
    }

    /// Whether it has gone away.
    pub(crate) fn is_lost(&self) -> bool {
        match self {
            Device::Cpu => false,
            #[cfg(feature = "gpu")]
            Device::Gpu(gpu) => gpu.is_lost(),
        }
    }

    /// Memory for one execution of a program at its full capacity.
    ///
    /// # Errors
    /// [`Error::Device`] where a GPU has too little.
    pub(crate) fn run(&self, program: Arc<Program>) -> Result<Run> {
        match self {
            Device::Cpu => Run::new(program),
            #[cfg(feature = "gpu")]
            Device::Gpu(gpu) => Run::on_gpu(program, gpu.clone()),
        }
    }
}

/// `cpu`, or `gpu:0`.
impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.write_str("cpu"),
            #[cfg(feature = "gpu")]
            Device::Gpu(gpu) => write!(f, "gpu:{}", gpu.adapter().index),
        }
    }
}

impl Run {
    /// Whether the run's memory is on this device.
    pub(crate) fn is_on(&self, device: &Device) -> bool {
        match device {
            Device::Cpu => !self.is_remote(),
            #[cfg(feature = "gpu")]
            Device::Gpu(gpu) => self.device_memory().is_some_and(|memory| Arc::ptr_eq(memory.gpu(), gpu)),
        }
    }

    /// Runs the steps of these phases, in order, on the device the run's memory is on.
    ///
    /// # Errors
    /// What a step refuses; [`Error::Device`] where a GPU fails.
    pub(crate) fn execute(
        &mut self,
        access: Access<'_>,
        phases: RangeInclusive<Phase>,
        values: &StepValues,
    ) -> Result<()> {
        #[cfg(feature = "gpu")]
        if self.device_memory().is_some() {
            return self.execute_on_gpu(access, phases, values);
        }
        match self.program.precision() {
            Precision::Float32 | Precision::Mixed => {
                execute::<f32>(Cpu::global()?, self, access, phases, values)
            }
            Precision::Float64 => execute::<f64>(Cpu::global()?, self, access, phases, values),
        }
    }

    /// Whether its values are on a device of their own, to be fetched before they can be read.
    pub(crate) fn is_remote(&self) -> bool {
        #[cfg(feature = "gpu")]
        return self.device_memory().is_some();
        #[cfg(not(feature = "gpu"))]
        false
    }

    /// Makes these values readable: reads them back from a GPU; on the CPU they already are.
    ///
    /// # Errors
    /// [`Error::Device`] where a GPU fails.
    pub(crate) fn fetch(&mut self, values: &[Value]) -> Result<()> {
        #[cfg(feature = "gpu")]
        if self.device_memory().is_some() {
            return self.fetch_from_gpu(values);
        }
        let _ = values;
        Ok(())
    }
}

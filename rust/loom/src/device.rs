//! What a network computes on: this machine's processor, or one of its GPUs.

use crate::cpu::Processor;
use crate::program::{Engine, Frames, Program, Provider, Run, is_same};
use crate::shader::Accelerator;
use crate::state::Mirror;
use crate::tensor::Precision;
use crate::{Error, Result};
use std::fmt;
use std::sync::{Arc, LazyLock};

/// The engines beside the processor's.
static PROVIDERS: &[&dyn Provider] = &[
    #[cfg(feature = "gpu")]
    &crate::gpu::Gpus,
];

/// What a network computes on: an engine that runs programs.
#[derive(Clone, Debug)]
pub struct Device(Arc<dyn Engine>);

impl Default for Device {
    /// The processor.
    fn default() -> Self {
        Self::cpu()
    }
}

impl Device {
    /// The processor.
    pub fn cpu() -> Self {
        static CPU: LazyLock<Arc<Processor>> = LazyLock::new(|| Arc::new(Processor));
        Self(CPU.clone())
    }

    /// An engine of any kind.
    pub fn new(engine: Arc<dyn Engine>) -> Self {
        Self(engine)
    }

    /// The device of this name: `cpu`; `gpu`, the first GPU; `gpu:1`, the second one; or `auto`, the
    /// first GPU that is hardware for a network in single precision, and the processor where there is none.
    /// The environment variable `LOOM_DEVICE` names another device for `auto` to stand for.
    ///
    /// # Errors
    /// [`Error::Device`] for a GPU that is not there, saying what is and what to install;
    /// [`Error::Value`] for another name.
    pub fn open(name: &str, precision: Precision) -> Result<Self> {
        let index = match name {
            "cpu" => return Ok(Self::cpu()),
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

    fn gpu(index: usize) -> Result<Self> {
        match PROVIDERS.iter().find(|provider| provider.kind() == "gpu") {
            Some(provider) => Ok(Self(provider.open(index)?)),
            None => Err(Error::Device(format!(
                "gpu:{index} cannot be used: this build has no GPU engine (the crate's feature \"gpu\" is off); use \
                 the device \"cpu\""
            ))),
        }
    }

    fn best(precision: Precision) -> Result<Self> {
        let hardware = PROVIDERS.iter().find_map(|provider| Some((provider, provider.first_hardware()?)));
        match hardware {
            Some((provider, index)) if precision != Precision::Float64 => Ok(Self(provider.open(index)?)),
            _ => Ok(Self::cpu()),
        }
    }

    /// What runs programs there.
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.0
    }

    /// Whether it computes in the host's memory, as the processor does.
    pub fn is_host(&self) -> bool {
        self.0.accelerator().is_none()
    }

    /// Whether both are the same.
    pub(crate) fn is_same(&self, other: &Device) -> bool {
        is_same(&self.0, &other.0)
    }

    /// The device's own memory, where it has such.
    pub(crate) fn accelerator(&self) -> Option<Arc<dyn Accelerator>> {
        self.0.accelerator()
    }

    /// Room for copies of a registry, where the device has memory of its own.
    pub(crate) fn mirror(&self) -> Option<Box<dyn Mirror>> {
        self.0.mirror()
    }

    /// What takes many steps at once, where the device does.
    pub(crate) fn frames(&self) -> Option<&dyn Frames> {
        self.0.frames()
    }

    /// Whether it has gone away.
    pub(crate) fn is_lost(&self) -> bool {
        self.0.is_lost()
    }

    /// Memory for one execution of a program at its full capacity.
    ///
    /// # Errors
    /// As [`Run::new`].
    pub(crate) fn run(&self, program: Arc<Program>) -> Result<Run> {
        Run::new(self.0.clone(), program)
    }
}

/// `cpu`, or `gpu:0`.
impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.name())
    }
}

impl Run {
    /// Whether the run's memory is on this device.
    pub(crate) fn is_on(&self, device: &Device) -> bool {
        is_same(self.engine(), &device.0)
    }
}

/// What tests of networks run on beside the processor.
#[cfg(test)]
pub(crate) mod testing {
    /// The name of the first GPU, where there is one and this build knows GPUs; see `gpu::testing`.
    pub(crate) fn gpu() -> Option<&'static str> {
        #[cfg(feature = "gpu")]
        return crate::gpu::testing::gpu().map(|_| "gpu:0");
        #[cfg(not(feature = "gpu"))]
        None
    }

    /// Whether a case of a matrix is tried on this GPU: every one on hardware, and where `LOOM_SOAK=1` asks for all;
    /// every `nth` on a software adapter, which takes far longer to translate a kernel than to run it.
    pub(crate) fn in_part(number: usize, nth: usize) -> bool {
        number.is_multiple_of(nth)
            || std::env::var("LOOM_SOAK").is_ok_and(|value| value == "1")
            || !is_software()
    }

    fn is_software() -> bool {
        #[cfg(feature = "gpu")]
        return crate::gpu::testing::gpu().is_some_and(|gpu| gpu.capabilities().software);
        #[cfg(not(feature = "gpu"))]
        false
    }
}

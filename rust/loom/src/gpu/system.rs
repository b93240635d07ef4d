//! The GPUs of this machine, found once, and those that are open.

use super::adapter::{Adapter, AdapterList, describe, missing, rank};
use super::device::{Gpu, left_behind};
use super::tuning::tuned;
use crate::process::generation;
use crate::{Error, Result};
use std::sync::{Arc, Mutex, OnceLock, Weak};

struct Found {
    description: Adapter,
    adapter: wgpu::Adapter,
}

struct System {
    /// Adapters live no longer than what enumerated them.
    _instance: wgpu::Instance,
    found: Vec<Found>,
    /// What was found but cannot be used, and why.
    unusable: Vec<String>,
    opened: Mutex<Vec<Opened>>,
    /// The process that it was found in.
    generation: usize,
}

/// A GPU that was opened.
#[derive(Default)]
struct Opened {
    /// Keeps it open until it is released.
    kept: Option<Arc<Gpu>>,
    /// Finds it after that, while networks are on it.
    known: Weak<Gpu>,
}

/// What this process has found; looked up when first asked for, never at import.
fn system() -> &'static System {
    static SYSTEM: OnceLock<System> = OnceLock::new();
    SYSTEM.get_or_init(|| {
        let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
        descriptor.flags = wgpu::InstanceFlags::empty();
        // The rest is for what drivers need themselves: without that they lose the device.
        descriptor.memory_budget_thresholds.for_resource_creation = Some(97);
        let instance = wgpu::Instance::new(descriptor);
        let mut adapters = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::PRIMARY));
        adapters.sort_by_key(|adapter| rank(adapter.get_info().device_type));
        let (mut found, mut unusable) = (Vec::new(), Vec::new());
        for adapter in adapters {
            match missing(&adapter) {
                None => found.push(Found { description: describe(found.len(), &adapter), adapter }),
                Some(what) => unusable.push(format!("{} has no {what}", adapter.get_info().name)),
            }
        }
        let opened = Mutex::new(found.iter().map(|_| Opened::default()).collect());
        System { _instance: instance, found, unusable, opened, generation: generation() }
    })
}

/// The GPUs of this machine.
pub fn adapters() -> AdapterList {
    let adapters: Vec<Adapter> = system().found.iter().map(|found| found.description.clone()).collect();
    let reason = adapters.is_empty().then(why_none);
    AdapterList { adapters, reason }
}

/// Why there is no GPU, and what to install.
fn why_none() -> String {
    match system().unusable.as_slice() {
        [] => WHY_NONE.to_string(),
        unusable => format!("{}; {WHY_NONE_USABLE}", unusable.join("; ")),
    }
}

const WHY_NONE_USABLE: &str = "kernels cannot do without it; a newer driver may have it";
const WHY_NONE: &str = "no Vulkan, Metal or DX12 driver answered; install the GPU's driver and, on Linux, \
                        the Vulkan loader (Debian: libvulkan1; mesa-vulkan-drivers for Mesa's GPUs and its \
                        software adapter)";

/// Opens the GPU of this number, or hands out the one already open.
///
/// # Errors
/// [`Error::Device`] saying what was found where there is no such GPU, or why it did not open.
pub(crate) fn open(index: usize) -> Result<Arc<Gpu>> {
    let system = system();
    if system.generation != generation() {
        return Err(left_behind(&format!("gpu:{index}")));
    }
    let Some(found) = system.found.get(index) else {
        return Err(Error::Device(match system.found.as_slice() {
            [] => format!("there is no GPU: {}; or use the device \"cpu\"", why_none()),
            found => format!(
                "there is no gpu:{index}; this machine has {}; or use the device \"cpu\"",
                found.iter().map(|found| found.description.to_string()).collect::<Vec<_>>().join(", ")
            ),
        }));
    };
    let mut opened = system.opened.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let gpu = match opened[index].known.upgrade().filter(|gpu| !gpu.is_lost()) {
        Some(gpu) => gpu,
        None => Arc::new(tuned(Gpu::open(found.description.clone(), &found.adapter)?)?),
    };
    opened[index] = Opened { kept: Some(gpu.clone()), known: Arc::downgrade(&gpu) };
    Ok(gpu)
}

/// Opens a GPU once more, for a test that changes what all who share a device would see.
#[cfg(test)]
pub(crate) fn open_another(index: usize) -> Option<Arc<Gpu>> {
    let found = system().found.get(index)?;
    Gpu::open(found.description.clone(), &found.adapter).ok().map(Arc::new)
}

/// The first GPU that is hardware.
pub(crate) fn first_hardware() -> Option<usize> {
    system().found.iter().position(|found| !found.description.software)
}

/// Lets go of every open GPU; networks that are on one keep it open until they leave it.
pub fn release() {
    if system().generation != generation() {
        // They are the parent process's.
        return;
    }
    let mut opened = system().opened.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    opened.iter_mut().for_each(|gpu| gpu.kept = None);
}

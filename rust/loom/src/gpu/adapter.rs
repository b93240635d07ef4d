//! Which GPUs this machine has.

use super::Gpu;
use crate::{Error, Result};
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// What is known of a GPU before it is opened.
#[derive(Clone, Debug)]
pub struct Adapter {
    /// Its number among [`adapters`]: `gpu:<index>` names it.
    pub index: usize,
    /// As its driver calls it.
    pub name: String,
    /// `vulkan`, `metal` or `dx12`.
    pub backend: &'static str,
    /// The driver, with its version.
    pub driver: String,
    /// Whether it is a program that runs on the CPU; `auto` never chooses such a one.
    pub software: bool,
    /// The largest single buffer, in bytes.
    pub max_buffer: u64,
    /// The largest part of a buffer that one kernel can see, in bytes.
    pub max_binding: u64,
    /// Whether kernels can compute in 16-bit floats.
    pub float16: bool,
    /// Whether kernels can exchange values within a subgroup.
    pub subgroups: bool,
    /// Whether kernels can multiply 16x16 matrices of 16-bit floats with sums in 32 bits.
    pub cooperative_matrices: bool,
    /// Whether the time a frame takes can be measured on the device.
    pub timestamps: bool,
}

impl std::fmt::Display for Adapter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "gpu:{} {} ({})", self.index, self.name, self.backend)
    }
}

/// The GPUs that were found, hardware before software.
#[derive(Clone, Debug)]
pub struct AdapterList {
    /// Each of them; `gpu:<n>` is the n-th.
    pub adapters: Vec<Adapter>,
    /// Why there is none, where that is so.
    pub reason: Option<String>,
}

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
        System { _instance: instance, found, unusable, opened }
    })
}

/// Hardware first, software last.
fn rank(kind: wgpu::DeviceType) -> u8 {
    match kind {
        wgpu::DeviceType::DiscreteGpu => 0,
        wgpu::DeviceType::IntegratedGpu => 1,
        wgpu::DeviceType::VirtualGpu => 2,
        wgpu::DeviceType::Other => 3,
        wgpu::DeviceType::Cpu => 4,
    }
}

/// What an adapter lacks that no kernel can do without.
fn missing(adapter: &wgpu::Adapter) -> Option<&'static str> {
    let limits = adapter.limits();
    if !adapter.features().contains(wgpu::Features::IMMEDIATES)
        || limits.max_immediate_size < crate::shader::IMMEDIATE_BYTES
    {
        return Some("immediates");
    }
    (limits.max_storage_buffers_per_shader_stage < crate::shader::MAX_BINDINGS as u32)
        .then_some("storage buffers")
}

/// Whether tensor cores can be reached: 16x16x16 products of 16-bit floats summed in 32 bits, by
/// subgroups of 32 threads, which is what kernels are written for.
fn multiplies_cooperatively(adapter: &wgpu::Adapter) -> bool {
    use wgpu::CooperativeScalarType::{F16, F32};
    let info = adapter.get_info();
    (info.subgroup_min_size, info.subgroup_max_size) == (32, 32)
        && adapter.features().contains(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX)
        && adapter.features().contains(wgpu::Features::SHADER_F16)
        && adapter
            .cooperative_matrix_properties()
            .iter()
            .any(|p| (p.m_size, p.n_size, p.k_size) == (16, 16, 16) && p.ab_type == F16 && p.cr_type == F32)
}

fn describe(index: usize, adapter: &wgpu::Adapter) -> Adapter {
    let (info, limits, features) = (adapter.get_info(), adapter.limits(), adapter.features());
    Adapter {
        index,
        name: info.name,
        backend: info.backend.to_str(),
        driver: format!("{} {}", info.driver, info.driver_info).trim().to_string(),
        software: info.device_type == wgpu::DeviceType::Cpu,
        max_buffer: limits.max_buffer_size,
        max_binding: limits.max_storage_buffer_binding_size,
        float16: features.contains(wgpu::Features::SHADER_F16),
        subgroups: features.contains(wgpu::Features::SUBGROUP),
        cooperative_matrices: multiplies_cooperatively(adapter),
        timestamps: features.contains(wgpu::Features::TIMESTAMP_QUERY),
    }
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
        None => Arc::new(Gpu::open(found.description.clone(), &found.adapter)?),
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
    let mut opened = system().opened.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    opened.iter_mut().for_each(|gpu| gpu.kept = None);
}

//! What is known of a GPU before it is opened.

/// The number of the vendor on whose hardware kernels that wait for each other have been run.
const NVIDIA: u32 = 0x10de;

/// What is known of a GPU before it is opened.
#[derive(Clone, Debug)]
pub struct Adapter {
    /// Its number among [`adapters`](super::adapters): `gpu:<index>` names it.
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
    /// Threads of every subgroup; 0 where they differ, or cannot exchange anything.
    pub subgroup_threads: u32,
    /// Whether kernels can multiply 16x16 matrices of 16-bit floats with sums in 32 bits.
    pub cooperative_matrices: bool,
    /// Whether the time a frame takes can be measured on the device.
    pub timestamps: bool,
    /// Whether a workgroup that has started goes on while others wait for it, which no interface promises.
    pub keeps_running: bool,
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

/// Hardware first, software last.
pub(super) fn rank(kind: wgpu::DeviceType) -> u8 {
    match kind {
        wgpu::DeviceType::DiscreteGpu => 0,
        wgpu::DeviceType::IntegratedGpu => 1,
        wgpu::DeviceType::VirtualGpu => 2,
        wgpu::DeviceType::Other => 3,
        wgpu::DeviceType::Cpu => 4,
    }
}

/// What an adapter lacks that no kernel can do without.
pub(super) fn missing(adapter: &wgpu::Adapter) -> Option<&'static str> {
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

/// Threads of every subgroup, where all have as many and can exchange values.
fn subgroup_threads(adapter: &wgpu::Adapter) -> u32 {
    let info = adapter.get_info();
    let same = info.subgroup_min_size == info.subgroup_max_size;
    if same && adapter.features().contains(wgpu::Features::SUBGROUP) { info.subgroup_max_size } else { 0 }
}

/// What there is to know of an adapter of this number.
pub(super) fn describe(index: usize, adapter: &wgpu::Adapter) -> Adapter {
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
        subgroup_threads: subgroup_threads(adapter),
        cooperative_matrices: multiplies_cooperatively(adapter),
        timestamps: features.contains(wgpu::Features::TIMESTAMP_QUERY),
        keeps_running: info.vendor == NVIDIA
            && info.backend == wgpu::Backend::Vulkan
            && info.device_type != wgpu::DeviceType::Cpu,
    }
}

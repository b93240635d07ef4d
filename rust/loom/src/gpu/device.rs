//! One opened GPU: its queue, its memory, what went wrong on it.

use super::adapter::Adapter;
use super::faults::{Fault, Faults};
use super::pipeline::Pipelines;
use super::staging::Idle;
use super::statistics::{FrameStatistics, KernelTime, Timing};
use super::work::Waiting;
use crate::error::AS_READ_BACK;
use crate::process::generation;
use crate::shader::{Accelerator, Allocation, Capabilities, HeldMemory, Operand, Speeds};
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// What arrays of operands need.
const BINDING_ARRAYS: wgpu::Features = wgpu::Features::BUFFER_BINDING_ARRAY
    .union(wgpu::Features::STORAGE_RESOURCE_BINDING_ARRAY)
    // The same for all threads of a workgroup, which the compiler does not know.
    .union(wgpu::Features::SAMPLED_TEXTURE_AND_STORAGE_BUFFER_ARRAY_NON_UNIFORM_INDEXING);

/// An opened GPU, shared by the networks on it.
#[derive(Debug)]
pub struct Gpu {
    adapter: Adapter,
    pub(super) device: wgpu::Device,
    pub(super) queue: wgpu::Queue,
    pub(super) pipelines: Pipelines,
    capabilities: Capabilities,
    max_binding: AtomicU64,
    /// How many operands a kernel may see in arrays of them; 0 where it sees none so.
    arrayed_operands: usize,
    lost: Arc<OnceLock<String>>,
    allocated: Arc<AtomicU64>,
    pub(super) faults: Faults,
    pub(super) waiting: Waiting,
    /// Host memory that has been read back by, for the next time.
    pub(super) spare: Mutex<Vec<Allocation>>,
    /// Host memory that has been sent by, for the next time.
    pub(super) idle: Mutex<Vec<Idle>>,
    cut: AtomicBool,
    /// The process that it was opened in.
    generation: usize,
    timing: Mutex<Timing>,
    statistics: Mutex<FrameStatistics>,
    kernels: Mutex<BTreeMap<String, (u64, f64)>>,
}

impl Gpu {
    pub(super) fn open(description: Adapter, adapter: &wgpu::Adapter) -> Result<Self> {
        let optional = wgpu::Features::SHADER_F16
            | wgpu::Features::SUBGROUP
            | wgpu::Features::TIMESTAMP_QUERY
            | wgpu::Features::TIMESTAMP_QUERY_INSIDE_PASSES
            | wgpu::Features::TIMESTAMP_QUERY_INSIDE_ENCODERS;
        let mut features = (adapter.features() & optional) | wgpu::Features::IMMEDIATES;
        // Kernels that have arrays of operands were run through Vulkan alone.
        if description.backend == wgpu::Backend::Vulkan.to_str()
            && adapter.features().contains(BINDING_ARRAYS)
        {
            features |= BINDING_ARRAYS;
        }
        let mut experimental = wgpu::ExperimentalFeatures::disabled();
        if description.cooperative_matrices {
            features |= wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX;
            // SAFETY: wgpu marks features that its validation does not cover yet; kernels that use
            // this one are loom's own, and only run where the adapter offers it.
            experimental = unsafe { wgpu::ExperimentalFeatures::enabled() };
        }
        let limits = adapter.limits();
        let opened = pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor {
            label: Some("loom"),
            required_features: features,
            required_limits: limits.clone(),
            experimental_features: experimental,
            ..Default::default()
        }));
        let (device, queue) =
            opened.map_err(|error| Error::Device(format!("{description} did not open: {error}")))?;

        let lost = Arc::new(OnceLock::new());
        let report = lost.clone();
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            // Something was left out, so that nothing there is certain any more. The first failure is the cause of
            // those after it.
            let _ = report.set(format!("it refused its work: {error}"));
        }));
        let report = lost.clone();
        device.set_device_lost_callback(move |_, message| {
            // Only the first message counts.
            let _ = report.set(message);
        });
        let capabilities = Capabilities {
            float16: description.float16,
            subgroups: description.subgroups,
            subgroup_threads: description.subgroup_threads as usize,
            cooperative_matrices: description.cooperative_matrices,
            software: description.software,
            workgroup_storage: limits.max_compute_workgroup_storage_size as usize,
            workgroup_threads: limits.max_compute_invocations_per_workgroup as usize,
            // Kernels count places in 32 bits.
            max_binding: limits.max_storage_buffer_binding_size.min(u32::MAX.into()) as usize,
            max_groups: limits.max_compute_workgroups_per_dimension as usize,
            concurrent_groups: 0,
            speeds: Speeds::SHIPPED,
        };
        let arrayed_operands = match features.contains(BINDING_ARRAYS) {
            true => limits.max_binding_array_elements_per_shader_stage as usize,
            false => 0,
        };
        let checked = std::env::var("LOOM_GPU_CHECKED").is_ok_and(|value| value == "1");
        Ok(Self {
            pipelines: Pipelines::new(&device, checked),
            waiting: Waiting::new(description.software)?,
            spare: Mutex::default(),
            idle: Mutex::default(),
            adapter: description,
            device,
            queue,
            max_binding: AtomicU64::new(capabilities.max_binding as u64),
            arrayed_operands,
            capabilities,
            lost,
            allocated: Arc::default(),
            faults: Faults::default(),
            cut: AtomicBool::new(false),
            generation: generation(),
            timing: Mutex::default(),
            statistics: Mutex::default(),
            kernels: Mutex::default(),
        })
    }

    /// The same, whose speeds these are.
    pub(super) fn with_speeds(mut self, speeds: Speeds) -> Self {
        self.capabilities.speeds = speeds;
        if self.adapter.keeps_running {
            self.capabilities.concurrent_groups = speeds.processors as usize;
        }
        self
    }

    /// What is known of the adapter.
    pub fn adapter(&self) -> &Adapter {
        &self.adapter
    }

    /// What kernels may count on.
    pub fn capabilities(&self) -> Capabilities {
        let max_binding = self.max_binding.load(Ordering::Relaxed) as usize;
        Capabilities { max_binding, ..self.capabilities }
    }

    /// Pretends that a kernel sees no more than this many bytes of a buffer, so that tests can
    /// have large weights split without having large weights.
    pub fn limit_binding(&self, bytes: usize) {
        let bytes = bytes.min(self.capabilities.max_binding);
        self.max_binding.store(bytes as u64, Ordering::Relaxed);
    }

    /// How many operands a kernel may see in arrays of them; 0 where it sees none so.
    pub fn arrayed_operands(&self) -> usize {
        self.arrayed_operands
    }

    /// Whether calls of one kernel are joined wherever they can be, and wait for each other for that: hardware takes
    /// microseconds for each dispatch.
    pub(super) fn joins_all(&self) -> bool {
        self.arrayed_operands > 0 && !self.capabilities.software
    }

    /// Submits after every dispatch instead of after many: slower, with the same bits, for
    /// finding out which dispatch a driver fails on.
    pub fn cut_every_dispatch(&self, cut: bool) {
        self.cut.store(cut, Ordering::Relaxed);
    }

    pub(super) fn cuts_every_dispatch(&self) -> bool {
        self.cut.load(Ordering::Relaxed)
    }

    /// Measures from here on the time that frames, or kernels, take on the device.
    ///
    /// # Errors
    /// [`Error::Device`] where the adapter has no timestamps of that kind.
    pub fn set_timing(&self, timing: Timing) -> Result<()> {
        let needed = match timing {
            Timing::Off => wgpu::Features::empty(),
            Timing::Frames => wgpu::Features::TIMESTAMP_QUERY,
            Timing::Kernels => wgpu::Features::TIMESTAMP_QUERY_INSIDE_PASSES,
        };
        if !self.device.features().contains(needed) {
            return Err(Error::Device(format!("{} cannot measure the time of {timing:?}", self.adapter)));
        }
        *self.timing.lock().unwrap_or_else(PoisonError::into_inner) = timing;
        Ok(())
    }

    pub(super) fn timing(&self) -> Timing {
        *self.timing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time of each kernel, the longest first, since the statistics were last reset.
    pub fn kernel_times(&self) -> Vec<KernelTime> {
        let kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        let mut times: Vec<KernelTime> = kernels
            .iter()
            .map(|(label, (runs, seconds))| KernelTime {
                label: label.clone(),
                runs: *runs,
                seconds: *seconds,
            })
            .collect();
        times.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
        times
    }

    pub(super) fn count_kernel(&self, label: &str, seconds: f64) {
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        let (runs, sum) = kernels.entry(label.to_string()).or_default();
        *runs += 1;
        *sum += seconds;
    }

    /// What frames have done since the statistics were last reset.
    pub fn statistics(&self) -> FrameStatistics {
        *self.statistics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts from zero again.
    pub fn reset_statistics(&self) {
        self.count(|statistics| *statistics = FrameStatistics::default());
        self.kernels.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut FrameStatistics)) {
        change(&mut self.statistics.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Bytes that loom holds on the device now.
    pub fn allocated(&self) -> u64 {
        self.allocated.load(Ordering::Relaxed)
    }

    /// Whether the device has gone away: driver reset, unplugged, or left behind by a fork.
    pub fn is_lost(&self) -> bool {
        self.generation != generation() || self.lost.get().is_some()
    }

    /// Has a fault come, so that tests see how a program copes; on this device alone.
    pub fn meet(&self, fault: Fault) {
        self.faults.set(fault);
    }

    /// Takes the device for lost; whether it was not yet.
    pub(super) fn give_up_for(&self, why: String) -> bool {
        self.lost.set(why).is_ok()
    }

    /// Gives the device up as though its driver had failed, for testing how a program copes.
    pub fn lose(&self) {
        self.give_up_for("it was given up".into());
        self.device.destroy();
        let _ = self.in_turn(|| self.device.poll(wgpu::PollType::Poll));
    }

    /// Whether all that the device was given is done, or will be.
    ///
    /// # Errors
    /// [`Error::Device`] where it was lost or refused something.
    pub(crate) fn check(&self) -> Result<()> {
        if self.generation != generation() {
            return Err(left_behind(&self.adapter.to_string()));
        }
        if let Some(message) = self.lost.get() {
            return Err(Error::Device(format!(
                "{} was lost ({message}); {AS_READ_BACK}; go on with to(\"cpu\"), or open the GPU anew with \
                 to(\"gpu\")",
                self.adapter
            )));
        }
        Ok(())
    }

    /// New memory, zeroed.
    ///
    /// # Errors
    /// [`Error::Device`] saying how much was asked for, and for what, where there is not enough.
    pub(crate) fn allocate(&self, what: &str, bytes: u64, usage: wgpu::BufferUsages) -> Result<Allocation> {
        self.check()?;
        // Kernels may read in units of 16 bytes, and copies are made in units of 4.
        let size = bytes.next_multiple_of(16).max(16);
        let refused = |why: &str| {
            Err(Error::Device(format!(
                "{} has no {:.1} MiB for {what}: {why}; loom holds {:.1} MiB there; use smaller batches, or the \
                 device \"cpu\"",
                self.adapter,
                size as f64 / 1048576.0,
                self.allocated() as f64 / 1048576.0,
            )))
        };
        if size > self.adapter.max_buffer {
            return refused(&format!(
                "a buffer may have {:.1} MiB at most",
                self.adapter.max_buffer as f64 / 1048576.0
            ));
        }
        let create = || {
            let scope = self.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
            let buffer = self.device.create_buffer(&wgpu::BufferDescriptor {
                label: Some(what),
                size,
                usage,
                mapped_at_creation: false,
            });
            pollster::block_on(scope.pop()).is_none().then_some(buffer)
        };
        if self.faults.refuses(size, self.allocated()) {
            return refused("it is out of memory");
        }
        let buffer = match create() {
            Some(buffer) => Some(buffer),
            // What was let go of is only free once nothing uses it any more.
            None => self.wait().map(|()| create())?,
        };
        let Some(buffer) = buffer else { return refused("it is out of memory") };
        self.check()?;
        self.allocated.fetch_add(size, Ordering::Relaxed);
        Ok(Allocation::new(Arc::new(Held { buffer, size, allocated: self.allocated.clone() })))
    }
}

impl Accelerator for Gpu {
    fn name(&self) -> String {
        self.adapter.to_string()
    }

    fn capabilities(&self) -> Capabilities {
        Gpu::capabilities(self)
    }

    fn storage(&self, what: &str, bytes: u64) -> Result<Allocation> {
        use wgpu::BufferUsages as Usage;
        self.allocate(what, bytes, Usage::STORAGE | Usage::COPY_SRC | Usage::COPY_DST)
    }

    fn upload(&self, to: &Allocation, offset: u64, bytes: &[u8]) {
        if self.is_lost() {
            // What is run on it next says so.
            return;
        }
        let (to, whole) = (buffer(to), bytes.len() / 4 * 4);
        self.queue.write_buffer(to, offset, &bytes[..whole]);
        if whole < bytes.len() {
            let mut last = [0u8; 4];
            last[..bytes.len() - whole].copy_from_slice(&bytes[whole..]);
            self.queue.write_buffer(to, offset + whole as u64, &last);
        }
        self.count(|statistics| statistics.bytes_up += bytes.len() as u64);
    }

    fn copy_within(&self, memory: &Allocation, from: Range<usize>, to: usize) -> Result<()> {
        self.check()?;
        let bytes = from.len() as u64;
        if bytes == 0 {
            return Ok(());
        }
        // A buffer is not copied to itself.
        let between = self.storage("a part that is copied", bytes)?;
        let mut encoder = self.device.create_command_encoder(&Default::default());
        encoder.copy_buffer_to_buffer(buffer(memory), from.start as u64, buffer(&between), 0, bytes);
        encoder.copy_buffer_to_buffer(buffer(&between), 0, buffer(memory), to as u64, bytes);
        self.submit(encoder.finish());
        self.check()
    }

    fn read_back(&self, from: &Allocation, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.download(&mut [(Operand::new(from, offset as usize / 4, bytes.len() / 4), bytes)])
    }
}

/// A child of a fork has asked for what its parent uses.
pub(super) fn left_behind(what: &str) -> Error {
    Error::Device(format!(
        "{what} was opened before this process was forked off, and drivers of GPUs do not survive a fork; \
         {AS_READ_BACK}; go on with to(\"cpu\"), open the GPU in the child alone, or start processes with \
         multiprocessing's \"spawn\" or \"forkserver\""
    ))
}

/// A buffer on a device, freed when its last holder lets go.
#[derive(Debug)]
struct Held {
    buffer: wgpu::Buffer,
    size: u64,
    allocated: Arc<AtomicU64>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.allocated.fetch_sub(self.size, Ordering::Relaxed);
    }
}

impl HeldMemory for Held {
    fn size(&self) -> u64 {
        self.size
    }
}

/// The buffer that an allocation of a GPU is.
pub(super) fn buffer(allocation: &Allocation) -> &wgpu::Buffer {
    match allocation.held::<Held>() {
        Some(held) => &held.buffer,
        None => unreachable!("memory of another engine came to a GPU"),
    }
}

/// An operand as kernels are bound to it.
pub(super) fn binding(operand: &Operand) -> wgpu::BindingResource<'_> {
    wgpu::BindingResource::Buffer(part(operand))
}

/// The part of a buffer that an operand is.
pub(super) fn part(operand: &Operand) -> wgpu::BufferBinding<'_> {
    wgpu::BufferBinding {
        buffer: buffer(operand.allocation()),
        offset: operand.offset(),
        size: std::num::NonZeroU64::new(operand.bytes()),
    }
}

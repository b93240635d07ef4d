//! The pipelines made of WGSL text.

use crate::shader::{Bind, IMMEDIATE_BYTES, Kernel, KernelCall};
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Processors that this process may use. Asking the system reads files, and takes as long as a small kernel.
pub(super) fn processors() -> usize {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    *PROCESSORS.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// How operands are bound.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pattern {
    /// Whether each is written.
    written: Vec<bool>,
    /// How many of each, where they are arrays.
    lists: Option<NonZeroU32>,
}

impl Pattern {
    /// As a call of a kernel has them, or so many calls.
    pub(super) fn of(call: &KernelCall, lists: Option<NonZeroU32>) -> Self {
        Self { written: call.operands.iter().map(Bind::is_written).collect(), lists }
    }

    /// The same with one more, which is read.
    pub(super) fn and_read(mut self) -> Self {
        self.written.push(false);
        self
    }
}

/// The binding layout that kernels with operands of one pattern share.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) bindings: wgpu::BindGroupLayout,
    pipeline: wgpu::PipelineLayout,
}

/// A kernel with its layout, compiled when first needed.
#[derive(Debug)]
pub(super) struct Pipeline {
    kernel: Kernel,
    pub(super) layout: Arc<Layout>,
    made: OnceLock<Result<wgpu::ComputePipeline, String>>,
}

impl Pipeline {
    /// What it is, for error messages and tables of times.
    pub(super) fn label(&self) -> &str {
        self.kernel.label()
    }

    /// The compiled pipeline, or why the driver does not compile it.
    pub(super) fn get(
        &self,
        device: &wgpu::Device,
        checked: bool,
    ) -> Result<&wgpu::ComputePipeline, &String> {
        let made = self.made.get_or_init(|| {
            let refused = device.push_error_scope(wgpu::ErrorFilter::Validation);
            let failed = device.push_error_scope(wgpu::ErrorFilter::Internal);
            let checked = checked || !self.kernel.is_trusted();
            let checks = match checked {
                true => wgpu::ShaderRuntimeChecks::checked(),
                false => wgpu::ShaderRuntimeChecks::unchecked(),
            };
            let descriptor = wgpu::ShaderModuleDescriptor {
                label: Some(self.kernel.label()),
                source: wgpu::ShaderSource::Wgsl(self.kernel.source().into()),
            };
            // SAFETY: text from elsewhere keeps all checks. In loom's own each kernel guards its indices,
            // loops over known extents and divides by constants or extents that are positive; the tests
            // run all of them, and with LOOM_GPU_CHECKED=1 the checks are in.
            let module = unsafe { device.create_shader_module_trusted(descriptor, checks) };
            let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(self.kernel.label()),
                layout: Some(&self.layout.pipeline),
                module: &module,
                entry_point: Some("main"),
                compilation_options: wgpu::PipelineCompilationOptions {
                    zero_initialize_workgroup_memory: checked,
                    ..Default::default()
                },
                cache: None,
            });
            // The inner scope ends first.
            let failed = pollster::block_on(failed.pop());
            match failed.or(pollster::block_on(refused.pop())) {
                Some(error) => Err(error.to_string()),
                None => Ok(pipeline),
            }
        });
        made.as_ref()
    }
}

/// Every pipeline made on a device, by text and pattern of operands.
#[derive(Debug)]
pub(super) struct Pipelines {
    checked: bool,
    made: Mutex<HashMap<(Kernel, Pattern), Arc<Pipeline>>>,
    layouts: Mutex<HashMap<Pattern, Arc<Layout>>>,
    /// The layout of the step table, the same for every kernel.
    pub(super) table: wgpu::BindGroupLayout,
}

impl Pipelines {
    pub(super) fn new(device: &wgpu::Device, checked: bool) -> Self {
        let table = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
            label: Some("step table"),
            entries: &[entry(0, false, None)],
        });
        Self { checked, made: Mutex::default(), layouts: Mutex::default(), table }
    }

    /// Whether kernels are compiled with run-time checks.
    pub(super) fn checked(&self) -> bool {
        self.checked
    }

    /// The pipeline of a kernel, not necessarily compiled yet.
    pub(super) fn of(&self, device: &wgpu::Device, kernel: &Kernel, pattern: Pattern) -> Arc<Pipeline> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (kernel.clone(), pattern);
        if let Some(pipeline) = made.get(&key) {
            return pipeline.clone();
        }
        let layout = self.layout(device, &key.1);
        let pipeline = Arc::new(Pipeline { kernel: kernel.clone(), layout, made: OnceLock::new() });
        made.insert(key, pipeline.clone());
        pipeline
    }

    fn layout(&self, device: &wgpu::Device, pattern: &Pattern) -> Arc<Layout> {
        let mut layouts = self.layouts.lock().unwrap_or_else(PoisonError::into_inner);
        let made = layouts.entry(pattern.clone()).or_insert_with(|| {
            let entries: Vec<_> = (0u32..)
                .zip(&pattern.written)
                .map(|(i, written)| entry(i, *written, pattern.lists))
                .collect();
            let bindings = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
                label: None,
                entries: &entries,
            });
            let pipeline = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                label: None,
                bind_group_layouts: &[Some(&bindings), Some(&self.table)],
                immediate_size: IMMEDIATE_BYTES,
            });
            Arc::new(Layout { bindings, pipeline })
        });
        made.clone()
    }

    /// Compiles whatever is not compiled yet, on all processors: drivers take milliseconds for each.
    pub(super) fn compile(&self, device: &wgpu::Device, pipelines: &[Arc<Pipeline>]) {
        let waiting: Vec<_> = pipelines.iter().filter(|pipeline| pipeline.made.get().is_none()).collect();
        let threads = processors().min(waiting.len());
        if threads <= 1 {
            waiting.iter().for_each(|pipeline| {
                let _ = pipeline.get(device, self.checked);
            });
            return;
        }
        let next = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while let Some(pipeline) =
                        waiting.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
                    {
                        let _ = pipeline.get(device, self.checked);
                    }
                });
            }
        });
    }
}

fn entry(binding: u32, written: bool, count: Option<NonZeroU32>) -> wgpu::BindGroupLayoutEntry {
    wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer {
            ty: wgpu::BufferBindingType::Storage { read_only: !written },
            has_dynamic_offset: false,
            min_binding_size: None,
        },
        count,
    }
}

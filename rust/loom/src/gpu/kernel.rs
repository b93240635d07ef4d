//! WGSL text with its constants filled in, and the pipelines made of it.

use super::recorder::IMMEDIATE_BYTES;
use std::collections::HashMap;
use std::fmt::{Display, Write};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// What every kernel may use; stands before its text.
const PRELUDE: &str = include_str!("prelude.wgsl");

/// A WGSL file whose open places are being filled in.
///
/// `constant` puts `const NAME: type = value;` before the text, `section` replaces `#{NAME}`.
#[derive(Clone, Debug)]
pub struct Template {
    constants: String,
    text: String,
}

impl Template {
    /// The text of a file.
    pub fn new(text: &str) -> Self {
        Self { constants: String::new(), text: text.to_string() }
    }

    /// Defines an unsigned constant.
    #[must_use]
    pub fn constant(mut self, name: &str, value: impl TryInto<u32>) -> Self {
        // Extents that do not fit 32 bits are refused before any kernel is made for them.
        let value = value.try_into().unwrap_or(u32::MAX);
        let _ = writeln!(self.constants, "const {name}: u32 = {value}u;");
        self
    }

    /// Defines a constant truth value.
    #[must_use]
    pub fn flag(mut self, name: &str, value: bool) -> Self {
        let _ = writeln!(self.constants, "const {name}: bool = {value};");
        self
    }

    /// Defines a constant `f32`.
    #[must_use]
    pub fn float(mut self, name: &str, value: f64) -> Self {
        // A constant expression may not be infinite: the largest number stands for it. The shortest
        // text that reads back as the same number loses no digit.
        let value = (value as f32).clamp(-f32::MAX, f32::MAX);
        let _ = writeln!(self.constants, "const {name}: f32 = {value:e}f;");
        self
    }

    /// Replaces `#{name}` by this text.
    #[must_use]
    pub fn section(mut self, name: &str, text: impl Display) -> Self {
        self.text = self.text.replace(&format!("#{{{name}}}"), &text.to_string());
        self
    }

    /// The text so far, as a part of another.
    pub fn text(self) -> String {
        self.constants + &self.text
    }

    /// The kernel, ready to be compiled.
    pub fn kernel(self, label: impl Into<String>) -> Kernel {
        Kernel::new(label, &self.text())
    }
}

/// The complete text of a compute shader with one entry point, `main`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kernel {
    label: String,
    source: String,
    /// Whether it is loom's own text, which needs no checks while it runs.
    trusted: bool,
}

impl Kernel {
    /// A kernel of this text; `enable` directives in it are moved to the front.
    pub fn new(label: impl Into<String>, text: &str) -> Self {
        let is_directive = |line: &&str| line.starts_with("enable ");
        let mut source = String::with_capacity(PRELUDE.len() + text.len());
        for line in text.lines().filter(is_directive) {
            source.push_str(line);
            source.push('\n');
        }
        source.push_str(PRELUDE);
        for line in text.lines().filter(|line| !is_directive(line)) {
            source.push_str(line);
            source.push('\n');
        }
        Self { label: label.into(), source, trusted: true }
    }

    /// A kernel of text from elsewhere: its indices are checked while it runs.
    #[must_use]
    pub fn checked(self) -> Self {
        Self { trusted: false, ..self }
    }

    /// What it is, for error messages and debuggers.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The whole text.
    pub fn source(&self) -> &str {
        &self.source
    }
}

/// How operands are bound: one entry each, whether it is written.
type Pattern = Vec<bool>;

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
    made: OnceLock<wgpu::ComputePipeline>,
}

impl Pipeline {
    /// What it is, for error messages and tables of times.
    pub(super) fn label(&self) -> &str {
        &self.kernel.label
    }

    /// The compiled pipeline.
    pub(super) fn get(&self, device: &wgpu::Device, checked: bool) -> &wgpu::ComputePipeline {
        self.made.get_or_init(|| {
            let checked = checked || !self.kernel.trusted;
            let checks = match checked {
                true => wgpu::ShaderRuntimeChecks::checked(),
                false => wgpu::ShaderRuntimeChecks::unchecked(),
            };
            let descriptor = wgpu::ShaderModuleDescriptor {
                label: Some(&self.kernel.label),
                source: wgpu::ShaderSource::Wgsl(self.kernel.source.as_str().into()),
            };
            // SAFETY: text from elsewhere keeps all checks. In loom's own each kernel guards its indices,
            // loops over known extents and divides by constants or extents that are positive; the tests
            // run all of them, and with LOOM_GPU_CHECKED=1 the checks are in.
            let module = unsafe { device.create_shader_module_trusted(descriptor, checks) };
            device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(&self.kernel.label),
                layout: Some(&self.layout.pipeline),
                module: &module,
                entry_point: Some("main"),
                compilation_options: wgpu::PipelineCompilationOptions {
                    zero_initialize_workgroup_memory: checked,
                    ..Default::default()
                },
                cache: None,
            })
        })
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
            entries: &[entry(0, false)],
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
            let entries: Vec<_> =
                pattern.iter().enumerate().map(|(i, written)| entry(i as u32, *written)).collect();
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
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(waiting.len());
        if threads <= 1 {
            waiting.iter().for_each(|pipeline| {
                pipeline.get(device, self.checked);
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
                        pipeline.get(device, self.checked);
                    }
                });
            }
        });
    }
}

fn entry(binding: u32, written: bool) -> wgpu::BindGroupLayoutEntry {
    wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer {
            ty: wgpu::BufferBindingType::Storage { read_only: !written },
            has_dynamic_offset: false,
            min_binding_size: None,
        },
        count: None,
    }
}

//! Kernels with their operands bound, ready to be replayed, and their order.

use super::Gpu;
use super::device::binding;
use super::pipeline::Pipeline;
use crate::shader::{Allocation, Bind, HostCall, Operand, Recorded};
use crate::{Error, Result};
use std::sync::Arc;

/// A kernel with its operands bound.
#[derive(Clone, Debug)]
pub(super) struct Bound {
    pub(super) pipeline: Arc<Pipeline>,
    pub(super) bindings: wgpu::BindGroup,
    /// The first is the step's number, filled in when it is replayed.
    pub(super) constants: Vec<u32>,
    pub(super) groups: [u32; 2],
}

/// Who computes.
#[derive(Clone, Debug)]
pub(super) enum Work {
    /// The device.
    Kernel(Bound),
    /// The host.
    Host(HostCall),
}

/// What happens in a frame, with its operands and extents, ready to be replayed.
#[derive(Clone, Debug)]
pub(super) struct Dispatch {
    pub(super) work: Work,
    /// Which step of the frame it belongs to, counted from the one it is replayed with.
    pub(super) ahead: u32,
    touched: Touched,
}

impl Dispatch {
    /// What was recorded, bound to its operands; `ahead` of the step that it is replayed with.
    fn new(gpu: &Gpu, recorded: Recorded, ahead: u32) -> Self {
        let touched = Touched::by(&recorded);
        let recorded = match recorded {
            Recorded::Kernel(call) => call,
            Recorded::Host(call) => return Self { work: Work::Host(call), ahead, touched },
        };
        let pattern = recorded.operands.iter().map(|bind| matches!(bind, Bind::Write(_))).collect();
        let pipeline = gpu.pipelines.of(&gpu.device, &recorded.kernel, pattern);
        let mut entries = Vec::with_capacity(recorded.operands.len());
        for (number, bind) in recorded.operands.iter().enumerate() {
            let (Bind::Read(operand) | Bind::Write(operand)) = bind;
            entries.push(wgpu::BindGroupEntry { binding: number as u32, resource: binding(operand) });
        }
        let bindings = gpu.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some(recorded.kernel.label()),
            layout: &pipeline.layout.bindings,
            entries: &entries,
        });
        let constants = std::iter::once(0).chain(recorded.constants).collect();
        let groups = recorded.groups;
        Self { work: Work::Kernel(Bound { pipeline, bindings, constants, groups }), ahead, touched }
    }

    /// All that was recorded, bound to its operands; `ahead` of the step that it is replayed with.
    pub(super) fn all(gpu: &Gpu, recorded: Vec<Recorded>, ahead: u32) -> Vec<Self> {
        recorded.into_iter().map(|recorded| Self::new(gpu, recorded, ahead)).collect()
    }
}

/// Puts dispatches that do not wait for each other side by side.
///
/// Between two dispatches of which one needs the other's result the driver puts a barrier, and the
/// device runs dry there. So each goes to the earliest level at which all it needs is done: what
/// each computes, and from what, stays the same.
pub(super) fn schedule(dispatches: impl IntoIterator<Item = Dispatch>) -> Vec<Dispatch> {
    let dispatches: Vec<Dispatch> = dispatches.into_iter().collect();
    let levels = levels(dispatches.iter().map(|dispatch| &dispatch.touched));
    let mut ordered: Vec<(usize, Dispatch)> = levels.into_iter().zip(dispatches).collect();
    ordered.sort_by_key(|(level, _)| *level);
    ordered.into_iter().map(|(_, dispatch)| dispatch).collect()
}

/// What something in a frame reads and writes.
#[derive(Clone, Debug)]
pub(super) struct Touched {
    /// The memory, and whether it is written.
    pub(super) memory: Vec<(Allocation, bool)>,
    /// Whether the host does.
    host: bool,
}

impl Touched {
    /// By what was recorded.
    pub(super) fn by(recorded: &Recorded) -> Self {
        let of = |operands: &[Operand], written: bool| -> Vec<(Allocation, bool)> {
            operands.iter().map(|operand| (operand.allocation().clone(), written)).collect()
        };
        match recorded {
            Recorded::Kernel(call) => {
                let memory = call.operands.iter().map(|bind| match bind {
                    Bind::Read(operand) => (operand.allocation().clone(), false),
                    Bind::Write(operand) => (operand.allocation().clone(), true),
                });
                Self { memory: memory.collect(), host: false }
            }
            Recorded::Host(call) => {
                Self { memory: [of(&call.reads, false), of(&call.writes, true)].concat(), host: true }
            }
        }
    }
}

/// After how many others each can run at the earliest.
pub(super) fn levels<'a>(all: impl IntoIterator<Item = &'a Touched>) -> Vec<usize> {
    /// The first levels at which memory may be read, and written, again.
    struct Free {
        allocation: Allocation,
        read: usize,
        write: usize,
    }
    let mut memory: Vec<Free> = Vec::new();
    // The host's calls keep their order: one may know of another's what is in no memory here.
    let mut host = 0;
    let mut levels = Vec::new();
    for Touched { memory: operands, host: by_host } in all {
        let mut level = if *by_host { host } else { 0 };
        let mut touched = Vec::with_capacity(operands.len());
        for (allocation, written) in operands {
            let place = memory.iter().position(|free| free.allocation.is(allocation)).unwrap_or_else(|| {
                memory.push(Free { allocation: allocation.clone(), read: 0, write: 0 });
                memory.len() - 1
            });
            level = level.max(if *written { memory[place].write } else { memory[place].read });
            touched.push((place, *written));
        }
        if *by_host {
            host = level + 1;
        }
        for (place, written) in touched {
            let free = &mut memory[place];
            free.write = free.write.max(level + 1);
            if written {
                free.read = free.read.max(level + 1);
            }
        }
        levels.push(level);
    }
    levels
}

impl Gpu {
    /// Compiles whatever these need that is not compiled yet.
    ///
    /// # Errors
    /// [`Error::Device`] where the driver refuses a kernel.
    pub(super) fn compile(&self, dispatches: &[Dispatch]) -> Result<()> {
        let pipelines: Vec<Arc<Pipeline>> = dispatches
            .iter()
            .filter_map(|dispatch| match &dispatch.work {
                Work::Kernel(bound) => Some(bound.pipeline.clone()),
                Work::Host(_) => None,
            })
            .collect();
        self.pipelines.compile(&self.device, &pipelines);
        pipelines.iter().try_for_each(|pipeline| self.compiled(pipeline).map(|_| ()))
    }

    /// A compiled pipeline.
    ///
    /// # Errors
    /// As [`compile`](Self::compile).
    pub(super) fn compiled<'a>(&self, pipeline: &'a Pipeline) -> Result<&'a wgpu::ComputePipeline> {
        pipeline.get(&self.device, self.pipelines.checked()).map_err(|error| {
            let (adapter, label) = (self.adapter(), pipeline.label());
            Error::Device(format!("{adapter} does not compile the kernel \"{label}\": {error}"))
        })
    }
}

//! Kernels with their operands bound, ready to be replayed, and their order.

use super::Gpu;
use super::device::{binding, part};
use super::leveling::{Order, Touched};
use super::pipeline::{Pattern, Pipeline};
use crate::shader::{HostCall, Kernel, KernelCall, Operand, Recorded};
use crate::{Error, Result};
use std::num::NonZeroU32;
use std::sync::Arc;

/// A kernel with its operands bound.
#[derive(Clone, Debug)]
pub(super) struct Bound {
    pub(super) pipeline: Arc<Pipeline>,
    pub(super) bindings: wgpu::BindGroup,
    /// The first is the step's number, filled in when it is replayed.
    pub(super) constants: Vec<u32>,
    pub(super) groups: [u32; 3],
}

impl Bound {
    /// A kernel over what it is bound to, `lists` times what the call says.
    fn new(
        gpu: &Gpu,
        pipeline: Arc<Pipeline>,
        bindings: Vec<wgpu::BindingResource<'_>>,
        call: &KernelCall,
        lists: u32,
    ) -> Self {
        let numbered = bindings.into_iter().enumerate();
        let entries: Vec<_> = numbered
            .map(|(number, resource)| wgpu::BindGroupEntry { binding: number as u32, resource })
            .collect();
        let bindings = gpu.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some(call.kernel.label()),
            layout: &pipeline.layout.bindings,
            entries: &entries,
        });
        let constants = std::iter::once(0).chain(call.constants.iter().copied()).collect();
        Self { pipeline, bindings, constants, groups: [call.groups[0], call.groups[1], lists] }
    }

    /// Adds it to a pass, compiled, as that of step number `step`.
    pub(super) fn put(&self, pass: &mut wgpu::ComputePass<'_>, pipeline: &wgpu::ComputePipeline, step: u32) {
        pass.set_pipeline(pipeline);
        pass.set_bind_group(0, &self.bindings, &[]);
        // The step's number comes before the kernel's own constants.
        pass.set_immediates(0, bytemuck::bytes_of(&step));
        if let Some(own @ [_, ..]) = self.constants.get(1..) {
            pass.set_immediates(4, bytemuck::cast_slice(own));
        }
        let [width, height, lists] = self.groups;
        pass.dispatch_workgroups(width, height, lists);
    }
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
    pub(super) fn new(gpu: &Gpu, recorded: Recorded, ahead: u32) -> Self {
        let touched = Touched::by(&recorded);
        let call = match recorded {
            Recorded::Kernel(call) => call,
            Recorded::Host(call) => return Self { work: Work::Host(call), ahead, touched },
        };
        let pipeline = gpu.pipelines.of(&gpu.device, &call.kernel, Pattern::of(&call, None));
        let bindings: Vec<_> = call.operands.iter().map(|bind| binding(bind.operand())).collect();
        Self { work: Work::Kernel(Bound::new(gpu, pipeline, bindings, &call, 1)), ahead, touched }
    }

    /// These calls at once, of a kernel that is repeated for as many `lists` of operands or more; they have the same
    /// constants and workgroups, or lie in memory with `numbers` of their own, each behind how many workgroups it has.
    pub(super) fn repeated(
        gpu: &Gpu,
        (kernel, lists): (&Kernel, usize),
        calls: &[KernelCall],
        numbers: Option<&[Operand]>,
    ) -> Self {
        let memory = calls.iter().flat_map(|call| Touched::by_call(call).memory).collect();
        let touched = Touched { memory, host: false };
        let first = &calls[0];
        let pattern = Pattern::of(first, NonZeroU32::new(lists as u32));
        let pattern = if numbers.is_some() { pattern.and_read() } else { pattern };
        let pipeline = gpu.pipelines.of(&gpu.device, kernel, pattern);
        let operands = (0..first.operands.len())
            .map(|number| calls.iter().map(|call| part(call.operands[number].operand())).collect());
        let numbers = numbers.map(|numbers| numbers.iter().map(part).collect());
        let mut arrays: Vec<Vec<wgpu::BufferBinding<'_>>> = operands.chain(numbers).collect();
        // No workgroup is started for what is more than there are.
        arrays.iter_mut().for_each(|array| array.resize(lists, array[0].clone()));
        let bindings = arrays.iter().map(|array| wgpu::BindingResource::BufferArray(array)).collect();
        let mut bound = Bound::new(gpu, pipeline, bindings, first, calls.len() as u32);
        bound.groups[0] = calls.iter().map(|call| call.groups[0]).max().unwrap_or(0);
        Self { work: Work::Kernel(bound), ahead: 0, touched }
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
    let levels = Order::of(dispatches.iter().map(|dispatch| &dispatch.touched)).levels(&[]);
    let mut ordered: Vec<(usize, Dispatch)> = levels.into_iter().zip(dispatches).collect();
    ordered.sort_by_key(|(level, _)| *level);
    ordered.into_iter().map(|(_, dispatch)| dispatch).collect()
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

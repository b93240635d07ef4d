//! How an operation becomes dispatches.

use super::Gpu;
use super::device::{Allocation, Capabilities};
use super::kernel::{Kernel, Pipeline};
use super::memory::Operand;
use super::mirror::VersionOperands;
use crate::ops::BiasGradient;
use crate::{Error, Result, extents};
use std::ops::Range;
use std::sync::Arc;

/// Bytes of constants that a dispatch brings along: the step's number and the kernel's own.
pub(super) const IMMEDIATE_BYTES: u32 = 128;
/// The most operands of one kernel.
pub(super) const MAX_BINDINGS: usize = 15;
/// Constants of a kernel beside the step's number.
const MAX_CONSTANTS: usize = IMMEDIATE_BYTES as usize / 4 - 1;

/// What an operation provides for the GPU, beside its CPU kernel.
pub trait GpuOperation {
    /// Adds the dispatches that compute it, for operands and results in the order the operation documents.
    ///
    /// # Errors
    /// [`Error::Device`] where the device cannot run it.
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let _ = recorder;
        Err(Error::Device("this operation has no GPU kernel; use the device \"cpu\"".into()))
    }
}

/// One operand of a kernel, and whether the kernel writes it.
#[derive(Clone, Debug)]
pub enum Bind {
    /// `var<storage, read>`.
    Read(Operand),
    /// `var<storage, read_write>`.
    Write(Operand),
}

/// A kernel with its operands and extents, ready to be replayed.
#[derive(Clone, Debug)]
pub(super) struct Dispatch {
    pub(super) pipeline: Arc<Pipeline>,
    pub(super) bindings: wgpu::BindGroup,
    /// The first is the step's number, filled in when it is replayed.
    pub(super) constants: Vec<u32>,
    pub(super) groups: [u32; 2],
    /// Which step of the frame it belongs to, counted from the one it is replayed with.
    pub(super) ahead: u32,
    /// The operands' memory, and whether it is written.
    memory: Vec<(Allocation, bool)>,
}

/// Puts dispatches that do not wait for each other side by side.
///
/// Between two dispatches of which one needs the other's result the driver puts a barrier, and the
/// device runs dry there. So each goes to the earliest level at which all it needs is done: what
/// each computes, and from what, stays the same.
pub(super) fn schedule(dispatches: impl IntoIterator<Item = Dispatch>) -> Vec<Dispatch> {
    /// The first levels at which memory may be read, and written, again.
    struct Free {
        allocation: Allocation,
        read: usize,
        write: usize,
    }
    let mut memory: Vec<Free> = Vec::new();
    let mut levels: Vec<(usize, Dispatch)> = Vec::new();
    for dispatch in dispatches {
        let mut level = 0;
        let mut touched = Vec::with_capacity(dispatch.memory.len());
        for (allocation, written) in &dispatch.memory {
            let place = memory.iter().position(|free| free.allocation.is(allocation)).unwrap_or_else(|| {
                memory.push(Free { allocation: allocation.clone(), read: 0, write: 0 });
                memory.len() - 1
            });
            level = level.max(if *written { memory[place].write } else { memory[place].read });
            touched.push((place, *written));
        }
        for (place, written) in touched {
            let free = &mut memory[place];
            free.write = free.write.max(level + 1);
            if written {
                free.read = free.read.max(level + 1);
            }
        }
        levels.push((level, dispatch));
    }
    levels.sort_by_key(|(level, _)| *level);
    levels.into_iter().map(|(_, dispatch)| dispatch).collect()
}

/// Where a layer's weight gradient and its bias gradient go, for a kernel that makes both.
///
/// They lie in the same memory, which one dispatch can bind but once.
#[derive(Clone, Debug)]
pub struct BothGradients {
    /// The part of the store's gradient that holds the two.
    pub gradient: Operand,
    /// Where the weight's starts in it, in elements.
    pub weight: usize,
    /// Where the bias's starts in it, in elements.
    pub bias: usize,
    /// What the bias's sums over.
    pub sum: BiasGradient,
}

impl BothGradients {
    /// For these two, where they lie in one memory and can be bound at once.
    pub(super) fn of(
        weight: &Operand,
        bias: &Operand,
        sum: &BiasGradient,
        max_binding: usize,
    ) -> Option<Self> {
        let elements = |operand: &Operand| operand.offset() as usize / 4;
        let (first, second) = (elements(weight), elements(bias));
        let start = first.min(second);
        let end = (first + weight.elements).max(second + bias.elements);
        (weight.allocation().is(bias.allocation()) && (end - start) * 4 <= max_binding).then(|| Self {
            gradient: Operand::new(weight.allocation(), start, end - start),
            weight: first - start,
            bias: second - start,
            sum: sum.clone(),
        })
    }
}

/// Collects the dispatches of one operation after another.
pub struct Recorder<'a> {
    gpu: &'a Gpu,
    rows: usize,
    pub(super) accumulate: bool,
    pub(super) path: u32,
    pub(super) reads: Vec<Operand>,
    pub(super) writes: Vec<Operand>,
    pub(super) versions: Vec<VersionOperands>,
    /// The bias gradient that the operation may make along with its weight gradient.
    pub(super) both: Option<BothGradients>,
    pub(super) control: Operand,
    /// Bytes of a buffer that one kernel is to see at most.
    pub(super) max_binding: usize,
    /// Bytes of workgroup memory that kernels may use.
    pub(super) workgroup_storage: usize,
    pub(super) dispatches: Vec<Dispatch>,
}

impl<'a> Recorder<'a> {
    pub(super) fn new(gpu: &'a Gpu, rows: usize, control: Operand) -> Self {
        Self {
            gpu,
            rows,
            accumulate: false,
            path: 0,
            reads: Vec::new(),
            writes: Vec::new(),
            versions: Vec::new(),
            both: None,
            control,
            max_binding: gpu.capabilities().max_binding,
            workgroup_storage: gpu.capabilities().workgroup_storage,
            dispatches: Vec::new(),
        }
    }

    /// Rows of the batch.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Whether results are added to what is there instead of replacing it.
    pub fn accumulate(&self) -> bool {
        self.accumulate
    }

    /// A number for the layer the step belongs to, for keying random draws.
    pub fn path(&self) -> u32 {
        self.path
    }

    /// What the device can do.
    pub fn capabilities(&self) -> Capabilities {
        let (max_binding, workgroup_storage) = (self.max_binding, self.workgroup_storage);
        Capabilities { max_binding, workgroup_storage, ..self.gpu.capabilities() }
    }

    /// How many operands the step reads.
    pub fn reads(&self) -> usize {
        self.reads.len()
    }

    /// How many results the step writes.
    pub fn writes(&self) -> usize {
        self.writes.len()
    }

    /// Parts of `elements` 32-bit elements that kernels can see, in order: each starts at a multiple of
    /// `multiple` elements, itself one of 64, and all are as long as they can be.
    ///
    /// # Errors
    /// [`Error::Device`] where not even `multiple` elements can be seen at a time.
    pub fn parts(&self, elements: usize, multiple: usize) -> Result<Vec<Range<usize>>> {
        let longest = self.max_binding / 4 / multiple * multiple;
        if elements == 0 {
            return Ok(Vec::new());
        }
        if longest == 0 {
            return Err(Error::Device(format!(
                "{} lets kernels see no more than {} bytes at a time",
                self.gpu.adapter(),
                self.max_binding
            )));
        }
        let starts = (0..elements).step_by(longest);
        Ok(starts.map(|start| start..elements.min(start + longest)).collect())
    }

    /// Operand `index`.
    ///
    /// # Errors
    /// [`Error::Internal`] where the step has no such operand.
    pub fn read(&self, index: usize) -> Result<Operand> {
        self.reads.get(index).cloned().ok_or_else(|| missing("operand", index))
    }

    /// Result `index`.
    ///
    /// # Errors
    /// [`Error::Internal`] where the step has no such result.
    pub fn write(&self, index: usize) -> Result<Operand> {
        self.writes.get(index).cloned().ok_or_else(|| missing("result", index))
    }

    /// The packed versions that an `Encode` step refreshes.
    pub fn versions(&self) -> &[VersionOperands] {
        &self.versions
    }

    /// What the verdict on the step has set: whether updates may write, and how many steps were
    /// skipped before (`Control` in `prelude.wgsl`).
    pub fn control(&self) -> Operand {
        self.control.clone()
    }

    /// Records an operation that is part of this one, with these operands and this one's results.
    ///
    /// # Errors
    /// As [`GpuOperation::record`].
    pub fn nested(&mut self, operation: &dyn GpuOperation, reads: Vec<Operand>) -> Result<()> {
        let outer = std::mem::replace(&mut self.reads, reads);
        let result = operation.record(self);
        self.reads = outer;
        result
    }

    /// What [`take_bias_gradient`](Self::take_bias_gradient) would hand over.
    pub fn offered_bias_gradient(&self) -> Option<&BothGradients> {
        self.both.as_ref()
    }

    /// Takes over the bias gradient that goes with this weight gradient, where there is one and both
    /// can be bound at once. It sums over the second operand, and is added to what is there where
    /// the weight gradient is. What is not taken over is recorded as an operation of its own.
    pub fn take_bias_gradient(&mut self) -> Option<BothGradients> {
        self.both.take()
    }

    /// Temporary memory of this many `f32`, whose content is undefined when the step starts.
    ///
    /// # Errors
    /// [`Error::Device`] where there is none left.
    pub fn scratch(&mut self, elements: usize) -> Result<Operand> {
        Operand::allocate(self.gpu, "temporary results", elements)
    }

    /// Memory with this content, of this step alone: for kernels to look something up, or to leave
    /// something there for the next time.
    ///
    /// # Errors
    /// [`Error::Device`] where there is none left.
    pub fn table(&mut self, words: &[u32]) -> Result<Operand> {
        let operand = Operand::allocate(self.gpu, "a kernel's table", words.len())?;
        self.gpu.upload(operand.allocation(), 0, bytemuck::cast_slice(words));
        Ok(operand)
    }

    /// Runs `kernel` on `groups` workgroups; see `prelude.wgsl` for how kernels find their number.
    ///
    /// Operands are bound in order from `@binding(0)` of group 0 on; `constants` follow the step's
    /// number in `var<immediate>`.
    ///
    /// # Errors
    /// [`Error::Device`] for an operand that is larger than kernels can see, or too many workgroups.
    pub fn dispatch(
        &mut self,
        kernel: &Kernel,
        operands: &[Bind],
        constants: &[u32],
        groups: usize,
    ) -> Result<()> {
        if groups == 0 {
            return Ok(());
        }
        if constants.len() > MAX_CONSTANTS || operands.len() > MAX_BINDINGS {
            return Err(Error::Internal(format!("kernel {} has too many operands", kernel.label())));
        }
        let capabilities = self.capabilities();
        let width = groups.min(capabilities.max_groups);
        let height = groups.div_ceil(width);
        if height > capabilities.max_groups {
            return Err(Error::Device(format!(
                "kernel {} would need {groups} workgroups, more than {} can start; use smaller batches",
                kernel.label(),
                self.gpu.adapter()
            )));
        }
        let pattern = operands.iter().map(|bind| matches!(bind, Bind::Write(_))).collect();
        let pipeline = self.gpu.pipelines.of(&self.gpu.device, kernel, pattern);
        let mut memory = Vec::with_capacity(operands.len());
        let mut entries = Vec::with_capacity(operands.len());
        for (number, bind) in operands.iter().enumerate() {
            let (Bind::Read(operand) | Bind::Write(operand)) = bind;
            if operand.bytes() > capabilities.max_binding as u64 {
                return Err(Error::Device(format!(
                    "kernel {} has an operand of {:.1} MiB, and {} lets kernels see {:.1} MiB at a time; use smaller \
                     batches",
                    kernel.label(),
                    operand.bytes() as f64 / 1048576.0,
                    self.gpu.adapter(),
                    capabilities.max_binding as f64 / 1048576.0,
                )));
            }
            // Packed weights may be many more than the bytes they are bound as.
            if operand.elements > extents::MOST_REACH {
                return Err(Error::Device(format!(
                    "kernel {} has an operand of {} elements, and kernels count {} at most; use smaller extents or \
                     the device \"cpu\"",
                    kernel.label(),
                    operand.elements,
                    extents::MOST_REACH
                )));
            }
            memory.push((operand.allocation().clone(), matches!(bind, Bind::Write(_))));
            entries.push(wgpu::BindGroupEntry { binding: number as u32, resource: operand.binding() });
        }
        let bindings = self.gpu.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some(kernel.label()),
            layout: &pipeline.layout.bindings,
            entries: &entries,
        });
        let constants = std::iter::once(0).chain(constants.iter().copied()).collect();
        let groups = [width as u32, height as u32];
        self.dispatches.push(Dispatch { pipeline, bindings, constants, groups, ahead: 0, memory });
        Ok(())
    }
}

fn missing(what: &str, index: usize) -> Error {
    Error::Internal(format!("a step was recorded without {what} {index}"))
}

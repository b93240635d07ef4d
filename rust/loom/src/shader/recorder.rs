//! How an operation becomes dispatches.

use super::accelerator::{Accelerator, Allocation, Capabilities, HeldMemory};
use super::operand::{Operand, VersionOperands};
use super::template::Kernel;
use crate::{Error, Result, extents};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of constants that a dispatch brings along: the step's number and the kernel's own.
pub const IMMEDIATE_BYTES: u32 = 128;
/// The most operands of one kernel.
pub const MAX_BINDINGS: usize = 15;
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

impl Bind {
    /// What is bound.
    pub fn operand(&self) -> &Operand {
        let (Self::Read(operand) | Self::Write(operand)) = self;
        operand
    }

    /// Whether the kernel writes it.
    pub fn is_written(&self) -> bool {
        matches!(self, Self::Write(_))
    }
}

/// Something that happens in a frame.
#[derive(Clone, Debug)]
pub enum Recorded {
    /// The device runs a kernel.
    Kernel(KernelCall),
    /// The host computes, for which the frame is cut.
    Host(HostCall),
}

/// What the host computes in the middle of a frame, from elements that are read back and written again.
pub trait HostWork: fmt::Debug + Send + Sync {
    /// Computes results from operands, each of 32-bit elements; what stands in the results is what the device
    /// holds there.
    ///
    /// # Errors
    /// Whatever it refuses; the frame ends there.
    fn run(&self, rows: usize, reads: &[&[u8]], writes: &mut [&mut [u8]]) -> Result<()>;
}

/// What the host computes, with its operands.
#[derive(Clone, Debug)]
pub struct HostCall {
    /// What is done.
    pub work: Arc<dyn HostWork>,
    /// Rows of the batch.
    pub rows: usize,
    /// What it reads.
    pub reads: Vec<Operand>,
    /// What it writes.
    pub writes: Vec<Operand>,
}

/// A kernel with its operands and extents.
#[derive(Clone, Debug)]
pub struct KernelCall {
    /// What runs.
    pub kernel: Kernel,
    /// What it is bound to, in order.
    pub operands: Vec<Bind>,
    /// What follows the step's number in `var<immediate>`.
    pub constants: Vec<u32>,
    /// Workgroups in the two dimensions of its grid.
    pub groups: [u32; 2],
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
    pub sum: BiasSums,
}

/// The extents of a bias gradient: of (outer, channels, inner) elements, all but the channels are summed over.
#[derive(Clone, Copy, Debug)]
pub struct BiasSums {
    /// Repetitions of the channel axis for each row of the batch.
    pub outer: usize,
    /// Extent of the bias.
    pub channels: usize,
    /// Elements that share a channel.
    pub inner: usize,
}

impl BothGradients {
    /// For these two, where they lie in one memory and can be bound at once.
    pub fn of(weight: &Operand, bias: &Operand, sum: BiasSums, max_binding: usize) -> Option<Self> {
        let elements = |operand: &Operand| operand.offset() as usize / 4;
        let (first, second) = (elements(weight), elements(bias));
        let start = first.min(second);
        let end = (first + weight.elements).max(second + bias.elements);
        (weight.allocation().is(bias.allocation()) && (end - start) * 4 <= max_binding).then(|| Self {
            gradient: Operand::new(weight.allocation(), start, end - start),
            weight: first - start,
            bias: second - start,
            sum,
        })
    }
}

/// Collects the dispatches of one operation after another.
///
/// What is public beside methods is for engines, which set it before an operation is recorded.
pub struct Recorder<'a> {
    device: &'a dyn Accelerator,
    rows: usize,
    /// Whether results are added to what is there.
    pub accumulate: bool,
    /// A number for the layer.
    pub path: u32,
    /// The step's operands.
    pub reads: Vec<Operand>,
    /// The step's results.
    pub writes: Vec<Operand>,
    /// The packed versions that an `Encode` step refreshes.
    pub versions: Vec<VersionOperands>,
    /// The bias gradient that the operation may make along with its weight gradient.
    pub both: Option<BothGradients>,
    /// What the verdict on the step has set.
    pub control: Operand,
    /// Bytes of a buffer that one kernel is to see at most.
    pub max_binding: usize,
    /// Bytes of workgroup memory that kernels may use.
    pub workgroup_storage: usize,
    /// Threads of every subgroup that kernels may count on, 0 for none.
    pub subgroup_threads: usize,
    /// Workgroups that kernels may count on to run at the same time, 0 for none.
    pub concurrent_groups: usize,
    /// With how many like it the step's kernel is made at once, as one dispatch.
    pub crowd: usize,
    /// Where each row is, for rows that are at places of their own: the number of its sequence, and how many of that
    /// one's steps have been seen before the step table counts on.
    pub row_places: Option<Operand>,
    /// Whether temporary results get their memory later ([`ToPlace`]), when it is known who uses which.
    pub places_later: bool,
    /// What was recorded so far.
    pub recorded: Vec<Recorded>,
}

/// Stands for memory of so many bytes that an engine chooses once everything was recorded.
#[derive(Debug)]
pub struct ToPlace(u64);

impl HeldMemory for ToPlace {
    fn size(&self) -> u64 {
        self.0
    }
}

impl<'a> Recorder<'a> {
    /// An empty list for batches of `rows` rows.
    pub fn new(device: &'a dyn Accelerator, rows: usize, control: Operand) -> Self {
        let capabilities = device.capabilities();
        Self {
            device,
            rows,
            accumulate: false,
            path: 0,
            reads: Vec::new(),
            writes: Vec::new(),
            versions: Vec::new(),
            both: None,
            control,
            max_binding: capabilities.max_binding,
            workgroup_storage: capabilities.workgroup_storage,
            subgroup_threads: capabilities.subgroup_threads,
            concurrent_groups: capabilities.concurrent_groups,
            crowd: 1,
            row_places: None,
            places_later: false,
            recorded: Vec::new(),
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
        Capabilities {
            max_binding: self.max_binding,
            workgroup_storage: self.workgroup_storage,
            subgroup_threads: self.subgroup_threads,
            concurrent_groups: self.concurrent_groups,
            ..self.device.capabilities()
        }
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
                self.device.name(),
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
        if !self.places_later {
            return Operand::allocate(self.device, "temporary results", elements);
        }
        // As kernels see it: whole units of 16 bytes.
        let bytes = (elements as u64 * 4).next_multiple_of(16).max(16);
        Ok(Operand::new(&Allocation::new(Arc::new(ToPlace(bytes))), 0, elements))
    }

    /// Memory with this content, of this step alone: for kernels to look something up, or to leave
    /// something there for the next time.
    ///
    /// # Errors
    /// [`Error::Device`] where there is none left.
    pub fn table(&mut self, words: &[u32]) -> Result<Operand> {
        let operand = Operand::allocate(self.device, "a kernel's table", words.len())?;
        self.device.upload(operand.allocation(), 0, bytemuck::cast_slice(words));
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
        kernel: Kernel,
        operands: Vec<Bind>,
        constants: Vec<u32>,
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
                self.device.name()
            )));
        }
        for bind in &operands {
            let operand = bind.operand();
            if operand.bytes() > capabilities.max_binding as u64 {
                return Err(Error::Device(format!(
                    "kernel {} has an operand of {:.1} MiB, and {} lets kernels see {:.1} MiB at a time; use smaller \
                     batches",
                    kernel.label(),
                    operand.bytes() as f64 / 1048576.0,
                    self.device.name(),
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
        }
        let groups = [width as u32, height as u32];
        self.recorded.push(Recorded::Kernel(KernelCall { kernel, operands, constants, groups }));
        Ok(())
    }

    /// Adds work of the host's on the step's operands and results, for which the frame is cut.
    pub fn on_host(&mut self, work: Arc<dyn HostWork>) {
        let call = HostCall { work, rows: self.rows, reads: self.reads.clone(), writes: self.writes.clone() };
        self.recorded.push(Recorded::Host(call));
    }
}

fn missing(what: &str, index: usize) -> Error {
    Error::Internal(format!("a step was recorded without {what} {index}"))
}

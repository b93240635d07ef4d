//! What a kernel is handed: typed views of a step's operands and results.

use crate::dtype::Packing;
use crate::random::pass_number;
use crate::simd::Cpu;
use crate::tensor::Buffer;
use bytemuck::Pod;

/// The most operands a step may have.
pub const MAX_READS: usize = 12;
/// The most results a step may have.
pub const MAX_WRITES: usize = 8;

/// Values that change from step to step, below a compiled program.
#[derive(Clone, Debug)]
pub struct StepValues {
    /// The network's seed.
    pub seed: u64,
    /// Committed training steps so far: keys random draws.
    pub step: u64,
    /// Passes that have drawn for rows of their own since that step: keys random draws, too.
    pub forwards: u64,
    /// Rows of this step's global batch that came before this run's: keys random draws when gradients accumulate.
    pub row_offset: u64,
    /// Updates the optimizer has made, this one counted: 1, 2, ...
    pub optimizer_step: u64,
    /// Rows of this step's global batch.
    pub batch_rows: u64,
    /// The learning rate of this step.
    pub rate: f64,
    /// What summed losses are divided by: rows, elements, or the sum of their weights, of the global batch.
    pub loss_divisor: f64,
    /// The largest global gradient norm; infinite for no clipping.
    pub max_norm: f64,
    /// Gradient elements are clamped to plus or minus this; infinite for no clamping.
    pub clip_value: f64,
    /// Steps of the sequences that a session has seen before this call.
    pub position: u64,
    /// What the loss's gradient is multiplied by where losses are scaled; a power of two.
    pub loss_scale: f32,
    /// Good steps since that last changed.
    pub good_steps: u32,
    /// Whether gradients are zeroed, so that the first contribution replaces them.
    pub gradients_zeroed: bool,
    /// Where each row is, for rows that are at places of their own, from which `position` counts on; empty where row i
    /// is sequence i, and all are at `position`.
    pub places: Vec<RowPlace>,
}

/// Which sequence a row goes on, and from where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowPlace {
    /// The number of the sequence, among those of which something is carried.
    pub sequence: usize,
    /// How many of its steps have been seen before `StepValues::position` counts on.
    pub position: usize,
}

impl StepValues {
    /// How many steps of a row's sequence have been seen before this call.
    pub fn position_of(&self, row: usize) -> usize {
        self.position as usize + self.places.get(row).map_or(0, |place| place.position)
    }

    /// The number of a row's sequence among those of which something is carried.
    pub fn sequence_of(&self, row: usize) -> usize {
        self.places.get(row).map_or(row, |place| place.sequence)
    }

    /// What stands for the step in the keys of this pass's draws.
    pub fn pass_number(&self) -> u64 {
        pass_number(self.step, self.forwards)
    }
}

impl Default for StepValues {
    fn default() -> Self {
        Self {
            seed: 0,
            step: 0,
            forwards: 0,
            row_offset: 0,
            optimizer_step: 1,
            batch_rows: 1,
            rate: 0.0,
            loss_divisor: 1.0,
            max_norm: f64::INFINITY,
            clip_value: f64::INFINITY,
            position: 0,
            loss_scale: 1.0,
            good_steps: 0,
            gradients_zeroed: true,
            places: Vec::new(),
        }
    }
}

/// One operand: its bytes, and for a packed parameter how it is packed, and its scales.
#[derive(Clone, Copy, Default)]
pub struct View<'a> {
    /// The elements.
    pub bytes: &'a [u8],
    /// How a version is packed; `None` for plain elements.
    pub packed: Option<Packing>,
    /// The scales of a packed version; empty where the type has none.
    pub scales: &'a [f32],
}

impl<'a> View<'a> {
    /// The elements of a plain operand.
    pub fn elements<T: Pod>(&self) -> &'a [T] {
        debug_assert!(self.packed.is_none(), "a packed operand read as plain elements");
        bytemuck::cast_slice(self.bytes)
    }
}

/// A step's operands, results and run-time values.
pub struct Args<'a> {
    /// Instruction set and threads.
    pub cpu: &'a Cpu,
    /// Rows of the batch.
    pub rows: usize,
    /// Whether results are added to what is there instead of replacing it.
    pub accumulate: bool,
    /// Values of this step.
    pub values: &'a StepValues,
    /// A number for the layer the step belongs to, for keying random draws.
    pub path: u32,
    pub(crate) reads: [View<'a>; MAX_READS],
    pub(crate) writes: [&'a mut [u8]; MAX_WRITES],
}

impl<'a> Args<'a> {
    /// Arguments with no operand yet.
    ///
    /// Made where they stay: what they hold is a kilobyte, and small steps are over in a microsecond.
    #[inline(always)]
    pub fn new(cpu: &'a Cpu, rows: usize, values: &'a StepValues) -> Self {
        Self {
            cpu,
            rows,
            accumulate: false,
            values,
            path: 0,
            reads: Default::default(),
            writes: Default::default(),
        }
    }

    /// Operand `index`, plain or packed.
    pub fn view(&self, index: usize) -> View<'a> {
        self.reads[index]
    }

    /// The elements of operand `index`, which must be plain.
    pub fn read<T: Pod>(&self, index: usize) -> &'a [T] {
        self.reads[index].elements()
    }

    /// The elements of result `index`; each can be taken once, and is empty from then on, as is one
    /// that the step does not have.
    pub fn write<T: Pod>(&mut self, index: usize) -> &'a mut [T] {
        let bytes = std::mem::take(&mut self.writes[index]);
        // A result the step does not have is empty, and points nowhere aligned.
        if bytes.is_empty() { &mut [] } else { bytemuck::cast_slice_mut(bytes) }
    }

    /// Sets operand `index`, for running an operation by itself.
    pub fn set_read<T: Pod>(&mut self, index: usize, elements: &'a [T]) {
        self.reads[index] = View { bytes: bytemuck::cast_slice(elements), ..View::default() };
    }

    /// Sets operand `index` to a packed parameter.
    pub fn set_packed(&mut self, index: usize, bytes: &'a [u8], packing: Packing, scales: &'a [f32]) {
        self.reads[index] = View { bytes, packed: Some(packing), scales };
    }

    /// Sets result `index`, for running an operation by itself.
    pub fn set_write<T: Pod>(&mut self, index: usize, elements: &'a mut [T]) {
        self.writes[index] = bytemuck::cast_slice_mut(elements);
    }
}

/// The part of a buffer from element `offset` on, `len` elements of `T`.
pub(crate) fn part<T: Pod>(buffer: &Buffer, offset: usize, len: usize) -> &[u8] {
    &buffer.bytes()[offset * size_of::<T>()..(offset + len) * size_of::<T>()]
}

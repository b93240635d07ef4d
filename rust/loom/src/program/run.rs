//! The transient memory of one execution of a program.

use super::{Kind, Place, Program, Value};
use crate::cpu::Real;
use crate::tensor::Buffer;
use std::sync::Arc;

/// One program's buffers with the number of rows they hold now.
#[derive(Debug)]
pub struct Run {
    pub(crate) program: Arc<Program>,
    pub(crate) buffers: Vec<Buffer>,
    /// Rows of the batch in the buffers.
    pub rows: usize,
    /// The registry's epoch at the forward pass, to refuse a backward pass over moved weights.
    pub(crate) epoch: u64,
}

impl Run {
    /// Memory for this program at its full capacity.
    pub fn new(program: Arc<Program>) -> Self {
        let buffers = program.buffers.iter().map(|bytes| Buffer::zeroed(*bytes)).collect();
        Self { program, buffers, rows: 0, epoch: 0 }
    }

    /// The program this run is of.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    fn buffer_of(&self, value: Value) -> usize {
        match self.program.value(self.program.owner(value)).place {
            Place::Buffer(buffer) => buffer,
            ref other => unreachable!("{other:?} is no value of a run"),
        }
    }

    /// The real elements of a value, for the rows there are.
    pub fn read<T: Real>(&self, value: Value) -> &[T] {
        let info = self.program.value(value);
        debug_assert_eq!(info.kind, Kind::Real);
        &self.buffers[self.buffer_of(value)].as_slice::<T>()[..info.len(self.rows)]
    }

    /// The real elements of a value the caller fills.
    pub fn write<T: Real>(&mut self, value: Value) -> &mut [T] {
        let len = self.program.value(value).len(self.rows);
        let buffer = self.buffer_of(value);
        &mut self.buffers[buffer].as_mut_slice::<T>()[..len]
    }

    /// The indices of a value the caller fills.
    pub fn write_indices(&mut self, value: Value) -> &mut [i32] {
        let len = self.program.value(value).len(self.rows);
        let buffer = self.buffer_of(value);
        &mut self.buffers[buffer].as_mut_slice::<i32>()[..len]
    }

    /// The indices of a value.
    pub fn read_indices(&self, value: Value) -> &[i32] {
        let len = self.program.value(value).len(self.rows);
        &self.buffers[self.buffer_of(value)].as_slice::<i32>()[..len]
    }
}

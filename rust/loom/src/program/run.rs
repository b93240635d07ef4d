//! The transient memory of one execution of a program.

use super::{Kind, Program};
use crate::Result;
use crate::program::{Place, Value};
use crate::simd::Real;
use crate::tensor::Buffer;
use std::sync::Arc;

/// One program's buffers with the number of rows they hold now.
///
/// On a GPU the buffers here hold only what the caller writes and fetches.
#[derive(Debug)]
pub struct Run {
    pub(crate) program: Arc<Program>,
    pub(crate) buffers: Vec<Buffer>,
    /// Rows of the batch in the buffers.
    pub rows: usize,
    /// The registry's epoch at the forward pass, to refuse a backward pass over moved weights.
    pub(crate) epoch: u64,
    /// The values of a run on a GPU.
    #[cfg(feature = "gpu")]
    device_memory: Option<Box<crate::gpu::Memory>>,
    /// Values written by the caller that the GPU has not got yet.
    #[cfg(feature = "gpu")]
    written: Vec<Value>,
}

impl Run {
    /// Memory for this program at its full capacity, on the CPU.
    ///
    /// # Errors
    /// [`Error::Memory`](crate::Error::Memory) where the system has too little.
    pub fn new(program: Arc<Program>) -> Result<Self> {
        let buffers = program.buffers.iter().map(|bytes| Buffer::zeroed(*bytes)).collect::<Result<_>>()?;
        Ok(Self {
            program,
            buffers,
            rows: 0,
            epoch: 0,
            #[cfg(feature = "gpu")]
            device_memory: None,
            #[cfg(feature = "gpu")]
            written: Vec::new(),
        })
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
        let buffer = self.buffer_to_write(value);
        &mut self.buffers[buffer].as_mut_slice::<T>()[..len]
    }

    /// The indices of a value the caller fills.
    pub fn write_indices(&mut self, value: Value) -> &mut [i32] {
        let len = self.program.value(value).len(self.rows);
        let buffer = self.buffer_to_write(value);
        &mut self.buffers[buffer].as_mut_slice::<i32>()[..len]
    }

    /// The indices of a value.
    pub fn read_indices(&self, value: Value) -> &[i32] {
        let len = self.program.value(value).len(self.rows);
        &self.buffers[self.buffer_of(value)].as_slice::<i32>()[..len]
    }

    /// The buffer of a value that is about to be written here.
    fn buffer_to_write(&mut self, value: Value) -> usize {
        #[cfg(feature = "gpu")]
        if self.device_memory.is_some() {
            if !self.written.contains(&value) {
                self.written.push(value);
            }
            return self.host_buffer(value);
        }
        self.buffer_of(value)
    }
}

#[cfg(feature = "gpu")]
mod on_gpu {
    use super::Run;
    use crate::Result;
    use crate::cpu::Access;
    use crate::gpu::{Gpu, Memory, execute};
    use crate::ops::StepValues;
    use crate::program::{Phase, Program, Value};
    use crate::tensor::Buffer;
    use std::ops::RangeInclusive;
    use std::sync::Arc;

    impl Run {
        /// Memory for this program at its full capacity, on a GPU.
        pub(crate) fn on_gpu(program: Arc<Program>, gpu: Arc<Gpu>) -> Result<Self> {
            let memory = Memory::new(gpu, &program)?;
            Ok(Self {
                buffers: vec![Buffer::default(); program.buffers.len()],
                program,
                rows: 0,
                epoch: 0,
                device_memory: Some(Box::new(memory)),
                written: Vec::new(),
            })
        }

        /// The values on the GPU, where the run is on one.
        pub(crate) fn device_memory(&self) -> Option<&Memory> {
            self.device_memory.as_deref()
        }

        /// The values on the GPU with the program, where the run is on one; what the caller has
        /// written is there.
        pub(crate) fn on_device(&mut self) -> Result<Option<(&mut Memory, &Arc<Program>)>> {
            self.send_written()?;
            Ok(self.device_memory.as_deref_mut().map(|memory| (memory, &self.program)))
        }

        /// The host's buffer of a value, made when first needed.
        pub(super) fn host_buffer(&mut self, value: Value) -> usize {
            let buffer = self.buffer_of(value);
            let bytes = self.program.buffers[buffer];
            if self.buffers[buffer].len_bytes() < bytes {
                self.buffers[buffer] = Buffer::working::<u8>(bytes);
            }
            buffer
        }

        fn send_written(&mut self) -> Result<()> {
            for value in std::mem::take(&mut self.written) {
                let len = self.program.value(value).len(self.rows) * 4;
                let buffer = self.buffer_of(value);
                if let Some(memory) = &self.device_memory {
                    memory.upload(&self.program, self.rows, value, &self.buffers[buffer].bytes()[..len])?;
                }
            }
            Ok(())
        }

        pub(crate) fn execute_on_gpu(
            &mut self,
            access: Access<'_>,
            phases: RangeInclusive<Phase>,
            values: &StepValues,
        ) -> Result<()> {
            let rows = self.rows;
            match self.on_device()? {
                Some((memory, program)) => execute(memory, program, rows, access, phases, values),
                None => Ok(()),
            }
        }

        pub(crate) fn fetch_from_gpu(&mut self, values: &[Value]) -> Result<()> {
            let mut taken: Vec<(usize, Value, Buffer)> = Vec::with_capacity(values.len());
            for &value in values {
                let buffer = self.host_buffer(value);
                // One buffer may back several names for the same memory.
                if !taken.iter().any(|(number, ..)| *number == buffer) {
                    taken.push((buffer, value, std::mem::take(&mut self.buffers[buffer])));
                }
            }
            let outcome = match &self.device_memory {
                None => Ok(()),
                Some(memory) => {
                    let mut parts: Vec<(Value, &mut [u8])> = taken
                        .iter_mut()
                        .map(|(_, value, buffer)| {
                            let len = self.program.value(*value).len(self.rows) * 4;
                            (*value, &mut buffer.bytes_mut()[..len])
                        })
                        .collect();
                    memory.download(&self.program, self.rows, &mut parts)
                }
            };
            for (number, _, buffer) in taken {
                self.buffers[number] = buffer;
            }
            outcome
        }
    }
}

//! What runs programs, over the host's memory or with memory of its own, and one execution of a program on it.

use super::access::Access;
use super::frames::{FrameStep, FrameTick, Outcomes, Resident};
use super::{Kind, Phase, Place, Program, Step, Value};
use crate::ops::{StepValues, View, part};
use crate::shader::Accelerator;
use crate::simd::Real;
use crate::state::{Carried, Mirror, Registry};
use crate::tensor::Buffer;
use crate::{Error, Result};
use std::any::Any;
use std::fmt::Debug;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

/// Runs programs. Networks, layers and trainers know nothing else of a device.
///
/// An engine over the host's memory need only name itself and [`execute`](Self::execute). One with memory
/// of its own also leases it to runs, [`read`](RunMemory::download)s them back, mirrors what persists,
/// which is [synchronized](Mirror::synchronize) when somebody looks, and may take many steps in one frame.
pub trait Engine: Any + Debug + Send + Sync {
    /// What users call it, such as `cpu` or `gpu:0`.
    fn name(&self) -> String;

    /// Whether it can run a step; asked when a run of the step's program is made.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) saying what to do instead.
    fn supports(&self, step: &Step) -> Result<()> {
        let _ = step;
        Ok(())
    }

    /// Whether it has gone away.
    fn is_lost(&self) -> bool {
        false
    }

    /// Its own memory, where it has such.
    fn accelerator(&self) -> Option<Arc<dyn Accelerator>> {
        None
    }

    /// Room for copies of a network's registry, where it has memory of its own.
    fn mirror(&self) -> Option<Box<dyn Mirror>> {
        None
    }

    /// Memory for one execution of a program at its full capacity; `None` where that is the host's.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) where there is too little.
    fn lease(&self, program: &Program) -> Result<Option<Box<dyn RunMemory>>> {
        let _ = program;
        Ok(None)
    }

    /// Runs the steps of these phases, in order.
    ///
    /// # Errors
    /// What a step refuses; [`Error::Device`](crate::Error::Device) where a device fails.
    fn execute(
        &self,
        run: &mut Run,
        access: Access<'_>,
        phases: RangeInclusive<Phase>,
        values: &StepValues,
    ) -> Result<()>;

    /// What takes many steps at once, where the engine does.
    fn frames(&self) -> Option<&dyn Frames> {
        None
    }
}

/// One run's values in an engine's memory.
pub trait RunMemory: Any + Debug + Send + Sync {
    /// Copies a value's elements there.
    ///
    /// # Errors
    /// [`Error::Internal`](crate::Error::Internal) for a value that has no memory of its own.
    fn upload(&self, program: &Program, rows: usize, value: Value, bytes: &[u8]) -> Result<()>;

    /// Reads values back, each into its bytes.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) where the device was lost.
    fn download(&self, program: &Program, rows: usize, values: &mut [(Value, &mut [u8])]) -> Result<()>;
}

/// Runs many steps in one frame.
pub trait Frames {
    /// Copies whole arrays of 32-bit elements: inputs, targets, and weights if any. `None` where one
    /// is larger than kernels can see, or all together than the device has memory for.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) where the device was lost.
    fn resident(&self, rows: usize, arrays: &[&[u8]]) -> Result<Option<Box<dyn Resident>>>;

    /// Runs training steps one after another and waits for their outcomes.
    ///
    /// `resident` are examples that the engine holds with the rows of them that the steps take; without them
    /// the batch is in the run already, and there is one step. `kept` keeps that many elements of each
    /// step's output. With `halts`, a step that is not finite ends the frame; otherwise only that
    /// step is left out. In mixed precision, such a step is left out and halves the loss scale while that
    /// is above 1, whatever `halts` says.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) where the device cannot run a step or was lost.
    fn train(
        &self,
        run: &mut Run,
        registry: &mut Registry,
        steps: &[FrameStep],
        resident: Option<(&dyn Resident, &[u32])>,
        kept: Option<usize>,
        halts: bool,
    ) -> Result<Outcomes>;

    /// Runs a program once for each of these ticks, without waiting for them to end.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) where the device cannot run a step, naming the layer.
    fn ticks(
        &self,
        run: &mut Run,
        registry: &mut Registry,
        phases: RangeInclusive<Phase>,
        ticks: &[FrameTick],
    ) -> Result<()>;

    /// Runs these phases once for each of these values, each over what the one before has left of what is carried.
    ///
    /// # Errors
    /// As [`Engine::execute`].
    fn follow(
        &self,
        run: &mut Run,
        registry: &Registry,
        carried: &mut Carried,
        phases: RangeInclusive<Phase>,
        values: &[StepValues],
    ) -> Result<()>;
}

/// Whether both compute in the same memory.
pub(crate) fn is_same(one: &Arc<dyn Engine>, other: &Arc<dyn Engine>) -> bool {
    match (one.accelerator(), other.accelerator()) {
        (Some(one), Some(other)) => Arc::ptr_eq(&one, &other),
        (None, None) => Arc::ptr_eq(one, other),
        _ => false,
    }
}

/// Where engines of one kind come from.
pub trait Provider: Sync {
    /// What their names begin with: `gpu` for `gpu`, `gpu:0`, `gpu:1`.
    fn kind(&self) -> &'static str;

    /// The engine of this number.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) for one that is not there, saying what is and what to install.
    fn open(&self, index: usize) -> Result<Arc<dyn Engine>>;

    /// The number of the first that is hardware.
    fn first_hardware(&self) -> Option<usize>;
}

/// One program's buffers with the number of rows they hold now.
///
/// Where the engine has memory of its own, the buffers here hold only what the caller writes and fetches.
#[derive(Debug)]
pub struct Run {
    pub(crate) program: Arc<Program>,
    pub(crate) buffers: Vec<Buffer>,
    /// Rows of the batch in the buffers.
    pub rows: usize,
    /// The registry's epoch at the forward pass, to refuse a backward pass over moved weights.
    pub(crate) epoch: u64,
    /// The steps that [`execute`](Self::execute) is about, by number; all where `None`.
    pub(crate) part: Option<Range<usize>>,
    /// Whether what is executed is fetched at once, so that a device may be told of both together.
    pub(crate) fetches: bool,
    /// The registry's epoch when what is made of parameters alone was made.
    prepared: Option<u64>,
    engine: Arc<dyn Engine>,
    /// The values, where the engine has memory of its own.
    memory: Option<Box<dyn RunMemory>>,
    /// Values written by the caller that the engine has not got yet.
    written: Vec<Value>,
}

impl Run {
    /// Memory for this program at its full capacity, on this engine.
    ///
    /// # Errors
    /// [`Error::Memory`](crate::Error::Memory) where the system has too little, [`Error::Device`] where the
    /// engine has, or where it cannot run a step, naming the layer.
    pub fn new(engine: Arc<dyn Engine>, program: Arc<Program>) -> Result<Self> {
        for step in &program.steps {
            engine.supports(step).map_err(|error| at_step(step, error))?;
        }
        let memory = engine.lease(&program)?;
        let buffers = match &memory {
            Some(_) => vec![Buffer::default(); program.buffers.len()],
            None => program.buffers.iter().map(|bytes| Buffer::zeroed(*bytes)).collect::<Result<_>>()?,
        };
        let (part, prepared, written) = (None, None, Vec::new());
        let fetches = false;
        Ok(Self { program, buffers, rows: 0, epoch: 0, part, fetches, prepared, engine, memory, written })
    }

    /// The program this run is of.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// The engine that the run is on.
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    /// Runs the steps of these phases, in order, on the run's engine; before those of [`Phase::Forward`], where parameters
    /// have moved, what is made of these alone.
    ///
    /// # Errors
    /// What a step refuses; [`Error::Device`] where a device fails.
    pub fn execute(
        &mut self,
        access: Access<'_>,
        phases: RangeInclusive<Phase>,
        values: &StepValues,
    ) -> Result<()> {
        let outdated = self.outdated(access.get(), *phases.start());
        let first = if outdated.is_some() { Phase::Prepare } else { *phases.start() };
        self.engine.clone().execute(self, access, first..=*phases.end(), values)?;
        self.prepared = outdated.or(self.prepared);
        Ok(())
    }

    /// [`execute`](Self::execute), and then [`fetch`](Self::fetch) of these values, in one submit where a device has little to do.
    ///
    /// # Errors
    /// As both.
    pub(crate) fn execute_and_fetch(
        &mut self,
        access: Access<'_>,
        phases: RangeInclusive<Phase>,
        values: &StepValues,
        wanted: &[Value],
    ) -> Result<()> {
        self.fetches = true;
        let outcome = self.execute(access, phases, values);
        self.fetches = false;
        outcome?;
        self.fetch(wanted)
    }

    /// The epoch of the parameters, where what is made of them alone is to be made before this phase.
    fn outdated(&self, registry: &Registry, before: Phase) -> Option<u64> {
        let asked = before <= Phase::Forward && self.program.prepares();
        asked.then(|| registry.epoch()).filter(|epoch| self.prepared != Some(*epoch))
    }

    /// [`execute`](Self::execute) of those steps alone whose numbers are in this range.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub(crate) fn execute_part(
        &mut self,
        access: Access<'_>,
        phases: RangeInclusive<Phase>,
        values: &StepValues,
        part: Range<usize>,
    ) -> Result<()> {
        self.part = Some(part);
        let outcome = self.execute(access, phases, values);
        self.part = None;
        outcome
    }

    /// The numbers of the steps that are to be executed.
    pub(crate) fn chosen(&self) -> Range<usize> {
        self.part.clone().unwrap_or(0..self.program.steps.len())
    }

    /// Runs these phases once for each of these values, each over what the one before has left of what is carried;
    /// in one frame where the engine takes several steps so.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub(crate) fn follow(
        &mut self,
        registry: &Registry,
        carried: &mut Carried,
        phases: RangeInclusive<Phase>,
        values: &[StepValues],
    ) -> Result<()> {
        let engine = self.engine.clone();
        let Some(frames) = engine.frames() else {
            for values in values {
                self.execute(Access::Session(registry, carried), phases.clone(), values)?;
            }
            return Ok(());
        };
        if let (Some(epoch), Some(first)) = (self.outdated(registry, *phases.start()), values.first()) {
            let access = Access::Session(registry, carried);
            engine.execute(self, access, Phase::Prepare..=Phase::Prepare, first)?;
            self.prepared = Some(epoch);
        }
        frames.follow(self, registry, carried, phases, values)
    }

    /// Whether its values are in memory of the engine's own, to be fetched before they can be read.
    pub fn is_remote(&self) -> bool {
        self.memory.is_some()
    }

    /// The values in the engine's own memory, which is of this type, with the program; what the caller has
    /// written is there.
    ///
    /// # Errors
    /// [`Error::Internal`] for a run of another engine.
    pub fn remote<M: RunMemory>(&mut self) -> Result<(&mut M, &Arc<Program>)> {
        self.send_written()?;
        let memory = self.memory.as_deref_mut().map(|memory| memory as &mut dyn Any);
        match memory.and_then(<dyn Any>::downcast_mut) {
            Some(memory) => Ok((memory, &self.program)),
            None => Err(Error::Internal("a run came to an engine that it is not on".into())),
        }
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
        if self.memory.is_none() {
            return self.buffer_of(value);
        }
        if !self.written.contains(&value) {
            self.written.push(value);
        }
        self.host_buffer(value)
    }

    /// The host's buffer of a value, made when first needed.
    fn host_buffer(&mut self, value: Value) -> usize {
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
            if let Some(memory) = &self.memory {
                memory.upload(&self.program, self.rows, value, &self.buffers[buffer].bytes()[..len])?;
            }
        }
        Ok(())
    }

    /// Makes these values readable: reads them back from memory of the engine's own; in the host's they
    /// already are.
    ///
    /// # Errors
    /// [`Error::Device`] where a device fails.
    pub fn fetch(&mut self, values: &[Value]) -> Result<()> {
        if self.memory.is_none() {
            return Ok(());
        }
        let mut taken: Vec<(usize, Value, Buffer)> = Vec::with_capacity(values.len());
        for &value in values {
            let buffer = self.host_buffer(value);
            // One buffer may back several names for the same memory.
            if !taken.iter().any(|(number, ..)| *number == buffer) {
                taken.push((buffer, value, std::mem::take(&mut self.buffers[buffer])));
            }
        }
        let outcome = match &self.memory {
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

/// An engine's refusal of a step, with the layer that it belongs to.
fn at_step(step: &Step, error: Error) -> Error {
    match (&step.at, error) {
        (Some(path), Error::Device(message)) => {
            Error::Device(format!("layer {path}, {}: {message}", step.op))
        }
        (_, error) => error,
    }
}

/// An operand's bytes, wherever they are.
pub(crate) fn resolve<'a, T: Real>(
    program: &Program,
    value: Value,
    run: &'a Run,
    access: &'a Access<'_>,
) -> Result<View<'a>> {
    let registry = access.get();
    let info = program.value(value);
    let bytes = match program.value(program.owner(value)).place {
        Place::Buffer(buffer) => {
            let size = match info.kind {
                Kind::Real => size_of::<T>(),
                Kind::Index => size_of::<i32>(),
            };
            &run.buffers[buffer].bytes()[..info.len(run.rows) * size]
        }
        Place::Master(parameter) => registry.stores[parameter.store].float_bytes(parameter.parameter)?,
        Place::Gradient(parameter) => {
            let (offset, len) = registry.extent(parameter);
            part::<T>(&registry.gradients[parameter.store], offset, len)
        }
        Place::Moment { store, slot } => registry.moments[store][slot].bytes(),
        Place::State(number) => registry.states[number].content.bytes(),
        Place::Carried(number) => {
            let carried =
                access.carried().ok_or_else(|| Error::Internal("nothing is carried by this call".into()))?;
            &carried.buffers[number].bytes()[..info.len(carried.rows_of(run.rows)) * size_of::<T>()]
        }
        Place::Ring { member, age } => {
            let part = match access {
                Access::Part(_, parts) => parts.iter().find(|part| part.holds(Place::Ring { member, age })),
                _ => None,
            };
            let buffer = match (part, &registry.ring) {
                (Some(part), _) => &part.buffer,
                (None, Some(ring)) => ring.buffer(member, age),
                (None, None) => return Err(Error::Internal("a program of ticks ran without a ring".into())),
            };
            &buffer.bytes()[..info.len(run.rows) * size_of::<T>()]
        }
        Place::Version(parameter, dtype) => {
            let index = parameter
                .parameter
                .ok_or_else(|| Error::Internal("a version is read parameter by parameter".into()))?;
            let (packing, bytes, scales) = registry.stores[parameter.store].version(dtype, index)?;
            return Ok(View { bytes, packed: Some(packing), scales });
        }
        Place::Alias(_) => unreachable!("owners are no aliases"),
    };
    Ok(View { bytes, ..View::default() })
}

//! A run's values on the device, and the dispatches recorded over them.

use super::Gpu;
use super::dispatch::Dispatch;
use super::frame::{Frame, new_table};
use super::mirror::Mirror;
use super::steps::{CONTROL_WORDS, STEP_BYTES};
use super::temporaries::Temporaries;
use super::unsent::{Outbox, Unsent};
use crate::ops::RowPlace;
use crate::program::{Kind, Phase, Program, RunMemory, Sharing, Value, ValueInfo};
use crate::shader::product::{MOST_GROUPED_ROWS, MOST_STREAMED_ROWS};
use crate::shader::{Allocation, Operand};
use crate::state::{Carried, Registry};
use crate::{Error, Result};
use std::ops::{Range, RangeInclusive};
use std::sync::{Arc, Mutex, PoisonError};

/// The most rows of products that an adapter in software makes together: starting a kernel costs it nothing, and its
/// compiler takes half a minute and gigabytes over eight rows of three products.
const SOFTWARE_ROWS: usize = 2;

/// Elements of small values that hardware can hold beside each other. One in software runs no two kernels at once.
const PLENTY: usize = 1 << 29;

/// What outlives a run, as dispatches find it.
#[derive(Clone, Copy)]
pub(super) struct Stored<'a> {
    pub(super) registry: &'a Registry,
    /// What is carried from call to call, where this call carries anything.
    pub(super) carried: Option<&'a Carried>,
}

/// What tells recorded lists of one run apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListKey {
    pub(super) rows: usize,
    pub(super) gradients_zeroed: bool,
    pub(super) phases: RangeInclusive<Phase>,
    pub(super) part: Range<usize>,
    /// Where the ring stands, in programs of ticks.
    pub(super) turn: usize,
}

/// What tells recorded steps of training apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StepKey {
    /// Of this step, none where it only gathers the first batch of a frame.
    pub(super) rows: Option<usize>,
    /// Of the step after it, whose batch it gathers.
    pub(super) next: Option<usize>,
    /// Whether what is not finite halts it.
    pub(super) halts: bool,
    /// What it keeps for the caller, in elements.
    pub(super) keeps: [Option<usize>; 2],
    /// The memory of the examples that it gathers, by its number.
    pub(super) examples: Option<usize>,
}

/// Memory that steps of a frame leave something in for the caller.
#[derive(Clone, Copy, Debug)]
pub(super) enum Left {
    /// What they have come to.
    Outcomes,
    Outputs,
    Measures,
}

/// The most elements that steps leave in memory which is kept.
const MOST_LEFT: usize = 1 << 18;

/// The most lists kept: full and last batch, first and later contributions, parts of a step.
pub(super) const MAX_LISTS: usize = 64;

/// One run's values on a device.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(super) gpu: Arc<Gpu>,
    /// Which values share a buffer: barriers are per buffer, and values that share none can overlap.
    pub(super) sharing: Sharing,
    /// The buffer of each share.
    shares: Vec<Operand>,
    table: Allocation,
    table_group: wgpu::BindGroup,
    /// What the table holds.
    table_content: Vec<u8>,
    /// Where each row is, in programs of rows at places of their own.
    pub(super) row_places: Option<Operand>,
    pub(super) control: Operand,
    /// What the control holds, where no kernel has written it since.
    control_content: Option<[u32; CONTROL_WORDS]>,
    /// By what is [left](Left) there.
    left: [Option<Operand>; 3],
    /// What the next frame copies first.
    outbox: Mutex<Outbox>,
    /// What the next frame, or who fetches, goes on with.
    unsent: Mutex<Option<Unsent>>,
    pub(super) temporaries: Temporaries,
    pub(super) lists: Vec<(ListKey, Arc<Vec<Dispatch>>)>,
    steps: Vec<(StepKey, Arc<Vec<Dispatch>>)>,
    /// Which of the mirror's memory the lists were recorded over, and which memory of what is carried.
    generation: u64,
    carried: u64,
}

impl Memory {
    /// Memory for this program at its full capacity.
    ///
    /// # Errors
    /// [`Error::Device`] saying which values need how much where there is too little.
    pub(crate) fn new(gpu: Arc<Gpu>, program: &Program) -> Result<Self> {
        let plenty = if gpu.capabilities().software { 0 } else { PLENTY };
        let sharing = Sharing::new(program, most_joined_rows(&gpu, program), plenty);
        let mut shares = Vec::with_capacity(sharing.elements.len());
        for (elements, value) in sharing.elements.iter().zip(&sharing.largest) {
            let operand = Operand::allocate(&*gpu, program.value(*value).label, *elements);
            shares.push(operand.map_err(|error| needed(&gpu, program, &sharing, error))?);
        }
        let control = Operand::allocate(&*gpu, "control", CONTROL_WORDS)?;
        let (table, table_group) = new_table(&gpu, 1)?;
        Ok(Self {
            gpu,
            sharing,
            shares,
            table,
            table_group,
            table_content: Vec::new(),
            row_places: None,
            control,
            control_content: None,
            left: Default::default(),
            outbox: Mutex::default(),
            unsent: Mutex::default(),
            temporaries: Temporaries::default(),
            lists: Vec::new(),
            steps: Vec::new(),
            generation: 0,
            carried: 0,
        })
    }

    /// The device.
    pub(crate) fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// Makes the control hold this before kernels run that may write it, or that only read it where it is `kept`.
    pub(super) fn set_control(&mut self, content: [u32; CONTROL_WORDS], kept: bool) -> Result<()> {
        // Copies to a device cost more than a kernel of one row.
        if self.control_content.take() != Some(content) {
            self.send(self.control.clone(), bytemuck::cast_slice(&content))?;
        }
        self.control_content = kept.then_some(content);
        Ok(())
    }

    /// Has the next frame begin by copying these bytes.
    fn send(&self, to: Operand, bytes: &[u8]) -> Result<()> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner).put(&self.gpu, to, bytes)
    }

    /// What verdicts write and updates read.
    pub(super) fn control(&self) -> &Operand {
        &self.control
    }

    /// Where a frame's steps leave something, in so many elements: memory that is kept from frame to frame unless it
    /// is much, which is told, too.
    pub(super) fn left(&mut self, what: Left, elements: usize) -> Result<(Operand, bool)> {
        let label = match what {
            Left::Outcomes => "outcomes of steps",
            Left::Outputs => "kept outputs",
            Left::Measures => "kept measures",
        };
        if elements > MOST_LEFT {
            return Ok((Operand::allocate(&*self.gpu, label, elements)?, false));
        }
        let held = match self.left[what as usize].take() {
            Some(held) if held.elements >= elements => held,
            _ => {
                // Recorded over what there was.
                self.steps.clear();
                Operand::allocate(&*self.gpu, label, elements.next_power_of_two())?
            }
        };
        self.left[what as usize] = Some(held.clone());
        Ok((held, true))
    }

    /// A frame whose kernels read the table, behind what was sent and held back before it.
    ///
    /// # Errors
    /// [`Error::Device`] where the device was lost or is out of memory.
    pub(super) fn frame(&self) -> Result<Frame<'_>> {
        Ok(Frame::begin(&self.gpu, &self.table_group).after(self.unsent()?))
    }

    /// What is to come before anything else: what was held back, and copies of what was sent.
    fn unsent(&self) -> Result<Option<Unsent>> {
        let sent = self.outbox.lock().unwrap_or_else(PoisonError::into_inner).empty(&self.gpu)?;
        let mut unsent = self.unsent.lock().unwrap_or_else(PoisonError::into_inner).take();
        for sent in sent {
            unsent.get_or_insert_with(|| Unsent::new(&self.gpu)).copy(sent);
        }
        Ok(unsent)
    }

    /// Holds commands back for who fetches what they make.
    pub(super) fn hold_back(&self, unsent: Option<Unsent>) {
        *self.unsent.lock().unwrap_or_else(PoisonError::into_inner) = unsent;
    }

    /// Makes the table hold these entries.
    pub(super) fn set_table(&mut self, entries: &[u8]) -> Result<()> {
        if entries.len() as u64 > self.table.size() {
            let steps = (entries.len() / STEP_BYTES).next_power_of_two();
            (self.table, self.table_group) = new_table(&self.gpu, steps)?;
            self.table_content.clear();
        }
        if self.table_content != entries {
            self.table_content.clear();
            self.send(Operand::new(&self.table, 0, entries.len() / 4), entries)?;
            self.table_content.extend_from_slice(entries);
        }
        Ok(())
    }

    /// Makes this known of where rows are, before kernels run that read it.
    pub(super) fn set_row_places(&mut self, places: &[RowPlace]) -> Result<()> {
        if places.is_empty() {
            return Ok(());
        }
        let words: Vec<u32> =
            places.iter().flat_map(|place| [place.sequence as u32, place.position as u32]).collect();
        let held = match self.row_places.take() {
            Some(held) if held.elements >= words.len() => held,
            _ => {
                // Recorded over what there was.
                self.lists.clear();
                Operand::allocate(&*self.gpu, "places of rows", words.len())?
            }
        };
        self.send(held.clone(), bytemuck::cast_slice(&words))?;
        self.row_places = Some(held);
        Ok(())
    }

    /// A value that is not stored in the registry, for the rows there are.
    pub(crate) fn value(&self, program: &Program, value: Value, rows: usize) -> Result<Operand> {
        let share = self.sharing.of(program.owner(value)).and_then(|share| self.shares.get(share));
        let mut operand = share.cloned().ok_or_else(|| {
            Error::Internal(format!("value {} has no memory of its own", program.value(value).label))
        })?;
        operand.elements = program.value(value).len(rows);
        Ok(operand)
    }

    /// Brings what is stored up to date, and forgets what was recorded over memory that is no longer there.
    pub(super) fn prepare(
        &mut self,
        program: &Program,
        Stored { registry, carried }: Stored<'_>,
        mirror: &mut Mirror,
    ) -> Result<()> {
        mirror.prepare(program, registry)?;
        let carried = carried.map_or(0, Carried::id);
        if self.generation != mirror.generation() || self.carried != carried {
            self.lists.clear();
            self.steps.clear();
            self.generation = mirror.generation();
            self.carried = carried;
        }
        Ok(())
    }

    /// What was recorded for a step of training, since memory was last [prepared](Self::prepare).
    pub(super) fn step(&self, key: StepKey) -> Option<Arc<Vec<Dispatch>>> {
        self.steps.iter().find(|(known, _)| *known == key).map(|(_, list)| list.clone())
    }

    /// Keeps it, and none over other examples: those could not be let go of.
    pub(super) fn keep_step(&mut self, key: StepKey, list: &Arc<Vec<Dispatch>>) {
        let others = |(known, _): &(StepKey, _)| known.examples == key.examples;
        self.steps.retain(others);
        if self.steps.len() >= MAX_LISTS {
            self.steps.clear();
        }
        self.steps.push((key, list.clone()));
    }
}

impl RunMemory for Memory {
    fn download(&self, program: &Program, rows: usize, values: &mut [(Value, &mut [u8])]) -> Result<()> {
        let mut parts = Vec::with_capacity(values.len());
        for (value, bytes) in values.iter_mut() {
            parts.push((self.value(program, *value, rows)?, &mut **bytes));
        }
        self.gpu.download_after(self.unsent()?, &mut parts)
    }

    fn upload(&self, program: &Program, rows: usize, value: Value, bytes: &[u8]) -> Result<()> {
        let operand = self.value(program, value, rows)?;
        debug_assert!(matches!(program.value(value).kind, Kind::Real | Kind::Index));
        self.send(operand, bytes)
    }
}

/// What a program needs, behind the error of a device that does not have it.
fn needed(gpu: &Gpu, program: &Program, sharing: &Sharing, error: Error) -> Error {
    let Error::Device(message) = error else { return error };
    if gpu.is_lost() {
        return Error::Device(message);
    }
    let mut values: Vec<(usize, &ValueInfo)> = sharing
        .elements
        .iter()
        .map(|elements| elements * 4)
        .zip(sharing.largest.iter().map(|value| program.value(*value)))
        .collect();
    values.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    let mib = |bytes: usize| bytes as f64 / 1048576.0;
    let largest: Vec<String> = values
        .iter()
        .take(5)
        .map(|(bytes, info)| format!("{} {} {:.1} MiB", info.label, info.shape, mib(*bytes)))
        .collect();
    Error::Device(format!(
        "{message}; {} rows at a time need {:.1} MiB beside the weights, of them {}; a smaller batch_size needs \
         less, and with accumulate= learns as the large one",
        program.capacity,
        mib(values.iter().map(|(bytes, _)| bytes).sum()),
        largest.join(", ")
    ))
}

/// The most rows of products that the device makes together.
pub(super) fn most_joined_rows(gpu: &Gpu, program: &Program) -> usize {
    // A step of training has so few rows that its products are worth joining, or other things to do.
    let infers = program.steps.iter().all(|step| step.phase <= Phase::Forward);
    match (gpu.capabilities().software, infers) {
        (true, _) => SOFTWARE_ROWS,
        (false, true) => MOST_GROUPED_ROWS,
        (false, false) => MOST_STREAMED_ROWS,
    }
}

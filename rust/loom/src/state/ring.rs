//! What the layers of a mesh have held at its last ticks: rings of buffers that turn instead of being copied.

use crate::shader::{Accelerator, Allocation, OFFSET_ELEMENTS, Operand};
use crate::tensor::{Buffer, Precision, Shape};
use crate::{Result, extents};
use std::ops::Range;
use std::sync::Arc;

/// One thing that is kept for several ticks, one `shape` a row.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// One row's extents.
    pub(crate) shape: Shape,
    /// For how many ticks; a divisor of the ring's turns.
    pub(crate) slots: usize,
}

/// Members with their memory, all zero at first.
#[derive(Debug)]
pub struct Ring {
    members: Vec<Member>,
    rows: usize,
    /// Bytes of one element.
    element: usize,
    /// The tick that programs are run for.
    pub(crate) clock: u64,
    /// After how many ticks all members are back where they were.
    turns: usize,
    /// On the processor: each member's slots.
    buffers: Vec<Vec<Buffer>>,
    /// On the device that the network was on when this was made, where that has memory of its own.
    on_device: Option<OnDevice>,
}

/// A device with the slots there.
#[derive(Debug)]
struct OnDevice {
    device: Arc<dyn Accelerator>,
    /// Where each member's slots lie, with the bytes before them.
    slots: Vec<Vec<(Allocation, u64)>>,
}

/// Bytes that members have in common at most: their memory is found, whatever else there is on a device.
const MOST_TOGETHER: usize = 1 << 24;

impl OnDevice {
    /// Memory for so many slots of members of so many bytes each, of which those of one slot lie side by side.
    ///
    /// Who runs many kernels looks after each buffer that these use, and takes longer over that than small kernels do.
    fn add(&mut self, bytes: &[usize], slots: usize) -> Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let mut places = Vec::new();
            let mut end = 0;
            for bytes in rest {
                let start = end;
                end = (start + bytes).next_multiple_of(4 * OFFSET_ELEMENTS);
                if end > MOST_TOGETHER && !places.is_empty() {
                    break;
                }
                places.push((start, *bytes));
            }
            let whole = places.last().map_or(0, |(start, bytes)| start + bytes);
            let slot = |_| self.device.storage("what layers held at a tick", whole as u64);
            let held: Vec<Allocation> = (0..slots).map(slot).collect::<Result<_>>()?;
            for (start, _) in &places {
                self.slots.push(held.iter().map(|held| (held.clone(), *start as u64)).collect());
            }
            rest = &rest[places.len()..];
        }
        Ok(())
    }
}

impl Ring {
    /// Memory for `rows` rows, on a device with memory of its own if one is given; every member's slots divide `turns`.
    ///
    /// Members that are `together` have as many slots as each other, and no kernel reads one of them of a tick and writes
    /// another one of the same tick.
    pub(crate) fn new(
        members: Vec<Member>,
        together: Range<usize>,
        rows: usize,
        turns: usize,
        precision: Precision,
        device: Option<&Arc<dyn Accelerator>>,
    ) -> Result<Self> {
        let mut ring = Self {
            members: Vec::with_capacity(members.len()),
            rows,
            element: precision.size(),
            clock: 0,
            turns,
            buffers: Vec::new(),
            on_device: device.map(|device| OnDevice { device: device.clone(), slots: Vec::new() }),
        };
        let mut next = 0;
        while next < members.len() {
            let end = if next == together.start { together.end.max(next + 1) } else { next + 1 };
            ring.add_all(&members[next..end])?;
            next = end;
        }
        Ok(ring)
    }

    /// Adds a member, all zero, and returns its number.
    pub(crate) fn add(&mut self, member: Member) -> Result<usize> {
        let number = self.members.len();
        self.add_all(&[member])?;
        Ok(number)
    }

    /// Adds members of the same number of slots, all zero.
    fn add_all(&mut self, members: &[Member]) -> Result<()> {
        let first = self.members.len();
        let slots = members.first().map_or(1, |member| member.slots);
        debug_assert!(members.iter().all(|member| member.slots == slots) && self.turns.is_multiple_of(slots));
        let bytes = members
            .iter()
            .map(|member| extents::bytes("what a layer holds", self.rows, member.shape.len(), self.element));
        let bytes: Vec<usize> = bytes.collect::<Result<_>>()?;
        self.members.extend_from_slice(members);
        if let Some(memory) = &mut self.on_device {
            memory.add(&bytes, slots)?;
            for number in first..self.members.len() {
                (0..slots).for_each(|age| self.clear(number, age));
            }
            return Ok(());
        }
        for bytes in bytes {
            self.buffers.push((0..slots).map(|_| Buffer::zeroed(bytes)).collect::<Result<_>>()?);
        }
        Ok(())
    }

    /// Bytes of one slot of a member.
    pub(crate) fn bytes(&self, member: usize) -> usize {
        self.members[member].shape.len() * self.rows * self.element
    }

    /// One row's extents of a member.
    pub(crate) fn shape(&self, member: usize) -> &Shape {
        &self.members[member].shape
    }

    /// After how many ticks all members are back where they were.
    pub fn turns(&self) -> usize {
        self.turns
    }

    /// Which of its turns the ring is at.
    pub fn turn(&self) -> usize {
        (self.clock % self.turns as u64) as usize
    }

    /// Where a member's content of this age is.
    pub(crate) fn slot(&self, member: usize, age: usize) -> usize {
        let slots = self.members[member].slots;
        // The clock's turns are whole ones of every member, so nothing falls below zero.
        ((self.clock % self.turns as u64) as usize + self.turns * (1 + age / self.turns) - age) % slots
    }

    /// A member's content of this age, on the processor.
    pub(crate) fn buffer(&self, member: usize, age: usize) -> &Buffer {
        &self.buffers[member][self.slot(member, age)]
    }

    /// A member's content of this age, on the processor, to write.
    pub(crate) fn buffer_mut(&mut self, member: usize, age: usize) -> &mut Buffer {
        let slot = self.slot(member, age);
        &mut self.buffers[member][slot]
    }

    /// A member's memory of this age, of so many elements, on a device with memory of its own.
    pub fn operand(&self, member: usize, age: usize, elements: usize) -> Option<Operand> {
        let (allocation, before) = &self.on_device.as_ref()?.slots[member][self.slot(member, age)];
        Some(Operand::new(allocation, *before as usize / 4, elements))
    }

    /// Makes every element of a member's content of this age this value.
    pub(crate) fn fill(&mut self, member: usize, age: usize, value: f64) {
        let (single, double) = ((value as f32).to_ne_bytes(), value.to_ne_bytes());
        let element: &[u8] = if self.element == single.len() { &single } else { &double };
        self.upload(member, age, &element.repeat(self.bytes(member) / self.element));
    }

    /// Makes a member's content of this age zero.
    pub(crate) fn clear(&mut self, member: usize, age: usize) {
        if self.on_device.is_some() {
            let zeros = vec![0u8; self.bytes(member)];
            self.upload(member, age, &zeros);
            return;
        }
        self.buffer_mut(member, age).bytes_mut().fill(0);
    }

    /// Replaces a member's content of this age.
    pub(crate) fn upload(&mut self, member: usize, age: usize, bytes: &[u8]) {
        if let Some(memory) = &self.on_device {
            let (allocation, before) = &memory.slots[member][self.slot(member, age)];
            memory.device.upload(allocation, *before, bytes);
            return;
        }
        let len = bytes.len();
        self.buffer_mut(member, age).bytes_mut()[..len].copy_from_slice(bytes);
    }

    /// Copies a member's content of this age out.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) where it is on a GPU that was lost.
    pub(crate) fn download(&self, member: usize, age: usize) -> Result<Buffer> {
        let mut content = Buffer::zeroed(self.bytes(member))?;
        if let Some(memory) = &self.on_device {
            let (allocation, before) = &memory.slots[member][self.slot(member, age)];
            memory.device.read_back(allocation, *before, content.bytes_mut())?;
            return Ok(content);
        }
        content.bytes_mut().copy_from_slice(&self.buffer(member, age).bytes()[..self.bytes(member)]);
        Ok(content)
    }
}

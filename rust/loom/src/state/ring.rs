//! What the layers of a mesh have held at its last ticks: rings of buffers that turn instead of being copied.

use crate::shader::{Accelerator, Allocation};
use crate::tensor::{Buffer, Precision, Shape};
use crate::{Result, extents};
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
    allocations: Vec<Vec<Allocation>>,
}

impl Ring {
    /// Memory for `rows` rows, on a device with memory of its own if one is given; every member's slots divide `turns`.
    pub(crate) fn new(
        members: Vec<Member>,
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
            on_device: device.map(|device| OnDevice { device: device.clone(), allocations: Vec::new() }),
        };
        for member in members {
            ring.add(member)?;
        }
        Ok(ring)
    }

    /// Adds a member, all zero, and returns its number.
    pub(crate) fn add(&mut self, member: Member) -> Result<usize> {
        let number = self.members.len();
        let slots = member.slots;
        debug_assert!(self.turns.is_multiple_of(slots));
        let bytes = extents::bytes("what a layer holds", self.rows, member.shape.len(), self.element)?;
        self.members.push(member);
        if let Some(memory) = &mut self.on_device {
            let slot = |_| memory.device.storage("what a layer held at a tick", bytes as u64);
            let held = (0..slots).map(slot).collect::<Result<_>>()?;
            memory.allocations.push(held);
            (0..slots).for_each(|age| self.clear(number, age));
            return Ok(number);
        }
        self.buffers.push((0..slots).map(|_| Buffer::zeroed(bytes)).collect::<Result<_>>()?);
        Ok(number)
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

    /// A member's memory of this age, on a device with memory of its own.
    pub fn allocation(&self, member: usize, age: usize) -> Option<&Allocation> {
        let slot = self.slot(member, age);
        self.on_device.as_ref().map(|memory| &memory.allocations[member][slot])
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
            memory.device.upload(&memory.allocations[member][self.slot(member, age)], 0, bytes);
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
            let allocation = &memory.allocations[member][self.slot(member, age)];
            memory.device.read_back(allocation, content.bytes_mut())?;
            return Ok(content);
        }
        content.bytes_mut().copy_from_slice(&self.buffer(member, age).bytes()[..self.bytes(member)]);
        Ok(content)
    }
}

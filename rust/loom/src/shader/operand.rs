//! Parts of a device's memory, as kernels are handed them.

use super::accelerator::{Accelerator, Allocation};
use crate::dtype::{Granularity, Packing};
use crate::{Error, Result};

/// A contiguous part of a device's memory: real numbers (`f32`), indices (`i32`), or packed weights.
#[derive(Clone, Debug)]
pub struct Operand {
    allocation: Allocation,
    /// In bytes; a multiple of 256.
    offset: u64,
    /// How many elements there are.
    pub elements: usize,
    /// How packed weights are packed; `None` for 32-bit elements.
    pub packing: Option<Packing>,
    scales: Option<Box<Operand>>,
}

/// Offsets into memory are multiples of this many elements: what every adapter can bind at.
pub const OFFSET_ELEMENTS: usize = 64;

impl Operand {
    /// `elements` 32-bit elements of this memory, from element `offset` on.
    pub fn new(allocation: &Allocation, offset: usize, elements: usize) -> Self {
        let offset = offset as u64 * 4;
        Self { allocation: allocation.clone(), offset, elements, packing: None, scales: None }
    }

    /// Packed weights with their scales and how many there are.
    pub fn packed(bytes: &Allocation, packing: Packing, scales: Option<(&Allocation, usize)>) -> Self {
        let scales = scales.map(|(scales, count)| Box::new(Operand::new(scales, 0, count)));
        let elements = packing.elements();
        Self { allocation: bytes.clone(), offset: 0, elements, packing: Some(packing), scales }
    }

    /// One of no memory, for tests that look at a kernel's text alone.
    #[cfg(test)]
    pub(crate) fn unbound() -> Self {
        #[derive(Debug)]
        struct Nothing;
        impl super::accelerator::HeldMemory for Nothing {
            fn size(&self) -> u64 {
                0
            }
        }
        Self::new(&Allocation::new(std::sync::Arc::new(Nothing)), 0, 0)
    }

    /// New memory of this many 32-bit elements.
    ///
    /// # Errors
    /// As [`Accelerator::storage`].
    pub fn allocate(device: &dyn Accelerator, what: &str, elements: usize) -> Result<Self> {
        Ok(Self::new(&device.storage(what, elements as u64 * 4)?, 0, elements))
    }

    /// The scales of packed weights, where their type has them.
    pub fn scales(&self) -> Option<Operand> {
        self.scales.as_deref().cloned()
    }

    /// `count` elements from element `first` on, which is a multiple of 64, or of as many packed
    /// weights as make whole units of 256 bytes.
    ///
    /// # Errors
    /// [`Error::Internal`] for a part that cannot be bound.
    pub fn slice(&self, first: usize, count: usize) -> Result<Operand> {
        if first == 0 && count == self.elements {
            return Ok(self.clone());
        }
        let bytes = match self.packing {
            Some(packing)
                if packing.dtype.is_block_format()
                    || matches!(packing.granularity, Granularity::Block(_)) =>
            {
                return Err(Error::Device(format!(
                    "{} weights in {} with scales of blocks exceed what one binding of this device \
                     holds; use another numeric type, or the device \"cpu\"",
                    packing.elements(),
                    packing.dtype
                )));
            }
            Some(packing) => packing.dtype.storage_bytes(first),
            None => first * 4,
        };
        if !bytes.is_multiple_of(OFFSET_ELEMENTS * 4) || first + count > self.elements {
            return Err(Error::Internal(format!("{count} elements from {first} of {}", self.elements)));
        }
        Ok(Self { offset: self.offset + bytes as u64, elements: count, ..self.clone() })
    }

    /// Bytes that a kernel sees: whole units of 16.
    pub fn bytes(&self) -> u64 {
        let bytes = match self.packing {
            Some(packing) if self.elements == packing.elements() => packing.bytes() as u64,
            Some(packing) => packing.dtype.storage_bytes(self.elements) as u64,
            None => self.elements as u64 * 4,
        };
        // An empty operand cannot be bound; its kernel then has nothing to read.
        bytes.next_multiple_of(16).max(16).min(self.allocation.size() - self.offset)
    }

    /// The memory it is part of.
    pub fn allocation(&self) -> &Allocation {
        &self.allocation
    }

    /// The same part of other memory.
    pub fn moved(&self, to: &Allocation) -> Self {
        Self { allocation: to.clone(), ..self.clone() }
    }

    /// Bytes before it.
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

/// What an encode kernel reads and writes for one parameter.
#[derive(Clone, Debug)]
pub struct VersionOperands {
    /// How it is packed.
    pub packing: Packing,
    /// The parameter in full precision, (rows, channels).
    pub master: Operand,
    /// Its packed form, with its scales.
    pub packed: Operand,
}

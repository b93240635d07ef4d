//! A device with memory of its own, as far as operations and what persists know it.

use super::speeds::Speeds;
use crate::Result;
use std::any::Any;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

/// What kernels may count on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// 16-bit floats in kernels.
    pub float16: bool,
    /// Exchange within a subgroup.
    pub subgroups: bool,
    /// Threads of every subgroup; 0 where they differ, or cannot exchange anything.
    pub subgroup_threads: usize,
    /// 16x16 matrix products of 16-bit floats with 32-bit sums.
    pub cooperative_matrices: bool,
    /// Whether the adapter is software: small tiles then cost less than idle threads.
    pub software: bool,
    /// Bytes that the threads of a workgroup can share.
    pub workgroup_storage: usize,
    /// Threads in a workgroup, at most.
    pub workgroup_threads: usize,
    /// Bytes of a buffer that one kernel can see.
    pub max_binding: usize,
    /// Workgroups in one dimension of a dispatch.
    pub max_groups: usize,
    /// Workgroups of any kernel that certainly run at the same time, so that one may wait for another; 0 where
    /// nothing is known.
    pub concurrent_groups: usize,
    /// How fast it is.
    pub speeds: Speeds,
}

impl Capabilities {
    /// Whether mixed products can be made on matrix units.
    pub fn has_matrix_units(&self) -> bool {
        self.cooperative_matrices && self.float16 && self.subgroups
    }
}

/// A device that runs shaders over memory of its own.
pub trait Accelerator: Debug + Send + Sync {
    /// What it is, for messages.
    fn name(&self) -> String;

    /// What kernels may count on.
    fn capabilities(&self) -> Capabilities;

    /// New memory that kernels use, zeroed.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) saying how much was asked for, and for what, where there is
    /// not enough.
    fn storage(&self, what: &str, bytes: u64) -> Result<Allocation>;

    /// Copies bytes to the device; the call returns before they are there, and what is submitted
    /// later sees them.
    fn upload(&self, to: &Allocation, offset: u64, bytes: &[u8]);

    /// Copies bytes of a piece of memory, a multiple of 4 of them, to another part of it; what is submitted later sees
    /// them there.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) where the device was lost or is out of memory.
    fn copy_within(&self, memory: &Allocation, from: Range<usize>, to: usize) -> Result<()>;

    /// Reads a piece of memory back from byte `offset` on, a multiple of 256.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) where the device was lost or is out of memory.
    fn read_back(&self, from: &Allocation, offset: u64, bytes: &mut [u8]) -> Result<()>;
}

/// What an engine holds for a piece of its memory, and frees when it is dropped.
pub trait HeldMemory: Any + Debug + Send + Sync {
    /// Bytes, padding counted in.
    fn size(&self) -> u64;
}

/// Memory on a device, freed when its last holder lets go.
#[derive(Clone, Debug)]
pub struct Allocation(Arc<dyn HeldMemory>);

impl Allocation {
    /// What an engine holds.
    pub fn new(held: Arc<dyn HeldMemory>) -> Self {
        Self(held)
    }

    /// What the engine holds for it, where it is of this type.
    pub fn held<T: HeldMemory>(&self) -> Option<&T> {
        let held: &dyn Any = &*self.0;
        held.downcast_ref()
    }

    /// Bytes, padding counted in.
    pub fn size(&self) -> u64 {
        self.0.size()
    }

    /// Whether both are the same memory.
    pub fn is(&self, other: &Allocation) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// A number that no other memory has while this is held.
    pub fn number(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}

//! What runs programs: an engine over the host's memory, or one with memory of its own.

use super::access::Access;
use super::frames::Frames;
use super::run::Run;
use super::{Phase, Program, Step, Value};
use crate::Result;
use crate::ops::StepValues;
use crate::shader::Accelerator;
use crate::state::Mirror;
use std::any::Any;
use std::fmt::Debug;
use std::ops::RangeInclusive;
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

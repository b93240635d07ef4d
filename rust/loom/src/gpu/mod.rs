//! Runs programs on a GPU through wgpu: Vulkan, Metal or DX12, in command frames of one step or of many.
//!
//! ```text
//! adapter     which GPUs there are
//! device      one opened GPU: queue, memory, errors
//! kernel      WGSL text with its constants filled in, and the pipelines made of it
//! recorder    how an operation becomes dispatches
//! mirror      the registry's masters, versions, gradients and moments on the device
//! memory      a run's values on the device
//! frame       dispatches in order, submitted in ever longer parts while the rest is recorded; reading back
//! timer       how long frames and kernels take on the device
//! product     matrix products, as generators of WGSL
//! training    many training steps in one frame
//! ```

mod adapter;
mod device;
mod frame;
mod kernel;
mod memory;
mod mirror;
pub mod product;
mod recorder;
mod steps;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod timer;
mod training;

pub use adapter::{Adapter, AdapterList, adapters, release};
pub(crate) use device::Allocation;
pub use device::{Capabilities, Gpu};
pub use frame::FrameStatistics;
pub use kernel::{Kernel, Template};
pub use memory::Operand;
pub use mirror::VersionOperands;
pub use recorder::{Bind, BothGradients, GpuOperation, Recorder};
pub use timer::{KernelTime, Timing};

#[cfg(test)]
pub(crate) use adapter::open_another;
pub(crate) use adapter::{first_hardware, open};
pub(crate) use frame::{FrameTick, execute, execute_ticks, read_back};
pub(crate) use memory::{Memory, OFFSET_ELEMENTS};
pub(crate) use mirror::Mirror;
pub(crate) use training::{FrameStep, Outcome, Outcomes, Resident, train_frame};

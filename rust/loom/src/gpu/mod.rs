//! Runs programs on a GPU through wgpu: Vulkan, Metal or DX12, in command frames of one step or of many.
//!
//! ```text
//! adapter     which GPUs there are
//! device      one opened GPU: queue, memory, errors
//! engine      a GPU as what runs programs
//! pipeline    the pipelines made of WGSL text
//! dispatch    kernels with their operands bound, and their order
//! mirror      the registry's masters, versions, gradients and moments on the device
//! memory      a run's values on the device
//! frame       dispatches in order, submitted in ever longer parts while the rest is recorded; reading back
//! timer       how long frames and kernels take on the device
//! training    many training steps in one frame
//! ```

mod adapter;
#[doc(hidden)]
pub mod bench;
mod device;
mod dispatch;
mod engine;
mod frame;
mod memory;
mod mirror;
mod pipeline;
mod steps;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod timer;
mod training;

pub use adapter::{Adapter, AdapterList, adapters, release};
pub use device::Gpu;
pub use engine::{GpuEngine, Gpus};
pub use frame::FrameStatistics;
pub use timer::{KernelTime, Timing};

#[cfg(test)]
pub(crate) use adapter::open_another;
pub(crate) use adapter::{first_hardware, open};

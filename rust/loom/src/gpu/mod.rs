//! Runs programs on a GPU through wgpu: Vulkan, Metal or DX12, in command frames of one step or of many.
//!
//! ```text
//! adapter     what is known of a GPU
//! statistics  what is counted and measured of the work on one
//! device      one opened GPU: queue, memory, errors
//! faults      faults that tests have a device meet
//! system      the GPUs of this machine, and those that are open
//! download    reading back
//! staging     memory of the host that is kept for that
//! fetching    reading back, while the device goes on
//! sending     writing what a device takes later, by several threads
//! engine      a GPU as what runs programs
//! pipeline    the pipelines made of WGSL text
//! dispatch    kernels with their operands bound, and their order
//! leveling    after how many others each runs, and beside which
//! repeating   calls of one kernel side by side as one dispatch
//! mirror      the registry's masters, versions, gradients and moments on the device
//! temporaries memory for the temporary results of recorded lists
//! memory      a run's values on the device
//! listing     the steps of a program as a list of dispatches
//! frame       dispatches in order, submitted in ever longer parts while the rest is recorded
//! execute     phases of a program in one frame
//! timer       how long frames and kernels take on the device
//! wait        waiting for a device, with a limit
//! work        what is under way on one
//! training    many training steps in one frame
//! tuning      how fast one is, measured when it is first opened, and kept on disk
//! ```

mod adapter;
#[doc(hidden)]
pub mod bench;
mod device;
mod dispatch;
mod download;
mod engine;
mod execute;
mod faults;
mod fetching;
mod frame;
mod leveling;
mod listing;
mod memory;
mod mirror;
mod pipeline;
mod recording;
mod repeating;
mod sending;
mod staging;
mod statistics;
mod steps;
mod system;
mod temporaries;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod timer;
mod training;
mod tuning;
mod unsent;
mod wait;
mod work;

pub use adapter::{Adapter, AdapterList};
pub use device::Gpu;
pub use engine::{GpuEngine, Gpus};
pub use faults::Fault;
pub use statistics::{FrameStatistics, KernelTime, Timing};
pub use system::{adapters, release};

#[cfg(test)]
pub(crate) use system::open_another;
pub(crate) use system::{first_hardware, open};

//! The loop on a GPU.
use super::Recurrent;
use crate::gpu::GpuOperation;
impl GpuOperation for Recurrent {}

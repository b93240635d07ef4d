//! On a GPU.

use super::Encode;
use crate::gpu::GpuOperation;

impl GpuOperation for Encode {}

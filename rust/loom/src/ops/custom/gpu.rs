//! On a GPU.

use super::Custom;
use crate::gpu::GpuOperation;

impl GpuOperation for Custom {}

//! On a GPU.

use super::Loss;
use crate::gpu::GpuOperation;

impl GpuOperation for Loss {}

//! On a GPU.

use super::Sum;
use crate::gpu::GpuOperation;

impl GpuOperation for Sum {}

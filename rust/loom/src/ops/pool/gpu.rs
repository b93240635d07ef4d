//! On a GPU.

use super::Pool;
use crate::gpu::GpuOperation;

impl GpuOperation for Pool {}

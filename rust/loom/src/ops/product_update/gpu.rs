//! On a GPU.

use super::ProductUpdate;
use crate::gpu::GpuOperation;

impl GpuOperation for ProductUpdate {}

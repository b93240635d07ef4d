//! On a GPU.

use super::Update;
use crate::gpu::GpuOperation;

impl GpuOperation for Update {}

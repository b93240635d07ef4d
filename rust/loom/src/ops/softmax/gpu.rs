//! On a GPU.

use super::Softmax;
use crate::gpu::GpuOperation;

impl GpuOperation for Softmax {}

//! On a GPU.

use super::Convolution;
use crate::gpu::GpuOperation;

impl GpuOperation for Convolution {}

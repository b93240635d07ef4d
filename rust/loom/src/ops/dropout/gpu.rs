//! On a GPU.

use super::Dropout;
use crate::gpu::GpuOperation;

impl GpuOperation for Dropout {}

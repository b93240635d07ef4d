//! On a GPU.

use super::{BiasAdd, BiasGradient};
use crate::gpu::GpuOperation;

impl GpuOperation for BiasAdd {}

impl GpuOperation for BiasGradient {}

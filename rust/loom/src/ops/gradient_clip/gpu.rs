//! On a GPU.

use super::{ClampGradient, ClipFactor, ScaleGradient, SquaredSum};
use crate::gpu::GpuOperation;

impl GpuOperation for SquaredSum {}

impl GpuOperation for ClipFactor {}

impl GpuOperation for ScaleGradient {}

impl GpuOperation for ClampGradient {}

//! Attention on a GPU.

use super::{Attention, CacheAppend};
use crate::gpu::GpuOperation;

impl GpuOperation for Attention {}
impl GpuOperation for CacheAppend {}

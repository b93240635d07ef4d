//! On a GPU.

use super::Product;
use crate::gpu::GpuOperation;

impl GpuOperation for Product {}

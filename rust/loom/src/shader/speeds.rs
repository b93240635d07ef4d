//! How fast a device is, as far as the choice of kernels goes by it.

use serde::{Deserialize, Serialize};

/// Tiles of float32 whose speeds are known.
pub const TILES: usize = 11;

/// What the choice among kernels goes by, beside figures measured on an NVIDIA H200, of which these are thousandths
/// unless another unit is given. Whole numbers, so that a file gives back what was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Speeds {
    /// Multiprocessors: parts of the device that run workgroups by themselves.
    pub processors: u32,
    /// Arithmetic of one multiprocessor that is full, by tiles in the order of the choice: neither operand transposed,
    /// the right one, the left one.
    pub tiles: [[u32; 3]; TILES],
    /// What a workgroup by itself takes from one barrier to the next.
    pub latency: u32,
    /// Nanoseconds that a kernel takes at least, the wait for the one before included.
    pub dispatch: u32,
    /// Megabytes a second that are written and read again.
    pub traffic: u32,
}

impl Speeds {
    /// Those of an NVIDIA H200.
    pub const SHIPPED: Self = Self {
        processors: 132,
        tiles: [[1000; 3]; TILES],
        latency: 1000,
        dispatch: 2600,
        traffic: 2_000_000,
    };

    /// Whether it can be the measurement of a device.
    pub fn is_plausible(&self) -> bool {
        let tiles = self.tiles.as_flattened().iter().copied();
        let all = tiles.chain([self.processors, self.latency, self.dispatch, self.traffic]);
        all.into_iter().all(|number| number > 0) && self.processors <= 1 << 16
    }
}

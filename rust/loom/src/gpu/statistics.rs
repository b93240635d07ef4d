//! What is counted and measured of the work on a device.

/// What frames have done since this was last reset.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FrameStatistics {
    /// Frames recorded.
    pub frames: u64,
    /// Training steps in them.
    pub steps: u64,
    /// Kernels started.
    pub dispatches: u64,
    /// Command buffers submitted.
    pub submits: u64,
    /// Bytes copied to the device.
    pub bytes_up: u64,
    /// Bytes read back.
    pub bytes_down: u64,
    /// Seconds the device worked, where [`Gpu::set_timing`](super::Gpu::set_timing) asks for them.
    pub device_seconds: f64,
}

/// What is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Timing {
    /// Nothing.
    #[default]
    Off,
    /// Each frame as a whole.
    Frames,
    /// Each kernel, which keeps them from running side by side as they otherwise would.
    Kernels,
}

/// The time that one kernel has taken on the device.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelTime {
    /// What the kernel is.
    pub label: String,
    /// How often it ran.
    pub runs: u64,
    /// Seconds of all runs.
    pub seconds: f64,
}

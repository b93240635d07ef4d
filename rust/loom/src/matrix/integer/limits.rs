//! Extents that sums and panels keep within.

/// Sums over this many k and more need not fit 32 bits: 2^31 / 127^2.
pub const DEPTH_LIMIT: usize = 133_144;
/// Columns that are worked on together.
pub(super) const COLUMNS: usize = 64;
/// Rows of k whose codes are packed at once: the panel then stays in the second-level cache.
pub(super) const DEPTH: usize = 1024;
/// The most rows that read a weight as it lies in memory.
pub(super) const FEW: usize = 8;
/// The work of a few rows that is worth a task of its own, in multiplications of codes: a few microseconds.
pub(super) const TASK: usize = 1 << 18;

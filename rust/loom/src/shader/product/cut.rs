//! How the work of a product is cut.

use super::stream::{Stream, Weight};
use super::tile::Tile;
use crate::shader::Speeds;

/// What a device offers the kernels.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of workgroup memory.
    pub workgroup_bytes: usize,
    /// Threads of a workgroup.
    pub threads: usize,
    /// Whether it multiplies f16 matrices with f32 sums, 16 x 16 at a time.
    pub units: bool,
    /// How fast it is.
    pub speeds: Speeds,
    /// How many products like this one run at the same time, as one dispatch.
    pub crowd: usize,
}

/// How the work is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The kernel for few rows, with the depth cut into so many parts.
    FewRows(usize),
    /// The kernel that reads a weight of few rows as it lies, likewise.
    Stream(Stream, Weight, usize),
    /// The kernel for few columns, with so many rows a workgroup.
    FewColumns(u32),
    /// Tiles, with the depth cut into so many parts.
    Tiles(Tile, usize),
    /// Tiles made on matrix units, likewise.
    Units(Tile, usize),
}

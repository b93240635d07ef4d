//! How a product is cut, so that what meets again is still in a cache.

use crate::simd::Level;

/// Extents that go by the instruction set: what has it says much about caches, and how many rows a tile has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocking {
    /// The most bytes of a row of A that are summed before the next block of k begins. Each block loads and stores
    /// all of C once more; a longer one needs more of the caches.
    pub depth_bytes: usize,
    /// B is read where it is for so few rows, if it also takes no more than ...
    pub in_place_rows: usize,
    /// ... so many bytes from its first row to its last: packing would cost more than it saves.
    pub in_place_bytes: usize,
    /// So few rows meet some columns of B at once while these are in the second-level cache, right after they were
    /// packed; more rows meet all that is packed, tile by tile.
    pub at_once_rows: usize,
    /// Panels of B that are packed side by side, row after row.
    pub panels_beside: usize,
}

impl Blocking {
    pub const fn of(level: Level) -> Self {
        match level {
            // Tiles of 12 rows by 32 columns, and second-level caches of 1 MiB and more.
            Level::Avx512 => Self {
                depth_bytes: 2048,
                in_place_rows: 512,
                in_place_bytes: 1 << 20,
                at_once_rows: 0,
                panels_beside: 8,
            },
            // Tiles have half the rows or less, so that every line of B is read twice as often, and a line of B is
            // all that a tile reads of a row: rows that lie far apart wait for the translation of their addresses.
            Level::Avx2 | Level::Portable => Self {
                depth_bytes: 1024,
                in_place_rows: 0,
                in_place_bytes: 0,
                at_once_rows: 256,
                panels_beside: 8,
            },
        }
    }
}

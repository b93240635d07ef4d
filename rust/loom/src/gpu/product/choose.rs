//! Which kernel for which extents.

use super::plan::{Cut, Limits, few_rows_will_do};
use super::tile::Tile;

/// Workgroups below which a large GPU has idle multiprocessors.
const ENOUGH: usize = 256;

/// For tiles of C that come in great numbers.
pub const LARGE: Tile = Tile::new(64, 128, 16, 8, 8);
/// For fewer.
pub const MEDIUM: Tile = Tile::new(64, 64, 16, 8, 4);
/// For few.
pub const SMALL: Tile = Tile::new(32, 32, 16, 4, 4);

/// The cut for these extents; it depends on them and the device's limits alone.
pub(super) fn choose(rows: usize, columns: usize, depth: usize, left_transposed: bool, limits: &Limits) -> Cut {
    let fits = |tile: &Tile| {
        tile.threads() as usize <= limits.threads && tile.workgroup_bytes(true) as usize <= limits.workgroup_bytes
    };
    let count = |tile: &Tile| rows.div_ceil(tile.rows as usize) * columns.div_ceil(tile.columns as usize);
    if few_rows_will_do(rows, left_transposed) {
        let groups = columns.div_ceil(32);
        return Cut::FewRows(parts(groups, depth, 512));
    }
    for tile in [LARGE, MEDIUM] {
        if fits(&tile) && count(&tile) >= ENOUGH {
            return Cut::Tiles(tile, 1);
        }
    }
    Cut::Tiles(SMALL, parts(count(&SMALL), depth, 64))
}

/// How many parts of at least `least` products bring the workgroups to about [`ENOUGH`].
fn parts(groups: usize, depth: usize, least: usize) -> usize {
    (ENOUGH / groups.max(1)).min(depth / least).clamp(1, 16)
}

//! The tiled product on matrix units: tiles are kept as f16, and each subgroup makes 16 x 16 blocks of C
//! by cooperative matrices, with sums in f32.
//!
//! Everything around it (hooks, edges, parts, column sums) is [`Tiled`]'s own. Operands come as f32 and are
//! converted where they are put into workgroup memory.

use super::tile::{Along, Loader, Tile};
use super::tiled::Tiled;
use crate::shader::add_line;

/// Rows and columns of one cooperative matrix.
const FRAGMENT: u32 = 16;
/// Threads of a subgroup.
const SUBGROUP: u32 = 32;
/// Elements added to each row of a tile, so that the rows of a fragment lie in different banks.
const PADDING: u32 = 8;

/// Subgroups above each other in a tile, and beside each other: two above each other where that leaves each of them
/// whole fragments.
fn subgroups(tile: &Tile) -> [u32; 2] {
    let count = tile.threads() / SUBGROUP;
    let is_whole = |down: &u32| {
        count.is_multiple_of(*down)
            && tile.rows.is_multiple_of(down * FRAGMENT)
            && tile.columns.is_multiple_of(count / down * FRAGMENT)
    };
    let down = [2, 4, 1].into_iter().find(is_whole).unwrap_or(1);
    [down, count / down]
}

/// Whether a tile can be made of whole fragments by whole subgroups.
pub fn has_fragments(tile: &Tile) -> bool {
    let [down, along] = subgroups(tile);
    tile.slices == 1
        && tile.threads().is_multiple_of(SUBGROUP)
        && tile.rows.is_multiple_of(down * FRAGMENT)
        && tile.columns.is_multiple_of(along.max(1) * FRAGMENT)
        && tile.depth.is_multiple_of(FRAGMENT)
}

/// Bytes of workgroup memory that a tile takes whose elements are loaded so many at a time, column sums included.
pub fn workgroup_bytes(tile: &Tile, width: u32) -> u32 {
    let tiles =
        (tile.rows + PADDING) * (tile.depth + PADDING) + (tile.columns + PADDING) * (tile.depth + PADDING);
    2 * tiles + 16 * (tile.threads() / SUBGROUP * 64).max(tile.columns * tile.depth / width / 4)
}

/// Elements from one stored row of an operand's tile to the next, and how many rows there are.
fn stored(loader: Loader, extent: u32, depth: u32) -> [u32; 2] {
    match loader.along {
        Along::Depth => [depth + PADDING, extent],
        Along::Across => [extent + PADDING, depth],
    }
}

impl Tiled<'_> {
    fn fragments(&self) -> [u32; 2] {
        let [down, along] = subgroups(&self.tile);
        [self.tile.rows / down / FRAGMENT, self.tile.columns / along / FRAGMENT]
    }

    /// The tiles as they are stored: rows along what is loaded side by side.
    pub(super) fn write_unit_memory(&self, out: &mut String) {
        let tile = &self.tile;
        for (name, loader, extent) in [('a', self.left, tile.rows), ('b', self.right, tile.columns)] {
            let [stride, rows] = stored(loader, extent, tile.depth);
            let ty = if loader.width == 4 { "vec4<f16>" } else { "f16" };
            let elements = stride * rows / loader.width;
            add_line!(out, "var<workgroup> memory_{name}: array<{ty}, {elements}>;");
        }
        // The sums of the columns, or of what lies beyond; then a fragment of each subgroup.
        let mut memory = tile.threads() / SUBGROUP * 64;
        if self.hooks.sum_b {
            memory = memory.max(tile.columns * tile.step() / self.right.width / 4);
        }
        if !self.hooks.beyond.is_empty() {
            memory = memory.max(tile.threads());
        }
        add_line!(out, "var<workgroup> memory: array<vec4<f32>, {memory}>;");
    }

    /// Where the subgroup's fragments start in the tile.
    pub(super) fn write_unit_positions(&self, out: &mut String) {
        let along = subgroups(&self.tile)[1];
        let [high, wide] = self.fragments().map(|count| count * FRAGMENT);
        add_line!(out, "    let unit_row = subgroup / {along}u * {high}u;");
        add_line!(out, "    let unit_column = subgroup % {along}u * {wide}u;");
    }

    pub(super) fn write_unit_sums(&self, out: &mut String) {
        let [high, wide] = self.fragments();
        for row in 0..high {
            for column in 0..wide {
                add_line!(out, "    var c{row}_{column} = coop_mat16x16<f32, C>();");
            }
        }
    }

    /// Moves what was fetched into workgroup memory, as f16.
    pub(super) fn write_unit_fill(&self, out: &mut String) {
        let tile = &self.tile;
        for (name, loader, extent) in [('a', self.left, tile.rows), ('b', self.right, tile.columns)] {
            let [stride, _] = stored(loader, extent, tile.depth);
            let total = extent * tile.depth / loader.width;
            let ty = if loader.width == 4 { "vec4<f16>" } else { "f16" };
            for load in 0..self.loads(extent * tile.depth, loader.width) {
                let guard = match (load + 1) * tile.threads() > total {
                    true => format!("if (thread + {}u < {total}u) ", load * tile.threads()),
                    false => String::new(),
                };
                let (across, k) = (format!("{name}_across{load}"), format!("{name}_k{load}"));
                let at = match loader.along {
                    Along::Depth => format!("({across} * {stride}u + {k}) / {}u", loader.width),
                    Along::Across => format!("({k} * {stride}u + {across}) / {}u", loader.width),
                };
                add_line!(out, "        {guard}{{ memory_{name}[{at}] = {ty}({name}_next{load}); }}");
            }
        }
    }

    pub(super) fn write_unit_products(&self, out: &mut String) {
        let tile = &self.tile;
        let [high, wide] = self.fragments();
        // The load named T is the one of row-major memory: of A along the depth, of B across.
        let fragment = |side: char, loader: Loader, extent: u32, at: String, k: u32| {
            let [stride, _] = stored(loader, extent, tile.depth);
            let (row_major, place) = match loader.along {
                Along::Depth => (side == 'a', format!("({at}) * {stride}u + {k}u")),
                Along::Across => (side == 'b', format!("{}u + {at}", k * stride)),
            };
            let load = if row_major { "coopLoadT" } else { "coopLoad" };
            let role = side.to_ascii_uppercase();
            format!(
                "{load}<coop_mat16x16<f16, {role}>>(&memory_{side}[({place}) / {width}u], {}u)",
                stride / loader.width,
                width = loader.width
            )
        };
        for k in (0..tile.depth).step_by(FRAGMENT as usize) {
            add_line!(out, "        {{");
            for row in 0..high {
                let at = format!("unit_row + {}u", row * FRAGMENT);
                let load = fragment('a', self.left, tile.rows, at, k);
                add_line!(out, "            let l{row} = {load};");
            }
            for column in 0..wide {
                let at = format!("unit_column + {}u", column * FRAGMENT);
                let load = fragment('b', self.right, tile.columns, at, k);
                add_line!(out, "            let r{column} = {load};");
                for row in 0..high {
                    let sum = format!("c{row}_{column}");
                    add_line!(out, "            {sum} = coopMultiplyAdd(l{row}, r{column}, {sum});");
                }
            }
            add_line!(out, "        }}");
        }
    }

    /// Stores the fragments by way of workgroup memory, where each thread finds what it finishes.
    pub(super) fn write_unit_stores(&self, out: &mut String) {
        let along = subgroups(&self.tile)[1];
        let [high, wide] = self.fragments();
        add_line!(out, "    let held = thread / {SUBGROUP}u * 64u + thread % {SUBGROUP}u;");
        add_line!(out, "    let held_row = row0 + thread / {}u * {}u", SUBGROUP * along, high * FRAGMENT);
        add_line!(out, "        + thread % {SUBGROUP}u / 4u;");
        add_line!(
            out,
            "    let held_column = column0 + thread / {SUBGROUP}u % {along}u * {}u + thread % 4u * 4u;",
            wide * FRAGMENT
        );
        for row in 0..high {
            for column in 0..wide {
                add_line!(out, "    workgroupBarrier();");
                add_line!(out, "    coopStoreT(c{row}_{column}, &memory[subgroup * 64u], 4u);");
                add_line!(out, "    workgroupBarrier();");
                // Each thread has four neighbouring elements of two rows, 8 apart.
                for half in 0..2 {
                    let at_row = format!("held_row + {}u", row * FRAGMENT + half * 8);
                    let at_column = format!("held_column + {}u", column * FRAGMENT);
                    self.write_store(
                        out,
                        &at_row,
                        &at_column,
                        &format!("memory[held + {}u]", half * SUBGROUP),
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shader::product::{
        Edges, Hooks, UNITS_BROAD, UNITS_EVEN, UNITS_FLAT, UNITS_FLAT_SINGLE, UNITS_LARGE, UNITS_LOW,
        UNITS_NARROW, UNITS_NARROW_SINGLE, UNITS_SLIM, UNITS_SMALL,
    };
    use crate::shader::testing::is_valid;
    use crate::shader::{Operand, Shader};

    /// Software adapters have no matrix units, so only naga sees the text there.
    #[test]
    fn every_text_is_valid() {
        let tiles = [
            UNITS_LARGE,
            UNITS_BROAD,
            UNITS_NARROW,
            UNITS_FLAT,
            UNITS_NARROW_SINGLE,
            UNITS_FLAT_SINGLE,
            UNITS_EVEN,
            UNITS_SMALL,
            UNITS_SLIM,
            UNITS_LOW,
            Tile::new(16, 32, 16, 4, 4),
            Tile::new(32, 256, 16, 8, 8),
        ];
        for tile in tiles {
            assert!(has_fragments(&tile) && workgroup_bytes(&tile, 4) <= 49152 && tile.threads() <= 256);
            for (left, right) in [(Along::Depth, Along::Across), (Along::Across, Along::Depth)] {
                for width in [1, 4] {
                    if workgroup_bytes(&tile, width) > 49152 {
                        assert!(tile == UNITS_NARROW || tile == UNITS_FLAT);
                        continue;
                    }
                    for parts in [None, Some(["constants.parts", "constants.chunk"])] {
                        let ty = if width == 4 { "vec4<f32>" } else { "f32" };
                        let hooks = format!(
                            "fn load_a(row: u32, k: u32) -> {ty} {{ return left[row * constants.depth + k]; }}
fn load_b(k: u32, column: u32) -> {ty} {{ return right[k * constants.columns + column]; }}
fn load_a1(row: u32, k: u32) -> {ty} {{ return load_a(row + 1u, k); }}
fn load_b1(k: u32, column: u32) -> {ty} {{ return load_b(k, column + 1u); }}
fn store(row: u32, column: u32, value: {ty}) {{ output[row * constants.columns + column + part] = value; }}
fn store_sum(column: u32, value: f32) {{ output[column] = {ty}(value); }}
"
                        );
                        let shader = Shader::new("units", &hooks)
                            .read("left", ty, Operand::unbound())
                            .read("right", ty, Operand::unbound())
                            .write("output", ty, Operand::unbound())
                            .number("rows", 1u32)
                            .number("columns", 1u32)
                            .number("depth", 1u32)
                            .number("parts", 1u32)
                            .number("chunk", 1u32)
                            .unchecked();
                        let one = Tiled {
                            tile,
                            left: Loader { along: left, width },
                            right: Loader { along: right, width },
                            store_width: width,
                            edges: Edges::ALL,
                            extents: ["constants.rows", "constants.columns", "constants.depth"],
                            parts,
                            hooks: Hooks {
                                sum_b: right == Along::Depth,
                                batches: parts.map(|_| "3u"),
                                ..Hooks::default()
                            },
                            rounding: crate::shader::product::Rounding::Bits,
                            units: true,
                        };
                        is_valid(one.add_to(shader.clone()));
                        if parts.is_none() {
                            let hooks = Hooks { segments: &[128, 64], ..Hooks::default() };
                            is_valid(Tiled { hooks, ..one }.add_to(shader));
                        }
                    }
                }
            }
        }
    }
}

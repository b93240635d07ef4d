//! The tiled product: a workgroup makes one tile of C from tiles of A and B that it keeps in
//! workgroup memory; a thread makes a block of the tile in registers.
//!
//! The generator knows nothing of where the operands come from: it calls WGSL functions of the
//! caller's. So the same text multiplies plain matrices, packed weights and the windows of a
//! convolution.

use super::half::Rounding;
use super::tile::{Edges, Loader, Tile};
use crate::shader::{Shader, add_line};

/// What a product asks of its hooks beyond elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hooks<'a> {
    /// Whether `place_a(row: u32)` is called once for every element that a thread loads again
    /// and again, and its result handed to `load_a` as a third argument: what depends on the row
    /// alone is then computed outside the loop. Rows past the last are asked for, too.
    pub place_a: bool,
    /// The same of `place_b(column: u32)` and `load_b`.
    pub place_b: bool,
    /// Whether what the loads of a thread share at a time is computed once for all of them.
    ///
    /// Neighbouring threads load along the depth: `start_a(k: u32, last: u32, place)` is called
    /// for the k that loads share, with the place of the first of them, and `load_a(start, place)`
    /// for each; from `last` on, elements must be zero. Across: `start_a(k: u32, place)` is
    /// called for the rows that loads share with the first k of the step, and
    /// `load_a(start, k: u32)` with how far beyond it the element is; the depth must be a
    /// multiple of [`Tile::step`] then. Rows past the last are loaded, too: what is given for
    /// them is not stored.
    pub start_a: bool,
    /// The same of `start_b` and `load_b`.
    pub start_b: bool,
    /// Whether `store_sum(column: u32, sum: f32)` is called with the sum of each of B's columns over
    /// the part, once for each part. Neighbouring threads must load B along the depth.
    pub sum_b: bool,
    /// How many products of the same extents are made side by side, as an expression; the
    /// private variable `batch` says which one the hooks are called for.
    pub batches: Option<&'a str>,
    /// Statements for workgroups past the last, with their number beyond it in `extra`.
    pub beyond: &'a str,
    /// Where the summed extent is that of several products, each with operands of its own: the extents, multiples of
    /// [`Tile::step`]. The second one's functions are `load_a1` and `load_b1`, and so on; each counts k from 0. None
    /// where there is one. Not with parts, places, or what loads share.
    pub segments: &'a [u32],
}

/// A tiled product as WGSL text.
///
/// The kernel that it is added to declares operands and numbers, and has these functions:
///
/// ```wgsl
/// fn load_a(row: u32, k: u32) -> f32            // vec4<f32> where left.width is 4
/// fn load_b(k: u32, column: u32) -> f32         // vec4<f32> where right.width is 4
/// fn store(row: u32, column: u32, value: f32)   // vec4<f32> where store_width is 4
/// ```
///
/// They are called only with indices inside the extents, each element of C is stored once, and
/// a vec4 starts at a multiple of 4 along its extent, which must be a multiple of 4 then.
/// `extents` and `parts` are expressions of module scope, such as `constants.rows` or `784u`; the summed extent's may
/// depend on `own_batch`, the number among the products made side by side.
///
/// With `parts` (how many, products of each: a multiple of [`Tile::step`]) the summed extent is
/// cut into parts made by different workgroups; the private variable `part` says which one the
/// hooks are called for, and `store` has to keep the parts apart. Workgroups number
/// `ceil(rows / tile.rows) * ceil(columns / tile.columns) * parts * batches`; more do no harm,
/// and run [`Hooks::beyond`].
#[derive(Clone, Debug)]
pub struct Tiled<'a> {
    /// The tile's shape.
    pub tile: Tile,
    /// How A is loaded.
    pub left: Loader,
    /// How B is loaded.
    pub right: Loader,
    /// Elements stored together: 1, or 4 where the columns are a multiple of 4.
    pub store_width: u32,
    /// What has to be looked at.
    pub edges: Edges,
    /// Rows and columns of C, and the summed extent.
    pub extents: [&'a str; 3],
    /// The number of parts, and the products in each.
    pub parts: Option<[&'a str; 2]>,
    /// What else the hooks are called for and with.
    pub hooks: Hooks<'a>,
    /// How operands are rounded.
    pub rounding: Rounding,
    /// Whether a mixed product is made on matrix units, by cooperative matrices of f16; see
    /// [`has_fragments`](super::units::has_fragments).
    pub units: bool,
}

impl Tiled<'_> {
    /// Adds `main` to a kernel that has the hooks.
    pub fn add_to(&self, shader: Shader) -> Shader {
        let mut text = match self.units {
            true => "enable f16;\nenable wgpu_cooperative_matrix;\n".to_string(),
            false => self.rounding.functions().to_string(),
        };
        self.write(&mut text);
        shader.threads(self.tile.threads() as usize).append(&text)
    }

    fn write(&self, out: &mut String) {
        let tile = &self.tile;
        let [rows, columns, depth] = self.extents;
        if self.units {
            self.write_unit_memory(out);
        } else {
            let memory = tile.memory(self.padding());
            add_line!(out, "\n// Tiles of A and B, k-major; the sums of the slices at the end.");
            add_line!(out, "var<workgroup> memory: array<vec4<f32>, {memory}>;");
        }
        add_line!(out, "// Which part of the summed extent this workgroup adds up.");
        add_line!(out, "var<private> part: u32;");
        add_line!(out, "// Which of the products made side by side.\nvar<private> batch: u32;\n");
        let subgroup = if self.units { ", subgroup: u32" } else { "" };
        add_line!(out, "fn main(group: u32, thread: u32{subgroup}) {{");
        add_line!(out, "    let rows = {rows};\n    let columns = {columns};");
        add_line!(out, "    let tile_rows = (rows + {}u) / {}u;", tile.rows - 1, tile.rows);
        add_line!(out, "    let tile_columns = (columns + {}u) / {}u;", tile.columns - 1, tile.columns);
        add_line!(out, "    let tiles = tile_rows * tile_columns;");
        // What is read from private variables would count as different from thread to thread: matrix units
        // want control flow that is the same for all.
        let parts = self.parts.map_or("1u", |[parts, _]| parts);
        match self.hooks.batches {
            Some(batches) => {
                add_line!(out, "    let own_part = group / tiles % {parts};");
                add_line!(out, "    let own_batch = group / tiles / {parts};");
                add_line!(out, "    part = own_part;\n    batch = own_batch;");
                self.write_return(out, &format!("own_batch >= {batches}"), &format!("{parts} * {batches}"));
            }
            None => {
                add_line!(out, "    let own_part = group / tiles;\n    part = own_part;");
                self.write_return(out, &format!("own_part >= {parts}"), parts);
            }
        }
        add_line!(out, "    let depth = {depth};");
        match self.parts {
            Some([_, chunk]) => {
                add_line!(out, "    let first = own_part * {chunk};");
                add_line!(out, "    let last = min(depth, first + {chunk});");
            }
            None => add_line!(out, "    let first = 0u;\n    let last = depth;"),
        }
        // Workgroups that run at the same time should share their tiles in the cache: they go
        // down bands of 8 tiles, one column of the band after the other.
        add_line!(out, "    let index = group % tiles;");
        add_line!(out, "    let band = index / (8u * tile_columns);");
        add_line!(out, "    let height = min(8u, tile_rows - band * 8u);");
        add_line!(out, "    let inside = index - band * 8u * tile_columns;");
        add_line!(out, "    let row0 = (band * 8u + inside % height) * {}u;", tile.rows);
        add_line!(out, "    let column0 = (inside / height) * {}u;", tile.columns);
        self.write_positions(out);
        self.write_sums(out);
        self.write_column_starts(out);
        if tile.prefetch {
            self.write_fetch(out, "    ", "first", true);
        }
        add_line!(out, "    for (var k = first; k < last; k += {}u) {{", tile.step());
        if !tile.prefetch {
            self.write_fetch(out, "        ", "k", true);
        }
        self.write_fill(out);
        self.write_column_additions(out);
        add_line!(out, "        workgroupBarrier();");
        if tile.prefetch {
            add_line!(out, "        let next = k + {}u;", tile.step());
            add_line!(out, "        if (next < last) {{");
            self.write_fetch(out, "            ", "next", false);
            add_line!(out, "        }}");
        }
        self.write_products(out);
        add_line!(out, "        workgroupBarrier();");
        add_line!(out, "    }}");
        self.write_column_stores(out);
        if self.units {
            self.write_unit_stores(out);
        } else if tile.slices == 1 {
            self.write_stores(out);
        } else {
            self.write_sliced_stores(out);
        }
        add_line!(out, "}}");
    }

    /// What workgroups past the last do: past `products` times the tiles.
    fn write_return(&self, out: &mut String, condition: &str, products: &str) {
        match self.hooks.beyond {
            "" => add_line!(out, "    if ({condition}) {{ return; }}"),
            beyond => add_line!(
                out,
                "    if ({condition}) {{\n        let extra = group - tiles * {products};\n        {beyond}\n        return;\n    }}"
            ),
        }
    }

    /// Where the thread's loads lie in the tiles, and where its block does.
    fn write_positions(&self, out: &mut String) {
        self.write_load_positions(out);
        let tile = &self.tile;
        if self.units {
            return self.write_unit_positions(out);
        }
        // A block of 8 by 4 neighbouring threads loads the fewest different words at a time.
        let (down, along) = (tile.rows / tile.thread_rows, tile.columns / tile.thread_columns);
        let wide = along.min(8);
        let high = down.min((32 / wide).max(1));
        let block = wide * high;
        add_line!(out, "    let slice = thread / {}u;", tile.slice_threads());
        add_line!(out, "    let lane = thread % {}u;", tile.slice_threads());
        add_line!(out, "    let tx = lane / {block}u % {}u * {wide}u + lane % {wide}u;", along / wide);
        add_line!(
            out,
            "    let ty = lane / {}u * {high}u + lane % {block}u / {wide}u;",
            block * (along / wide)
        );
    }

    fn write_sums(&self, out: &mut String) {
        if self.units {
            return self.write_unit_sums(out);
        }
        for row in 0..self.tile.thread_rows {
            for column in 0..self.tile.thread_columns / 4 {
                add_line!(out, "    var c{row}_{column} = vec4<f32>();");
            }
        }
    }

    /// One step of sums for each k of the thread's slice, written out: accumulators in an array,
    /// or a loop around them, would not stay in registers.
    fn write_products(&self, out: &mut String) {
        if self.units {
            return self.write_unit_products(out);
        }
        let tile = &self.tile;
        let (down, along) = (tile.rows / tile.thread_rows, tile.columns / tile.thread_columns);
        let (left, right) = (self.left_stride(), self.right_stride());
        add_line!(out, "        let a_at = slice * {}u + ty;", tile.depth * left);
        add_line!(out, "        let b_at = {}u + slice * {}u + tx;", self.right_base(), tile.depth * right);
        for k in 0..tile.depth {
            add_line!(out, "        {{");
            for i in 0..tile.thread_rows / 4 {
                add_line!(out, "            let a{i} = memory[a_at + {}u];", k * left + i * down);
            }
            for j in 0..tile.thread_columns / 4 {
                add_line!(out, "            let b{j} = memory[b_at + {}u];", k * right + j * along);
            }
            for row in 0..tile.thread_rows {
                for j in 0..tile.thread_columns / 4 {
                    add_line!(
                        out,
                        "            c{row}_{j} = fma(vec4<f32>(a{}[{}]), b{j}, c{row}_{j});",
                        row / 4,
                        row % 4
                    );
                }
            }
            add_line!(out, "        }}");
        }
    }
}

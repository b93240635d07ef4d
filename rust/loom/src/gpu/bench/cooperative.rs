//! The mixed product on matrix units: f16 operands, f32 sums, through cooperative matrices.

use crate::shader::{Operand, Shader, add_line};

/// Rows and columns of one cooperative matrix.
const FRAGMENT: u32 = 16;

/// A product of f16 matrices with f32 sums as WGSL text.
///
/// `C = A B`, row-major and dense: A (rows, depth), B (depth, columns), C (rows, columns) of f32,
/// with `rows`, `columns` and `depth` in the constants after `step`. All three extents have to be
/// multiples of 16. It needs the adapter's cooperative matrices of 16 x 16 with f16 operands and
/// f32 sums, f16 and subgroups of 32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cooperative {
    /// Rows of C made by one workgroup.
    pub rows: u32,
    /// Columns of C made by one workgroup.
    pub columns: u32,
    /// Products between two barriers, a multiple of 16.
    pub depth: u32,
    /// Subgroups above each other in the tile.
    pub down: u32,
    /// Subgroups beside each other in the tile.
    pub along: u32,
    /// Whether the next tiles are fetched into registers while the present ones are used.
    pub prefetch: bool,
    /// Whether B is stored as its transpose, (columns, depth).
    pub right_transposed: bool,
    /// Tiles kept in workgroup memory: with 2, one barrier a step is enough.
    pub stages: u32,
}

impl Cooperative {
    /// The tile that was fastest on an NVIDIA H200 for C of these extents.
    pub fn suiting(rows: usize, columns: usize, right_transposed: bool) -> Self {
        let large = rows.div_ceil(128) * columns.div_ceil(128) >= 132;
        let (rows, columns, depth, down, along, prefetch, stages) = match (large, right_transposed) {
            (true, true) => (128, 128, 32, 2, 2, false, 1),
            (true, false) => (128, 128, 16, 2, 4, true, 2),
            (false, _) => (64, 64, 64, 2, 2, false, 1),
        };
        Self { rows, columns, depth, down, along, prefetch, right_transposed, stages }
    }

    /// Threads of a workgroup.
    pub const fn threads(&self) -> u32 {
        32 * self.down * self.along
    }

    /// Bytes of workgroup memory.
    pub const fn workgroup_bytes(&self) -> u32 {
        8 * self.stages * self.stage()
    }

    /// Workgroups for C of these extents.
    pub fn groups(&self, rows: usize, columns: usize) -> usize {
        rows.div_ceil(self.rows as usize) * columns.div_ceil(self.columns as usize)
    }

    /// vec4s from one row of A's tile to the next: 16 bytes more than there are, so that the rows
    /// of a fragment lie in different banks.
    const fn left_stride(&self) -> u32 {
        self.depth / 4 + 2
    }

    /// The same for B's tile, which is kept as it is stored.
    const fn right_stride(&self) -> u32 {
        (if self.right_transposed { self.depth } else { self.columns }) / 4 + 2
    }

    const fn right_height(&self) -> u32 {
        if self.right_transposed { self.columns } else { self.depth }
    }

    /// vec4s of one pair of tiles.
    const fn stage(&self) -> u32 {
        self.rows * self.left_stride() + self.right_height() * self.right_stride()
    }

    /// The kernel for A, B and C of these rows, columns and depth.
    pub fn shader(&self, [left, right, output]: [Operand; 3], [rows, columns, depth]: [usize; 3]) -> Shader {
        Shader::new("product.mixed", &self.text())
            .threads(self.threads() as usize)
            .read("left", "vec4<f16>", left)
            .read("right", "vec4<f16>", right)
            .write("output", "f32", output)
            .number("rows", rows)
            .number("columns", columns)
            .number("depth", depth)
    }

    fn text(&self) -> String {
        let (high, wide) = (self.rows / self.down / FRAGMENT, self.columns / self.along / FRAGMENT);
        let mut text = format!(
            "enable f16;
enable wgpu_cooperative_matrix;
// The tiles of A and B, row-major.
var<workgroup> memory: array<vec4<f16>, {memory}>;

fn main(group: u32, thread: u32, subgroup: u32) {{
    let tile_rows = (constants.rows + {last_row}u) / {rows}u;
    let tile_columns = (constants.columns + {last_column}u) / {columns}u;
    if (group >= tile_rows * tile_columns) {{ return; }}
    // Workgroups that run at the same time share their tiles in the cache.
    let band = group / (8u * tile_columns);
    let height = min(8u, tile_rows - band * 8u);
    let inside = group - band * 8u * tile_columns;
    let row0 = (band * 8u + inside % height) * {rows}u;
    let column0 = (inside / height) * {columns}u;
    let down = subgroup / {along}u * {sub_rows}u;
    let along = subgroup % {along}u * {sub_columns}u;
",
            memory = self.stages * self.stage(),
            rows = self.rows,
            columns = self.columns,
            last_row = self.rows - 1,
            last_column = self.columns - 1,
            along = self.along,
            sub_rows = high * FRAGMENT,
            sub_columns = wide * FRAGMENT,
        );
        let out = &mut text;
        for row in 0..high {
            for column in 0..wide {
                add_line!(out, "    var c{row}_{column} = coop_mat16x16<f32, C>();");
            }
        }
        for load in 0..self.loads(self.rows * self.depth) {
            add_line!(out, "    var a{load} = vec4<f16>();");
        }
        for load in 0..self.loads(self.depth * self.columns) {
            add_line!(out, "    var b{load} = vec4<f16>();");
        }
        if self.prefetch {
            self.write_fetch(out, "0u");
        }
        if self.stages == 2 {
            add_line!(out, "    var base = 0u;");
        } else {
            add_line!(out, "    let base = 0u;");
        }
        add_line!(out, "    for (var k = 0u; k < constants.depth; k += {}u) {{", self.depth);
        if !self.prefetch {
            self.write_fetch(out, "k");
        }
        self.write_fill(out);
        add_line!(out, "        workgroupBarrier();");
        if self.prefetch {
            add_line!(out, "        if (k + {}u < constants.depth) {{", self.depth);
            self.write_fetch(out, &format!("k + {}u", self.depth));
            add_line!(out, "        }}");
        }
        for k in 0..self.depth / FRAGMENT {
            add_line!(out, "        {{");
            for row in 0..high {
                add_line!(
                    out,
                    "            let l{row} = coopLoadT<coop_mat16x16<f16, A>>(&memory[base + (down + {}u) * {stride}u + {}u], {stride}u);",
                    row * FRAGMENT,
                    k * FRAGMENT / 4,
                    stride = self.left_stride()
                );
            }
            for column in 0..wide {
                let base = self.rows * self.left_stride();
                let (column_at, stride) = (column * FRAGMENT, self.right_stride());
                // The load named T is the one of row-major memory.
                let (load, at) = match self.right_transposed {
                    true => (
                        "coopLoad",
                        format!("{}u + (along + {column_at}u) * {stride}u", base + k * FRAGMENT / 4),
                    ),
                    false => (
                        "coopLoadT",
                        format!("{}u + (along + {column_at}u) / 4u", base + k * FRAGMENT * stride),
                    ),
                };
                add_line!(
                    out,
                    "            let r{column} = {load}<coop_mat16x16<f16, B>>(&memory[base + {at}], {stride}u);"
                );
                for row in 0..high {
                    add_line!(
                        out,
                        "            c{row}_{column} = coopMultiplyAdd(l{row}, r{column}, c{row}_{column});"
                    );
                }
            }
            add_line!(out, "        }}");
        }
        if self.stages == 2 {
            // The other pair of tiles was last read before the barrier just passed.
            add_line!(out, "        base = {}u - base;", self.stage());
        } else {
            add_line!(out, "        workgroupBarrier();");
        }
        add_line!(out, "    }}");
        for row in 0..high {
            for column in 0..wide {
                // A loop, since within an `if` on the subgroup's number the store would be refused, though
                // the number is the same for all that take part.
                add_line!(
                    out,
                    "    for (var once = row0 + down + {r}u < constants.rows && column0 + along + {c}u < constants.columns; once; once = false) {{
        let stride = constants.columns;
        let at = (row0 + down + {r}u) * stride + column0 + along + {c}u;
        coopStoreT(c{row}_{column}, &output[at], stride);
    }}",
                    r = row * FRAGMENT,
                    c = column * FRAGMENT
                );
            }
        }
        add_line!(out, "}}");
        text
    }

    /// Loads of one thread for a tile of this many elements.
    fn loads(&self, elements: u32) -> u32 {
        elements / 4 / self.threads()
    }

    fn write_fetch(&self, out: &mut String, k: &str) {
        let a_run = self.depth / 4;
        for load in 0..self.loads(self.rows * self.depth) {
            let item = format!("(thread + {}u)", load * self.threads());
            add_line!(
                out,
                "        {{
            let row = row0 + {item} / {a_run}u;
            let at = {k} + {item} % {a_run}u * 4u;
            if (row < constants.rows && at < constants.depth) {{
                a{load} = left[(row * constants.depth + at) / 4u];
            }} else {{ a{load} = vec4<f16>(); }}
        }}"
            );
        }
        for load in 0..self.loads(self.depth * self.columns) {
            let item = format!("(thread + {}u)", load * self.threads());
            let (at, column, index) = match self.right_transposed {
                true => (
                    format!("{item} % {a_run}u * 4u"),
                    format!("{item} / {a_run}u"),
                    "column * constants.depth + at",
                ),
                false => (
                    format!("{item} / {}u", self.columns / 4),
                    format!("{item} % {}u * 4u", self.columns / 4),
                    "at * constants.columns + column",
                ),
            };
            add_line!(
                out,
                "        {{
            let at = {k} + {at};
            let column = column0 + {column};
            if (at < constants.depth && column < constants.columns) {{
                b{load} = right[({index}) / 4u];
            }} else {{ b{load} = vec4<f16>(); }}
        }}"
            );
        }
    }

    fn write_fill(&self, out: &mut String) {
        let sides = [
            ('a', self.rows * self.depth, self.depth / 4, self.left_stride(), 0),
            (
                'b',
                self.columns * self.depth,
                (if self.right_transposed { self.depth } else { self.columns }) / 4,
                self.right_stride(),
                self.rows * self.left_stride(),
            ),
        ];
        for (name, elements, run, stride, base) in sides {
            for load in 0..self.loads(elements) {
                let item = format!("(thread + {}u)", load * self.threads());
                add_line!(
                    out,
                    "        memory[base + {base}u + {item} / {run}u * {stride}u + {item} % {run}u] = {name}{load};"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shader::testing::is_valid;

    /// Software adapters have no cooperative matrices, so only naga sees the text there.
    #[test]
    fn every_text_is_valid() {
        for (rows, right_transposed) in [(64, false), (64, true), (4096, false), (4096, true)] {
            let tile = Cooperative::suiting(rows, rows, right_transposed);
            assert!(tile.workgroup_bytes() <= 32768 && tile.threads() <= 256);
            let operands = [0; 3].map(|_| Operand::unbound());
            is_valid(tile.shader(operands, [rows; 3]));
        }
    }
}

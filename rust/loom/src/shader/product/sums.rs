//! The sums of B's columns, made by the product that loads them anyway.

use super::tile::Along;
use super::tiled::Tiled;
use crate::shader::add_line;

impl Tiled<'_> {
    /// Adds what has been fetched of B to what the thread has fetched of the same columns before.
    pub(super) fn write_column_additions(&self, out: &mut String) {
        if !self.hooks.sum_b {
            return;
        }
        // One of the workgroups with the same columns is enough.
        add_line!(out, "        if (row0 == 0u) {{");
        for load in 0..self.right_loads() {
            add_line!(out, "            b_sum{load} += b_next{load};");
        }
        add_line!(out, "        }}");
    }

    /// The threads' sums, none yet.
    pub(super) fn write_column_starts(&self, out: &mut String) {
        if !self.hooks.sum_b {
            return;
        }
        let zero = if self.right.width == 4 { "vec4<f32>()" } else { "0.0" };
        for load in 0..self.right_loads() {
            add_line!(out, "    var b_sum{load} = {zero};");
        }
    }

    /// Adds the threads' sums of each column, in order, and stores them.
    pub(super) fn write_column_stores(&self, out: &mut String) {
        if !self.hooks.sum_b {
            return;
        }
        debug_assert!(self.right.along == Along::Depth, "a load of B lies in one column");
        let (tile, width) = (&self.tile, self.right.width);
        // Loads of one column at a time; they find room where the tiles were, which hold more.
        let run = tile.step() / width;
        let total = tile.columns * run;
        add_line!(out, "    // A barrier may not depend on the workgroup, as far as compilers can tell.");
        add_line!(out, "    if (row0 == 0u) {{");
        for load in 0..self.right_loads() {
            let sum = match width {
                4 => format!("(b_sum{load}.x + b_sum{load}.y) + (b_sum{load}.z + b_sum{load}.w)"),
                _ => format!("b_sum{load}"),
            };
            let guard = match (load + 1) * tile.threads() > total {
                true => format!("if (thread + {}u < {total}u) ", load * tile.threads()),
                false => String::new(),
            };
            add_line!(out, "        {guard}{{");
            add_line!(out, "            let at = b_across{load} * {run}u + b_k{load} / {width}u;");
            add_line!(out, "            memory[at / 4u][at % 4u] = {sum};\n        }}");
        }
        add_line!(out, "    }}\n    workgroupBarrier();");
        add_line!(out, "    if (row0 == 0u) {{");
        add_line!(
            out,
            "    for (var item = thread; item < {}u; item += {}u) {{",
            tile.columns,
            tile.threads()
        );
        add_line!(out, "        var sum = 0.0;");
        add_line!(out, "        for (var i = item * {run}u; i < (item + 1u) * {run}u; i++) {{");
        add_line!(out, "            sum += memory[i / 4u][i % 4u];\n        }}");
        let guard = if self.edges.columns { "if (column0 + item < columns) " } else { "" };
        add_line!(out, "        {guard}{{ store_sum(column0 + item, sum); }}");
        add_line!(out, "    }}\n    }}");
        if tile.slices > 1 {
            add_line!(out, "    workgroupBarrier();");
        }
    }

    fn right_loads(&self) -> u32 {
        self.loads(self.tile.columns * self.tile.step(), self.right.width)
    }
}

//! The sums of B's columns, made by the product that loads them anyway.

use super::tile::Along;
use super::tiled::Tiled;
use std::fmt::Write;

impl Tiled<'_> {
    /// Adds what has been fetched of B to what the thread has fetched of the same columns before.
    pub(super) fn write_column_additions(&self, out: &mut String) -> std::fmt::Result {
        if !self.hooks.sum_b {
            return Ok(());
        }
        // One of the workgroups with the same columns is enough.
        writeln!(out, "        if (row0 == 0u) {{")?;
        for load in 0..self.right_loads() {
            writeln!(out, "            b_sum{load} += b_next{load};")?;
        }
        writeln!(out, "        }}")
    }

    /// The threads' sums, none yet.
    pub(super) fn write_column_starts(&self, out: &mut String) -> std::fmt::Result {
        if !self.hooks.sum_b {
            return Ok(());
        }
        let zero = if self.right.width == 4 { "vec4<f32>()" } else { "0.0" };
        for load in 0..self.right_loads() {
            writeln!(out, "    var b_sum{load} = {zero};")?;
        }
        Ok(())
    }

    /// Adds the threads' sums of each column, in order, and stores them.
    pub(super) fn write_column_stores(&self, out: &mut String) -> std::fmt::Result {
        if !self.hooks.sum_b {
            return Ok(());
        }
        debug_assert!(self.right.along == Along::Depth, "a load of B lies in one column");
        let (tile, width) = (&self.tile, self.right.width);
        // Loads of one column at a time; they find room where the tiles were, which hold more.
        let run = tile.step() / width;
        let total = tile.columns * run;
        writeln!(out, "    // A barrier may not depend on the workgroup, as far as compilers can tell.")?;
        writeln!(out, "    if (row0 == 0u) {{")?;
        for load in 0..self.right_loads() {
            let sum = match width {
                4 => format!("(b_sum{load}.x + b_sum{load}.y) + (b_sum{load}.z + b_sum{load}.w)"),
                _ => format!("b_sum{load}"),
            };
            let guard = match (load + 1) * tile.threads() > total {
                true => format!("if (thread + {}u < {total}u) ", load * tile.threads()),
                false => String::new(),
            };
            writeln!(out, "        {guard}{{")?;
            writeln!(out, "            let at = b_across{load} * {run}u + b_k{load} / {width}u;")?;
            writeln!(out, "            memory[at / 4u][at % 4u] = {sum};\n        }}")?;
        }
        writeln!(out, "    }}\n    workgroupBarrier();")?;
        writeln!(out, "    if (row0 == 0u) {{")?;
        writeln!(
            out,
            "    for (var item = thread; item < {}u; item += {}u) {{",
            tile.columns,
            tile.threads()
        )?;
        writeln!(out, "        var sum = 0.0;")?;
        writeln!(out, "        for (var i = item * {run}u; i < (item + 1u) * {run}u; i++) {{")?;
        writeln!(out, "            sum += memory[i / 4u][i % 4u];\n        }}")?;
        let guard = if self.edges.columns { "if (column0 + item < columns) " } else { "" };
        writeln!(out, "        {guard}{{ store_sum(column0 + item, sum); }}")?;
        writeln!(out, "    }}\n    }}")?;
        if tile.slices > 1 {
            writeln!(out, "    workgroupBarrier();")?;
        }
        Ok(())
    }

    fn right_loads(&self) -> u32 {
        self.loads(self.tile.columns * self.tile.step(), self.right.width)
    }
}

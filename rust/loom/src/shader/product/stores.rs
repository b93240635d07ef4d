//! How a tiled product's threads store what they have made.

use super::tiled::Tiled;
use crate::shader::add_line;

impl Tiled<'_> {
    /// Stores four values, or as many of them as are inside.
    pub(super) fn write_store(&self, out: &mut String, row: &str, column: &str, value: &str) {
        add_line!(out, "    {{");
        add_line!(
            out,
            "        let row = {row};\n        let column = {column};\n        let value = {value};"
        );
        let mut guards = Vec::new();
        if self.edges.rows {
            guards.push("row < rows");
        }
        if self.store_width == 4 {
            if self.edges.columns {
                guards.push("column < columns");
            }
            match guards.is_empty() {
                true => add_line!(out, "        store(row, column, value);"),
                false => {
                    add_line!(out, "        if ({}) {{ store(row, column, value); }}", guards.join(" && "));
                }
            }
        } else {
            for i in 0..4 {
                let inside = format!("column + {i}u < columns");
                let mut guards = guards.clone();
                if self.edges.columns {
                    guards.push(&inside);
                }
                let call = format!("store(row, column + {i}u, value[{i}]);");
                match guards.is_empty() {
                    true => add_line!(out, "        {call}"),
                    false => add_line!(out, "        if ({}) {{ {call} }}", guards.join(" && ")),
                }
            }
        }
        add_line!(out, "    }}");
    }

    pub(super) fn write_stores(&self, out: &mut String) {
        let tile = &self.tile;
        let (down, along) = (tile.rows / tile.thread_rows, tile.columns / tile.thread_columns);
        for row in 0..tile.thread_rows {
            for j in 0..tile.thread_columns / 4 {
                let at_row = format!("row0 + ty * 4u + {}u", row / 4 * down * 4 + row % 4);
                let at_column = format!("column0 + tx * 4u + {}u", j * along * 4);
                self.write_store(out, &at_row, &at_column, &format!("c{row}_{j}"));
            }
        }
    }

    /// Adds the slices' sums in order, each thread for some of the tile's elements.
    pub(super) fn write_sliced_stores(&self, out: &mut String) {
        let tile = &self.tile;
        let (down, along) = (tile.rows / tile.thread_rows, tile.columns / tile.thread_columns);
        let (run, total) = (tile.columns / 4, tile.rows * tile.columns / 4);
        for row in 0..tile.thread_rows {
            for j in 0..tile.thread_columns / 4 {
                let at = row / 4 * down * 4 + row % 4;
                add_line!(
                    out,
                    "    memory[slice * {total}u + (ty * 4u + {at}u) * {run}u + tx + {}u] = c{row}_{j};",
                    j * along
                );
            }
        }
        add_line!(out, "    workgroupBarrier();");
        add_line!(out, "    for (var item = thread; item < {total}u; item += {}u) {{", tile.threads());
        add_line!(out, "    var sum = memory[item];");
        for slice in 1..tile.slices {
            add_line!(out, "    sum += memory[item + {}u];", slice * total);
        }
        let (row, column) = (format!("row0 + item / {run}u"), format!("column0 + item % {run}u * 4u"));
        self.write_store(out, &row, &column, "sum");
        add_line!(out, "    }}");
    }
}

//! How the threads of a product of few rows add up the sums that they share out, and who stores them.

use super::stream::{Groups, Stream};
use super::streamed::Streamed;
use super::tile::Along;
use crate::shader::add_line;
use std::ops::Range;

/// Bytes of workgroup memory that sums may take, on every device.
const MEMORY: u32 = 16384;

impl Streamed<'_> {
    /// Threads of a subgroup, where those add up in registers: one barrier is left of the dozens that a tree in memory
    /// has for eight rows, each of which takes as long as much of what a token's product computes.
    pub(super) fn exchanging(&self) -> Option<u32> {
        let Stream { along, threads, lanes, .. } = self.shape;
        let subgroup = self.subgroup;
        let whole = subgroup.is_power_of_two() && threads.is_multiple_of(subgroup);
        let fits = |subgroup| self.cells(subgroup) * (self.squares() + self.slot_columns()) <= MEMORY / 4;
        (whole && (along == Along::Depth || threads / lanes <= subgroup) && fits(subgroup))
            .then_some(subgroup)
    }

    /// Subgroups that share a sum out.
    fn parts(&self, subgroup: u32) -> u32 {
        match self.shape.along {
            Along::Across => self.shape.threads / subgroup,
            Along::Depth => self.shape.lanes.div_ceil(subgroup),
        }
    }

    /// What these leave of a sum: a number for each of them and for each place.
    fn cells(&self, subgroup: u32) -> u32 {
        self.parts(subgroup) * (self.shape.threads / self.shape.lanes)
    }

    /// The type of a sum.
    pub(super) fn kind(&self) -> &'static str {
        if self.shape.along == Along::Across { "vec4<f32>" } else { "f32" }
    }

    /// How many sums a thread has.
    pub(super) fn slots(&self) -> u32 {
        self.rows * self.row_slots()
    }

    /// How many of them are a row's.
    fn row_slots(&self) -> u32 {
        match self.shape.along {
            Along::Across => self.shape.codes / 4,
            Along::Depth => self.shape.columns,
        }
    }

    /// Columns of a sum.
    fn slot_columns(&self) -> u32 {
        if self.shape.along == Along::Across { 4 } else { 1 }
    }

    /// How many rows have their squares summed up along.
    pub(super) fn squares(&self) -> u32 {
        if self.form.sums_squares() { self.rows } else { 0 }
    }

    /// Declarations of what threads add up in, and the text that does and stores. Every sum is made in one order.
    pub(super) fn sums(&self) -> (String, String) {
        match self.exchanging() {
            Some(subgroup) => self.exchanged(subgroup),
            None => self.by_tree(),
        }
    }

    /// Sums that subgroups add up in registers, and what is left of several subgroups in memory.
    fn exchanged(&self, subgroup: u32) -> (String, String) {
        let Stream { along, threads, lanes, codes, columns, .. } = self.shape;
        let groups = threads / lanes;
        let mut text = String::new();
        // Threads of a subgroup with a share of the same sum, by their distance.
        let (first, end) = match along {
            Along::Across => (groups, subgroup),
            Along::Depth => (1, lanes.min(subgroup)),
        };
        let sums: Vec<String> = (0..self.slots()).map(|slot| format!("sum{slot}")).collect();
        let squares: Vec<String> = (0..self.squares()).map(|row| format!("squares[{row}u]")).collect();
        let mut step = first;
        while step < end {
            for sum in sums.iter().chain(&squares) {
                add_line!(text, "    {sum} += subgroupShuffleXor({sum}, {step}u);");
            }
            step *= 2;
        }
        let (parts, cells) = (self.parts(subgroup), self.cells(subgroup));
        if parts == 1 {
            add_line!(text, "    if (share == 0u && first_column < constants.columns) {{");
            for row in 0..self.squares() {
                add_line!(text, "        let inverse{row} = inverse_of(squares[{row}u]);");
            }
            for slot in 0..self.slots() {
                text += &self.finished(slot, &format!("sum{slot}"));
            }
            add_line!(text, "    }}");
            return (String::new(), text);
        }
        let most = (MEMORY - 4 * self.squares() * cells) / (4 * self.slot_columns() * cells);
        let together = most.clamp(1, self.slots());
        let (writes, part) = match along {
            Along::Across => (format!("lane < {groups}u"), "subgroup".to_string()),
            Along::Depth => ("lane == 0u".to_string(), format!("subgroup % {parts}u")),
        };
        let cell = |number: u32| format!("[({number}u + {part}) * {groups}u + place]");
        let (per_row, wide) = (self.row_slots(), self.slot_columns());
        let each = if along == Along::Across { codes } else { columns };
        for first in (0..self.slots()).step_by(together as usize) {
            let slots = first..self.slots().min(first + together);
            add_line!(text, "    if ({writes}) {{");
            for slot in slots.clone() {
                add_line!(text, "        sums{} = sum{slot};", cell((slot - first) * parts));
            }
            if first == 0 {
                for row in 0..self.squares() {
                    add_line!(text, "        squared{} = squares[{row}u];", cell(row * parts));
                }
            }
            add_line!(text, "    }}\n    workgroupBarrier();");
            // A thread for each sum of each place.
            let all = slots.len() as u32 * groups;
            let total = |name: &str, number: &str| {
                let at = format!("{number} * {cells}u + here");
                format!(
                    "{name}[{at}];\n        for (var p = 1u; p < {parts}u; p += 1u) {{ total += {name}[{at} + p * {groups}u]; }}"
                )
            };
            add_line!(text, "    for (var own = thread; own < {all}u; own += {threads}u) {{");
            add_line!(
                text,
                "        let here = own % {groups}u;\n        let slot = own / {groups}u + {first}u;"
            );
            add_line!(text, "        let row = slot / {per_row}u;");
            add_line!(
                text,
                "        let column = workgroup_column + here * {each}u + slot % {per_row}u * {wide}u;\n        if (column >= constants.columns) {{ continue; }}"
            );
            let kind = self.kind();
            if self.squares() > 0 {
                let inverse = total("squared", "row");
                add_line!(text, "        var inverse = 0.0;\n        {{\n        var total = {inverse}");
                add_line!(text, "        inverse = inverse_of(total);\n        }}");
            }
            add_line!(text, "        var total: {kind} = {}", total("sums", &format!("(slot - {first}u)")));
            let inverse = if self.squares() > 0 { " * inverse" } else { "" };
            let value = self.scaled("total", "column");
            add_line!(text, "        {}\n    }}", self.stored("row", "column", &format!("{value}{inverse}")));
            if slots.end < self.slots() {
                add_line!(text, "    workgroupBarrier();");
            }
        }
        let mut memory = format!("var<workgroup> sums: array<{}, {}>;\n", self.kind(), together * cells);
        if self.squares() > 0 {
            memory += &format!("var<workgroup> squared: array<f32, {}>;\n", self.squares() * cells);
        }
        (memory, text)
    }

    /// Sums that all threads add up in memory, by one fixed tree.
    fn by_tree(&self) -> (String, String) {
        let threads = self.shape.threads;
        // Before the sums come those of a row's squares.
        let all = self.slots() + self.squares();
        let together = (MEMORY / (4 * self.slot_columns() * threads)).max(1).min(all);
        let mut text = String::new();
        for row in 0..self.squares() {
            add_line!(text, "    var inverse{row} = 1.0;");
        }
        for first in (0..all).step_by(together as usize) {
            let last = all.min(first + together);
            self.write_tree(&mut text, first..last);
            if last < all {
                text += "    workgroupBarrier();\n";
            }
        }
        (format!("var<workgroup> sums: array<{}, {}>;\n", self.kind(), together * threads), text)
    }

    /// Adds these sums up over the lanes and stores them.
    fn write_tree(&self, out: &mut String, slots: Range<u32>) {
        let Stream { along, threads, lanes, .. } = self.shape;
        let groups = threads / lanes;
        let start = slots.start;
        let cell = |slot: u32, lane: u32| {
            format!("sums[{}u + (share + {lane}u) * {groups}u + place]", (slot - start) * threads)
        };
        let (squares, kind) = (self.squares(), self.kind());
        for slot in slots.clone() {
            match slot.checked_sub(squares) {
                Some(sum) => add_line!(out, "    {} = sum{sum};", cell(slot, 0)),
                None => add_line!(out, "    {} = {kind}(squares[{slot}u]);", cell(slot, 0)),
            }
        }
        let mut left = lanes;
        while left > 1 {
            let joined = if left.is_multiple_of(4) { 4 } else { 2 };
            left /= joined;
            add_line!(out, "    workgroupBarrier();\n    if (share < {left}u) {{");
            for slot in slots.clone() {
                let all: Vec<String> = (0..joined).map(|i| cell(slot, i * left)).collect();
                let sum = match joined {
                    4 => format!("({} + {}) + ({} + {})", all[0], all[1], all[2], all[3]),
                    _ => all.join(" + "),
                };
                add_line!(out, "        {} = {sum};", all[0]);
            }
            add_line!(out, "    }}");
        }
        add_line!(out, "    if (share == 0u && first_column < constants.columns) {{");
        for slot in slots {
            let value = cell(slot, 0);
            match slot.checked_sub(squares) {
                Some(sum) => *out += &self.finished(sum, &value),
                None => {
                    let sum = if along == Along::Across { format!("{value}.x") } else { value };
                    add_line!(out, "        inverse{slot} = inverse_of({sum});");
                }
            }
        }
        add_line!(out, "    }}");
    }

    /// Stores a thread's own sum of this number, with `inverseR` of its row.
    fn finished(&self, slot: u32, value: &str) -> String {
        let (row, column) = (slot / self.row_slots(), slot % self.row_slots() * self.slot_columns());
        let column = format!("first_column + {column}u");
        let inverse = if self.squares() > 0 { format!(" * inverse{row}") } else { String::new() };
        let value = format!("{}{inverse}", self.scaled(value, &column));
        let stored = self.stored(&format!("{row}u"), &column, &value);
        match self.shape.along {
            Along::Across => format!("        {stored}\n"),
            Along::Depth => format!("        if ({column} < constants.columns) {{ {stored} }}\n"),
        }
    }

    /// A sum times the scale that came in for none of its products.
    fn scaled(&self, value: &str, column: &str) -> String {
        let packing = &self.weight.packing;
        let factor = match packing.wgsl_block("") {
            Some(block) => block.factor,
            None => packing.wgsl_vec4("").map_or(1.0, |(_, factor)| factor),
        };
        let factor = if factor == 1.0 { String::new() } else { format!(" * {factor:?}") };
        let scaled = match (self.shape.along, self.weight.groups()) {
            _ if self.minima() => value.to_string(),
            (Along::Across, Groups::One) => format!("{value} * loom_four_scales(vec4<u32>())"),
            (Along::Across, Groups::Columns) => {
                format!("{value} * loom_four_scales(vec4<u32>({column}) + vec4<u32>(0u, 1u, 2u, 3u))")
            }
            (Along::Depth, Groups::One) => format!("{value} * loom_four_scales(vec4<u32>()).x"),
            _ => value.to_string(),
        };
        scaled + &factor
    }

    /// Stores an element of this row, or four.
    fn stored(&self, row: &str, column: &str, value: &str) -> String {
        match self.row_groups {
            1 => format!("store({row}, {column}, {value});"),
            _ => {
                format!(
                    "if (first_row + {row} < constants.rows) {{ store(first_row + {row}, {column}, {value}); }}"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::left_form::LeftForm;
    use super::super::matrix::{Matrix, Storage};
    use super::super::stream::Weight;
    use super::*;
    use crate::dtype::{DType, Packing};
    use crate::shader::testing::is_valid;
    use crate::shader::{Operand, Shader};

    /// A product of this many rows with a weight of this type, on a device with such subgroups.
    fn kernel(
        (dtype, transposed): (DType, bool),
        rows: usize,
        depth: usize,
        subgroup: u32,
        squares: bool,
    ) -> Shader {
        let columns = 576;
        let stride = if transposed { depth } else { columns };
        let inputs = if transposed { columns } else { depth };
        let matrix = Matrix { transposed, stride, offset: 0 };
        let packing = Packing::new(dtype, inputs, stride);
        let storage = Storage::of(Some(packing));
        let weight = Weight::new(storage, matrix, columns, depth).expect("a weight that is read as it lies");
        let form = match squares {
            true => LeftForm::MeanSquare { gain: None, epsilon: 1e-5 },
            false => LeftForm::Plain,
        };
        let kernel = Streamed {
            shape: weight.shape([rows, columns, depth], 1, 1024),
            weight,
            rows: rows as u32,
            row_groups: 2,
            depth,
            left: Matrix { transposed: false, stride: depth, offset: 0 },
            parts: false,
            form,
            subgroup,
        };
        let unbound = Operand::unbound();
        let mut shader = Shader::new("k", "");
        for name in ["rows", "columns", "depth", "parts", "chunk"] {
            shader = shader.number(name, 1u32);
        }
        let ty = kernel.kind();
        let store =
            format!("fn store(row: u32, column: u32, value: {ty}) {{\n    output[row] = value;\n}}\n");
        let held = unbound.allocation();
        let scales = (packing.group_words() > 0).then_some((held, packing.group_words()));
        let shader = kernel.declare(shader.unchecked(), &unbound, &Operand::packed(held, packing, scales));
        kernel.add_to(shader.write("output", ty, unbound.clone()).append(&store).unchecked())
    }

    /// Bytes of workgroup memory that a text declares.
    fn memory(source: &str) -> usize {
        let declared = source.lines().filter_map(|line| line.strip_prefix("var<workgroup> "));
        let bytes = |line: &str| {
            let count = line.rsplit_once(", ")?.1.strip_suffix(">;")?.parse::<usize>().ok()?;
            Some(count * if line.contains("vec4<f32>") { 16 } else { 4 })
        };
        declared.map(|line| bytes(line).expect("an array")).sum()
    }

    /// Software adapters have small subgroups: naga sees the text for those of real devices.
    #[test]
    fn texts_for_every_subgroup_are_valid() {
        let weights = [
            (DType::Float16, false),
            (DType::Int8, false),
            (DType::Q4_0, false),
            (DType::Uint4Min, false),
            (DType::Float16, true),
        ];
        for weight in weights {
            for subgroup in [0, 4, 8, 16, 32, 64] {
                for (rows, depth, squares) in [(1, 1536, true), (8, 1536, false), (8, 4096, true)] {
                    let kernel = || kernel(weight, rows, depth, subgroup, squares);
                    is_valid(kernel());
                    let (kernel, _, _) = kernel().finish().expect("a kernel");
                    let bytes = memory(kernel.source());
                    assert!(bytes <= MEMORY as usize, "{weight:?}, {rows} rows, {subgroup}: {bytes}");
                }
            }
        }
    }

    #[test]
    fn one_barrier_is_left_where_subgroups_exchange() {
        let barriers = |subgroup| {
            let kernel = kernel((DType::Float16, false), 8, 1536, subgroup, true);
            let (kernel, _, _) = kernel.finish().expect("a kernel");
            kernel.source().matches("workgroupBarrier").count()
        };
        assert_eq!(barriers(32), 1);
        assert!(barriers(0) > 10, "{}", barriers(0));
    }
}

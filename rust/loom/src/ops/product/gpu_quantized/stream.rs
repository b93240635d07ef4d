//! Products of int8 codes of activations with weights that are read word by word.
//!
//! Codes of a weight lie across: of four rows of words each thread makes the words of four codes of a column
//! that [`dot4I8Packed`](https://www.w3.org/TR/WGSL/#dot4I8Packed-builtin) multiplies. Those of the block formats lie along
//! the columns, as they are needed. Threads of a workgroup share the inputs out and add up in workgroup memory.

use crate::dtype::{BLOCK, BlockLayout, CodeOrder, Granularity, Packing};
use crate::shader::{THREADS, add_line};

/// Bytes of workgroup memory that sums may take.
const MEMORY: usize = 16384;

/// How the work is shared out.
pub(super) struct Stream<'a> {
    packing: &'a Packing,
    /// Rows of a thread.
    pub(super) rows: usize,
    /// Threads of a workgroup.
    pub(super) threads: usize,
    /// Threads that share a sum out.
    lanes: usize,
    /// Quads of rows, or pieces of blocks, whose words are loaded together.
    unroll: usize,
}

/// Words of codes of a piece of a block.
const WORDS: usize = 2;
/// Columns of a thread, of the block formats.
const COLUMNS: usize = 2;

impl<'a> Stream<'a> {
    /// For so many rows, where words can be read.
    pub(super) fn new(packing: &'a Packing, rows: usize, raw: bool, most_threads: usize) -> Option<Self> {
        let own = Self { packing, rows: 1, threads: 1, lanes: 1, unroll: 1 };
        let (depth, columns) = (packing.rows, packing.channels);
        let fits = match packing.granularity {
            _ if own.blocks() => !raw && packing.block_layout()?.order != CodeOrder::Pairs,
            Granularity::Block(rows) if rows < depth => rows.is_multiple_of(4),
            _ => true,
        };
        if !fits || depth == 0 || !own.blocks() && !columns.is_multiple_of(own.codes()) {
            return None;
        }
        let most_rows = match own.bits() {
            1 => 2,
            2 => 4,
            _ => 8,
        };
        let shared = rows.min(most_rows);
        let most = 1 << most_threads.clamp(32, if shared > 2 { THREADS } else { 2 * THREADS }).ilog2();
        let groups = rows.div_ceil(shared);
        // Batches have workgroups enough without sharing sums out.
        let steps = if own.blocks() { depth.div_ceil(BLOCK) * own.pieces() } else { depth.div_ceil(4) };
        let mut wide = if own.blocks() { 8 } else { 8.min((columns / own.codes()).next_power_of_two()) };
        while !own.blocks() && wide > 1 && columns / (wide * own.codes()) * groups < 128 {
            wide /= 2;
        }
        let lanes = match own.blocks() {
            true => (256.min(most) / wide).min(steps.next_power_of_two()),
            false if groups > 8 => (128 / wide).min(steps.next_power_of_two()),
            false => (most / wide).min(steps.next_power_of_two()),
        };
        let unroll = if shared > 2 || own.bits() == 1 { 1 } else { 4 };
        Some(Self { rows: shared, threads: wide * lanes, lanes, unroll, ..own })
    }

    fn blocks(&self) -> bool {
        self.packing.dtype.is_block_format()
    }

    fn bits(&self) -> usize {
        self.packing.dtype.row().bits
    }

    /// Codes of a word.
    fn codes(&self) -> usize {
        32 / self.bits()
    }

    /// Pieces of a block.
    fn pieces(&self) -> usize {
        BLOCK * self.bits() / 32 / WORDS
    }

    /// Codes of a byte: each is one of as many planes.
    fn planes(&self) -> usize {
        8 / self.bits()
    }

    /// Columns of a workgroup.
    pub(super) fn columns(&self) -> usize {
        self.threads / self.lanes * if self.blocks() { COLUMNS } else { self.codes() }
    }

    /// What is added to codes of fewer than 8 bits, so that they are no less than 0. Binary ones are 0 and 2 then.
    fn excess(&self) -> usize {
        if self.bits() == 8 { 0 } else { 1 << (self.bits() - 1) }
    }

    /// Inputs that share a scale, where those are several.
    fn scaled(&self) -> Option<usize> {
        match self.packing.granularity {
            Granularity::Block(rows) if rows < self.packing.rows && !self.blocks() => Some(rows),
            _ => None,
        }
    }

    /// What sums are while they are made, and at the end: four columns together, or one of a block format.
    fn kinds(&self) -> [&'static str; 2] {
        match (self.blocks(), self.scaled()) {
            (true, _) => ["i32", "f32"],
            (false, Some(_)) => ["vec4<i32>", "vec4<f32>"],
            (false, None) => ["vec4<i32>", "vec4<i32>"],
        }
    }

    /// Sums of a thread.
    fn slots(&self) -> usize {
        self.rows * if self.blocks() { COLUMNS } else { self.planes() }
    }

    /// `main`, which calls `finish(row, column, sum)` with an integer or, where scales are several, with a
    /// number.
    pub(super) fn source(&self) -> String {
        let (threads, lanes, rows) = (self.threads, self.lanes, self.rows);
        let wide = threads / lanes;
        let columns = self.columns();
        let [_, kind] = self.kinds();
        let bytes = if self.blocks() { 4 } else { 16 };
        let together = (MEMORY / (bytes * threads)).clamp(1, self.slots());
        let (mut body, mut tree) = (String::new(), String::new());
        for slot in 0..self.slots() {
            add_line!(body, "    var all{slot} = {kind}();");
        }
        if self.blocks() {
            self.write_blocks(&mut body);
        } else {
            self.write_quads(&mut body);
        }
        for first in (0..self.slots()).step_by(together) {
            let last = self.slots().min(first + together);
            self.write_tree(&mut tree, first..last);
            if last < self.slots() {
                tree += "    workgroupBarrier();\n";
            }
        }
        format!(
            "var<workgroup> sums: array<{kind}, {memory}>;

fn main(number: u32, thread: u32) {{
    let across = (constants.columns + {last_column}u) / {columns}u;
    let first_row = number / across * {rows}u;
    if (first_row >= constants.rows) {{ return; }}
    let last_row = constants.rows - 1u;
    let place = thread % {wide}u;
    let lane = thread / {wide}u;
    let first_column = number % across * {columns}u + place * {each}u;
{body}{tree}}}
",
            memory = together * threads,
            last_column = columns - 1,
            each = columns / wide,
        )
    }

    /// Loads four rows' words.
    fn write_quad_loads(&self, out: &mut String, u: usize) {
        let whole = self.packing.rows.is_multiple_of(4);
        for j in 0..4 {
            let k = format!("k + {}u", u * self.lanes * 4 + j);
            // Codes of activations past the last are zeros.
            let k = if whole { k } else { format!("min({k}, constants.depth - 1u)") };
            add_line!(
                out,
                "            let word{u}_{j} = packed[(({k}) * {}u + first_column) / {}u];",
                self.packing.channels,
                self.codes()
            );
        }
    }

    /// Turns them round and multiplies.
    fn write_quad_products(&self, out: &mut String, u: usize) {
        let (bits, excess) = (self.bits(), self.excess());
        let byte = |value: usize| value * 0x0101_0101;
        for plane in 0..self.planes() {
            let id = format!("{u}_{plane}");
            for j in 0..4 {
                let plain = format!("word{u}_{j}");
                let codes = match bits {
                    8 => plain,
                    1 => format!("({plain} >> {plane}u & 0x01010101u) << 1u"),
                    _ => format!(
                        "({plain} >> {}u & {}u) ^ {}u",
                        plane * bits,
                        byte((1 << bits) - 1),
                        byte(excess)
                    ),
                };
                add_line!(out, "            let row{id}_{j} = {codes};");
            }
            for (pair, [one, other]) in [[0, 1], [2, 3]].into_iter().enumerate() {
                add_line!(
                    out,
                    "            let even{id}_{pair} = row{id}_{one} & 0xff00ffu | (row{id}_{other} & 0xff00ffu) << 8u;"
                );
                add_line!(
                    out,
                    "            let odd{id}_{pair} = row{id}_{one} >> 8u & 0xff00ffu | row{id}_{other} & 0xff00ff00u;"
                );
            }
            for (column, (pair, half)) in
                [("even", 0), ("odd", 0), ("even", 1), ("odd", 1)].into_iter().enumerate()
            {
                let text = match half {
                    0 => format!("{pair}{id}_0 & 0xffffu | {pair}{id}_1 << 16u"),
                    _ => format!("{pair}{id}_0 >> 16u | {pair}{id}_1 & 0xffff0000u"),
                };
                add_line!(out, "            let four{id}_{column} = {text};");
            }
        }
        for row in 0..self.rows {
            add_line!(
                out,
                "            let x{u}_{row} = codes[min(first_row + {row}u, last_row) * constants.words + k / 4u + {}u];",
                u * self.lanes
            );
            if excess > 0 {
                add_line!(out, "            x_sum{row} += dot4I8Packed(x{u}_{row}, 0x01010101u);");
            }
            for plane in 0..self.planes() {
                let dots: Vec<String> = (0..4)
                    .map(|column| format!("dot4I8Packed(x{u}_{row}, four{u}_{plane}_{column})"))
                    .collect();
                add_line!(
                    out,
                    "            sum{} += vec4<i32>({});",
                    row * self.planes() + plane,
                    dots.join(", ")
                );
            }
        }
    }

    fn write_sums(&self, out: &mut String) {
        for slot in 0..self.slots() {
            add_line!(out, "        var sum{slot} = {}();", self.kinds()[0]);
        }
        for row in 0..if self.excess() > 0 { self.rows } else { 0 } {
            add_line!(out, "        var x_sum{row} = 0;");
        }
    }

    /// What a sum of codes that are `excess` too large comes to.
    fn sum(&self, slot: usize) -> String {
        let per_row = self.slots() / self.rows;
        match self.excess() {
            0 => format!("sum{slot}"),
            excess if self.blocks() => format!("(sum{slot} - {excess} * x_sum{})", slot / per_row),
            excess => format!("(sum{slot} - vec4<i32>({excess} * x_sum{}))", slot / per_row),
        }
    }

    fn write_quads(&self, out: &mut String) {
        add_line!(out, "    if (first_column < constants.columns) {{");
        let quads = |out: &mut String, end: &str, stride: usize, count: usize| {
            let reach = (count - 1) * stride;
            add_line!(out, "        for (; k + {reach}u < {end}; k += {}u) {{", count * stride);
            (0..count).for_each(|u| self.write_quad_loads(out, u));
            (0..count).for_each(|u| self.write_quad_products(out, u));
            add_line!(out, "        }}");
        };
        match self.scaled() {
            Some(block) => {
                let channels = self.packing.channels;
                add_line!(
                    out,
                    "    for (var group = lane; group * {block}u < constants.depth; group += {}u) {{",
                    self.lanes
                );
                self.write_sums(out);
                add_line!(out, "        var k = group * {block}u;");
                add_line!(out, "        let end = min(k + {block}u, constants.depth);");
                quads(out, "end", 4, 1);
                for plane in 0..self.planes() {
                    let scales: Vec<String> = (0..4)
                        .map(|c| {
                            let column = c * self.planes() + plane;
                            format!("scales[group * {channels}u + first_column + {column}u]")
                        })
                        .collect();
                    add_line!(out, "        let scales{plane} = vec4<f32>({});", scales.join(", "));
                    for row in 0..self.rows {
                        let slot = row * self.planes() + plane;
                        let sum = self.sum(slot);
                        add_line!(
                            out,
                            "        all{slot} = fma(vec4<f32>({sum}), scales{plane}, all{slot});"
                        );
                    }
                }
                add_line!(out, "    }}");
            }
            None => {
                self.write_sums(out);
                add_line!(out, "        var k = lane * 4u;");
                if self.unroll > 1 {
                    quads(out, "constants.depth", self.lanes * 4, self.unroll);
                }
                quads(out, "constants.depth", self.lanes * 4, 1);
                for slot in 0..self.slots() {
                    add_line!(out, "        all{slot} = {};", self.sum(slot));
                }
            }
        }
        add_line!(out, "    }}");
    }

    fn write_blocks(&self, out: &mut String) {
        let Some(BlockLayout { bytes, head, order, scale }) = self.packing.block_layout() else {
            return;
        };
        let (pieces, blocks) = (self.pieces(), self.packing.rows.div_ceil(BLOCK));
        for c in 0..COLUMNS {
            add_line!(out, "    let column{c} = min(first_column + {c}u, constants.columns - 1u);");
        }
        add_line!(
            out,
            "    for (var piece = lane; piece < {}u; piece += {}u) {{",
            blocks * pieces,
            self.lanes
        );
        self.write_sums(out);
        for c in 0..COLUMNS {
            add_line!(out, "        let start{c} = (column{c} * {blocks}u + piece / {pieces}u) * {bytes}u;");
            add_line!(out, "        let head{c} = packed[start{c} / 4u] >> (start{c} % 4u * 8u);");
            add_line!(out, "        let at{c} = start{c} + {head}u + piece % {pieces}u * {}u;", WORDS * 4);
            for w in 0..WORDS {
                add_line!(out, "        let word{c}_{w} = packed[at{c} / 4u + {w}u];");
            }
            // Words that start at whole ones need no more.
            add_line!(
                out,
                "        let word{c}_{WORDS} = packed[at{c} / 4u + {WORDS}u - select(0u, 1u, at{c} % 4u == 0u)];"
            );
        }
        for c in 0..COLUMNS {
            add_line!(out, "        let shift{c} = at{c} % 4u * 8u;");
            for w in 0..WORDS {
                add_line!(
                    out,
                    "        let codes{c}_{w} = word{c}_{w} >> shift{c} | (word{c}_{} << 1u) << (31u - shift{c});",
                    w + 1
                );
            }
        }
        for row in 0..self.rows {
            for w in 0..WORDS {
                let at = format!(
                    "min(first_row + {row}u, last_row) * constants.words + piece / {pieces}u * {}u + piece % {pieces}u * {WORDS}u + {w}u",
                    BLOCK / 4
                );
                // The last block may be longer than the row.
                let x = |beyond: usize| {
                    let word = format!(
                        "piece / {pieces}u * {}u + piece % {pieces}u * {WORDS}u + {}u",
                        BLOCK / 4,
                        w + beyond
                    );
                    match self.packing.rows.is_multiple_of(BLOCK) {
                        true => format!("codes[{at} + {beyond}u]"),
                        false => format!("row_codes(min(first_row + {row}u, last_row), {word})"),
                    }
                };
                let parts: Vec<(String, &str)> = match order {
                    CodeOrder::Bytes => vec![(x(0), "")],
                    _ => vec![(x(0), " & 0x0f0f0f0fu"), (x(BLOCK / 8), " >> 4u & 0x0f0f0f0fu")],
                };
                for (half, (x, mask)) in parts.into_iter().enumerate() {
                    add_line!(out, "        let x{row}_{w}_{half} = {x};");
                    if self.excess() > 0 {
                        add_line!(out, "        x_sum{row} += dot4I8Packed(x{row}_{w}_{half}, 0x01010101u);");
                    }
                    for c in 0..COLUMNS {
                        add_line!(
                            out,
                            "        sum{} += dot4I8Packed(x{row}_{w}_{half}, codes{c}_{w}{mask});",
                            row * COLUMNS + c
                        );
                    }
                }
            }
        }
        for slot in 0..self.slots() {
            let (sum, scale) = (self.sum(slot), scale.replace("head", &format!("head{}", slot % COLUMNS)));
            let own = format!(
                "row_scales[min(first_row + {}u, last_row) * {blocks}u + piece / {pieces}u]",
                slot / COLUMNS
            );
            add_line!(out, "        all{slot} = fma(f32({sum}), {scale} * {own}, all{slot});");
        }
        add_line!(out, "    }}");
    }

    /// Adds these sums up over the lanes and stores them.
    fn write_tree(&self, out: &mut String, slots: std::ops::Range<usize>) {
        let (threads, lanes) = (self.threads, self.lanes);
        let (wide, start) = (threads / lanes, slots.start);
        let cell = |slot: usize, lane: usize| {
            format!("sums[{}u + (lane + {lane}u) * {wide}u + place]", (slot - start) * threads)
        };
        for slot in slots.clone() {
            add_line!(out, "    {} = all{slot};", cell(slot, 0));
        }
        let mut left = lanes;
        while left > 1 {
            let joined = if left.is_multiple_of(4) { 4 } else { 2 };
            left /= joined;
            add_line!(out, "    workgroupBarrier();\n    if (lane < {left}u) {{");
            for slot in slots.clone() {
                let all: Vec<String> = (0..joined).map(|i| cell(slot, i * left)).collect();
                add_line!(out, "        {} = {};", all[0], all.join(" + "));
            }
            add_line!(out, "    }}");
        }
        add_line!(out, "    if (lane == 0u && first_column < constants.columns) {{");
        for slot in slots {
            let per_row = self.slots() / self.rows;
            let (row, inner) = (slot / per_row, slot % per_row);
            let mut store = |column: usize, value: String| {
                let (row, column) = (format!("first_row + {row}u"), format!("first_column + {column}u"));
                let guard = match self.blocks() {
                    true => format!("{row} <= last_row && {column} < constants.columns"),
                    false => format!("{row} <= last_row"),
                };
                add_line!(out, "        if ({guard}) {{ finish({row}, {column}, {value}); }}");
            };
            match self.blocks() {
                true => store(inner, cell(slot, 0)),
                false => {
                    (0..4).for_each(|c| store(c * self.planes() + inner, format!("{}[{c}]", cell(slot, 0))))
                }
            }
        }
        add_line!(out, "    }}");
    }

    /// WGSL of the type of `finish`'s third argument, and whether it is still to be scaled.
    pub(super) fn result(&self) -> (&'static str, bool) {
        match self.kinds()[1] {
            "vec4<i32>" => ("i32", true),
            _ => ("f32", false),
        }
    }
}

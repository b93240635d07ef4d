//! The product of a few rows with a weight that is read as it lies, word by word: each thread loads whole words
//! of codes, decodes all of theirs, and multiplies; scales come in as late as they can.
//!
//! Every weight is needed once, so that there are to be as many loads under way as the memory needs, and one
//! dispatch: threads of a workgroup share the summed extent out, and add up in workgroup memory.

use super::left_form::LeftForm;
use super::matrix::{Matrix, declare_left};
use super::stream::{BLOCK, Groups, Stream, Weight};
use super::tile::Along;
use crate::shader::{Operand, Shader, add_line};

/// A product of few rows as WGSL text.
pub(super) struct Streamed<'a> {
    pub(super) shape: Stream,
    pub(super) weight: Weight,
    /// Rows of C that a workgroup makes, at most [`MAX_ROWS`](super::stream::MAX_ROWS).
    pub(super) rows: u32,
    /// Groups of so many rows, of which the last may have fewer.
    pub(super) row_groups: u32,
    pub(super) depth: usize,
    /// Whether A is read in fours.
    pub(super) left: Matrix,
    /// Whether the summed extent is cut into `constants.parts` parts; not where the left form looks at whole rows.
    pub(super) parts: bool,
    /// What becomes of A where it is loaded.
    pub(super) form: LeftForm<'a>,
    /// Threads of every subgroup that threads may count on, 0 for none.
    pub(super) subgroup: u32,
}

/// `each` for each number below `count`, joined.
fn list(count: u32, each: impl Fn(u32) -> String) -> String {
    (0..count).map(each).collect()
}

impl Streamed<'_> {
    /// Declares A and B, with the functions that reach them.
    pub(super) fn declare(&self, shader: Shader, left: &Operand, right: &Operand) -> Shader {
        let fours = self.left.in_fours(self.depth);
        let one = if fours { "left[at / 4u][at % 4u]" } else { "left[at]" };
        let four = match fours {
            true => "left[at / 4u]",
            false => "vec4<f32>(left[at], left[at + 1u], left[at + 2u], left[at + 3u])",
        };
        // Rows behind the last are the last once more, and not stored.
        let row = match self.row_groups {
            1 => "let row = own;",
            _ => "let row = min(first_row + own, constants.rows - 1u);",
        };
        let at = "let at = constants.left_offset + row * constants.left_stride + k;";
        // The last block may be longer than the depth.
        let guard = match self.blocks() && !self.depth.is_multiple_of(BLOCK) {
            false => "",
            true => {
                "    if (k + 4u > constants.depth) {
        var some = vec4<f32>();
        for (var i = 0u; k + i < constants.depth; i++) { some[i] = left_one(own, k + i); }
        return some;
    }\n"
            }
        };
        let kind = if self.blocks() { "u32" } else { self.words().1 };
        let packing = &self.weight.packing;
        let form = self.form.texts(self.rows, fours);
        let shader = declare_left(shader, self.left, if fours { 4 } else { 1 }, left);
        let shader = self
            .form
            .declare(shader, fours)
            .append(&format!(
                "{first_row}fn left_one(own: u32, k: u32) -> f32 {{\n    {row}\n    {at}\n    let x = {one};\n{one_form}}}
fn left_four(own: u32, k: u32) -> vec4<f32> {{\n{guard}    {row}\n    {at}\n    let x = {four};\n{four_form}}}\n",
                first_row = if self.row_groups > 1 { "var<private> first_row: u32;\n" } else { "" },
                one_form = form.one,
                four_form = form.four,
            ))
            .read("right", if kind == "Wide" { "vec4<u32>" } else { kind }, right.clone())
            .when(packing.group_words() > 0, |shader| shader.scales("u32", right));
        if let Some(block) = packing.wgsl_block("loom_block") {
            return shader.append(&block.text);
        }
        let mut functions = packing.wgsl_vec4("loom_four").map_or(String::new(), |(text, _)| text);
        let codes = self.shape.codes;
        let per = (32 / self.weight.bits().min(32)) as u32;
        let value = match kind {
            "Wide" => "Wide(right[at / 2u], right[at / 2u + 1u])".to_string(),
            "u32" if codes < per => {
                format!("right[at / {per}u] >> (at % {per}u * {}u)", self.weight.bits())
            }
            _ => format!("right[at / {codes}u]"),
        };
        if kind == "Wide" {
            functions += "struct Wide { a: vec4<u32>, b: vec4<u32> }\n";
        }
        let at = match self.weight.matrix.transposed {
            false => "k * constants.right_stride + column",
            true => "column * constants.right_stride + k",
        };
        functions += &format!(
            "fn codes_at(k: u32, column: u32) -> {kind} {{
    let at = constants.right_offset + {at};\n    return {value};\n}}\n"
        );
        shader
            .number("right_stride", self.weight.matrix.stride)
            .number("right_offset", self.weight.matrix.offset)
            .append(&functions)
    }

    fn blocks(&self) -> bool {
        self.weight.packing.dtype.is_block_format()
    }

    /// Words of a load, and the type that holds them.
    fn words(&self) -> (u32, &'static str) {
        match self.shape.codes * self.weight.bits() as u32 {
            ..=32 => (1, "u32"),
            64 => (2, "vec2<u32>"),
            128 => (4, "vec4<u32>"),
            _ => (8, "Wide"),
        }
    }

    /// Four numbers of a load.
    pub(super) fn four(&self, load: &str, number: u32, zeros: &str) -> String {
        let bits = self.weight.bits() as u32;
        let (words, _) = self.words();
        let first = number * 4 * bits;
        let component = |word: u32| match words {
            1 => load.to_string(),
            _ => format!("{load}.{}", ["x", "y", "z", "w"][word as usize % 4]),
        };
        let word = match bits {
            ..=8 => match first % 32 {
                0 => component(first / 32),
                shift => format!("{} >> {shift}u", component(first / 32)),
            },
            16 if words == 4 => format!("{load}.{}", ["xy", "zw"][number as usize % 2]),
            16 | 32 => load.to_string(),
            _ => format!("vec4<u32>({load}.a.xz, {load}.b.xz), vec4<u32>({load}.a.yw, {load}.b.yw)"),
        };
        format!("loom_four({word}{zeros})")
    }

    /// Whether numbers have zero points.
    pub(super) fn zeros(&self) -> bool {
        self.weight.packing.group_words() > 1 && !self.minima()
    }

    /// Whether numbers times scales have minima added: they are weights by then, which nothing else scales.
    pub(super) fn minima(&self) -> bool {
        self.weight.packing.has_minima()
    }

    /// Adds `main` to a kernel that has `store`, too.
    pub(super) fn add_to(&self, shader: Shader) -> Shader {
        shader.threads(self.shape.threads as usize).append(&self.main())
    }

    fn main(&self) -> String {
        let Stream { along, threads, lanes, codes, columns, .. } = self.shape;
        let across = along == Along::Across;
        let groups = threads / lanes;
        let wide = self.shape.workgroup_columns();
        let each = if across { codes } else { columns };
        let kind = self.kind();
        let sums = list(self.slots(), |s| format!("    var sum{s} = {kind}();\n"));
        let rows = match self.row_groups {
            1 => String::new(),
            _ => format!("    first_row = group / groups % {}u * {}u;\n", self.row_groups, self.rows),
        };
        let (parts, range) = match self.parts {
            true => (
                "constants.parts",
                "let first = part * constants.chunk;\n    let last = min(constants.depth, first + constants.chunk);",
            ),
            false => ("1u", "let first = 0u;\n    let last = constants.depth;"),
        };
        let (share, place) = match across {
            true => (format!("thread / {groups}u"), format!("thread % {groups}u")),
            false => (format!("thread % {lanes}u"), format!("thread / {lanes}u")),
        };
        let mut body = String::new();
        if across {
            self.write_across(&mut body);
        } else {
            self.write_depth(&mut body);
        }
        let (memory, tree) = self.sums();
        let (numbers, thread) = match self.exchanging() {
            // By what the device says, not by the order in which it numbers threads.
            Some(subgroup) => {
                ("subgroup: u32, lane: u32", format!("    let thread = subgroup * {subgroup}u + lane;\n"))
            }
            None => ("thread: u32", String::new()),
        };
        format!(
            "{memory}{squares}var<private> part: u32;

fn main(group: u32, {numbers}) {{
{thread}    let groups = (constants.columns + {last_column}u) / {wide}u;
{rows}    part = group / (groups * {row_groups}u);
    if (part >= {parts}) {{ return; }}
    {range}
    let share = {share};
    let place = {place};
    let workgroup_column = group % groups * {wide}u;
    let first_column = workgroup_column + place * {each}u;
{sums}    if (first_column < constants.columns) {{
{body}    }}
{tree}}}
",
            row_groups = self.row_groups,
            squares = match self.squares() {
                0 => String::new(),
                rows => format!("var<private> squares: array<f32, {rows}>;\n"),
            },
            last_column = wide - 1,
        )
    }

    /// Sums over rows of B of a thread's columns.
    fn write_across(&self, out: &mut String) {
        let Stream { lanes, codes, unroll, .. } = self.shape;
        let fours = codes / 4;
        let groups = self.weight.groups();
        let zeros: fn(u32) -> String =
            if self.zeros() { |c| format!(", zeros{c}") } else { |_| String::new() };
        let columns = |c: u32| format!("vec4<u32>(first_column + {}u) + vec4<u32>(0u, 1u, 2u, 3u)", c * 4);
        if !matches!(groups, Groups::Blocks(_)) {
            for c in 0..fours {
                let group = if groups == Groups::One { "vec4<u32>()".into() } else { columns(c) };
                if self.zeros() {
                    add_line!(out, "        let zeros{c} = loom_four_zeros({group});");
                }
                if self.minima() {
                    add_line!(out, "        let scales{c} = loom_four_scales({group});");
                    add_line!(out, "        let minima{c} = loom_four_minima({group});");
                }
            }
        }
        // Products of `steps` rows of B from k on, whose codes are in `codesU_J`, added up.
        let products = |out: &mut String, u: u32, k: &str, steps: u32| {
            if let Groups::Blocks(rows) = groups {
                add_line!(out, "            let row{u} = ({k}) / {rows}u * constants.right_stride;");
                for c in 0..fours {
                    add_line!(out, "            let group{u}_{c} = vec4<u32>(row{u}) + {};", columns(c));
                    add_line!(out, "            let scales{u}_{c} = loom_four_scales(group{u}_{c});");
                    if self.zeros() {
                        add_line!(out, "            let zeros{u}_{c} = loom_four_zeros(group{u}_{c});");
                    }
                    if self.minima() {
                        add_line!(out, "            let minima{u}_{c} = loom_four_minima(group{u}_{c});");
                    }
                }
            }
            for j in 0..steps {
                for c in 0..fours {
                    let zeros = match groups {
                        Groups::Blocks(_) if self.zeros() => format!(", zeros{u}_{c}"),
                        _ => zeros(c),
                    };
                    let four = self.four(&format!("codes{u}_{j}"), c, &zeros);
                    let four = match (self.minima(), groups) {
                        (false, _) => four,
                        (true, Groups::Blocks(_)) => format!("{four} * scales{u}_{c} + minima{u}_{c}"),
                        (true, _) => format!("{four} * scales{c} + minima{c}"),
                    };
                    add_line!(out, "            let b{u}_{j}_{c} = {four};");
                }
            }
            for r in 0..self.rows {
                let load = if steps == 4 { "left_four" } else { "left_one" };
                add_line!(out, "            let a{u}_{r} = {load}({r}u, {k});");
                let a = |j: u32| match steps {
                    4 => format!("vec4<f32>(a{u}_{r}.{})", ["x", "y", "z", "w"][j as usize]),
                    _ => format!("vec4<f32>(a{u}_{r})"),
                };
                for c in 0..fours {
                    let sum = format!("sum{}", r * fours + c);
                    if matches!(groups, Groups::Blocks(_)) && !self.minima() {
                        let first = format!("{} * b{u}_0_{c}", a(0));
                        let all =
                            (1..steps).fold(first, |sum, j| format!("fma({}, b{u}_{j}_{c}, {sum})", a(j)));
                        add_line!(out, "            {sum} = fma({all}, scales{u}_{c}, {sum});");
                        continue;
                    }
                    for j in 0..steps {
                        add_line!(out, "            {sum} = fma({}, b{u}_{j}_{c}, {sum});", a(j));
                    }
                }
            }
        };
        let stride = 4 * lanes;
        add_line!(out, "        var k = first + share * 4u;");
        let mut counts = vec![unroll];
        if unroll > 1 {
            counts.push(1);
        }
        for count in counts {
            let reach = (count - 1) * stride + 4;
            add_line!(out, "        for (; k + {reach}u <= last; k += {}u) {{", count * stride);
            for u in 0..count {
                for j in 0..4 {
                    let at = u * stride + j;
                    add_line!(out, "            let codes{u}_{j} = codes_at(k + {at}u, first_column);");
                }
            }
            for u in 0..count {
                products(out, u, &format!("k + {}u", u * stride), 4);
            }
            add_line!(out, "        }}");
        }
        if !self.depth.is_multiple_of(4) {
            // At most one thread's last rows.
            add_line!(out, "        for (; k < last; k++) {{");
            add_line!(out, "            let codes0_0 = codes_at(k, first_column);");
            products(out, 0, "k", 1);
            add_line!(out, "        }}");
        }
    }
}

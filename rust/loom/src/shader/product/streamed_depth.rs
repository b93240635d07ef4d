//! Sums of a product of few rows where a thread's codes lie along the depth: stretches of stored rows, or pieces of
//! blocks.

use super::stream::{BLOCK, Groups, Stream};
use super::streamed::Streamed;
use crate::dtype::BlockWords;
use crate::shader::add_line;

impl Streamed<'_> {
    /// Sums over stretches of a thread's columns.
    pub(super) fn write_depth(&self, out: &mut String) {
        let Stream { lanes, codes, columns, unroll, .. } = self.shape;
        let block = self.weight.packing.wgsl_block("loom_block");
        for c in 0..columns {
            add_line!(out, "        let column{c} = min(first_column + {c}u, constants.columns - 1u);");
        }
        let pieces = BLOCK as u32 / codes;
        let (first, last) = match block {
            Some(_) => (
                format!("first / {BLOCK}u * {pieces}u"),
                format!("(last + {}u) / {BLOCK}u * {pieces}u", BLOCK - 1),
            ),
            None => (format!("first / {codes}u"), format!("last / {codes}u")),
        };
        add_line!(out, "        let end = {last};\n        var piece = {first} + share;");
        let mut counts = vec![unroll];
        if unroll > 1 {
            counts.push(1);
        }
        for count in counts {
            let reach = (count - 1) * lanes;
            add_line!(out, "        for (; piece + {reach}u < end; piece += {}u) {{", count * lanes);
            for u in 0..count {
                add_line!(out, "            let piece{u} = piece + {}u;", u * lanes);
                match &block {
                    Some(block) => self.write_block_loads(out, u, block),
                    None => {
                        for c in 0..columns {
                            add_line!(
                                out,
                                "            let codes{u}_{c} = codes_at(piece{u} * {codes}u, column{c});"
                            );
                        }
                    }
                }
            }
            for u in 0..count {
                match &block {
                    Some(block) => self.write_block_products(out, u, block),
                    None => self.write_row_products(out, u),
                }
            }
            add_line!(out, "        }}");
        }
    }

    /// Loads the words of a piece of a block, and of its scale.
    fn write_block_loads(&self, out: &mut String, u: u32, block: &BlockWords) {
        let Stream { codes, columns, .. } = self.shape;
        let (pieces, words) = (BLOCK as u32 / codes, self.block_words());
        let blocks = self.weight.packing.rows.div_ceil(BLOCK);
        for c in 0..columns {
            let id = format!("{u}_{c}");
            add_line!(
                out,
                "            let start{id} = (column{c} * {blocks}u + piece{u} / {pieces}u) * {}u;",
                block.bytes
            );
            add_line!(out, "            let head{id} = right[start{id} / 4u] >> (start{id} % 4u * 8u);");
            add_line!(
                out,
                "            let at{id} = start{id} + {}u + piece{u} % {pieces}u * {}u;",
                block.head,
                words * 4
            );
            for w in 0..words {
                add_line!(out, "            let word{id}_{w} = right[at{id} / 4u + {w}u];");
            }
            // Words that start at whole ones need no more.
            add_line!(
                out,
                "            let word{id}_{words} = right[at{id} / 4u + {words}u - select(0u, 1u, at{id} % 4u == 0u)];"
            );
        }
    }

    /// Words of a piece of a block.
    fn block_words(&self) -> u32 {
        self.shape.codes * self.weight.bits() as u32 / 32
    }

    fn write_block_products(&self, out: &mut String, u: u32, block: &BlockWords) {
        let Stream { codes, columns, .. } = self.shape;
        let (pieces, words) = (BLOCK as u32 / codes, self.block_words());
        for c in 0..columns {
            let id = format!("{u}_{c}");
            add_line!(out, "            let scale{id} = loom_block_scale(head{id});");
            add_line!(out, "            let shift{id} = at{id} % 4u * 8u;");
            for w in 0..words {
                add_line!(
                    out,
                    "            let codes{id}_{w} = word{id}_{w} >> shift{id} | (word{id}_{} << 1u) << (31u - shift{id});",
                    w + 1
                );
                for run in 0..block.runs.len() {
                    add_line!(out, "            let b{id}_{w}_{run} = loom_block_{run}(codes{id}_{w});");
                }
            }
        }
        add_line!(out, "            let k{u} = piece{u} / {pieces}u * {BLOCK}u;");
        add_line!(out, "            let byte{u} = piece{u} % {pieces}u * {}u;", words * 4);
        for r in 0..self.rows {
            for w in 0..words {
                for (run, (times, from)) in block.runs.iter().enumerate() {
                    add_line!(
                        out,
                        "            let a{u}_{r}_{w}_{run} = left_four({r}u, k{u} + (byte{u} + {}u) * {times}u + {from}u);",
                        w * 4
                    );
                }
            }
            for c in 0..columns {
                let dots: Vec<String> = (0..words)
                    .flat_map(|w| (0..block.runs.len()).map(move |run| (w, run)))
                    .map(|(w, run)| format!("dot(a{u}_{r}_{w}_{run}, b{u}_{c}_{w}_{run})"))
                    .collect();
                let sum = r * columns + c;
                add_line!(out, "            sum{sum} = fma({}, scale{u}_{c}, sum{sum});", dots.join(" + "));
            }
        }
    }

    /// Products of a stretch of stored rows.
    fn write_row_products(&self, out: &mut String, u: u32) {
        let Stream { codes, columns, .. } = self.shape;
        let groups = self.weight.groups();
        add_line!(out, "            let k{u} = piece{u} * {codes}u;");
        for f in 0..codes / 4 {
            let group = match groups {
                Groups::One => "vec4<u32>()".to_string(),
                _ => format!("vec4<u32>(k{u} + {}u) + vec4<u32>(0u, 1u, 2u, 3u)", f * 4),
            };
            if groups == Groups::Columns || self.minima() {
                add_line!(out, "            let scales{u}_{f} = loom_four_scales({group});");
            }
            let zeros = if self.zeros() { format!(", zeros{u}_{f}") } else { String::new() };
            if self.zeros() {
                add_line!(out, "            let zeros{u}_{f} = loom_four_zeros({group});");
            }
            if self.minima() {
                add_line!(out, "            let minima{u}_{f} = loom_four_minima({group});");
            }
            for c in 0..columns {
                let mut four = self.four(&format!("codes{u}_{c}"), f, &zeros);
                if self.minima() {
                    four += &format!(" * scales{u}_{f} + minima{u}_{f}");
                }
                add_line!(out, "            let b{u}_{c}_{f} = {four};");
            }
        }
        for r in 0..self.rows {
            for f in 0..codes / 4 {
                let scales = match groups {
                    Groups::Columns if !self.minima() => format!(" * scales{u}_{f}"),
                    _ => String::new(),
                };
                add_line!(out, "            let a{u}_{r}_{f} = left_four({r}u, k{u} + {}u){scales};", f * 4);
            }
            for c in 0..columns {
                let dots: Vec<String> =
                    (0..codes / 4).map(|f| format!("dot(a{u}_{r}_{f}, b{u}_{c}_{f})")).collect();
                let sum = r * columns + c;
                add_line!(out, "            sum{sum} += {};", dots.join(" + "));
            }
        }
    }
}

//! How a tiled product's operands come into workgroup memory.

use super::tile::{Along, Loader};
use super::tiled::Tiled;
use crate::shader::add_line;

/// An operand with its place in workgroup memory.
struct Placed {
    name: char,
    /// Rows or columns of its tile.
    extent: u32,
    loader: Loader,
    /// vec4s from one k to the next.
    stride: u32,
    /// Where it starts.
    base: u32,
    /// Whether its hook is given what depends on the row or column alone.
    placed: bool,
    /// Whether it is loaded with what loads share.
    started: bool,
}

impl Tiled<'_> {
    /// vec4s added to each row of a tile, so that the scattered stores of an operand that is
    /// contiguous along the depth do not all meet in one bank.
    pub(super) fn padding(&self) -> u32 {
        u32::from(self.left.along == Along::Depth || self.right.along == Along::Depth)
    }

    pub(super) fn left_stride(&self) -> u32 {
        self.tile.rows / 4 + self.padding()
    }

    pub(super) fn right_stride(&self) -> u32 {
        self.tile.columns / 4 + self.padding()
    }

    pub(super) fn right_base(&self) -> u32 {
        self.tile.step() * self.left_stride()
    }

    /// Loads of one thread for a tile of this many elements.
    pub(super) fn loads(&self, elements: u32, width: u32) -> u32 {
        (elements / width).div_ceil(self.tile.threads())
    }

    fn sides(&self) -> [Placed; 2] {
        let tile = &self.tile;
        [
            Placed {
                name: 'a',
                extent: tile.rows,
                loader: self.left,
                stride: self.left_stride(),
                base: 0,
                placed: self.hooks.place_a || self.hooks.start_a,
                started: self.hooks.start_a,
            },
            Placed {
                name: 'b',
                extent: tile.columns,
                loader: self.right,
                stride: self.right_stride(),
                base: self.right_base(),
                placed: self.hooks.place_b || self.hooks.start_b,
                started: self.hooks.start_b,
            },
        ]
    }

    /// Where a thread's load lies in its tile, across and along the depth, as expressions. Loads
    /// that share either have the same text, and what is the same for all threads is a number.
    fn position(&self, side: &Placed, load: u32) -> (String, String) {
        let (threads, width) = (self.tile.threads(), side.loader.width);
        let run = match side.loader.along {
            Along::Depth => self.tile.step() / width,
            Along::Across => side.extent / width,
        };
        let (runs, inside) = if run.is_multiple_of(threads) {
            let pieces = run / threads;
            let inside = format!("(thread + {}u) * {width}u", load % pieces * threads);
            (format!("{}u", load / pieces), inside)
        } else if threads.is_multiple_of(run) {
            let runs = format!("thread / {run}u + {}u", load * (threads / run));
            (runs, format!("thread % {run}u * {width}u"))
        } else {
            let item = format!("(thread + {}u)", load * threads);
            (format!("{item} / {run}u"), format!("{item} % {run}u * {width}u"))
        };
        match side.loader.along {
            Along::Depth => (runs, inside),
            Along::Across => (inside, runs),
        }
    }

    /// Where the thread's loads lie in the tiles.
    pub(super) fn write_load_positions(&self, out: &mut String) {
        let tile = &self.tile;
        for side in self.sides() {
            let Placed { name, extent, loader, .. } = side;
            let width = loader.width;
            for load in 0..self.loads(extent * tile.step(), width) {
                let (across, k) = self.position(&side, load);
                add_line!(out, "    let {name}_across{load} = {across};");
                add_line!(out, "    let {name}_k{load} = {k};");
                let zero = if width == 4 { "vec4<f32>()" } else { "0.0" };
                add_line!(out, "    var {name}_next{load} = {zero};");
                if side.placed {
                    let start = if name == 'a' { "row0" } else { "column0" };
                    add_line!(
                        out,
                        "    let {name}_place{load} = place_{name}({start} + {name}_across{load});"
                    );
                }
            }
        }
    }

    /// Fetches the tiles at `k` into registers.
    pub(super) fn write_fetch(&self, out: &mut String, indent: &str, k: &str, fresh: bool) {
        let Some((_, before_last)) =
            self.hooks.segments.split_last().filter(|(_, others)| !others.is_empty())
        else {
            return self.write_fetch_of(out, indent, k, fresh, "");
        };
        // A step lies within one of them: all threads go the same way.
        let inside = format!("{indent}    ");
        let mut start = 0;
        for (number, extent) in before_last.iter().enumerate() {
            let lead = if number == 0 { indent } else { "" };
            add_line!(out, "{lead}if ({k} < {}u) {{", start + extent);
            let suffix = if number == 0 { String::new() } else { number.to_string() };
            self.write_fetch_of(out, &inside, &format!("({k} - {start}u)"), fresh, &suffix);
            out.push_str(&format!("{indent}}} else "));
            start += extent;
        }
        add_line!(out, "{{");
        let suffix = before_last.len().to_string();
        self.write_fetch_of(out, &inside, &format!("({k} - {start}u)"), fresh, &suffix);
        add_line!(out, "{indent}}}");
    }

    /// The same of the operands whose functions have this at the end of their names.
    fn write_fetch_of(&self, out: &mut String, indent: &str, k: &str, fresh: bool, suffix: &str) {
        let tile = &self.tile;
        for side in self.sides() {
            let Placed { name, extent, loader, .. } = side;
            let total = extent * tile.step() / loader.width;
            // What loads share, with the number of the first of them.
            let mut shared: Vec<(String, u32)> = Vec::new();
            for load in 0..self.loads(extent * tile.step(), loader.width) {
                if side.started {
                    let (across, inside) = self.position(&side, load);
                    let depth = loader.along == Along::Depth;
                    let key = if depth { inside } else { across };
                    let first = shared.iter().find(|(known, _)| *known == key).map(|(_, first)| *first);
                    let first = match first {
                        Some(first) => first,
                        None => {
                            let arguments = match depth {
                                true => format!("{k} + {name}_k{load}, last, {name}_place{load}"),
                                false => format!("{k}, {name}_place{load}"),
                            };
                            add_line!(out, "{indent}let {name}_start{load} = start_{name}({arguments});");
                            shared.push((key, load));
                            load
                        }
                    };
                    let of = if depth { "place" } else { "k" };
                    let call = format!("load_{name}({name}_start{first}, {name}_{of}{load})");
                    if (load + 1) * tile.threads() > total {
                        let guard = format!("thread + {}u < {total}u", load * tile.threads());
                        add_line!(out, "{indent}if ({guard}) {{ {name}_next{load} = {call}; }}");
                    } else {
                        add_line!(out, "{indent}{name}_next{load} = {call};");
                    }
                    continue;
                }
                let place = if side.placed { format!(", {name}_place{load}") } else { String::new() };
                let (start, edge, limit, call) = match name {
                    'a' => {
                        let call = format!("load_a{suffix}(row0 + a_across{load}, {k} + a_k{load}{place})");
                        ("row0", self.edges.rows, "rows", call)
                    }
                    _ => {
                        let call =
                            format!("load_b{suffix}({k} + b_k{load}, column0 + b_across{load}{place})");
                        ("column0", self.edges.columns, "columns", call)
                    }
                };
                let mut guards = Vec::new();
                if (load + 1) * tile.threads() > total {
                    guards.push(format!("thread + {}u < {total}u", load * tile.threads()));
                }
                if edge {
                    guards.push(format!("{start} + {name}_across{load} < {limit}"));
                }
                if self.edges.depth {
                    guards.push(format!("{k} + {name}_k{load} < last"));
                }
                if guards.is_empty() {
                    add_line!(out, "{indent}{name}_next{load} = {call};");
                    continue;
                }
                let guard = guards.join(" && ");
                let zero = if loader.width == 4 { "vec4<f32>()" } else { "0.0" };
                // What lay beyond an edge at the first k may have been inside it since.
                let otherwise = if tile.prefetch && (fresh || !self.edges.depth) {
                    String::new()
                } else {
                    format!(" else {{ {name}_next{load} = {zero}; }}")
                };
                add_line!(out, "{indent}if ({guard}) {{ {name}_next{load} = {call}; }}{otherwise}");
            }
        }
    }

    /// Moves what was fetched into workgroup memory, k-major.
    pub(super) fn write_fill(&self, out: &mut String) {
        if self.units {
            return self.write_unit_fill(out);
        }
        let tile = &self.tile;
        for side in self.sides() {
            let Placed { name, extent, loader, stride, base, .. } = side;
            let total = extent * tile.step() / loader.width;
            for load in 0..self.loads(extent * tile.step(), loader.width) {
                let partial = (load + 1) * tile.threads() > total;
                if partial {
                    add_line!(out, "        if (thread + {}u < {total}u) {{", load * tile.threads());
                }
                let (across, k) = (format!("{name}_across{load}"), format!("{name}_k{load}"));
                let value = self.rounding.operand(loader.width, &format!("{name}_next{load}"));
                match (loader.along, loader.width) {
                    (Along::Across, 4) => {
                        add_line!(
                            out,
                            "        memory[{base}u + {k} * {stride}u + {across} / 4u] = {value};"
                        );
                    }
                    (Along::Depth, 4) => {
                        add_line!(out, "        let {name}_put{load} = {value};");
                        for i in 0..4 {
                            add_line!(
                                out,
                                "        memory[{base}u + ({k} + {i}u) * {stride}u + {across} / 4u][{across} % 4u] = {name}_put{load}[{i}];"
                            );
                        }
                    }
                    _ => add_line!(
                        out,
                        "        memory[{base}u + {k} * {stride}u + {across} / 4u][{across} % 4u] = {value};"
                    ),
                }
                if partial {
                    add_line!(out, "        }}");
                }
            }
        }
    }
}

//! Attention of many queries on a GPU, as products of tiles (Dao 2023, "FlashAttention-2").
//!
//! A workgroup takes a tile of queries (of keys, for the gradients of keys and values) and goes through the tiles
//! of the other side. Of each pair of tiles its threads first make the scores, four neighbouring vectors of the
//! own side and two of the other one a thread, so that each vector that is read serves several of them; through
//! the workgroup's memory the weights then come to the threads that gather, four vectors of the own side and four
//! elements of a head each.

use super::text::each;
use crate::shader::{Capabilities, Shader};

/// Fewer vectors of the own side than this are better taken one a thread.
const LEAST: usize = 16;

/// The extents of tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tiles {
    /// Vectors of a workgroup's own side; a multiple of four.
    pub own: usize,
    /// Vectors of the other side that are looked at together.
    pub other: usize,
    units: usize,
}

/// What lies in a workgroup's memory.
#[derive(Clone, Copy)]
pub(super) struct Held {
    /// Arrays of vectors of the own side.
    pub own: usize,
    /// Arrays of vectors of the other side.
    pub other: usize,
    /// Arrays of numbers for each pair.
    pub pairs: usize,
}

pub(super) const FORWARD: Held = Held { own: 1, other: 2, pairs: 1 };
pub(super) const QUERIES: Held = Held { own: 2, other: 2, pairs: 1 };
pub(super) const KEYS: Held = Held { own: 2, other: 2, pairs: 2 };

impl Tiles {
    /// The largest tiles for so many vectors of the own side, of heads of so many units of four elements; none
    /// where there are few vectors, or no tiles fit.
    pub(super) fn new(capabilities: Capabilities, vectors: usize, units: usize, held: Held) -> Option<Self> {
        let sizes = [(64, 32), (32, 32), (32, 16), (16, 16)].map(|(own, other)| Self { own, other, units });
        let fits = |tiles: &Self| {
            // Gathering threads hold no more than four times four vectors.
            tiles.bytes(held) <= capabilities.workgroup_storage
                && tiles.threads() <= capabilities.workgroup_threads
                && tiles.items() <= 4
                && (tiles.own <= vectors.next_multiple_of(LEAST) || tiles.own == LEAST)
        };
        sizes.into_iter().find(|tiles| vectors >= LEAST && fits(tiles))
    }

    fn bytes(self, held: Held) -> usize {
        let vectors = (held.own * self.own + held.other * self.other) * (self.units + 1);
        let quads = self.own / 4;
        // The forward pass tells fades and sums, the gradients two numbers a vector.
        let told = self.threads() + quads + self.other;
        (vectors + held.pairs * self.other * (quads + 1) + told) * 16
    }

    /// Threads of a workgroup.
    pub(super) fn threads(self) -> usize {
        self.own / 4 * self.columns()
    }

    fn columns(self) -> usize {
        self.other / 2
    }

    /// Groups of four vectors of the own side with four elements of them that a thread gathers.
    fn items(self) -> usize {
        self.units.div_ceil(self.columns())
    }

    /// Declares the extents.
    pub(super) fn declare(self, shader: Shader) -> Shader {
        let quads = self.own / 4;
        shader
            .threads(self.threads())
            .constant("OWN", self.own)
            .constant("OTHER", self.other)
            // Neighbouring vectors start in different banks of the memory.
            .constant("STRIDE", self.units + 1 - self.units % 2)
            .constant("QUADS", quads)
            .constant("QUADS_STRIDE", quads + 1)
            .constant("COLUMNS", self.columns())
    }

    /// Declares and sums up products over a head for a thread's eight pairs: `NAME_I_J` of vector I of four of
    /// `own` with vector J of two of `other`, for each (NAME, own, other).
    pub(super) fn scores(self, products: &[[&str; 3]]) -> String {
        let mut text = String::new();
        for [name, ..] in products {
            text += &pairs(|i, j| format!("var {name}s_{i}_{j} = vec4<f32>();\n"));
        }
        text += "for (var unit = 0u; unit < UNITS; unit += 1u) {\n";
        for [name, own, other] in products {
            for i in 0..4 {
                text += &format!("    let {name}_own{i} = {own}[(quad * 4u + {i}u) * STRIDE + unit];\n");
            }
            for j in 0..2 {
                text += &format!(
                    "    let {name}_other{j} = {other}[(column + {j}u * COLUMNS) * STRIDE + unit];\n"
                );
            }
            text += &pairs(|i, j| {
                format!("    {name}s_{i}_{j} = fma({name}_own{i}, {name}_other{j}, {name}s_{i}_{j});\n")
            });
        }
        text += "}\n";
        for [name, ..] in products {
            text += &pairs(|i, j| {
                let sum = format!("{name}s_{i}_{j}");
                format!("let {name}_{i}_{j} = {sum}.x + {sum}.y + ({sum}.z + {sum}.w);\n")
            });
        }
        text
    }

    /// Lines for each group that a thread gathers; `place` gives its `quad`, `unit` and whether it is there.
    fn gathered(self, line: impl Fn(usize) -> String) -> String {
        each(self.items(), line)
    }

    /// Declares results of zero by these names, with their places.
    pub(super) fn zero(self, names: &[&str]) -> String {
        self.gathered(|n| {
            let start = format!("let item{n} = thread + {n}u * THREADS;\nlet unit{n} = item{n} % UNITS;\n");
            // Threads without an own group make one again.
            let quad = format!("let quad{n} = min(item{n} / UNITS, QUADS - 1u);\n");
            let zeros = names
                .iter()
                .flat_map(|name| (0..4).map(move |i| format!("var {name}{n}_{i} = vec4<f32>();\n")));
            start + &quad + &zeros.collect::<String>()
        })
    }

    /// Multiplies a result by what `fades` says.
    pub(super) fn fade(self, name: &str) -> String {
        self.gathered(|n| {
            let fade = format!("let fade{n} = fades[quad{n}];\n");
            fade + &(0..4).map(|i| format!("{name}{n}_{i} *= fade{n}[{i}];\n")).collect::<String>()
        })
    }

    /// Adds vector `j` of the other side, weighed for each vector of the own side: for each (result, weights, vectors).
    pub(super) fn gather(self, sums: &[[&str; 3]]) -> String {
        self.gathered(|n| {
            let one = |[name, weights, vectors]: &[&str; 3]| {
                let start = format!(
                    "let {name}_weight{n} = {weights}[j * QUADS_STRIDE + quad{n}];\n\
                     let {name}_vector{n} = {vectors}[j * STRIDE + unit{n}];\n"
                );
                let add = |i: usize| {
                    format!("{name}{n}_{i} = fma(vec4<f32>({name}_weight{n}[{i}]), {name}_vector{n}, {name}{n}_{i});\n")
                };
                start + &(0..4).map(add).collect::<String>()
            };
            sums.iter().map(one).collect()
        })
    }

    /// Stores results; `place` is the number of vector `own` among all, `factor` what a result is multiplied by.
    pub(super) fn store(
        self,
        names: &[&str],
        extent: &str,
        place: &str,
        factor: impl Fn(usize, usize) -> String,
    ) -> String {
        self.gathered(|n| {
            let mut text = format!("if item{n} < QUADS * UNITS {{\n");
            for i in 0..4 {
                text +=
                    &format!("    {{\n    let own = tile + quad{n} * 4u + {i}u;\n    if own < {extent} {{\n");
                for name in names {
                    text +=
                        &format!("        store_{name}({place}, unit{n}, {name}{n}_{i}{});\n", factor(n, i));
                }
                text += "    }\n    }\n";
            }
            text + "}"
        })
    }
}

/// Text for each of a thread's pairs: vector i of four with vector j of two.
fn pairs(text: impl Fn(usize, usize) -> String) -> String {
    (0..2).flat_map(|j| (0..4).map(move |i| (i, j))).map(|(i, j)| text(i, j)).collect()
}

/// A vector of what each of four vectors of the own side makes.
pub(super) fn four(text: impl Fn(usize) -> String) -> String {
    let parts: Vec<String> = (0..4).map(text).collect();
    format!("vec4<f32>(\n            {}\n        )", parts.join(",\n            "))
}

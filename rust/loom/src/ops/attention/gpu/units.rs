//! Attention of mixed precision on matrix units: its products are made of f16 by cooperative matrices, 16 x 16 at a
//! time, with sums in f32.
//!
//! As in [`tiles`](super::tiles) a workgroup takes a tile of its own side and goes through the tiles of the other one.
//! A subgroup keeps 16 vectors of the own side in registers, as it does what they gather. Scores come out of the
//! matrices by way of the workgroup's memory, where threads make weights of them, which go in again as f16.

use super::Attention;
use super::text::Across;
use crate::shader::{Capabilities, Shader};

/// Rows and columns of a cooperative matrix.
const FRAGMENT: usize = 16;
/// Vectors of a workgroup's own side: 16 for each of its subgroups of 32.
const OWN: usize = 64;
/// Vectors of the other side that are looked at together.
const OTHER: usize = 32;
const THREADS: usize = 2 * OWN;
/// The widest heads whose vectors and sums the registers hold.
const WIDEST: usize = 128;

/// Words of four elements added to each row of f32 in a workgroup's memory, and of f16, so that rows start in different
/// banks.
const PADDING: usize = 1;
const HALF_PADDING: usize = 2;

/// A matrix in the workgroup's memory: its array, and the words from one row to the next.
#[derive(Clone, Copy)]
struct Held {
    array: &'static str,
    stride: usize,
}

impl Attention {
    /// Whether its kernels can be made on a device's matrix units.
    pub(super) fn suits_units(&self, capabilities: Capabilities) -> bool {
        let whole = |vectors: usize| vectors.is_multiple_of(FRAGMENT) && vectors >= FRAGMENT;
        self.mixed
            && !self.cached
            && self.dropout == 0.0
            && self.bias.is_none()
            && capabilities.has_matrix_units()
            && capabilities.workgroup_threads >= THREADS
            && self.head_dim.is_multiple_of(FRAGMENT)
            && self.head_dim <= WIDEST
            && whole(self.queries)
            && whole(self.keys)
            && self.unit_bytes() <= capabilities.workgroup_storage
    }

    /// Bytes of the workgroup's memory that the kernel of keys takes, which takes most.
    fn unit_bytes(&self) -> usize {
        let vectors = 2 * OTHER * (self.head_dim / 4 + HALF_PADDING);
        let weights = 2 * OWN * (OTHER / 4 + HALF_PADDING);
        let scores = 2 * OWN * (OTHER / 4 + PADDING);
        8 * (vectors + weights) + 16 * scores + 8 * OTHER
    }

    /// Vectors of either side.
    fn held(&self) -> Held {
        Held { array: "held", stride: self.head_dim / 4 + HALF_PADDING }
    }

    fn depth(&self) -> usize {
        self.head_dim / FRAGMENT
    }

    fn on_units(&self, part: &str, text: &str, functions: String, halves: &[&str], vectors: usize) -> Across {
        let pieces = self.head_dim / 4;
        let shader = self
            .shader(&format!("{part} units"), text, functions)
            .threads(THREADS)
            .section("HALVES", half_functions(halves))
            .constant("OWN", OWN)
            .constant("OTHER", OTHER)
            .constant("PIECES", pieces)
            .constant("STRIDE", pieces + HALF_PADDING)
            .constant("SCORES", OTHER / 4 + PADDING)
            .constant("WEIGHTS", OTHER / 4 + HALF_PADDING);
        Across { shader, groups: vectors.div_ceil(OWN) }
    }

    /// Expressions of the first key that any query of a tile sees, and of the one after the last. What a function gives
    /// back would count as different from thread to thread.
    fn keys_of_tile(&self, shader: Shader) -> Shader {
        let last = match (self.causal, self.window) {
            (true, _) => "min(constants.keys, last_own + 1u)",
            (false, Some(_)) => "min(constants.keys, last_own + WINDOW)",
            (false, None) => "constants.keys",
        };
        let first = match self.window {
            Some(_) => {
                "min(select(0u, tile + 1u - WINDOW, tile + 1u > WINDOW), constants.keys) / OTHER * OTHER"
            }
            None => "0u",
        };
        shader.section("FIRST", first).section("LAST", last)
    }

    /// The same of the queries that see a tile of keys.
    fn queries_of_tile(&self, shader: Shader) -> Shader {
        let first = match (self.causal, self.window) {
            (true, _) => "min(tile, constants.queries) / OTHER * OTHER",
            (false, Some(_)) => {
                "min(select(0u, tile + 1u - WINDOW, tile + 1u > WINDOW), constants.queries) / OTHER * OTHER"
            }
            (false, None) => "0u",
        };
        let last = match self.window {
            Some(_) => "min(constants.queries, last_own + WINDOW)",
            None => "constants.queries",
        };
        shader.section("FIRST", first).section("LAST", last)
    }

    /// Takes the subgroup's own vectors from where they are held into registers.
    fn take(&self, name: &str) -> String {
        (0..self.depth())
            .map(|d| {
                let place = format!("place * STRIDE + {}u", d * 4);
                format!("let {name}{d} = {};\n", load("coopLoadT", 'A', self.held(), &place))
            })
            .collect()
    }

    /// Scores of the subgroup's own vectors, `own`, with those of the other side that are held from row `from` on; they
    /// go to the scores from row `to` on.
    fn scored(&self, name: &str, own: &str, from: &str, to: &str) -> String {
        let mut text = String::new();
        for column in 0..OTHER / FRAGMENT {
            text += &format!("var {name}{column} = coop_mat16x16<f32, C>();\n");
            for d in 0..self.depth() {
                // The other side's vectors are rows, and columns of what is multiplied.
                let place = format!("({from} + {}u) * STRIDE + {}u", column * FRAGMENT, d * 4);
                let other = load("coopLoad", 'B', self.held(), &place);
                text += &format!("{name}{column} = coopMultiplyAdd({own}{d}, {other}, {name}{column});\n");
            }
            text += &format!(
                // What matrices are stored at wants a name.
                "let {name}_at{column} = ({to} + place) * SCORES + {}u;\n\
                 coopStoreT({name}{column}, &scores[{name}_at{column}], {}u);\n",
                column * FRAGMENT / 4,
                OTHER / 4 + PADDING
            );
        }
        text
    }

    /// Sums of zero by these names.
    fn nothing(&self, names: &[&str]) -> String {
        let zero = |name: &&str| {
            (0..self.depth())
                .map(|d| format!("var {name}{d} = coop_mat16x16<f32, C>();\n"))
                .collect::<String>()
        };
        names.iter().map(zero).collect()
    }

    /// Adds the vectors that are held from row `from` on to what is gathered, by weights from row `row` of an array on.
    fn gathered(&self, name: &str, array: &'static str, row: &str, from: &str) -> String {
        let weights = Held { array, stride: OTHER / 4 + HALF_PADDING };
        let mut text = String::new();
        for k in 0..OTHER / FRAGMENT {
            let place = format!("({row} + place) * WEIGHTS + {}u", k * 4);
            text += &format!("let {name}_weights{k} = {};\n", load("coopLoadT", 'A', weights, &place));
            for d in 0..self.depth() {
                let place = format!("({from} + {}u) * STRIDE + {}u", k * FRAGMENT, d * 4);
                let other = load("coopLoadT", 'B', self.held(), &place);
                text += &format!("{name}{d} = coopMultiplyAdd({name}_weights{k}, {other}, {name}{d});\n");
            }
        }
        text
    }

    /// Stores what is gathered where the subgroup has vectors: `extent` says how many there are, `first` is the number
    /// of the subgroup's first among all, `heads` how far the next one of the same head is.
    fn store_gathered(&self, names: &[&str], extent: &str, first: &str, heads: usize) -> String {
        // A loop, since a store within an `if` on the subgroup's number would be refused.
        let mut text = format!("for (var once = tile + place < {extent}; once; once = false) {{\n");
        for name in names {
            for d in 0..self.depth() {
                text += &format!(
                    "    let {name}_at{d} = ({first}) * UNITS + {}u;\n    \
                     coopStoreT({name}{d}, &{name}[{name}_at{d}], {}u);\n",
                    d * FRAGMENT / 4,
                    heads * self.vectors().units()
                );
            }
        }
        text + "}"
    }

    pub(super) fn forward_on_units(&self) -> Across {
        let functions = self.vectors().functions(&["q", "k", "v"], &[]);
        let text = include_str!("units_forward.wgsl");
        let kernel = self.on_units("", text, functions, &["q", "k", "v"], self.queries);
        let own = "(row * constants.queries + tile + place) * HEADS + head";
        let shader = self
            .keys_of_tile(kernel.shader)
            .section("ASK", self.take("asked"))
            .section("SCORE", self.scored("score", "asked", "0u", "0u"))
            .section("ZERO", self.nothing(&["y"]))
            .section("GATHER", self.gathered("y", "weights", "0u", "OTHER"))
            .section("STORE", self.store_gathered(&["y"], "constants.queries", own, self.heads));
        Across { shader, ..kernel }
    }

    pub(super) fn queries_on_units(&self) -> Across {
        let names = ["q", "k", "v", "dy"];
        let functions = self.vectors().functions(&names, &[]);
        let text = include_str!("units_queries.wgsl");
        let kernel = self.on_units(" queries", text, functions, &names, self.queries);
        let own = "(row * constants.queries + tile + place) * HEADS + head";
        let scores =
            self.scored("score", "asked", "0u", "0u") + &self.scored("gradient", "given", "OTHER", "OWN");
        let shader = self
            .keys_of_tile(kernel.shader)
            .section("ASK", self.take("asked"))
            .section("GIVE", self.take("given"))
            .section("SCORE", scores)
            .section("ZERO", self.nothing(&["dq"]))
            .section("GATHER", self.gathered("dq", "slopes", "0u", "0u"))
            .section("STORE", self.store_gathered(&["dq"], "constants.queries", own, self.heads));
        Across { shader, ..kernel }
    }

    pub(super) fn keys_on_units(&self) -> Across {
        let names = ["q", "k", "v", "dy"];
        let functions = self.vectors().functions(&names, &[]);
        let text = include_str!("units_keys.wgsl");
        let kernel = self.on_units(" keys", text, functions, &names, self.keys);
        let own = "(home * constants.keys + tile + place) * KEY_VALUE_HEADS + head";
        let scores =
            self.scored("score", "keys", "0u", "0u") + &self.scored("gradient", "values", "OTHER", "OWN");
        let gathered =
            self.gathered("dv", "weights", "0u", "OTHER") + &self.gathered("dk", "weights", "OWN", "0u");
        let shader = self
            .queries_of_tile(kernel.shader)
            .section("ASK", self.take("keys"))
            .section("GIVE", self.take("values"))
            .section("SCORE", scores)
            .section("ZERO", self.nothing(&["dk", "dv"]))
            .section("GATHER", gathered)
            .section(
                "STORE",
                self.store_gathered(&["dk", "dv"], "constants.keys", own, self.key_value_heads),
            );
        Across { shader, ..kernel }
    }
}

/// The expression of a matrix in the workgroup's memory, from this word of the array on.
fn load(how: &str, role: char, Held { array, stride }: Held, place: &str) -> String {
    format!("{how}<coop_mat16x16<f16, {role}>>(&{array}[{place}], {stride}u)")
}

/// `halves_NAME(vector, piece, present)` for each array of vectors: four elements rounded to binary16. What matrices are
/// loaded from has to be of their type: NVIDIA's driver compiles no other.
fn half_functions(names: &[&str]) -> String {
    let one = |name: &&str| {
        format!(
            "fn halves_{name}(vector: u32, piece: u32, present: bool) -> vec4<f16> {{\n    \
             return vec4<f16>(load_{name}(vector, piece, present));\n}}\n"
        )
    };
    names.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::super::shares::Shares;
    use super::*;
    use crate::ops::attention::FixedMask;
    use crate::shader::Operand;
    use crate::shader::testing::is_valid;
    use std::sync::Arc;

    fn validate(Across { shader, .. }: Across, read: &[&str], written: &[&str]) {
        let mut shader = shader.number("queries", 64u32).number("keys", 64u32).number("tiles", 1u32);
        shader = shader.number("groups", 1u32);
        let element =
            |name: &str| if ["logs", "means", "padding"].contains(&name) { "f32" } else { "vec4<f32>" };
        for name in read {
            let element = if *name == "allowed" { "u32" } else { element(name) };
            shader = shader.read(name, element, Operand::unbound());
        }
        for name in written {
            shader = shader.write(name, element(name), Operand::unbound());
        }
        is_valid(shader);
    }

    /// Software adapters have no matrix units, so only naga sees the text there.
    #[test]
    fn every_text_is_valid() {
        for (head_dim, heads) in [(16, (1, 1)), (64, (6, 2)), (128, (4, 4))] {
            for (causal, window) in [(false, None), (true, None), (true, Some(40)), (false, Some(40))] {
                for (padding, masked, soft_cap) in [(false, false, None), (true, true, Some(20.0))] {
                    let fixed = masked.then(|| Arc::new(FixedMask::new(64, 64, |query, key| query >= key)));
                    let op = Attention {
                        causal,
                        window,
                        padding,
                        fixed,
                        soft_cap,
                        ..Attention::new((64, 64), heads, head_dim)
                    };
                    assert!(op.unit_bytes() <= 49152);
                    let masks: Vec<&str> = [padding.then_some("padding"), masked.then_some("allowed")]
                        .into_iter()
                        .flatten()
                        .collect();
                    validate(op.forward_on_units(), &[&["q", "k", "v"], &masks[..]].concat(), &["y", "logs"]);
                    let read = [&["q", "k", "v", "dy", "logs", "means"], &masks[..]].concat();
                    validate(op.queries_on_units(), &read, &["dq"]);
                    let kernel = op.keys_on_units();
                    let shader = Shares::new(&op, 1).declare(kernel.shader);
                    validate(Across { shader, ..kernel }, &read, &["dk", "dv"]);
                }
            }
        }
    }
}

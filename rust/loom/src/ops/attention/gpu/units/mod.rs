//! Attention of mixed precision on matrix units: its products are made of f16 by cooperative matrices, 16 x 16 at a
//! time, with sums in f32.
//!
//! As in [`tiles`](super::tiles) a workgroup takes a tile of its own side and goes through the tiles of the other one.
//! A subgroup keeps 16 vectors of the own side in registers, as it does what they gather. Scores come out of the
//! matrices by way of the workgroup's memory, where threads make weights of them, which go in again as f16. What comes
//! next is on its way from memory meanwhile.

mod text;

use super::Attention;
use super::text::Across;
use crate::shader::{Capabilities, Shader};
use text::{
    FRAGMENT, Fetched, Fragments, Gathering, HALF_PADDING, OTHER, OWN, PADDING, SHARE, SIDES, Scoring,
    THREADS,
};

/// The widest heads whose vectors and sums the registers hold.
const WIDEST: usize = 128;

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

    fn on_units(&self, part: &str, text: &str, halves: &[&str], vectors: usize) -> Across {
        let pieces = self.head_dim / 4;
        let shader = self
            .shader(&format!("{part} units"), text, self.vectors().functions(halves, &[]))
            .threads(THREADS)
            .section("HALVES", text::half_functions(halves))
            .section("CAPPED", text::CAPPED)
            .constant("OWN", OWN)
            .constant("OTHER", OTHER)
            .constant("ROWS", FRAGMENT)
            .constant("SIDES", SIDES)
            .constant("SHARE", SHARE)
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

    /// Whether every query of one tile is there and sees every key of the other, which starts at `keys`.
    fn whole(&self, queries: (&str, &str), keys: (&str, &str)) -> String {
        if self.padding || self.fixed.is_some() {
            return "false".into();
        }
        let ((query, queries), (key, keys)) = (queries, keys);
        let mut text =
            format!("{query} + {queries} <= constants.queries && {key} + {keys} <= constants.keys");
        if self.causal {
            text += &format!(" && {key} + {keys} <= {query} + 1u");
        } else if self.window.is_some() {
            text += &format!(" && {key} + {keys} <= {query} + WINDOW");
        }
        if self.window.is_some() {
            text += &format!(" && {query} + {queries} <= {key} + WINDOW");
        }
        text
    }

    pub(super) fn forward_on_units(&self) -> Across {
        let units = self.fragments();
        let text = include_str!("forward.wgsl");
        let kernel = self.on_units("", text, &["q", "k", "v"], self.queries);
        let fetched = Fetched::keys(&["k", "v"], units);
        let sum = [Gathering { name: "y", weights: "weights", rows: "0u", from: "OTHER" }];
        let shader = self
            .keys_of_tile(kernel.shader)
            .section("SEEN", text::SEEN_KEYS)
            .section("WHOLE", self.whole(("tile", "OWN"), ("base", "OTHER")))
            .section("ASK", units.own("asked", "q", text::QUERY, "constants.queries"))
            .section("FETCH_KEYS", Fetched::keys(&["k"], units).at_once("base"))
            .section("FETCH_FIRST", fetched.fetch("first", true))
            .section("FETCH_NEXT", fetched.fetch("base + OTHER", false))
            .section("HOLD", fetched.hold())
            .section("SCORE", units.scored(Scoring { name: "score", own: "asked", from: "0u", to: "0u" }))
            .section("LIMIT", text::limited())
            .section("AGREE_LARGEST", text::agreed("largest", "max"))
            .section("AGREE", text::agreed("larger", "max"))
            .section("WEIGH", text::weighed())
            .section("ZERO", units.nothing(&["y"], "var "))
            .section("FORGET", units.nothing(&["y"], ""))
            .section("GATHER", units.gathered(&sum))
            .section("AGREE_TOTAL", text::agreed("total", "+"))
            .section("STORE", units.stored(&["y"], text::QUERY, "constants.queries", " * inverses[vector]"));
        Across { shader, ..kernel }
    }

    pub(super) fn queries_on_units(&self) -> Across {
        let units = self.fragments();
        let text = include_str!("queries.wgsl");
        let kernel = self.on_units(" queries", text, &["q", "k", "v", "dy"], self.queries);
        let fetched = Fetched::keys(&["k", "v"], units);
        let scores = [
            Scoring { name: "score", own: "asked", from: "0u", to: "0u" },
            Scoring { name: "gradient", own: "given", from: "OTHER", to: "OWN" },
        ];
        let sum = [Gathering { name: "dq", weights: "slopes", rows: "0u", from: "0u" }];
        let shader = self
            .keys_of_tile(kernel.shader)
            .section("SEEN", text::SEEN_KEYS)
            .section("WHOLE", self.whole(("tile", "OWN"), ("base", "OTHER")))
            .section("ASK", units.own("asked", "q", text::QUERY, "constants.queries"))
            .section("GIVE", units.own("given", "dy", text::QUERY, "constants.queries"))
            .section("FETCH_FIRST", fetched.fetch("first", true))
            .section("FETCH_NEXT", fetched.fetch("base + OTHER", false))
            .section("HOLD", fetched.hold())
            .section("SCORE", scores.map(|scoring| units.scored(scoring)).concat())
            .section("ZERO", units.nothing(&["dq"], "var "))
            .section("GATHER", units.gathered(&sum))
            .section("STORE", units.stored(&["dq"], text::QUERY, "constants.queries", ""));
        Across { shader, ..kernel }
    }

    pub(super) fn keys_on_units(&self) -> Across {
        let units = self.fragments();
        let text = include_str!("keys.wgsl");
        let kernel = self.on_units(" keys", text, &["q", "k", "v", "dy"], self.keys);
        let fetched = Fetched::queries(&["q", "dy"], units);
        let scores = [
            Scoring { name: "score", own: "keys", from: "0u", to: "0u" },
            Scoring { name: "gradient", own: "values", from: "OTHER", to: "OWN" },
        ];
        let sums = [
            Gathering { name: "dv", weights: "weights", rows: "0u", from: "OTHER" },
            Gathering { name: "dk", weights: "weights", rows: "OWN", from: "0u" },
        ];
        let shader = self
            .queries_of_tile(kernel.shader)
            .section("SEEN", text::SEEN_QUERIES)
            .section("WHOLE", self.whole(("present", "OTHER"), ("tile", "OWN")))
            .section("ASK", units.own("keys", "k", text::KEY, "constants.keys"))
            .section("GIVE", units.own("values", "v", text::KEY, "constants.keys"))
            .section("FETCH_FIRST", fetched.fetch("first", true))
            .section("FETCH_NEXT", fetched.fetch("base", false))
            .section("HOLD", fetched.hold())
            .section("SCORE", scores.map(|scoring| units.scored(scoring)).concat())
            .section("ZERO", units.nothing(&["dk", "dv"], "var "))
            .section("GATHER", units.gathered(&sums))
            .section("STORE", units.stored(&["dk", "dv"], text::HOME, "constants.keys", ""));
        Across { shader, ..kernel }
    }

    fn fragments(&self) -> Fragments {
        Fragments { depth: self.head_dim / FRAGMENT }
    }
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
        shader = shader.number("groups", 1u32).placed(None, false);
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
                    let read = [&["q", "k", "v", "dy", "logs", "means"], &masks[..]].concat();
                    let forward = op.forward_on_units();
                    validate(forward, &[&["q", "k", "v"], &masks[..]].concat(), &["y", "logs"]);
                    validate(op.queries_on_units(), &read, &["dq"]);
                    let kernel = op.keys_on_units();
                    let shader = Shares::new(&op, 1).declare(kernel.shader);
                    validate(Across { shader, ..kernel }, &read, &["dk", "dv"]);
                }
            }
        }
    }
}

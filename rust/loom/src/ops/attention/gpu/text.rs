//! The parts of the kernels' text that depend on the head's extent and on who sees whom.

use super::Attention;
use crate::ops::Dropout;
use crate::ops::attention::PositionBias;
use crate::ops::draws::GENERATOR;
use crate::shader::Shader;

/// A kernel, and how many workgroups go through the vectors of its own side of each head.
pub(super) struct Across {
    pub shader: Shader,
    pub groups: usize,
}

/// Vectors of one head, in units of four elements.
#[derive(Clone, Copy)]
pub(super) struct Vectors {
    pub head_dim: usize,
}

impl Vectors {
    pub fn units(self) -> usize {
        self.head_dim.div_ceil(4)
    }

    fn is_whole(self) -> bool {
        self.head_dim.is_multiple_of(4)
    }

    /// What an array of vectors holds.
    pub fn element(self) -> &'static str {
        if self.is_whole() { "vec4<f32>" } else { "f32" }
    }

    /// The functions that load vectors from arrays of these names, and that store them there.
    pub fn functions(self, read: &[&str], written: &[&str]) -> String {
        let loads = read.iter().map(|name| self.load(name));
        loads.chain(written.iter().map(|name| self.store(name))).collect()
    }

    /// `load_NAME(vector, unit, present)`, zeros where not present.
    fn load(self, name: &str) -> String {
        if self.is_whole() {
            return format!(
                "fn load_{name}(vector: u32, unit: u32, present: bool) -> vec4<f32> {{\n    \
                 if !present {{ return vec4<f32>(); }}\n    return {name}[vector * UNITS + unit];\n}}\n"
            );
        }
        let d = self.head_dim;
        let mut text = format!(
            "fn load_{name}(vector: u32, unit: u32, present: bool) -> vec4<f32> {{\n    \
             var x = vec4<f32>();\n    let at = vector * {d}u + unit * 4u;\n    if !present {{ return x; }}\n"
        );
        for (i, part) in ["x", "y", "z", "w"].into_iter().enumerate() {
            text += &format!("    if unit * 4u + {i}u < {d}u {{ x.{part} = {name}[at + {i}u]; }}\n");
        }
        text + "    return x;\n}\n"
    }

    /// `store_NAME(vector, unit, x)`.
    fn store(self, name: &str) -> String {
        let head = format!("fn store_{name}(vector: u32, unit: u32, x: vec4<f32>) {{\n");
        if self.is_whole() {
            return head + &format!("    {name}[vector * UNITS + unit] = x;\n}}\n");
        }
        let d = self.head_dim;
        let mut text = head + &format!("    let at = vector * {d}u + unit * 4u;\n");
        for (i, part) in ["x", "y", "z", "w"].into_iter().enumerate() {
            text += &format!("    if unit * 4u + {i}u < {d}u {{ {name}[at + {i}u] = x.{part}; }}\n");
        }
        text + "}\n"
    }
}

/// One line, or a few, for each unit of a vector.
pub(super) fn each(units: usize, line: impl Fn(usize) -> String) -> String {
    (0..units).map(|unit| line(unit) + "\n").collect()
}

/// Functions that say which keys are there and which of them a query sees.
pub(super) fn sight(op: &Attention) -> String {
    let present = match op.cached {
        // A row that stands behind all places has none.
        true => {
            "select(0u, min(constants.keys, position(row) + constants.queries), position(row) < constants.keys)"
        }
        false => "constants.keys",
    };
    let first =
        if op.window.is_some() { "select(0u, place + 1u - WINDOW, place + 1u > WINDOW)" } else { "0u" };
    let last = match (op.causal, op.window) {
        (true, _) => "min(present_keys(row), place + 1u)",
        (false, Some(_)) => "min(present_keys(row), place + WINDOW)",
        (false, None) => "present_keys(row)",
    };
    let mut text = format!(
        "#{{PLACES}}\n\
         fn present_keys(row: u32) -> u32 {{ return {present}; }}\n\
         // The keys that the query at a place may see, but for masks.\n\
         fn first_key(row: u32, place: u32) -> u32 {{ return min({first}, present_keys(row)); }}\n\
         fn last_key(row: u32, place: u32) -> u32 {{ return {last}; }}\n"
    );
    // The queries that see a key, the other way round.
    let from = match (op.causal, op.window) {
        (true, _) => "key",
        (false, Some(_)) => "select(0u, key + 1u - WINDOW, key + 1u > WINDOW)",
        (false, None) => "0u",
    };
    let to = if op.window.is_some() { "min(constants.queries, key + WINDOW)" } else { "constants.queries" };
    text += &format!(
        "fn first_query(key: u32) -> u32 {{ return min({from}, constants.queries); }}\n\
         fn last_query(key: u32) -> u32 {{ return {to}; }}\n"
    );
    let (capped, slope) = match op.soft_cap {
        None => ("score".into(), "1.0".into()),
        Some(cap) => {
            let (cap, inverse) = (cap as f32, (1.0 / cap) as f32);
            // tanh overflows on some drivers.
            let share = format!("clamp(score * {inverse:?}f, -10.0, 10.0)");
            let share_of_result = format!("(score * {inverse:?}f)");
            (format!("{cap:?}f * tanh({share})"), format!("1.0 - {share_of_result} * {share_of_result}"))
        }
    };
    text += &format!(
        "fn capped(score: f32) -> f32 {{ return {capped}; }}\n\
         // What the gradient of a score is multiplied by.\n\
         fn cap_slope(score: f32) -> f32 {{ return {slope}; }}\n"
    );
    text += "fn sees(row: u32, place: u32, key: u32) -> bool {\n    \
             if key < first_key(row, place) || key >= last_key(row, place) { return false; }\n";
    if op.padding {
        text += "    if padding[row * constants.keys + key] == 0.0 { return false; }\n    \
                 if place < constants.keys && padding[row * constants.keys + place] != padding[row * constants.keys + key] { return false; }\n";
    }
    if let Some(mask) = &op.fixed {
        let (queries, keys) = mask.extents();
        text += &format!(
            "    if place >= {queries}u || key >= {keys}u {{ return false; }}\n    \
             if (allowed[place * MASK_WORDS + key / 32u] >> (key % 32u) & 1u) == 0u {{ return false; }}\n"
        );
    }
    text + "    return true;\n}\n" + &biased(op) + &kept(op)
}

/// A function that adds to a score what the distance of its places adds.
fn biased(op: &Attention) -> String {
    let score = match &op.bias {
        None => "score".to_string(),
        Some(PositionBias::Slopes(_)) => "score - head_slopes[head] * abs(f32(key) - f32(place))".to_string(),
        Some(PositionBias::Buckets(buckets)) => {
            let zero = buckets.rows().1;
            format!("score + relative[buckets[key + {zero}u - place] * HEADS + head]")
        }
    };
    format!("fn biased(head: u32, place: u32, key: u32, score: f32) -> f32 {{ return {score}; }}\n")
}

/// Functions that say what weights by which values are gathered are multiplied by.
fn kept(op: &Attention) -> String {
    if op.dropout == 0.0 {
        return "fn kept(row: u32, head: u32, query: u32, key: u32) -> f32 { return 1.0; }\n\
                fn kept_of_four(row: u32, head: u32, query: u32, key: u32) -> vec4<f32> { return vec4<f32>(1.0); }\n"
            .into();
    }
    let (threshold, factor) = (Dropout::threshold_of(op.dropout), (1.0 / (1.0 - op.dropout)) as f32);
    format!(
        "{GENERATOR}\n\
         // Of four queries from a multiple of four on, whose words are one block.\n\
         fn kept_of_four(row: u32, head: u32, query: u32, key: u32) -> vec4<f32> {{\n    \
         let now = steps[constants.step];\n    \
         let fours = (constants.queries + 3u) / 4u;\n    \
         let block = ((now.row_offset + row) * fours + query / 4u) * constants.keys + key;\n    \
         var path = constants.path;\n    \
         for (var byte = 0u; byte < 4u; byte += 1u) {{\n        \
         path = (path ^ ((head >> (8u * byte)) & 0xffu)) * 0x01000193u;\n    }}\n    \
         let seed = vec2<u32>(now.seed_low, now.seed_high);\n    \
         let words = philox(vec4<u32>(block, now.step_low, path, now.step_high << 8u | 2u), seed);\n    \
         return select(vec4<f32>(), vec4<f32>({factor:?}f), words >= vec4<u32>({threshold}u));\n}}\n\
         fn kept(row: u32, head: u32, query: u32, key: u32) -> f32 {{\n    \
         let words = kept_of_four(row, head, query, key);\n    \
         return words[query % 4u];\n}}\n"
    )
}

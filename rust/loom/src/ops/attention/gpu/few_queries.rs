//! Attention of few queries over many keys, as it is when a session goes on step by step: the keys of each query
//! and head are shared out over the threads of a workgroup, and where there are very many, over several workgroups
//! (Dao et al. 2023, "Flash-Decoding").

use super::Attention;
use super::text::each;
use crate::Result;
use crate::shader::{Recorder, Shader};

/// More queries than this are better taken together.
const MOST_QUERIES: usize = 15;
/// Fewer keys than this would leave most threads idle.
const LEAST_KEYS: usize = 32;
/// Keys whose weights lie in the workgroup's memory at a time: as many as there is room for.
const CHUNKS: [usize; 2] = [1024, 512];
/// The most threads that score a key together.
const TEAM: usize = 4;
/// Keys of one workgroup.
const SPAN: usize = 1024;

/// Values that a thread loads together.
const AT_ONCE: usize = 8;
/// Units of a head that are written out one by one.
const MOST_WRITTEN: usize = 32;

/// How the keys are shared out.
#[derive(Clone, Copy)]
pub(super) struct FewQueries {
    threads: usize,
    /// Keys whose weights lie in the workgroup's memory at a time.
    chunk: usize,
    /// Workgroups that share the keys of one query and head.
    spans: usize,
}

impl FewQueries {
    /// The shares, where this is the kernel to take.
    pub(super) fn new(op: &Attention, recorder: &Recorder<'_>) -> Option<Self> {
        let capabilities = recorder.capabilities();
        let units = op.vectors().units();
        let wanted = (op.keys.next_power_of_two() / 2).clamp(64, 512);
        let most = wanted.min(1 << capabilities.workgroup_threads.ilog2());
        let fits = |threads: usize, chunk: usize| {
            let bytes = (units + threads) * 16 + (chunk * (TEAM + 1) + threads) * 4;
            bytes <= capabilities.workgroup_storage && threads >= units.max(16)
        };
        // Fewer keys at a time before fewer threads.
        let halved = [most, most / 2, most / 4, most / 8].into_iter();
        let sizes = halved.flat_map(|threads| CHUNKS.map(|chunk| (threads, chunk.min(op.keys))));
        let (threads, chunk) = sizes.into_iter().find(|(threads, chunk)| fits(*threads, *chunk))?;
        (op.queries <= MOST_QUERIES && op.keys >= LEAST_KEYS).then_some(Self {
            threads,
            chunk,
            spans: op.keys.div_ceil(SPAN),
        })
    }

    /// Records the dispatches of the forward pass.
    pub(super) fn record(self, op: &Attention, recorder: &mut Recorder<'_>) -> Result<()> {
        let vectors = op.vectors();
        let element = vectors.element();
        let alone = self.spans == 1;
        let functions = vectors.functions(&["q", "k", "v"], if alone { &["y"] } else { &[] });
        let store = if alone { STORE } else { STORE_PART };
        let units = vectors.units();
        let team = if units.is_multiple_of(TEAM) { TEAM } else { 1 };
        let unit = |u| format!("products = fma(load_k(theirs, {u}, true), asked[{u}], products);");
        // Written out, the loads of a key wait for nothing of each other.
        let score = match units / team {
            shares @ ..=MOST_WRITTEN => each(shares, |share| unit(format!("{}u + mate", share * team))),
            _ => format!("for (var u = mate; u < UNITS; u += TEAM) {{\n{}\n}}", unit("u".into())),
        };
        let load = |i| {
            format!(
                "let j{i} = min(j + {i}u * LANES, count - 1u);\n\
                 let weight{i} = select(0.0, weights[j{i}], j + {i}u * LANES < count);\n\
                 let v{i} = load_v(others + (base + j{i}) * KEY_VALUE_HEADS, unit, true);"
            )
        };
        let shader = op
            .shader("", include_str!("few_queries.wgsl"), functions)
            .threads(self.threads)
            .constant("CHUNK", self.chunk)
            .constant("SPAN", SPAN)
            .section("STORE", store)
            .section("SCORE", score)
            .constant("AT_ONCE", AT_ONCE)
            .constant("TEAM", team)
            .section("LOAD", each(AT_ONCE, load))
            .section("GATHER", each(AT_ONCE, |i| format!("y = fma(vec4<f32>(weight{i}), v{i}, y);")))
            .read("q", element, recorder.read(0)?)
            .read("k", element, recorder.read(1)?)
            .read("v", element, recorder.read(2)?);
        let mut shader = op.masks(shader, recorder, 3)?;
        let queries = recorder.rows() * op.queries * op.heads;
        let groups = queries * self.spans;
        let (y, logs) = (recorder.write(0)?, recorder.write(1)?);
        let joined = if alone {
            shader = shader.write("y", element, y).write("logs", "f32", logs);
            None
        } else {
            let parts = recorder.scratch(groups * vectors.units() * 4)?;
            let scales = recorder.scratch(groups * 2)?;
            shader = shader.write("parts", "vec4<f32>", parts.clone()).write("scales", "f32", scales.clone());
            let join = Shader::new("attention.join", include_str!("few_queries_join.wgsl"))
                .constant("UNITS", vectors.units())
                .section("VECTORS", vectors.functions(&[], &["y"]))
                .read("parts", "vec4<f32>", parts)
                .read("scales", "f32", scales)
                .write("y", element, y)
                .write("logs", "f32", logs)
                .number("spans", self.spans)
                .number("units", queries * vectors.units());
            Some(join)
        };
        shader
            .number("queries", op.queries)
            .number("keys", op.keys)
            // Workgroups that share the keys of one query, and all there are.
            .number("spans", self.spans)
            .number("groups", groups)
            .groups(recorder, groups)?;
        match joined {
            Some(join) => join.elements(recorder, queries * vectors.units()),
            None => Ok(()),
        }
    }
}

/// A query that has seen nothing gets zeros.
const STORE: &str = "if lane == 0u {
        store_y(mine, unit, gathered[unit] * select(1.0 / total, 0.0, nothing));
    }
    if thread == 0u {
        logs[mine] = select(largest + log(total), -LEAST, nothing);
    }";

/// What has been gathered, the largest score, and the sum of the weights relative to it.
const STORE_PART: &str = "if lane == 0u {
        parts[(mine * constants.spans + span) * UNITS + unit] = gathered[unit];
    }
    if thread == 0u {
        scales[(mine * constants.spans + span) * 2u] = largest;
        scales[(mine * constants.spans + span) * 2u + 1u] = select(total, 0.0, nothing);
    }";

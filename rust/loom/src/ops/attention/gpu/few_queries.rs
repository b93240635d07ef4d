//! Attention of few queries over many keys, as it is when a session goes on step by step: the keys of each query
//! and head are shared out over the threads of a workgroup, and where there are very many, over several workgroups
//! (Dao et al. 2023, "Flash-Decoding").

use super::Attention;
use super::few_exchanging::{Exchanging, TEAM};
use super::text::each;
use crate::Result;
use crate::ops::attention::spans::Spans;
use crate::shader::{Capabilities, Recorder, Shader};

/// More queries than this are better taken together.
const MOST_QUERIES: usize = 15;
/// Fewer keys than this would leave most threads idle.
const LEAST_KEYS: usize = 32;
/// Keys whose weights lie in the workgroup's memory at a time: as many as there is room for.
const CHUNKS: [usize; 2] = [1024, 512];
/// The most keys of one workgroup.
const SPAN: usize = 1024;
/// The fewest keys that are worth a workgroup of their own.
const LEAST_SPAN: usize = 128;
/// Workgroups beyond which further ones would only take turns.
const MOST_GROUPS: usize = 256;
/// The most spans that whoever reads the result joins: each of its workgroups does that anew.
const MOST_SPANS: usize = 16;

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
    /// Keys of one workgroup.
    span: usize,
    /// Workgroups that share the keys of one query and head.
    spans: usize,
    /// Where subgroups exchange what they have found.
    exchanging: Option<Exchanging>,
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
        (op.queries <= MOST_QUERIES && op.keys >= LEAST_KEYS).then(|| Self {
            threads,
            chunk,
            span: SPAN.min(op.keys),
            spans: op.keys.div_ceil(SPAN),
            exchanging: Exchanging::new(op, &capabilities, threads, SPAN.min(op.keys)),
        })
    }

    /// The same for many spans, whose joining is left to whoever reads the result; where that is worth it.
    pub(super) fn in_spans(self, op: &Attention, rows: usize, device: &Capabilities) -> Option<Self> {
        let queries = (rows * op.queries * op.heads).max(1);
        let enough = (MOST_GROUPS / queries).clamp(1, MOST_SPANS);
        let span = op.keys.div_ceil(enough).next_multiple_of(LEAST_SPAN);
        let threads = self.threads.min((2 * span).next_power_of_two());
        let exchanging = Exchanging::new(op, device, threads, span)?;
        let spans = op.keys.div_ceil(span);
        let suits = spans > 1 && span <= SPAN && op.head_dim.is_multiple_of(4);
        suits.then_some(Self { threads, span, spans, exchanging: Some(exchanging), ..self })
    }

    /// Records what each span gathers.
    pub(super) fn record_spans(self, op: &Attention, recorder: &mut Recorder<'_>) -> Result<Spans> {
        let groups = recorder.rows() * op.queries * op.heads * self.spans;
        let gathered = recorder.scratch(groups * op.vectors().units() * 4)?;
        let weights = recorder.scratch(groups * 2)?;
        let shader = self
            .shader(op, recorder, STORE_PART, &[])?
            .write("parts", "vec4<f32>", gathered.clone())
            .write("scales", "vec2<f32>", weights.clone());
        shader.groups(recorder, groups)?;
        Ok(Spans { gathered, weights, spans: self.spans })
    }

    /// Records the dispatches of the forward pass.
    pub(super) fn record(self, op: &Attention, recorder: &mut Recorder<'_>) -> Result<()> {
        let vectors = op.vectors();
        let element = vectors.element();
        let (y, logs) = (recorder.write(0)?, recorder.write(1)?);
        let queries = recorder.rows() * op.queries * op.heads;
        if self.spans == 1 {
            let shader = self.shader(op, recorder, STORE, &["y"])?;
            return shader.write("y", element, y).write("logs", "f32", logs).groups(recorder, queries);
        }
        let Spans { gathered, weights, spans } = self.record_spans(op, recorder)?;
        Shader::new("attention.join", include_str!("few_queries_join.wgsl"))
            .constant("UNITS", vectors.units())
            .section("VECTORS", vectors.functions(&[], &["y"]))
            .read("parts", "vec4<f32>", gathered)
            .read("scales", "vec2<f32>", weights)
            .write("y", element, y)
            .write("logs", "f32", logs)
            .number("spans", spans)
            .number("units", queries * vectors.units())
            .elements(recorder, queries * vectors.units())
    }

    /// The kernel but for where it stores.
    fn shader(
        self,
        op: &Attention,
        recorder: &mut Recorder<'_>,
        store: &str,
        stored: &[&str],
    ) -> Result<Shader> {
        let element = op.vectors().element();
        let functions = op.vectors().functions(&["q", "k", "v"], stored);
        let shader = match self.exchanging {
            Some(exchanging) => exchanging.shader(op, functions),
            None => self.by_barriers(op, functions),
        };
        let shader = shader
            .section("STORE", store)
            .read("q", element, recorder.read(0)?)
            .read("k", element, recorder.read(1)?)
            .read("v", element, recorder.read(2)?);
        Ok(op
            .masks(shader, recorder, 3)?
            .number("queries", op.queries)
            .number("keys", op.keys)
            // Workgroups that share the keys of one query, and all there are.
            .number("spans", self.spans)
            .number("groups", recorder.rows() * op.queries * op.heads * self.spans))
    }

    /// The kernel that exchanges everything by way of the workgroup's memory, but for its operands and what it stores.
    fn by_barriers(self, op: &Attention, functions: String) -> Shader {
        let units = op.vectors().units();
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
        op.shader("", include_str!("few_queries.wgsl"), functions)
            .threads(self.threads)
            .constant("CHUNK", self.chunk)
            .constant("SPAN", self.span)
            .section("SCORE", score)
            .constant("AT_ONCE", AT_ONCE)
            .constant("TEAM", team)
            .section("LOAD", each(AT_ONCE, load))
            .section("GATHER", each(AT_ONCE, |i| format!("y = fma(vec4<f32>(weight{i}), v{i}, y);")))
    }
}

/// A query that has seen nothing gets zeros.
pub(super) const STORE: &str = "store_y(mine, unit, found * select(1.0 / total, 0.0, nothing));
        if unit == 0u {
            logs[mine] = select(largest + log(total), -LEAST, nothing);
        }";

/// What has been gathered, the largest score, and the sum of the weights relative to it.
const STORE_PART: &str = "let part = mine * constants.spans + span;
        parts[part * UNITS + unit] = found;
        if unit == 0u {
            scales[part] = vec2<f32>(largest, total);
        }";

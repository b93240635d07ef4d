//! How attention lowers to operations.

use super::{MultiHeadAttention, QkNorm};
use crate::layers::projection::Projection;
use crate::layers::settings::kind_and_config;
use crate::layers::target::WeightedMean;
use crate::layers::{
    Context, Forward, Layer, ParameterSpec, Steps, TargetRules, Want, mask_of, shape_error, single,
};
use crate::ops::attention::FixedMask;
use crate::ops::normalize::Statistics;
use crate::ops::{
    Attention, BiasGradient, CacheAppend, Direction, GainGradient, KeepSteps, Normalize, Rotary,
    WeightProduct,
};
use crate::program::{Builder, Value};
use crate::state::CarriedSpec;
use crate::tensor::Shape;
use crate::weights::{Initializer, Layout};
use crate::{Error, Result};
use std::sync::Arc;

/// Extents for one pair of inputs.
#[derive(Clone, Copy)]
struct Extents {
    time: usize,
    width: usize,
    context_time: usize,
    context_width: usize,
    heads: usize,
    key_value_heads: usize,
    head_dim: usize,
}

impl Extents {
    /// Features of the keys, and of the values.
    fn answering(&self) -> usize {
        self.key_value_heads.saturating_mul(self.head_dim)
    }
}

/// Places of the values that the forward lowering saves.
const QUERIES: usize = 0;
const KEYS: usize = 1;
const VALUES: usize = 2;
const GATHERED: usize = 3;
const LOGARITHMS: usize = 4;
/// What the norms of queries and keys have read, and the inverse deviations they found.
const NORMS: [[usize; 2]; 2] = [[5, 6], [7, 8]];

/// The name of the table of what is added to scores by distance.
const TABLE: &str = "relative_bias";

/// The norm of queries or keys.
struct Norm {
    /// Elements that are normalised together, and extent of the gain.
    extent: usize,
    epsilon: f64,
    /// The gain's name.
    gain: &'static str,
}

/// The operation that normalises a value.
fn norm(b: &Builder, x: Value, norm: &Norm) -> Normalize {
    Normalize {
        direction: Direction::Forward,
        outer: b.shape(x).len() / norm.extent,
        channels: norm.extent,
        inner: 1,
        groups: 1,
        centred: false,
        epsilon: norm.epsilon,
        gain: true,
        bias: false,
    }
}

/// Normalises a value: the result, and the inverse deviations.
fn normalize(b: &mut Builder, cx: &Context, x: Value, by: &Norm) -> Result<[Value; 2]> {
    let gain = cx.read(b, by.gain)?;
    let op = norm(b, x, by);
    let results = [("y", b.shape(x).clone()), ("inverse deviation", Shape::from(op.outer))];
    Ok(b.apply_several(op, &[x, gain], results))
}

/// The gradient of what [`normalize`] read; pushes the gain's.
fn normalize_backward(
    b: &mut Builder,
    cx: &Context,
    [x, deviations]: [Value; 2],
    gradient: Value,
    by: &Norm,
    want: Want,
) -> Result<Value> {
    let op = Normalize { direction: Direction::InputGradient, ..norm(b, x, by) };
    if want.parameters {
        let statistics = Statistics::Rows { groups: 1, centred: false };
        let op = GainGradient { outer: op.outer, channels: by.extent, inner: 1, statistics };
        cx.contribute(b, by.gain, op, &[gradient, x, deviations])?;
    }
    let gain = cx.read(b, by.gain)?;
    let shape = b.shape(x).clone();
    Ok(b.apply(op, &[gradient, x, deviations, gain], "dx", shape))
}

/// What an output, or its gradient, is where padding has none; of steps that nobody masks all of it.
fn keep_steps(b: &mut Builder, cx: &Context, x: Value) -> Value {
    let Some(mask) = cx.mask else { return x };
    let shape = b.shape(x).clone();
    let width = shape.last().copied().unwrap_or(1);
    b.apply(KeepSteps { width }, &[mask, x], "kept", shape)
}

impl MultiHeadAttention {
    fn extents(&self, inputs: &[Shape]) -> Result<Extents> {
        let sequence = |shape: &Shape, name: &str| match &shape[..] {
            [time, width] if *time > 0 && *width > 0 => Ok((*time, *width)),
            _ => Err(shape_error("MultiHeadAttention", name, shape)),
        };
        let (x, context) = match inputs {
            [x, context] if self.cross => (x, context),
            [_] if self.cross => {
                return Err(Error::Shape(
                    "MultiHeadAttention with cross=True needs a second input; link one to its cell as context"
                        .into(),
                ));
            }
            _ => (single(self.kind(), inputs)?, &inputs[0]),
        };
        let (time, width) = sequence(x, "(time, width)")?;
        let (context_time, context_width) = sequence(context, "a context (time, width)")?;
        let heads = self.heads;
        let head_dim = match self.head_dim {
            Some(head_dim) => head_dim,
            None if width.is_multiple_of(heads) => width / heads,
            None => {
                return Err(Error::Shape(format!(
                    "MultiHeadAttention: a width of {width} is not to be divided by {heads} heads; give head_dim"
                )));
            }
        };
        if let Some(rotary) = &self.rotary {
            rotary.turning(head_dim)?;
        }
        let key_value_heads = self.key_value_heads.unwrap_or(heads);
        if let Some(mask) = &self.mask
            && (mask.len() < time || mask[0].len() < context_time)
        {
            return Err(Error::Shape(format!(
                "MultiHeadAttention: a mask of {} by {} is too small for {time} steps that look at {context_time}",
                mask.len(),
                mask[0].len()
            )));
        }
        Ok(Extents { time, width, context_time, context_width, heads, key_value_heads, head_dim })
    }

    /// Query, key, value and output.
    fn projections(&self, e: &Extents) -> [Projection; 4] {
        let output_bias = self.output_bias.unwrap_or(self.bias);
        let (asking, answering) = (e.heads.saturating_mul(e.head_dim), e.answering());
        let of = |name, inputs, outputs| Projection::named(name, inputs, outputs, self.bias);
        [
            of("query", e.width, asking),
            of("key", e.context_width, answering),
            of("value", e.context_width, answering),
            Projection::named("output", asking, e.width, output_bias),
        ]
    }

    /// The norms of queries and keys; none where those stay as they are.
    fn norms(&self, e: &Extents) -> Vec<Norm> {
        let extents = match self.qk_norm {
            QkNorm::None => return Vec::new(),
            QkNorm::Head => [e.head_dim; 2],
            QkNorm::Width => [e.heads.saturating_mul(e.head_dim), e.answering()],
        };
        let norms = extents.into_iter().zip(["query_gain", "key_gain"]);
        norms.map(|(extent, gain)| Norm { extent, epsilon: self.qk_norm_epsilon, gain }).collect()
    }

    /// The table of what is added to scores, as the forward pass reads it, where there is one.
    fn table(&self, b: &mut Builder, cx: &Context, e: &Extents) -> Result<Option<Value>> {
        let table = self.position_bias.as_ref().and_then(|bias| bias.table(e.heads));
        table.map(|_| cx.read(b, TABLE)).transpose()
    }

    /// `room` is how many steps there are for keys in a session.
    fn op(&self, cx: &Context, e: &Extents, room: usize, padding: bool) -> Result<Attention> {
        let fixed = self.mask.as_ref().map(|mask| {
            Arc::new(FixedMask::new(mask.len(), mask[0].len(), |query, key| mask[query][key] != 0))
        });
        let heads = (e.heads, e.key_value_heads);
        let op = Attention::new((e.time, e.context_time), heads, e.head_dim);
        // A window wider than all there is sees all there is.
        let window = self.window.map(|window| window.min(e.time.max(e.context_time).max(room)));
        let (scale, soft_cap) = (self.scale.unwrap_or(op.scale), self.soft_cap);
        let dropout = if cx.training { self.dropout } else { 0.0 };
        let places = e.time.max(room);
        let bias =
            self.position_bias.as_ref().map(|bias| bias.lower(e.heads, places, self.causal)).transpose()?;
        Ok(Attention { scale, soft_cap, causal: self.causal, window, fixed, padding, dropout, bias, ..op })
    }

    /// The rotation of the queries.
    fn rotation(&self, e: &Extents, places: usize) -> Result<Option<Rotary>> {
        let Some(rotary) = &self.rotary else { return Ok(None) };
        let (rates, factor) = rotary.rates(rotary.turning(e.head_dim)?);
        Rotary::by_rates((e.time, e.heads, e.head_dim), &rates, factor, rotary.layout, places).map(Some)
    }

    /// Which steps are padding, as far as attention to one's own sequence is concerned.
    fn padding(&self, cx: &Context) -> Result<Option<Value>> {
        match cx.mask {
            Some(_) if cx.session && !self.cross => Err(Error::Value(
                "attention in a session cannot leave out padding; hand in sequences without it".into(),
            )),
            mask => Ok(mask.filter(|_| !self.cross)),
        }
    }
}

impl Layer for MultiHeadAttention {
    kind_and_config!();

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        self.extents(inputs).map(|e| Shape::from([e.time, e.width]))
    }

    fn parameters(&self, inputs: &[Shape]) -> Vec<ParameterSpec> {
        let Ok(e) = self.extents(inputs) else { return Vec::new() };
        let initializer = self.weight_initializer.unwrap_or(Initializer::XavierNormal);
        let projections = self.projections(&e);
        let weights = projections.iter().flat_map(|projection| projection.parameters(initializer, None));
        let gains = self.norms(&e).into_iter().map(|norm| ParameterSpec {
            name: norm.gain.into(),
            layout: Layout::plain([norm.extent]),
            initializer: Initializer::Ones,
            fan_in: norm.extent,
            fan_out: norm.extent,
            morphable: false,
            decay_exempt: true,
            adaptable: false,
        });
        let table = self.position_bias.as_ref().and_then(|bias| bias.table(e.heads));
        let table = table.map(|extents| ParameterSpec {
            name: TABLE.into(),
            layout: Layout::plain(extents),
            initializer: Initializer::Normal { std: 1.0 / (e.width as f64).sqrt() },
            fan_in: e.width,
            fan_out: e.heads,
            morphable: false,
            decay_exempt: true,
            adaptable: false,
        });
        weights.chain(gains).chain(table).collect()
    }

    fn carried(&self, inputs: &[Shape], length: usize) -> Vec<CarriedSpec> {
        let Ok(e) = self.extents(inputs) else { return Vec::new() };
        if self.cross {
            return Vec::new();
        }
        let cache = |name: &'static str| CarriedSpec {
            name: name.into(),
            shape: Shape::from([length, e.answering()]),
            initial: 0.0,
            in_training: false,
            by_place: true,
            packable: Some(e.head_dim),
        };
        vec![cache("keys"), cache("values")]
    }

    fn takes_context(&self) -> bool {
        self.cross
    }

    fn is_stepwise(&self) -> bool {
        // Steps that look ahead cannot come piece by piece.
        self.causal || self.cross
    }

    fn steps(&self) -> Steps {
        Steps::Kept
    }

    fn forward(&self, b: &mut Builder, cx: &Context, inputs: &[Value]) -> Result<Forward> {
        let shapes: Vec<Shape> = inputs.iter().map(|input| b.shape(*input).clone()).collect();
        let e = self.extents(&shapes)?;
        let [query, key, value, output] = self.projections(&e);
        let (x, context) = (inputs[0], inputs[inputs.len() - 1]);
        mask_of(cx, b, "MultiHeadAttention", b.shape(x))?;
        let mut q = query.forward(b, cx, x)?;
        let mut k = key.forward(b, cx, context)?;
        let mut v = value.forward(b, cx, context)?;
        let mut norms = Vec::new();
        for (x, norm) in [&mut q, &mut k].into_iter().zip(self.norms(&e)) {
            let [y, deviations] = normalize(b, cx, *x, &norm)?;
            norms.extend([*x, deviations]);
            *x = y;
        }
        let caches = cx.carried(b, "keys").zip(cx.carried(b, "values"));
        let room = caches.map_or(e.time, |(keys, _)| b.shape(keys)[0]);
        if let Some(mask) =
            self.mask.as_ref().filter(|mask| caches.is_some() && mask.len().min(mask[0].len()) < room)
        {
            return Err(Error::Value(format!(
                "MultiHeadAttention has a mask of {} by {}, too small for the session's capacity of {room}",
                mask.len(),
                mask[0].len()
            )));
        }
        if let Some(mut rotation) = self.rotation(&e, room)? {
            rotation.positioned = cx.session;
            let (shape, other) = (b.shape(q).clone(), b.shape(k).clone());
            q = b.apply(rotation.clone(), &[q], "q", shape);
            k = b.apply(rotation.of_heads(e.key_value_heads), &[k], "k", other);
        }
        let padding = self.padding(cx)?;
        let mut op = self.op(cx, &e, room, padding.is_some())?;
        if let Some((keys, values)) = caches {
            let features = e.answering();
            let (cache, head_dim) = (cx.cache, e.head_dim);
            let append = CacheAppend { time: e.time, capacity: room, features, cache, head_dim };
            cx.carry(b, append.clone(), &[k], keys);
            cx.carry(b, append, &[v], values);
            (k, v) = (keys, values);
            (op.keys, op.cached, op.cache) = (room, true, cache);
        }
        let table = self.table(b, cx, &e)?;
        let reads: Vec<Value> = [q, k, v].into_iter().chain(padding).chain(table).collect();
        let results = [("y", b.shape(q).clone()), ("logarithms", Shape::from([e.time, e.heads]))];
        let [y, logarithms] = b.apply_several(op, &reads, results);
        let out = output.forward(b, cx, y)?;
        let out = keep_steps(b, cx, out);
        let saved = [q, k, v, y, logarithms].into_iter().chain(norms).collect();
        Ok(Forward::saving(out, saved))
    }

    fn backward(
        &self,
        b: &mut Builder,
        cx: &Context,
        inputs: &[Value],
        forward: &Forward,
        gradient: Value,
        want: Want,
    ) -> Result<Vec<Option<Value>>> {
        let shapes: Vec<Shape> = inputs.iter().map(|input| b.shape(*input).clone()).collect();
        let e = self.extents(&shapes)?;
        let [query, key, value, output] = self.projections(&e);
        let (x, context) = (inputs[0], inputs[inputs.len() - 1]);
        let saved = &forward.saved;
        let gradient = keep_steps(b, cx, gradient);
        if want.parameters {
            output.contribute(b, cx, saved[GATHERED], gradient)?;
        }
        let dy = output.input_gradient(b, cx, saved[GATHERED], gradient)?;
        let padding = self.padding(cx)?;
        let table = self.table(b, cx, &e)?;
        let table_gradient = table.is_some() && want.parameters && cx.parameter(TABLE)?.trained;
        let op = Attention {
            direction: Direction::InputGradient,
            table_gradient,
            ..self.op(cx, &e, e.time, padding.is_some())?
        };
        let reads = [QUERIES, KEYS, VALUES, GATHERED, LOGARITHMS].map(|place| saved[place]);
        let reads: Vec<Value> = reads.into_iter().chain([dy]).chain(padding).chain(table).collect();
        let results = [("dq", QUERIES), ("dk", KEYS), ("dv", VALUES)]
            .map(|(label, place)| (label, b.shape(saved[place]).clone()));
        let [mut dq, mut dk, dv] = match table.filter(|_| table_gradient) {
            None => b.apply_several(op, &reads, results),
            Some(table) => {
                let shape = b.shape(table).clone();
                let [first, second, third] = results;
                let results = [first, second, third, ("dtable", shape.clone())];
                let [dq, dk, dv, parts] = b.apply_several(op, &reads, results);
                let sum = BiasGradient { outer: 1, channels: shape.len(), inner: 1 };
                cx.contribute(b, TABLE, sum, &[parts])?;
                [dq, dk, dv]
            }
        };
        if let Some(rotation) = self.rotation(&e, e.time)? {
            let (shape, other) = (b.shape(dq).clone(), b.shape(dk).clone());
            dq = b.apply(rotation.inverse(), &[dq], "dq", shape);
            dk = b.apply(rotation.inverse().of_heads(e.key_value_heads), &[dk], "dk", other);
        }
        for ((gradient, norm), places) in [&mut dq, &mut dk].into_iter().zip(self.norms(&e)).zip(NORMS) {
            let read = places.map(|place| saved[place]);
            *gradient = normalize_backward(b, cx, read, *gradient, &norm, want)?;
        }
        let parts = [
            query.backward(b, cx, x, dq, want)?,
            key.backward(b, cx, context, dk, want)?,
            value.backward(b, cx, context, dv, want)?,
        ];
        if !want.inputs {
            return Ok(vec![None; inputs.len()]);
        }
        let [own, others @ ..] = parts;
        let others: Vec<Value> = others.into_iter().flatten().collect();
        if self.cross {
            return Ok(vec![own, b.sum(&others)]);
        }
        let parts: Vec<Value> = own.into_iter().chain(others).collect();
        Ok(vec![b.sum(&parts)])
    }

    fn target_rules(&self) -> &dyn TargetRules {
        self
    }
}

impl TargetRules for MultiHeadAttention {
    /// The mean by the product of the value's and the output's weight, each step by itself, as though it
    /// looked at itself alone. Where the values come from the context there is none for the input.
    fn target(
        &self,
        b: &mut Builder,
        cx: &Context,
        inputs: &[Value],
        _forward: &Forward,
        target: Value,
    ) -> Result<Option<Value>> {
        if self.cross {
            return Ok(None);
        }
        let x = *single(self.kind(), inputs)?;
        let e = self.extents(&[b.shape(x).clone()])?;
        let [_, _, value, output] = self.projections(&e);
        let weights = [cx.master(b, &value.weight)?, cx.master(b, &output.weight)?];
        let (groups, repeats) = (e.key_value_heads, e.heads / e.key_value_heads);
        let op = match repeats {
            1 => WeightProduct::new(e.width, e.heads * e.head_dim, e.width),
            _ => WeightProduct { inputs: e.width, outputs: e.width, groups, repeats, extent: e.head_dim },
        };
        let weight = b.apply_fixed(op, &weights, "value and output", Shape::from([e.width, e.width]));
        let mean = WeightedMean { mask: cx.mask, ..WeightedMean::new(weight, e.width, e.width) };
        Ok(Some(mean.lower(b, x, target)))
    }
}

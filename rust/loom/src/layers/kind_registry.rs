//! Layers by name: one line each, and room for those a user of the crate brings.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)]

pub use super::configured::Configured;
use super::sample::Sample;
use super::settings::{Described, Setting, check_all};
use super::{
    ActivationLayer, AdaptiveAvgPool, AdaptiveMaxPool, AdaptiveSoftmax, AvgPool, BatchNorm, Chain,
    Checkpoint, ClassToken, Conv, ConvTranspose, Crop, Dense, Dropout, Embedding, Entmax, Expr, Flatten,
    GaussianNoise, GeGLU, GlobalAvgPool, GlobalMaxPool, GridSoftmax, GroupNorm, Gru, GumbelSoftmax,
    HierarchicalSoftmax, InstanceNorm, KMeans, L2Norm, Layer, LayerNorm, Lstm, Masked, MaskedSoftmax,
    MaxPool, MixtureOfExperts, MixtureSoftmax, MultiHeadAttention, PReLU, Parallel, Permute, PixelShuffle,
    PixelUnshuffle, PositionalEmbedding, RMSNorm, Reshape, Residual, Rnn, Scale, SequencePool, Sequential,
    SinusoidalPositions, Slice, SoftCap, Softmax, Sparsemax, SpatialDropout, SpectralNorm, SwiGLU, TiedHead,
    UpSampling, WeightNorm, ZeroPadding,
};
use crate::error::unknown;
use crate::{Error, Result, extents};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use std::sync::{Arc, LazyLock, RwLock};

/// Makes a layer from its config without the `type` key.
type Constructor = fn(Value) -> Result<Box<dyn Layer>>;

/// What the registry knows of a layer: how to make it from its config, and what to try it on.
#[derive(Clone, Copy)]
struct Entry {
    kind: &'static str,
    construct: Constructor,
    samples: fn() -> Vec<Sample>,
    settings: fn() -> Vec<Setting>,
}

const fn entry<L: Configured + Described>() -> Entry {
    Entry { kind: L::KIND, construct: construct::<L>, samples: L::samples, settings: L::settings }
}

const BUILT_IN: &[Entry] = &[
    entry::<Dense>(),
    entry::<Conv<1>>(),
    entry::<Conv<2>>(),
    entry::<Conv<3>>(),
    entry::<ConvTranspose<1>>(),
    entry::<ConvTranspose<2>>(),
    entry::<ConvTranspose<3>>(),
    entry::<MaxPool<1>>(),
    entry::<MaxPool<2>>(),
    entry::<MaxPool<3>>(),
    entry::<AvgPool<1>>(),
    entry::<AvgPool<2>>(),
    entry::<AvgPool<3>>(),
    entry::<GlobalMaxPool<1>>(),
    entry::<GlobalMaxPool<2>>(),
    entry::<GlobalMaxPool<3>>(),
    entry::<GlobalAvgPool<1>>(),
    entry::<GlobalAvgPool<2>>(),
    entry::<GlobalAvgPool<3>>(),
    entry::<Flatten>(),
    entry::<Reshape>(),
    entry::<Dropout>(),
    entry::<ActivationLayer>(),
    entry::<PReLU>(),
    entry::<Expr>(),
    entry::<Softmax>(),
    entry::<Permute>(),
    entry::<WeightNorm>(),
    entry::<SpectralNorm>(),
    entry::<ZeroPadding<1>>(),
    entry::<ZeroPadding<2>>(),
    entry::<ZeroPadding<3>>(),
    entry::<Crop<1>>(),
    entry::<Crop<2>>(),
    entry::<Crop<3>>(),
    entry::<Slice>(),
    entry::<UpSampling<1>>(),
    entry::<UpSampling<2>>(),
    entry::<UpSampling<3>>(),
    entry::<PixelShuffle>(),
    entry::<PixelUnshuffle>(),
    entry::<AdaptiveMaxPool<1>>(),
    entry::<AdaptiveMaxPool<2>>(),
    entry::<AdaptiveMaxPool<3>>(),
    entry::<AdaptiveAvgPool<1>>(),
    entry::<AdaptiveAvgPool<2>>(),
    entry::<AdaptiveAvgPool<3>>(),
    entry::<GaussianNoise>(),
    entry::<SpatialDropout<1>>(),
    entry::<SpatialDropout<2>>(),
    entry::<SpatialDropout<3>>(),
    entry::<Sequential>(),
    entry::<Checkpoint>(),
    entry::<Residual>(),
    entry::<Parallel>(),
    entry::<Masked>(),
    entry::<GridSoftmax>(),
    entry::<HierarchicalSoftmax>(),
    entry::<AdaptiveSoftmax>(),
    entry::<MixtureSoftmax>(),
    entry::<GumbelSoftmax>(),
    entry::<MaskedSoftmax>(),
    entry::<Sparsemax>(),
    entry::<Entmax>(),
    entry::<LayerNorm>(),
    entry::<RMSNorm>(),
    entry::<GroupNorm>(),
    entry::<InstanceNorm>(),
    entry::<BatchNorm>(),
    entry::<KMeans>(),
    entry::<Rnn>(),
    entry::<Lstm>(),
    entry::<Gru>(),
    entry::<MultiHeadAttention>(),
    entry::<SwiGLU>(),
    entry::<GeGLU>(),
    entry::<Embedding>(),
    entry::<TiedHead>(),
    entry::<PositionalEmbedding>(),
    entry::<SinusoidalPositions>(),
    entry::<ClassToken>(),
    entry::<SequencePool>(),
    entry::<L2Norm>(),
    entry::<Scale>(),
    entry::<SoftCap>(),
    entry::<MixtureOfExperts>(),
];

static REGISTERED: LazyLock<RwLock<Vec<Entry>>> = LazyLock::new(Default::default);

/// The samples of every layer there is, by kind.
pub fn samples() -> Vec<(&'static str, Vec<Sample>)> {
    table().into_iter().map(|entry| (entry.kind, (entry.samples)())).collect()
}

/// The settings of every layer there is, by kind; none of those that [`register`] made known.
pub fn schema() -> Vec<(&'static str, Vec<Setting>)> {
    table().into_iter().map(|entry| (entry.kind, (entry.settings)())).collect()
}

fn construct<L: Configured>(config: Value) -> Result<Box<dyn Layer>> {
    let layer: L = serde_json::from_value(config).map_err(|error| Error::Value(error.to_string()))?;
    layer.validate()?;
    Ok(Box::new(layer))
}

fn table() -> Vec<Entry> {
    let registered = REGISTERED.read().unwrap_or_else(|poisoned| poisoned.into_inner());
    BUILT_IN.iter().chain(registered.iter()).copied().collect()
}

/// The names of all layers there are.
pub fn kinds() -> Vec<&'static str> {
    table().into_iter().map(|entry| entry.kind).collect()
}

/// Makes a layer from its config, an object whose `type` names it.
///
/// # Errors
/// [`Error::Value`] for an unknown type (the nearest known one is suggested), for
/// unknown or missing keys, and for values out of range.
pub fn from_config(config: &Value) -> Result<Box<dyn Layer>> {
    if !is_at_most(config, extents::MOST_NESTED) {
        return Err(Error::Value(format!(
            "a layer's config is nested more than {} levels deep, the most there may be",
            extents::MOST_NESTED
        )));
    }
    let mut fields: Map<String, Value> = config
        .as_object()
        .cloned()
        .ok_or_else(|| Error::Value(format!("a layer's config is a JSON object, got {config}")))?;
    let kind = match fields.remove("type") {
        Some(Value::String(kind)) => kind,
        _ => return Err(Error::Value("a layer's config needs a \"type\"".into())),
    };
    let table = table();
    let Some(entry) = table.iter().find(|entry| entry.kind == kind) else {
        let names: Vec<&str> = table.iter().map(|entry| entry.kind).collect();
        return Err(unknown("layer type", &kind, names.iter().copied()));
    };
    let checked = check_all(&(entry.settings)(), &fields);
    checked.and_then(|()| (entry.construct)(Value::Object(fields))).map_err(|error| match error {
        Error::Value(message) => Error::Value(format!("layer \"{kind}\": {message}")),
        other => other,
    })
}

/// Whether lists and objects are inside each other at most so many levels deep.
fn is_at_most(value: &Value, levels: usize) -> bool {
    let within = |item: &Value| levels.checked_sub(1).is_some_and(|levels| is_at_most(item, levels));
    match value {
        Value::Array(items) => levels > 0 && items.iter().all(within),
        Value::Object(items) => levels > 0 && items.values().all(within),
        _ => true,
    }
}

// Here rather than beside the type, which knows nothing of the layers that there are.
impl<'de> Deserialize<'de> for Chain {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let configs = Vec::<serde_json::Value>::deserialize(deserializer)?;
        let layers = configs.iter().map(|config| Ok(Arc::from(from_config(config)?)));
        layers.collect::<Result<_>>().map(Self::new).map_err(serde::de::Error::custom)
    }
}

/// Makes a layer of one's own known by `kind`, for configs and files.
///
/// # Errors
/// [`Error::Value`] where the name is taken.
pub fn register<L: Configured>(kind: &'static str) -> Result<()> {
    if kinds().contains(&kind) {
        return Err(Error::Value(format!("a layer type \"{kind}\" exists already")));
    }
    let mut registered = REGISTERED.write().unwrap_or_else(|poisoned| poisoned.into_inner());
    registered.push(Entry { kind, construct: construct::<L>, samples: L::samples, settings: Vec::new });
    Ok(())
}

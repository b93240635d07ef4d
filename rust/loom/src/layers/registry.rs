//! Layers by name: one line each, and room for those a user of the crate brings.

pub use super::configured::Configured;
pub(super) use super::configured::config_of;
use super::sample::Sample;
use super::{
    ActivationLayer, AdaptiveSoftmax, AvgPool, BatchNorm, Conv, ConvTranspose, Dense, Dropout, Embedding,
    Entmax, Flatten, GeGLU, GlobalAvgPool, GlobalMaxPool, GridSoftmax, GroupNorm, Gru, GumbelSoftmax,
    HierarchicalSoftmax, KMeans, Layer, LayerNorm, Lstm, Masked, MaskedSoftmax, MaxPool, MixtureSoftmax,
    MultiHeadAttention, Parallel, Permute, PositionalEmbedding, RMSNorm, Reshape, Residual, Rnn, Sequential,
    SinusoidalPositions, Softmax, Sparsemax, SwiGLU, TiedHead,
};
use crate::error::unknown;
use crate::{Error, Result};
use serde_json::{Map, Value};
use std::sync::{LazyLock, RwLock};

/// Makes a layer from its config without the `type` key.
type Constructor = fn(Value) -> Result<Box<dyn Layer>>;

/// What the registry knows of a layer: how to make it from its config, and what to try it on.
#[derive(Clone, Copy)]
struct Entry {
    kind: &'static str,
    construct: Constructor,
    samples: fn() -> Vec<Sample>,
}

const fn entry<L: Configured>(kind: &'static str) -> Entry {
    Entry { kind, construct: construct::<L>, samples: L::samples }
}

const BUILT_IN: &[Entry] = &[
    entry::<Dense>("dense"),
    entry::<Conv<1>>("conv1d"),
    entry::<Conv<2>>("conv2d"),
    entry::<Conv<3>>("conv3d"),
    entry::<ConvTranspose<1>>("conv_transpose1d"),
    entry::<ConvTranspose<2>>("conv_transpose2d"),
    entry::<ConvTranspose<3>>("conv_transpose3d"),
    entry::<MaxPool<1>>("max_pool1d"),
    entry::<MaxPool<2>>("max_pool2d"),
    entry::<MaxPool<3>>("max_pool3d"),
    entry::<AvgPool<1>>("avg_pool1d"),
    entry::<AvgPool<2>>("avg_pool2d"),
    entry::<AvgPool<3>>("avg_pool3d"),
    entry::<GlobalMaxPool<1>>("global_max_pool1d"),
    entry::<GlobalMaxPool<2>>("global_max_pool2d"),
    entry::<GlobalMaxPool<3>>("global_max_pool3d"),
    entry::<GlobalAvgPool<1>>("global_avg_pool1d"),
    entry::<GlobalAvgPool<2>>("global_avg_pool2d"),
    entry::<GlobalAvgPool<3>>("global_avg_pool3d"),
    entry::<Flatten>("flatten"),
    entry::<Reshape>("reshape"),
    entry::<Dropout>("dropout"),
    entry::<ActivationLayer>("activation"),
    entry::<Softmax>("softmax"),
    entry::<Permute>("permute"),
    entry::<Sequential>("sequential"),
    entry::<Residual>("residual"),
    entry::<Parallel>("parallel"),
    entry::<Masked>("masked"),
    entry::<GridSoftmax>("grid_softmax"),
    entry::<HierarchicalSoftmax>("hierarchical_softmax"),
    entry::<AdaptiveSoftmax>("adaptive_softmax"),
    entry::<MixtureSoftmax>("mixture_softmax"),
    entry::<GumbelSoftmax>("gumbel_softmax"),
    entry::<MaskedSoftmax>("masked_softmax"),
    entry::<Sparsemax>("sparsemax"),
    entry::<Entmax>("entmax"),
    entry::<LayerNorm>("layer_norm"),
    entry::<RMSNorm>("rms_norm"),
    entry::<GroupNorm>("group_norm"),
    entry::<BatchNorm>("batch_norm"),
    entry::<KMeans>("kmeans"),
    entry::<Rnn>("rnn"),
    entry::<Lstm>("lstm"),
    entry::<Gru>("gru"),
    entry::<MultiHeadAttention>("multi_head_attention"),
    entry::<SwiGLU>("swiglu"),
    entry::<GeGLU>("geglu"),
    entry::<Embedding>("embedding"),
    entry::<TiedHead>("tied_head"),
    entry::<PositionalEmbedding>("positional_embedding"),
    entry::<SinusoidalPositions>("sinusoidal_positions"),
];

static REGISTERED: LazyLock<RwLock<Vec<Entry>>> = LazyLock::new(Default::default);

/// The samples of every layer there is, by kind.
pub fn samples() -> Vec<(&'static str, Vec<Sample>)> {
    table().into_iter().map(|entry| (entry.kind, (entry.samples)())).collect()
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
    (entry.construct)(Value::Object(fields)).map_err(|error| match error {
        Error::Value(message) => Error::Value(format!("layer \"{kind}\": {message}")),
        other => other,
    })
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
    registered.push(entry::<L>(kind));
    Ok(())
}

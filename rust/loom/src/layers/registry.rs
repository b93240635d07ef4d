//! Layers by name: one line each, and room for those a user of the crate brings.

use super::{
    ActivationLayer, AvgPool2D, Conv2D, Dense, Dropout, Flatten, GlobalAvgPool2D, Layer, MaxPool2D, Reshape,
    Softmax,
};
use crate::error::unknown;
use crate::{Error, Result};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::sync::{LazyLock, RwLock};

/// Makes a layer from its config without the `type` key.
type Constructor = fn(Value) -> Result<Box<dyn Layer>>;

const BUILT_IN: &[(&str, Constructor)] = &[
    ("dense", construct::<Dense>),
    ("conv2d", construct::<Conv2D>),
    ("max_pool2d", construct::<MaxPool2D>),
    ("avg_pool2d", construct::<AvgPool2D>),
    ("global_avg_pool2d", construct::<GlobalAvgPool2D>),
    ("flatten", construct::<Flatten>),
    ("reshape", construct::<Reshape>),
    ("dropout", construct::<Dropout>),
    ("activation", construct::<ActivationLayer>),
    ("softmax", construct::<Softmax>),
];

static REGISTERED: LazyLock<RwLock<Vec<(&'static str, Constructor)>>> = LazyLock::new(Default::default);

/// A layer whose fields are its config, checked once they are read.
pub trait Configured: Layer + DeserializeOwned + 'static {
    /// Refuses values that no input could make right.
    fn validate(&self) -> Result<()> {
        Ok(())
    }
}

fn construct<L: Configured>(config: Value) -> Result<Box<dyn Layer>> {
    let layer: L = serde_json::from_value(config).map_err(|error| Error::Value(error.to_string()))?;
    layer.validate()?;
    Ok(Box::new(layer))
}

fn table() -> Vec<(&'static str, Constructor)> {
    let registered = REGISTERED.read().unwrap_or_else(|poisoned| poisoned.into_inner());
    BUILT_IN.iter().chain(registered.iter()).copied().collect()
}

/// The names of all layers there are.
pub fn kinds() -> Vec<&'static str> {
    table().into_iter().map(|(kind, _)| kind).collect()
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
    let Some((_, constructor)) = table.iter().find(|(name, _)| *name == kind) else {
        let names: Vec<&str> = table.iter().map(|(name, _)| *name).collect();
        return Err(unknown("layer type", &kind, names.iter().copied()));
    };
    constructor(Value::Object(fields)).map_err(|error| match error {
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
    registered.push((kind, construct::<L>));
    Ok(())
}

/// The config object of a layer: its serialised fields and its `type`.
pub(super) fn config_of(kind: &str, layer: &impl serde::Serialize) -> Value {
    let mut object = match serde_json::to_value(layer) {
        Ok(Value::Object(fields)) => fields,
        // Unit-like layers serialise to nothing.
        _ => Map::new(),
    };
    object.insert("type".into(), Value::String(kind.into()));
    Value::Object(object)
}

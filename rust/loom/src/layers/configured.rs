//! Layers that are made from their configs.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)]

use super::Layer;
use super::sample::Sample;
use crate::Result;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// A layer whose fields are its config, checked once they are read.
pub trait Configured: Layer + DeserializeOwned + 'static {
    /// Refuses settings, each within its limits, that no input could make right.
    fn validate(&self) -> Result<()> {
        Ok(())
    }

    /// What the layer is tried on, each option at least once: the conformance tests prove its gradients,
    /// its agreement from device to device and its config on every one of these.
    fn samples() -> Vec<Sample>;
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

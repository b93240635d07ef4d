//! Which norm queries and keys go through.

use crate::layers::settings::{forms, names};
use serde::{Deserialize, Serialize};

/// Whether queries and keys are divided by their root mean square, times a trained gain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QkNorm {
    /// They stay as they are.
    #[default]
    None,
    /// Each head by itself, all with one gain of (head_dim,): in configs `true`.
    Head,
    /// All heads of a step together, with gains of (heads x head_dim,): in configs `"width"`.
    Width,
}

impl From<bool> for QkNorm {
    fn from(on: bool) -> Self {
        if on { Self::Head } else { Self::None }
    }
}

impl Serialize for QkNorm {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self {
            Self::None => serializer.serialize_bool(false),
            Self::Head => serializer.serialize_bool(true),
            Self::Width => serializer.serialize_str("width"),
        }
    }
}

impl<'de> Deserialize<'de> for QkNorm {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        match serde_json::Value::deserialize(deserializer)? {
            serde_json::Value::Bool(on) => Ok(on.into()),
            serde_json::Value::String(name) if name == "width" => Ok(Self::Width),
            other => Err(serde::de::Error::custom(format!(
                "qk_norm must be true, false or \"width\", got {other}"
            ))),
        }
    }
}

forms! {
    QkNorm => names(&[QkNorm::None, QkNorm::Head, QkNorm::Width]),
}

//! Losses by name, and their operations.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)]

use super::weighing::Weighing;
use crate::layers::class_extents;
use crate::ops::{Loss, LossFunction};
use crate::tensor::Shape;
use crate::{Error, Result};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

/// A loss by name: `"cross_entropy"`, or `{"huber": {"delta": 0.5}}`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossConfig(pub LossFunction);

impl LossConfig {
    /// The loss of this name, with its default setting.
    ///
    /// # Errors
    /// [`Error::Value`] listing the known names.
    pub fn parse(name: &str) -> Result<Self> {
        LossFunction::named(name).map(Self)
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.0.name()
    }

    /// Whether targets may be class indices.
    pub fn takes_classes(&self) -> bool {
        self.0.is_over_classes() && !matches!(self.0, LossFunction::KullbackLeibler { .. })
    }

    fn from_json(value: &Value) -> Result<Self> {
        let object = match value {
            Value::String(name) => return Self::parse(name),
            Value::Object(object) if object.len() == 1 => object,
            other => {
                return Err(Error::Value(format!("a loss is a name or {{name: parameters}}, got {other}")));
            }
        };
        let mut loss = LossFunction::MeanSquaredError;
        for (name, parameters) in object {
            loss = LossFunction::named(name)?;
            for (key, value) in parameters.as_object().into_iter().flatten() {
                loss = loss.with_setting(key, value.as_f64(), &value.to_string())?;
            }
        }
        Ok(Self(loss))
    }
}

/// Its name, with its setting where that is not the default.
impl Serialize for LossConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut loss = self.0;
        match loss.setting() {
            Some(setting) if !LossFunction::ALL.contains(&self.0) => {
                json!({ self.name(): { setting.name: *setting.value } }).serialize(serializer)
            }
            _ => serializer.serialize_str(self.name()),
        }
    }
}

impl<'de> Deserialize<'de> for LossConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Self::from_json(&value).map_err(serde::de::Error::custom)
    }
}

/// What else a loss takes.
#[derive(Clone, Debug, Default)]
pub struct LossOptions {
    /// Mixes targets with the uniform distribution.
    pub label_smoothing: f64,
    /// A factor for each class.
    pub class_weight: Option<Vec<f64>>,
}

/// The loss operation for an output of this shape.
pub(crate) fn loss_op(
    function: LossFunction,
    shape: &Shape,
    class_targets: bool,
    weighing: Weighing,
    options: &LossOptions,
    gradient: bool,
) -> Result<Loss> {
    let (outer, classes, inner) = class_extents(shape);
    let takes_classes = LossConfig(function).takes_classes();
    if let Some(weights) = &options.class_weight {
        if !takes_classes {
            return Err(Error::Value(format!(
                "class_weight needs cross_entropy, focal or nll, not {}",
                LossConfig(function).name()
            )));
        }
        if weights.len() != classes || weights.iter().any(|w| !w.is_finite() || *w < 0.0) {
            return Err(Error::Value(format!(
                "class_weight must hold {classes} finite numbers of at least 0, one for each class"
            )));
        }
    }
    if !(0.0..1.0).contains(&options.label_smoothing) || (options.label_smoothing > 0.0 && !takes_classes) {
        return Err(Error::Value(format!(
            "label_smoothing must be at least 0 and below 1, and needs cross_entropy, focal or nll; got {} with {}",
            options.label_smoothing,
            LossConfig(function).name()
        )));
    }
    Ok(Loss {
        function,
        outer,
        classes,
        inner,
        class_targets,
        label_smoothing: options.label_smoothing,
        class_weight: options.class_weight.clone(),
        weighted: weighing != Weighing::None,
        by_place: matches!(weighing, Weighing::Places(_)),
        gradient,
        scaled: false,
    })
}

//! Activations as data: names, parameters, text.

use super::Activation;
use crate::{Error, Result, error};
use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

impl Activation {
    /// The activation of this name, with its default parameters.
    ///
    /// An unknown name is [`Error::Value`], which lists the known ones.
    pub fn named(name: &str) -> Result<Self> {
        let names = Self::ALL.iter().map(|known| known.name());
        Self::ALL
            .iter()
            .copied()
            .find(|known| known.name() == name)
            .ok_or_else(|| error::unknown("activation", name, names))
    }

    /// The activation of this name, with these parameters and defaults for the rest.
    ///
    /// An unknown name, or a value that is not a finite `f32`, is [`Error::Value`].
    pub fn with_parameters<'a>(name: &str, given: impl IntoIterator<Item = (&'a str, f64)>) -> Result<Self> {
        let mut activation = Self::named(name)?;
        for (parameter, value) in given {
            let mut known = activation.parameters_mut();
            let names: Vec<&'static str> = known.iter().map(|(name, _)| *name).collect();
            let Some((_, target)) = known.iter_mut().find(|(known, _)| *known == parameter) else {
                if names.is_empty() {
                    return Err(Error::Value(format!(
                        "{name} has no parameters, but \"{parameter}\" is given"
                    )));
                }
                return Err(error::unknown(&format!("parameter of {name}"), parameter, names));
            };
            **target = value;
        }
        activation.validated()
    }

    /// Itself, or [`Error::Value`] where a parameter is not a finite `f32`.
    pub fn validated(self) -> Result<Self> {
        for (parameter, value) in self.parameters() {
            if !(value as f32).is_finite() {
                let name = self.name();
                return Err(Error::Value(format!(
                    "{parameter} of {name} must be a finite number, not {value}"
                )));
            }
        }
        Ok(self)
    }

    /// Whether its parameters, if any, have their default values.
    pub fn is_default_of_its_kind(self) -> bool {
        Self::ALL.contains(&self)
    }
}

/// `relu`, or `leaky_relu(slope=0.2)` where a parameter is not the default.
impl fmt::Display for Activation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        if self.is_default_of_its_kind() {
            return Ok(());
        }
        for (i, (parameter, value)) in self.parameters().into_iter().enumerate() {
            write!(f, "{}{parameter}={value}", if i == 0 { "(" } else { ", " })?;
        }
        f.write_str(")")
    }
}

impl FromStr for Activation {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::named(name)
    }
}

impl Serialize for Activation {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        if self.is_default_of_its_kind() {
            return serializer.serialize_str(self.name());
        }
        let parameters: BTreeMap<&str, f64> = self.parameters().into_iter().collect();
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry(self.name(), &parameters)?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for Activation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_any(ActivationVisitor)
    }
}

/// Reads a name, or a map from one name to its parameters.
struct ActivationVisitor;

impl<'de> Visitor<'de> for ActivationVisitor {
    type Value = Activation;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of an activation, or a map from its name to its parameters")
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> std::result::Result<Activation, E> {
        Activation::named(name).map_err(E::custom)
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> std::result::Result<Activation, M::Error> {
        let expected = || {
            serde::de::Error::custom(
                "an activation's map holds one name, such as {\"leaky_relu\": {\"slope\": 0.2}}",
            )
        };
        let name: String = map.next_key()?.ok_or_else(expected)?;
        // The name first, so that a wrong one is not reported as wrong parameters.
        Activation::named(&name).map_err(serde::de::Error::custom)?;
        let parameters: BTreeMap<String, f64> = map.next_value()?;
        if map.next_key::<String>()?.is_some() {
            return Err(expected());
        }
        let parameters = parameters.iter().map(|(parameter, value)| (parameter.as_str(), *value));
        Activation::with_parameters(&name, parameters).map_err(serde::de::Error::custom)
    }
}

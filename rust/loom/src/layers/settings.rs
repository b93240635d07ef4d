//! What a layer may be told: its settings, declared once beside its struct.
//!
//! `settings!` makes of one declaration the struct, its JSON both ways, its defaults, and the schema
//! by which the registry and other languages check configs before a layer is made of them.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)]

use crate::ops::pointwise::Activation;
use crate::weights::Initializer;
use crate::{Error, Result};
use serde::de::DeserializeOwned;
use serde::{Serialize, de};
use serde_json::{Map, Value};

/// What values a setting takes.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Form {
    /// A number of things, from 0.
    Whole,
    /// A whole number of either sign.
    Integer,
    /// A finite number.
    Real,
    /// True or false.
    Flag,
    /// One of these names.
    Name {
        /// The names.
        names: Vec<Value>,
    },
    /// A whole number for each axis.
    Extents {
        /// How many axes.
        axes: usize,
    },
    /// Extents, or how much by name.
    Padding {
        /// How many axes.
        axes: usize,
    },
    /// An activation.
    Activation,
    /// How parameters start.
    Initializer,
    /// Layers in a row.
    Layers,
    /// Several of a form.
    List {
        /// The form of each.
        of: Box<Form>,
    },
    /// How a rotary embedding's rates are made.
    RotaryRule,
    /// What attention adds to scores by distance.
    PositionBias,
    /// An object with settings of its own.
    Settings {
        /// Those settings.
        settings: Vec<Setting>,
    },
    /// What only the layer itself understands.
    Other,
}

/// What numbers must be, each of a list by itself; of layers in a row how many there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Limits {
    /// This or larger.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub least: Option<f64>,
    /// Larger than this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub above: Option<f64>,
    /// This or smaller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most: Option<f64>,
    /// Smaller than this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub below: Option<f64>,
}

impl Limits {
    fn hold(&self, number: f64) -> bool {
        self.least.is_none_or(|least| number >= least)
            && self.above.is_none_or(|above| number > above)
            && self.most.is_none_or(|most| number <= most)
            && self.below.is_none_or(|below| number < below)
    }

    fn in_words(&self) -> String {
        if let (Some(least), Some(most)) = (self.least, self.most) {
            return format!("from {least} to {most}");
        }
        let words =
            [("at least", self.least), ("above", self.above), ("at most", self.most), ("below", self.below)];
        let said = words.iter().filter_map(|(word, bound)| bound.map(|bound| format!("{word} {bound}")));
        said.collect::<Vec<_>>().join(" and ")
    }
}

/// One setting of a kind of layer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setting {
    /// Its key in configs.
    pub name: &'static str,
    /// What values it takes.
    #[serde(flatten)]
    pub form: Form,
    /// Whether it may be null, for what the layer then chooses itself.
    pub optional: bool,
    /// Its value where a config does not name it; `None` where a config must.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    /// Within which limits.
    #[serde(flatten)]
    pub limits: Limits,
}

impl Setting {
    /// A setting of this type.
    pub(super) fn of<T: SettingValue>(name: &'static str, default: Option<T>, limits: Limits) -> Self {
        let default = default.map(|default| json(&default));
        Self { name, form: T::form(), optional: T::OPTIONAL, default, limits }
    }

    /// Refuses numbers beyond the limits; what is none is left to whoever reads the value.
    ///
    /// # Errors
    /// [`Error::Value`] saying what the limits are.
    pub fn check(&self, value: &Value) -> Result<()> {
        if let (Form::Settings { settings }, Value::Object(fields)) = (&self.form, value) {
            return check_all(settings, fields).map_err(|error| match error {
                Error::Value(message) => Error::Value(format!("{} {message}", self.name)),
                other => other,
            });
        }
        if self.holds(value) {
            return Ok(());
        }
        Err(Error::Value(format!("{} must be {}, got {value}", self.name, self.limits.in_words())))
    }

    fn holds(&self, value: &Value) -> bool {
        match value {
            Value::Array(layers) if self.form == Form::Layers => self.limits.hold(layers.len() as f64),
            Value::Array(items) => items.iter().all(|item| self.holds(item)),
            Value::Number(number) => number.as_f64().is_none_or(|number| self.limits.hold(number)),
            _ => true,
        }
    }
}

/// Refuses numbers beyond the limits of any of these settings.
pub(super) fn check_all(settings: &[Setting], fields: &Map<String, Value>) -> Result<()> {
    settings
        .iter()
        .try_for_each(|setting| fields.get(setting.name).map_or(Ok(()), |value| setting.check(value)))
}

/// A layer whose settings are declared by `settings!`.
pub(super) trait Described {
    /// Its name in configs.
    const KIND: &'static str;

    /// Its settings.
    fn settings() -> Vec<Setting>;
}

/// A type that settings have.
pub(super) trait SettingValue: Serialize + DeserializeOwned {
    /// Whether there may be none.
    const OPTIONAL: bool = false;

    /// What values it takes.
    fn form() -> Form;

    /// Whether there is none, which configs do not write.
    fn is_none(&self) -> bool {
        false
    }
}

impl<T: SettingValue> SettingValue for Option<T> {
    const OPTIONAL: bool = true;

    fn form() -> Form {
        T::form()
    }

    fn is_none(&self) -> bool {
        self.is_none()
    }
}

impl<T: SettingValue> SettingValue for Vec<T> {
    fn form() -> Form {
        Form::List { of: Box::new(T::form()) }
    }
}

impl<const N: usize> SettingValue for [usize; N]
where
    Self: Serialize + DeserializeOwned,
{
    fn form() -> Form {
        Form::Extents { axes: N }
    }
}

/// The forms of types, one each.
macro_rules! forms {
    ($($type:ty => $form:expr),* $(,)?) => {
        $(impl $crate::layers::settings::SettingValue for $type {
            fn form() -> $crate::layers::settings::Form {
                $form
            }
        })*
    };
}
pub(super) use forms;

forms! {
    usize => Form::Whole,
    u8 => Form::Whole,
    i64 => Form::Integer,
    f64 => Form::Real,
    bool => Form::Flag,
    String => Form::Other,
    Value => Form::Other,
    Activation => Form::Activation,
    Initializer => Form::Initializer,
}

/// The form of an enum that is written as a name, from all there are.
pub(super) fn names<T: Serialize>(all: &[T]) -> Form {
    Form::Name { names: all.iter().map(json).collect() }
}

/// A value as configs have it.
pub(super) fn json<T: Serialize>(value: &T) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

/// Whether a value need not be written, being what a config without it means.
pub(super) fn unwritten<T: Serialize>(value: &T, default: &T) -> bool {
    json(value) == json(default)
}

/// Takes a setting out of a config that may leave it out.
pub(super) fn optional<T: DeserializeOwned, E: de::Error>(
    config: &mut Map<String, Value>,
    name: &'static str,
) -> std::result::Result<Option<T>, E> {
    config.remove(name).map(serde_json::from_value).transpose().map_err(E::custom)
}

/// Takes a setting out of a config that must have it.
pub(super) fn required<T: DeserializeOwned, E: de::Error>(
    config: &mut Map<String, Value>,
    name: &'static str,
) -> std::result::Result<T, E> {
    optional(config, name)?.ok_or_else(|| E::missing_field(name))
}

/// Refuses what is left of a config once every setting has been taken out.
pub(super) fn nothing_else<E: de::Error>(
    config: &Map<String, Value>,
    known: &'static [&'static str],
) -> std::result::Result<(), E> {
    config.keys().next().map_or(Ok(()), |key| Err(E::unknown_field(key, known)))
}

/// Declares a layer: its name in Rust and in configs, and its settings, those that configs must name before
/// those that they may leave out.
///
/// ```text
/// settings! {
///     /// What it does.
///     #[derive(Clone, Debug, PartialEq)]
///     pub struct Dropout "dropout" {
///         /// Probability of zeroing.
///         rate: f64 [least 0.0, below 1.0],
///     } optional {
///         /// Whether it spares something.
///         spares: bool = true,
///     }
/// }
/// ```
///
/// Limits in brackets are those of [`Limits`]. A setting with `; unwritten` after its default is left out of
/// configs while it has it. There comes of it the struct with these fields, all public; `with_defaults`, which
/// takes the required settings; `Serialize` and `Deserialize`, which refuses unknown keys; and [`Described`].
/// A struct over `N` axes is of the kinds "conv1d", "conv2d" and "conv3d" where its name in configs is "conv".
macro_rules! settings {
    (
        $(#[$meta:meta])*
        pub struct $layer:ident $(<const $n:ident: usize>)? $kind:literal {
            $(
                $(#[$required_doc:meta])*
                $required:ident: $required_type:ty $([$($required_limit:ident $required_bound:expr),*])?
            ),* $(,)?
        } $(optional {
            $(
                $(#[$doc:meta])*
                $field:ident: $type:ty $([$($limit:ident $bound:expr),*])? = $default:expr $(; $unwritten:ident)?
            ),* $(,)?
        })?
    ) => {
        $(#[$meta])*
        pub struct $layer $(<const $n: usize>)? {
            $($(#[$required_doc])* pub $required: $required_type,)*
            $($($(#[$doc])* pub $field: $type,)*)?
        }

        impl $(<const $n: usize>)? $layer $(<$n>)? {
            /// With every setting that has a default at it.
            fn with_defaults($($required: $required_type),*) -> Self {
                Self { $($required,)* $($($field: $default,)*)? }
            }
        }

        impl $(<const $n: usize>)? $crate::layers::settings::Described for $layer $(<$n>)?
        $(where [usize; $n]: serde::Serialize + serde::de::DeserializeOwned)?
        {
            const KIND: &'static str = $crate::layers::settings::kind!($kind $(, $n)?);

            fn settings() -> Vec<$crate::layers::settings::Setting> {
                vec![
                    $($crate::layers::settings::Setting::of::<$required_type>(
                        stringify!($required),
                        None,
                        $crate::layers::settings::limits!($($($required_limit $required_bound),*)?),
                    ),)*
                    $($($crate::layers::settings::Setting::of::<$type>(
                        stringify!($field),
                        Some($default),
                        $crate::layers::settings::limits!($($($limit $bound),*)?),
                    ),)*)?
                ]
            }
        }

        impl $(<const $n: usize>)? serde::Serialize for $layer $(<$n>)?
        $(where [usize; $n]: serde::Serialize + serde::de::DeserializeOwned)?
        {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
                #[allow(unused_imports, reason = "a layer without settings writes none")]
                use serde::ser::SerializeMap;
                #[allow(unused_mut, reason = "a layer without settings writes none")]
                let mut config = serializer.serialize_map(None)?;
                $(config.serialize_entry(stringify!($required), &self.$required)?;)*
                $($(
                    let absent = $crate::layers::settings::SettingValue::is_none(&self.$field);
                    if !absent $(&& !$crate::layers::settings::$unwritten::<$type>(&self.$field, &$default))? {
                        config.serialize_entry(stringify!($field), &self.$field)?;
                    }
                )*)?
                config.end()
            }
        }

        impl<'de $(, const $n: usize)?> serde::Deserialize<'de> for $layer $(<$n>)?
        $(where [usize; $n]: serde::Serialize + serde::de::DeserializeOwned)?
        {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
                #[allow(unused_mut, reason = "a layer without settings takes none out")]
                let mut config = serde_json::Map::deserialize(deserializer)?;
                #[allow(unused_mut, reason = "a layer without defaults changes none")]
                let mut layer = Self::with_defaults(
                    $($crate::layers::settings::required(&mut config, stringify!($required))?),*
                );
                $($(if let Some(given) = $crate::layers::settings::optional(&mut config, stringify!($field))? {
                    layer.$field = given;
                })*)?
                let known = &[$(stringify!($required),)* $($(stringify!($field),)*)?];
                $crate::layers::settings::nothing_else(&config, known)?;
                Ok(layer)
            }
        }
    };
}
pub(super) use settings;

/// Limits by name: `least 1, below 10`.
macro_rules! limits {
    ($($limit:ident $bound:expr),*) => {
        $crate::layers::settings::Limits {
            $($limit: Some($bound as f64),)*
            ..$crate::layers::settings::Limits::default()
        }
    };
}
pub(super) use limits;

/// The kind of a layer, or of one over so many axes.
macro_rules! kind {
    ($kind:literal) => {
        $kind
    };
    ($kind:literal, $axes:expr) => {
        [concat!($kind, "1d"), concat!($kind, "2d"), concat!($kind, "3d")][$axes - 1]
    };
}
pub(super) use kind;

/// The methods of a [`Described`] layer by which others know it.
macro_rules! kind_and_config {
    () => {
        fn kind(&self) -> &'static str {
            <Self as $crate::layers::settings::Described>::KIND
        }

        fn config(&self) -> serde_json::Value {
            $crate::layers::configured::config_of(self.kind(), self)
        }
    };
}
pub(super) use kind_and_config;

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "it parses nothing")]
mod tests {
    use super::*;
    use crate::layers::{from_config, samples, schema};

    /// A number as a setting of this form has it.
    fn value(form: &Form, number: f64) -> Value {
        match form {
            Form::Real => json(&number),
            Form::Extents { axes } | Form::Padding { axes } => json(&vec![number as i64; *axes]),
            Form::List { of } => Value::Array(vec![value(of, number)]),
            _ => json(&(number as i64)),
        }
    }

    #[test]
    fn what_is_beyond_the_limits_of_any_setting_is_refused_by_its_name() {
        let mut refused = 0;
        for ((kind, settings), (_, samples)) in schema().iter().zip(samples()) {
            for Setting { name, form, limits, .. } in settings {
                let Limits { least, above, most, below } = *limits;
                let step = if *form == Form::Real { 1e-6 } else { 1.0 };
                let beyond = [least.map(|x| x - step), above, most.map(|x| x + step), below];
                for number in beyond.into_iter().flatten() {
                    let mut config = samples[0].layer.config();
                    config[name] = if *form == Form::Layers { json(&[(); 0]) } else { value(form, number) };
                    let Err(Error::Value(message)) = from_config(&config) else {
                        panic!("{kind} takes {name} = {}", config[name]);
                    };
                    assert!(message.starts_with(&format!("layer \"{kind}\": {name} must be ")), "{message}");
                    refused += 1;
                }
            }
        }
        assert!(refused > 100, "only {refused} limits");
    }

    #[test]
    fn a_config_names_what_has_no_default_and_may_leave_out_the_rest() -> Result<()> {
        for ((kind, settings), (_, samples)) in schema().iter().zip(samples()) {
            let sample = samples[0].layer.config();
            for setting in settings {
                let mut config = sample.clone();
                config.as_object_mut().map(|fields| fields.remove(setting.name));
                match (&setting.default, from_config(&config)) {
                    (None, Err(Error::Value(message))) => {
                        assert!(message.contains(&format!("missing field `{}`", setting.name)), "{message}");
                    }
                    (None, _) => panic!("{kind} needs no {}", setting.name),
                    (Some(default), made) => {
                        config[setting.name] = default.clone();
                        assert_eq!(made?.config(), from_config(&config)?.config(), "{kind} {}", setting.name);
                    }
                }
            }
        }
        Ok(())
    }

    #[test]
    fn a_misspelt_setting_is_refused_with_those_that_there_are() {
        let Err(error) = from_config(&serde_json::json!({"type": "dropout", "rat": 0.5, "rate": 0.1})) else {
            panic!("dropout takes a rat");
        };
        assert!(error.to_string().contains("unknown field `rat`, expected `rate`"), "{error}");
    }
}

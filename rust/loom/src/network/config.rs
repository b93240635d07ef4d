//! A network as plain data: to JSON and back.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)]

use super::variable::told;
use super::{
    Adapter, Chosen, Coordinates, LayerNumerics, Link, NamedInput, NamedOutput, Network, Numerics,
    PlacedAdapter, at_layer,
};
use crate::dtype::{Calibration, DType, Granularity, Recipe, Rounding};
use crate::layers;
use crate::tensor::{Precision, Shape};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Everything that tells one network from another but its weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkConfig {
    /// Extents of the input, without the batch axis; `None` where they are not fixed, as that of a row of several inputs
    /// is where any extent of one is not.
    pub input_shape: Vec<Option<usize>>,
    /// Depth, rows, columns.
    #[serde(default = "single_cell")]
    pub grid: Coordinates,
    /// The arithmetic of masters and activations.
    #[serde(default)]
    pub precision: Precision,
    /// Keys initial weights and random draws.
    #[serde(default)]
    pub seed: u64,
    /// Cells that hold layers.
    pub cells: Vec<CellConfig>,
    /// Cells' outputs handed to later cells.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Link>,
    /// Inputs with names; `input_shape` is then that of a row of all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<NamedInput>,
    /// Outputs with names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<NamedOutput>,
    /// Layers that differ from the usual in how they are trained or stored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<LayerSettings>,
}

fn single_cell() -> Coordinates {
    [1, 1, 1]
}

/// A cell with its layers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellConfig {
    /// Depth, row, column.
    pub at: Coordinates,
    /// The layers' configs, in order.
    pub layers: Vec<Value>,
}

/// How one layer is trained and stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerSettings {
    /// Depth, row, column and place in the cell.
    pub at: [usize; 4],
    /// Whether an optimizer may move it.
    #[serde(default = "trainable")]
    pub trainable: bool,
    /// The parameters that no optimizer may move, though the layer is trained.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frozen: Vec<String>,
    /// What stands beside its weights.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adapters: Vec<Adapter>,
    /// Multiplies the learning rate.
    #[serde(default = "one")]
    pub rate_factor: f64,
    /// The numeric type it computes from; the master's unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<DType>,
    /// Which of its weights share a scale; the type's own choice unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granularity: Option<Granularity>,
    /// How their scales are found.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub calibration: Calibration,
    /// How its weights are rounded to codes.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub rounding: Rounding,
    /// The numeric type that inference quantises activations to; they stay in float unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activations: Option<DType>,
    /// What holds for single parameters, by name, instead.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, ParameterSettings>,
}

/// How one parameter is stored, in another way than its layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParameterSettings {
    /// The numeric type; the network's own for the master.
    pub dtype: DType,
    /// Which of its elements share a scale; the type's own choice unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granularity: Option<Granularity>,
    /// How its scales are found.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub calibration: Calibration,
    /// How it is rounded to codes.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub rounding: Rounding,
    /// The numeric type that inference quantises what it multiplies to; that stays in float unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activations: Option<DType>,
}

impl ParameterSettings {
    fn of(chosen: &Chosen, precision: Precision) -> Self {
        let Numerics { recipe, activations } = chosen.numerics;
        let Recipe { granularity, calibration, rounding } = recipe;
        let dtype = chosen.dtype.unwrap_or(precision.dtype());
        Self { dtype, granularity, calibration, rounding, activations }
    }

    fn chosen(&self, precision: Precision) -> Result<Chosen> {
        let Self { dtype, granularity, calibration, rounding, activations } = *self;
        let recipe = Recipe { granularity, calibration, rounding };
        let dtype = (dtype != precision.dtype()).then_some(dtype);
        if let Some(dtype) = dtype {
            recipe.checked(dtype)?;
        }
        super::numerics::check_activations(dtype, activations, precision)?;
        let numerics = dtype.map_or(Numerics::default(), |_| Numerics { recipe, activations });
        Ok(Chosen { dtype, numerics })
    }
}

fn is_usual<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn trainable() -> bool {
    true
}

fn one() -> f64 {
    1.0
}

impl Network {
    /// Describes the network.
    pub fn config(&self) -> NetworkConfig {
        let cells = self
            .cells
            .iter()
            .enumerate()
            .filter(|(_, layers)| !layers.is_empty())
            .map(|(index, layers)| CellConfig {
                at: self.coordinates_of(index),
                layers: layers.iter().map(|placed| placed.layer.config()).collect(),
            })
            .collect();
        let settings = self
            .layers()
            .filter(|placed| {
                let usual = placed.trainable
                    && placed.rate_factor == 1.0
                    && placed.frozen.is_empty()
                    && placed.adapters.is_empty();
                !usual || placed.numerics != LayerNumerics::default()
            })
            .filter_map(|placed| {
                // Those of cells have four places each.
                let at = placed.path.indices().try_into().ok()?;
                let setting = |chosen: &Chosen| ParameterSettings::of(chosen, self.precision);
                let (dtype, whole) = (placed.numerics.layer.dtype, setting(&placed.numerics.layer));
                let parameters = placed.numerics.parameters.iter();
                Some(LayerSettings {
                    at,
                    trainable: placed.trainable,
                    frozen: placed.frozen.clone(),
                    adapters: placed.adapters().cloned().collect(),
                    rate_factor: placed.rate_factor,
                    dtype: dtype.map(|_| whole.dtype),
                    granularity: whole.granularity,
                    calibration: whole.calibration,
                    rounding: whole.rounding,
                    activations: whole.activations,
                    parameters: parameters.map(|(name, chosen)| (name.clone(), setting(chosen))).collect(),
                })
            })
            .collect();
        NetworkConfig {
            input_shape: self.extents_in_config(),
            grid: self.grid,
            precision: self.precision,
            seed: self.seed,
            cells,
            links: self.links.clone(),
            inputs: self.inputs.clone(),
            outputs: self.outputs.clone(),
            settings,
        }
    }

    /// Makes the network that a config describes, with initial weights once built.
    ///
    /// # Errors
    /// [`Error::Value`] for unknown layers or keys and values out of range, [`Error::Index`]
    /// for cells or layers that the grid does not have.
    pub fn from_config(config: &NetworkConfig) -> Result<Self> {
        let extents: Vec<usize> = config.input_shape.iter().map(|extent| extent.unwrap_or(1)).collect();
        let axes = config.input_shape.iter().enumerate();
        let variable: Vec<usize> =
            axes.filter_map(|(axis, extent)| extent.is_none().then_some(axis)).collect();
        let mut network =
            Self::with_options(Shape::new(extents), config.grid, config.precision, config.seed)?;
        let named_axes = config.inputs.iter().any(|input| !input.open.is_empty());
        if !named_axes || config.input_shape.len() != 1 {
            network.set_variable_axes(&variable)?;
        }
        for cell in &config.cells {
            for layer in &cell.layers {
                network.add_arc(cell.at, Arc::from(layers::from_config(layer)?))?;
            }
        }
        for link in &config.links {
            network.link(link.clone())?;
        }
        if !config.inputs.is_empty() {
            network.set_inputs(config.inputs.clone())?;
            if network.extents_in_config() != config.input_shape {
                return Err(Error::Value(format!(
                    "input_shape {} is not that of a row of all inputs, {}",
                    told(&config.input_shape),
                    told(&network.extents_in_config())
                )));
            }
        }
        network.set_outputs(config.outputs.clone())?;
        for settings in &config.settings {
            let [depth, row, column, layer] = settings.at;
            let cell = [depth, row, column];
            network.set_trainable(cell, layer, settings.trainable)?;
            network.set_rate_factor(cell, layer, settings.rate_factor)?;
            let placed = network.layer_mut(cell, layer)?;
            placed.frozen = settings.frozen.clone();
            for (number, adapter) in settings.adapters.iter().enumerate() {
                let twice = settings.adapters.iter().take(number).any(|known| known.name == adapter.name);
                let error = format!("two adapters of the layer are called \"{}\"", adapter.name);
                let checked = if twice { Err(Error::Value(error)) } else { adapter.validate() };
                checked.map_err(|error| at_layer(placed, error))?;
            }
            if placed.is_tied() && !settings.adapters.is_empty() {
                placed.check_owns("put an adapter")?;
            }
            placed.adapters = settings.adapters.iter().cloned().map(PlacedAdapter::new).collect();
            let LayerSettings { granularity, calibration, rounding, activations, .. } = *settings;
            let dtype = settings.dtype.unwrap_or(config.precision.dtype());
            let whole = ParameterSettings { dtype, granularity, calibration, rounding, activations };
            let in_place = |error| at_layer(placed, error);
            let layer = whole.chosen(config.precision).map_err(in_place)?;
            let named = |(name, parameter): (&String, &ParameterSettings)| {
                Ok((name.clone(), parameter.chosen(config.precision)?))
            };
            let parameters =
                settings.parameters.iter().map(named).collect::<Result<_>>().map_err(in_place)?;
            placed.numerics = LayerNumerics { layer, parameters };
        }
        Ok(network)
    }

    /// The config as JSON.
    ///
    /// # Errors
    /// [`Error::Serialization`] where a layer's own config cannot be written.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string(&self.config()).map_err(|error| Error::Serialization(error.to_string()))
    }

    /// Makes the network that JSON describes.
    ///
    /// # Errors
    /// [`Error::Serialization`] for what is not JSON or has unknown keys; else as [`from_config`](Self::from_config).
    pub fn from_json(json: &str) -> Result<Self> {
        let config: NetworkConfig = serde_json::from_str(json)
            .map_err(|error| Error::Serialization(format!("this is not a network's config: {error}")))?;
        Self::from_config(&config)
    }
}

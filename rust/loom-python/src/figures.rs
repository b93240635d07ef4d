//! What the engine finds, as Python has it: statistics as dictionaries, packed parameters as arrays.

use crate::error::exception;
use loom::dtype::Granularity;
use loom::network::{LayerStatistics, PackedParameter};
use loom::train::{GradientStatistics, OptimizerState};
use loom::weights::{VersionInfo, WeightStore};
use numpy::{PyArray1, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Numeric type, granularity, codes, scales, zero points and minima.
pub type PackedArrays = (&'static str, String, Py<PyAny>, Py<PyAny>, Py<PyAny>, Py<PyAny>);

/// A packed parameter as NumPy has it.
pub fn packed_arrays(py: Python<'_>, packed: PackedParameter) -> PyResult<PackedArrays> {
    let PackedParameter { packing, bytes, scales } = packed;
    let words = packing.group_words();
    let groups = match packing.granularity {
        Granularity::Block(_) if words > 0 => vec![packing.groups() / packing.channels, packing.channels],
        _ => vec![packing.groups()],
    };
    let of_groups = scales.iter().step_by(words.max(1)).copied().collect::<Vec<f32>>();
    let minima: Vec<f32> = match packing.has_minima() {
        true => scales.iter().skip(1).step_by(words.max(1)).copied().collect(),
        false => Vec::new(),
    };
    let zeros: Vec<u64> = match words {
        0 | 1 => Vec::new(),
        _ if packing.has_minima() => Vec::new(),
        _ => scales
            .chunks_exact(words)
            .map(|group| {
                let word = |place: usize| group.get(place).map_or(0, |word| u64::from(word.to_bits()));
                word(1) | word(2) << 32
            })
            .collect(),
    };
    let zero_groups = if zeros.is_empty() { vec![0] } else { groups.clone() };
    let minimum_groups = if minima.is_empty() { vec![0] } else { groups.clone() };
    Ok((
        packing.dtype.name(),
        packing.granularity.to_string(),
        PyArray1::from_vec(py, bytes).into_any().unbind(),
        PyArray1::from_vec(py, of_groups).reshape(groups)?.into_any().unbind(),
        PyArray1::from_vec(py, zeros).reshape(zero_groups)?.into_any().unbind(),
        PyArray1::from_vec(py, minima).reshape(minimum_groups)?.into_any().unbind(),
    ))
}

/// Statistics of layers as dictionaries.
pub fn layer_dicts(py: Python<'_>, layers: &[LayerStatistics]) -> PyResult<Vec<Py<PyDict>>> {
    layers
        .iter()
        .map(|layer| {
            let dict = PyDict::new(py);
            dict.set_item("at", &layer.path.indices()[..4])?;
            dict.set_item("inside", &layer.name)?;
            dict.set_item("kind", layer.kind)?;
            dict.set_item("shape", &layer.shape)?;
            dict.set_item("rows", layer.rows)?;
            dict.set_item("mean", layer.mean)?;
            dict.set_item("std", layer.standard_deviation)?;
            dict.set_item("min", layer.min)?;
            dict.set_item("max", layer.max)?;
            dict.set_item("norm", layer.norm)?;
            dict.set_item("zeros", layer.zeros)?;
            dict.set_item("non_finite", layer.non_finite)?;
            Ok(dict.unbind())
        })
        .collect()
}

/// Figures of a gradient as a dictionary.
pub fn gradient_dict(py: Python<'_>, layer: &GradientStatistics) -> PyResult<Py<PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("at", layer.path.indices())?;
    dict.set_item("kind", layer.kind)?;
    dict.set_item("min", layer.min)?;
    dict.set_item("max", layer.max)?;
    dict.set_item("mean", layer.mean)?;
    dict.set_item("norm", layer.norm)?;
    dict.set_item("vanishing", layer.vanishing)?;
    dict.set_item("exploding", layer.exploding)?;
    Ok(dict.unbind())
}

/// How far the last training came, and its optimizer as JSON.
pub fn training_dict(py: Python<'_>, state: &OptimizerState) -> PyResult<Py<PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("epoch", state.epoch)?;
    dict.set_item("batch", state.batch)?;
    dict.set_item("step", state.step)?;
    dict.set_item("updates", state.updates)?;
    let optimizer = serde_json::to_string(&state.optimizer)
        .map_err(|error| exception(loom::Error::Internal(error.to_string())))?;
    dict.set_item("optimizer", optimizer)?;
    Ok(dict.unbind())
}

/// A packed version: the parameter, numeric type, granularity, whether it is current, calibration, rounding.
type VersionFigures = (String, &'static str, String, bool, String, String);

/// What is told of a layer's weights.
#[derive(Default)]
pub struct WeightsState {
    epoch: u64,
    dropped: bool,
    versions: Vec<VersionFigures>,
    /// Bytes of each parameter as the forward pass reads it.
    sizes: Vec<(String, usize)>,
    /// The parameters that take on the layer's type.
    weights: Vec<String>,
}

impl WeightsState {
    pub fn of(store: &WeightStore) -> Self {
        let names: Vec<String> = store.parameters().iter().map(|info| info.name.to_string()).collect();
        let versions = store.versions().map(|VersionInfo { parameter, packing, recipe, current }| {
            let (calibration, rounding) = (recipe.calibration.to_string(), recipe.rounding.to_string());
            let (name, granularity) = (names[parameter].clone(), packing.granularity.to_string());
            (name, packing.dtype.name(), granularity, current, calibration, rounding)
        });
        let versions = versions.collect();
        let weights = store.parameters().iter().filter(|info| info.morphable);
        let weights = weights.map(|info| info.name.to_string()).collect();
        let sizes = names.into_iter().enumerate().map(|(index, name)| (name, store.active_bytes_of(index)));
        Self { epoch: store.epoch(), dropped: store.is_dropped(), versions, sizes: sizes.collect(), weights }
    }

    pub fn into_dict(self, py: Python<'_>) -> PyResult<Py<PyDict>> {
        let state = PyDict::new(py);
        state.set_item("epoch", self.epoch)?;
        state.set_item("dropped", self.dropped)?;
        state.set_item("versions", self.versions)?;
        state.set_item("sizes", self.sizes)?;
        state.set_item("weights", self.weights)?;
        Ok(state.unbind())
    }
}

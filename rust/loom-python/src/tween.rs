//! `loom._native.TweenState`, and what learning by targets leaves to look at.

use crate::arrays::{RealArray, TargetArray, to_numpy};
use crate::error::detached;
use crate::shared::{At, Network, split};
use crate::training::parse;
use loom::ops::measure::Header;
use loom::train::{LayerMeasures, Measures, TweenState as Engine};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// One network's steps toward targets, call by call.
#[pyclass(frozen, module = "loom._native")]
pub struct TweenState {
    network: Py<Network>,
    engine: Mutex<Engine>,
}

impl TweenState {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Engine, &mut loom::Network) -> loom::Result<T> + Send,
    ) -> PyResult<T> {
        let mut guard = self.network.get().write()?;
        let network = &mut *guard;
        detached(py, move || {
            let mut engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
            work(&mut engine, network)
        })
    }

    fn tensors(
        &self,
        py: Python<'_>,
        read: impl FnOnce(&mut Engine) -> loom::Result<Vec<loom::Tensor>> + Send,
    ) -> PyResult<Vec<Py<PyAny>>> {
        let tensors = self.with(py, |engine, _| read(engine))?;
        tensors.into_iter().map(|tensor| to_numpy(py, tensor)).collect()
    }
}

#[pymethods]
impl TweenState {
    /// For a network, by a training config in JSON.
    #[new]
    fn new(py: Python<'_>, network: Py<Network>, config: &str, resume: bool) -> PyResult<Self> {
        let config = parse(config)?;
        let engine = network.get().change(py, move |engine| Engine::new(engine, &config, resume))?;
        Ok(Self { network, engine: Mutex::new(engine) })
    }

    /// Runs every layer forward.
    fn forward(&self, py: Python<'_>, x: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let array = RealArray::borrow(x)?;
        let view = array.view()?;
        let output = self.with(py, move |engine, network| engine.forward(network, view))?;
        to_numpy(py, output)
    }

    /// Makes every layer's target; returns the loss.
    fn backward(
        &self,
        py: Python<'_>,
        target: &Bound<'_, PyAny>,
        weight: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<f64> {
        let target = TargetArray::borrow(target)?;
        let target = target.view()?;
        let weight = weight.map(RealArray::borrow).transpose()?;
        let weight = weight.as_ref().map(RealArray::view).transpose()?;
        self.with(py, move |engine, network| engine.backward(network, target, weight))
    }

    /// Fills the measures.
    fn measure(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, Engine::measure)
    }

    /// Updates every layer; returns whether it has.
    fn apply(&self, py: Python<'_>, rate: Option<f64>) -> PyResult<bool> {
        self.with(py, move |engine, network| engine.apply(network, rate))
    }

    /// Saves the network with all that goes on from here.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.with(py, move |engine, network| engine.save(network, path))
    }

    /// What every layer has made.
    fn activations(&self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
        self.tensors(py, Engine::activations)
    }

    /// What every layer was to make.
    fn targets(&self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
        self.tensors(py, Engine::targets)
    }

    /// The gradients of the loss with respect to them.
    fn chain_gradients(&self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
        self.tensors(py, Engine::chain_gradients)
    }
}

const HEADER: [(&str, Header); 5] = [
    ("rate_factor", Header::RateFactor),
    ("prev_avg_gap", Header::PreviousGap),
    ("avg_gap", Header::MeanGap),
    ("growth", Header::Growth),
    ("explosions", Header::Explosions),
];

/// One figure of a layer, by its name outside.
type Figure = (&'static str, fn(&LayerMeasures) -> f64);

const FIGURES: [Figure; 6] = [
    ("gaps", |layer| layer.gap),
    ("alignments", |layer| layer.alignment),
    ("gains", |layer| layer.gain),
    ("link_budgets", |layer| layer.link_budget),
    ("cell_gaps", |layer| layer.cell_gap),
    ("reconstructions", |layer| layer.reconstruction),
];

/// What the newest watched step of a network has shown.
#[pyfunction]
pub fn measures(py: Python<'_>, network: &Bound<'_, Network>) -> PyResult<Py<PyDict>> {
    let guard = network.get().read()?;
    let measures = guard.measures();
    let found = PyDict::new(py);
    found.set_item("steps", measures.steps)?;
    found.set_item("inner", &measures.inner)?;
    for (name, what) in HEADER {
        found.set_item(name, measures.header(what))?;
    }
    for (name, figure) in FIGURES {
        let layers = (0..measures.rows()).filter_map(|layer| measures.layer(layer));
        let figures: Vec<f64> = layers.map(|layer| figure(&layer)).collect();
        found.set_item(name, figures)?;
    }
    Ok(found.unbind())
}

/// The losses and explosions of all watched steps, and the figures of those that were kept.
#[pyfunction]
pub fn measure_history(py: Python<'_>, network: &Bound<'_, Network>) -> PyResult<Py<PyDict>> {
    let guard = network.get().read()?;
    let measures: &Measures = guard.measures();
    let found = PyDict::new(py);
    found.set_item("losses", &measures.losses)?;
    found.set_item("exploded", &measures.exploded)?;
    found.set_item("steps", &measures.history.steps)?;
    found.set_item("inner", &measures.inner)?;
    for (name, figure) in FIGURES {
        let of_record = |record| {
            (0..measures.rows()).filter_map(move |layer| measures.record(record, layer)).map(|x| figure(&x))
        };
        let rows: Vec<Vec<f64>> =
            (0..measures.history.steps.len()).map(|record| of_record(record).collect()).collect();
        found.set_item(name, rows)?;
    }
    Ok(found.unbind())
}

/// How targets pass back through each layer, by name.
#[pyfunction]
pub fn target_passages(
    py: Python<'_>,
    network: &Bound<'_, Network>,
    config: &str,
) -> PyResult<Vec<&'static str>> {
    let config = parse(config)?;
    let found = network.get().change(py, move |engine| engine.target_passages(&config))?;
    Ok(found.into_iter().map(|passage| passage.name()).collect())
}

/// An optimizer's moment of a parameter.
#[pyfunction]
pub fn moment(
    py: Python<'_>,
    network: &Bound<'_, Network>,
    at: At,
    name: &str,
    slot: &str,
) -> PyResult<Py<PyAny>> {
    let (cell, layer) = split(at);
    to_numpy(py, network.get().change(py, move |engine| engine.moment(cell, layer, name, slot))?)
}

/// The names of the parameters of a layer's feedback map.
#[pyfunction]
pub fn feedback_names(py: Python<'_>, network: &Bound<'_, Network>, at: At) -> PyResult<Vec<String>> {
    let (cell, layer) = split(at);
    network.get().look_built(py, move |engine| engine.feedback_names(cell, layer))
}

/// A parameter of a layer's feedback map.
#[pyfunction]
pub fn feedback_parameter(
    py: Python<'_>,
    network: &Bound<'_, Network>,
    at: At,
    name: &str,
) -> PyResult<Py<PyAny>> {
    let (cell, layer) = split(at);
    to_numpy(py, network.get().change(py, move |engine| engine.feedback_parameter(cell, layer, name))?)
}

/// Sets a parameter of a layer's feedback map.
#[pyfunction]
pub fn set_feedback_parameter(
    py: Python<'_>,
    network: &Bound<'_, Network>,
    at: At,
    name: &str,
    values: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let (cell, layer) = split(at);
    let array = RealArray::borrow(values)?;
    let view = array.view()?;
    network.get().change(py, move |engine| engine.set_feedback_parameter(cell, layer, name, view))
}

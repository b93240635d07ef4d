//! Layers that are put into networks and taken out of them.

use crate::error::exception;
use crate::network::parse_layer;
use crate::shared::{At, Network, split};
use loom::network::{self as engine, Incoming, Piece};
use pyo3::prelude::*;
use std::sync::Arc;

/// A copy of a layer with all that belongs to it.
#[pyclass(frozen, module = "loom._native")]
pub struct LayerCopy(Arc<engine::LayerCopy>);

#[pymethods]
impl LayerCopy {
    /// The layer's config as JSON.
    fn config(&self) -> String {
        self.0.layer().config().to_string()
    }

    /// One sample's extents as they came in where it was; None where that was never found out.
    fn input_shape(&self) -> Option<Vec<usize>> {
        self.0.input_shape().map(|shape| shape.to_vec())
    }
}

/// What a layer takes over of a copy: what is named so there, and what here.
type PieceOf<'py> = (PyRef<'py, LayerCopy>, String, String);

fn incoming(layer: &str, pieces: &[PieceOf<'_>]) -> PyResult<Incoming> {
    let piece =
        |(copy, from, to): &PieceOf<'_>| Piece { copy: copy.0.clone(), from: from.clone(), to: to.clone() };
    Ok(Incoming { layer: parse_layer(layer)?.into(), pieces: pieces.iter().map(piece).collect() })
}

/// Copies a layer; builds the network.
#[pyfunction]
pub fn copy_layer(py: Python<'_>, network: &Network, at: At) -> PyResult<LayerCopy> {
    let (cell, layer) = split(at);
    let settled = network.read()?.settled().is_ok();
    let copy = match settled {
        true => network.look_settled(py, move |engine| engine.copy_layer(cell, layer)),
        // One that cannot be built may still have the layer's weights.
        false => network.change(py, move |engine| engine.copy_layer(cell, layer)),
    };
    copy.map(Arc::new).map(LayerCopy)
}

/// Puts a layer, given as a config in JSON, into a place, with what it takes over of copies.
#[pyfunction]
pub fn insert_layer(network: &Network, at: At, layer: &str, pieces: Vec<PieceOf<'_>>) -> PyResult<()> {
    let (cell, place) = split(at);
    network.write()?.insert(cell, place, incoming(layer, &pieces)?).map_err(exception)
}

/// The same in the place of another layer.
#[pyfunction]
pub fn replace_layer(network: &Network, at: At, layer: &str, pieces: Vec<PieceOf<'_>>) -> PyResult<()> {
    let (cell, place) = split(at);
    network.write()?.replace(cell, place, incoming(layer, &pieces)?).map_err(exception)
}

/// Takes a layer out.
#[pyfunction]
pub fn remove_layer(network: &Network, at: At) -> PyResult<()> {
    let (cell, place) = split(at);
    network.write()?.remove(cell, place).map_err(exception)
}

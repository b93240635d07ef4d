//! `loom._native.Slots`: sequences that come and go, each at a place of its own.

use crate::arrays::{RealArray, to_numpy};
use crate::draws::{DrawnBy, with_draws};
use crate::shared::{Network, cache_type, exclusively};
use loom::network::Slots as Engine;
use pyo3::prelude::*;
use std::sync::Mutex;

/// Room for some sequences; one call at a time.
#[pyclass(frozen, module = "loom._native")]
pub struct Slots {
    network: Py<Network>,
    engine: Mutex<Engine>,
}

impl Slots {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Engine, &loom::Network) -> loom::Result<T> + Send,
    ) -> PyResult<T> {
        exclusively(py, &self.engine, &self.network, work)
    }
}

#[pymethods]
impl Slots {
    /// Room for so many sequences of at most `capacity` steps.
    #[new]
    #[pyo3(signature = (network, count, capacity, cache=None))]
    fn new(
        py: Python<'_>,
        network: Py<Network>,
        count: usize,
        capacity: usize,
        cache: Option<&str>,
    ) -> PyResult<Self> {
        let cache = cache_type(cache)?;
        let engine = network.get().look_built(py, |engine| engine.slots_keeping(count, capacity, cache))?;
        Ok(Self { network, engine: Mutex::new(engine) })
    }

    /// The outputs for the next steps of some sequences, or for the last of them.
    fn advance(
        &self,
        py: Python<'_>,
        x: &Bound<'_, PyAny>,
        sequences: Vec<usize>,
        last: bool,
    ) -> PyResult<Py<PyAny>> {
        let array = RealArray::borrow(x)?;
        let view = array.view()?;
        let tensor = self.with(py, move |slots, network| slots.advance(network, view, &sequences, last))?;
        to_numpy(py, tensor)
    }

    /// Brings a step of some sequences and has them go on by themselves, each by its count or to its first stop.
    #[pyo3(signature = (x, sequences, counts, stops, draws=None))]
    fn follow(
        &self,
        py: Python<'_>,
        x: &Bound<'_, PyAny>,
        sequences: Vec<usize>,
        counts: Vec<usize>,
        stops: Vec<usize>,
        draws: Option<DrawnBy<'_>>,
    ) -> PyResult<Vec<Vec<usize>>> {
        let array = RealArray::borrow(x)?;
        let view = array.view()?;
        with_draws(draws.as_ref(), |draws| {
            self.with(py, |slots, network| slots.follow(network, view, (&sequences, &counts), &stops, draws))
        })
    }

    /// Extents of what so many steps make of each output.
    fn output_shapes(&self, py: Python<'_>, steps: usize) -> PyResult<Vec<Vec<usize>>> {
        self.with(py, |slots, _| Ok(slots.output_shapes(steps).iter().map(|shape| shape.to_vec()).collect()))
    }

    /// Forgets everything seen.
    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |slots, network| slots.reset(network))
    }

    /// How many steps of each sequence have been seen.
    fn positions(&self, py: Python<'_>) -> PyResult<Vec<usize>> {
        self.with(py, |slots, _| Ok(slots.positions().to_vec()))
    }

    /// Goes back to where only the first steps of a sequence had been seen.
    fn rewind(&self, py: Python<'_>, sequence: usize, position: usize) -> PyResult<()> {
        self.with(py, |slots, _| slots.rewind(sequence, position))
    }

    /// Makes the first steps of one sequence those of another.
    fn copy(&self, py: Python<'_>, source: usize, target: usize, count: usize) -> PyResult<()> {
        self.with(py, |slots, _| slots.copy(source, target, count))
    }
}

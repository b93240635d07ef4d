//! `loom._native.Session`: inference that goes on from where its last call ended.

use crate::arrays::{RealArray, to_numpy};
use crate::draws::{DrawnBy, with_draws};
use crate::shared::{Network, cache_type, exclusively};
use loom::network::Session as Engine;
use pyo3::prelude::*;
use std::sync::Mutex;

/// A session; one call at a time.
#[pyclass(frozen, module = "loom._native")]
pub struct Session {
    network: Py<Network>,
    engine: Mutex<Engine>,
}

impl Session {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Engine, &loom::Network) -> loom::Result<T> + Send,
    ) -> PyResult<T> {
        exclusively(py, &self.engine, &self.network, work)
    }
}

#[pymethods]
impl Session {
    /// A session over so many sequences of at most `capacity` steps, which keeps keys and values as a numeric type.
    #[new]
    #[pyo3(signature = (network, rows, capacity, cache=None))]
    fn new(
        py: Python<'_>,
        network: Py<Network>,
        rows: usize,
        capacity: usize,
        cache: Option<&str>,
    ) -> PyResult<Self> {
        let cache = cache_type(cache)?;
        let engine = network.get().look_built(py, |engine| engine.session_keeping(rows, capacity, cache))?;
        Ok(Self { network, engine: Mutex::new(engine) })
    }

    /// The output for the next steps, or for the last of them.
    fn advance(&self, py: Python<'_>, x: &Bound<'_, PyAny>, last: bool) -> PyResult<Py<PyAny>> {
        let array = RealArray::borrow(x)?;
        let view = array.view()?;
        let tensor = self.with(py, move |session, network| match last {
            true => session.advance_to_last(network, view),
            false => session.advance(network, view),
        })?;
        to_numpy(py, tensor)
    }

    /// Extents of what so many steps make of each output.
    fn output_shapes(&self, py: Python<'_>, steps: usize) -> PyResult<Vec<Vec<usize>>> {
        self.with(py, |session, _| {
            Ok(session.output_shapes(steps).iter().map(|shape| shape.to_vec()).collect())
        })
    }

    /// Brings steps and goes on by itself; (rows, count) or fewer.
    #[pyo3(signature = (x, count, stops, draws=None))]
    fn follow(
        &self,
        py: Python<'_>,
        x: &Bound<'_, PyAny>,
        count: usize,
        stops: Vec<usize>,
        draws: Option<DrawnBy<'_>>,
    ) -> PyResult<Vec<Vec<usize>>> {
        let array = RealArray::borrow(x)?;
        let view = array.view()?;
        with_draws(draws.as_ref(), |draws| {
            self.with(py, |session, network| session.follow(network, view, count, &stops, draws))
        })
    }

    /// What layers keep of the steps seen so far, (rows, steps, ...) each.
    fn kept(&self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
        let kept = self.with(py, |session, _| session.kept())?;
        kept.into_iter().map(|tensor| to_numpy(py, tensor)).collect()
    }

    /// Of each of these, whether it is bytes, taken for numbers.
    fn packs(&self, py: Python<'_>) -> PyResult<Vec<bool>> {
        self.with(py, |session, _| Ok(session.packs()))
    }

    /// Puts that back.
    fn restore(&self, py: Python<'_>, kept: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
        let arrays = kept.iter().map(RealArray::borrow).collect::<PyResult<Vec<_>>>()?;
        let views = arrays.iter().map(RealArray::view).collect::<PyResult<Vec<_>>>()?;
        self.with(py, move |session, network| session.restore(network, &views))
    }

    /// Goes back to where only the first steps had been seen.
    fn rewind(&self, py: Python<'_>, position: usize) -> PyResult<()> {
        self.with(py, |session, _| session.rewind(position))
    }

    /// Forgets everything seen.
    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |session, network| session.reset(network))
    }

    /// Steps seen so far.
    fn position(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, |session, _| Ok(session.position()))
    }
}

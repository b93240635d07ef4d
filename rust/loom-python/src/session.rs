//! `loom._native.Session`: inference that goes on from where its last call ended.

use crate::arrays::{RealArray, to_numpy};
use crate::shared::{Network, cache_type, exclusively};
use loom::network::{Draws, Session as Engine};
use loom::ops::Sampling;
use numpy::PyReadonlyArray2;
use pyo3::prelude::*;
use std::sync::Mutex;

/// What steps are drawn by: settings, numbers, biases, and counts.
type DrawnBy<'py> = (
    PyReadonlyArray2<'py, f64>,
    PyReadonlyArray2<'py, f64>,
    Option<PyReadonlyArray2<'py, f64>>,
    Option<PyReadonlyArray2<'py, f64>>,
);

fn slice<'a>(given: Option<&'a PyReadonlyArray2<'_, f64>>) -> PyResult<Option<&'a [f64]>> {
    Ok(given.map(|given| given.as_slice()).transpose()?)
}

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
        let engine = network.get().change(py, |engine| engine.session_keeping(rows, capacity, cache))?;
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

    /// Brings steps and goes on by itself; (rows, count) or fewer. Steps are drawn by the settings of each row (rows,
    /// 9), numbers (rows, count), biases and counts (rows, classes) where given.
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
        let Some((settings, uniforms, biases, counts)) = draws else {
            return self.with(py, move |session, network| session.follow(network, view, count, &stops, None));
        };
        let (settings, _) = settings.as_slice()?.as_chunks();
        let sampling: Vec<Sampling> = settings.iter().map(Sampling::of).collect();
        let (biases, counts) = (slice(biases.as_ref())?, slice(counts.as_ref())?);
        let draws = Draws { sampling: &sampling, uniforms: uniforms.as_slice()?, biases, counts };
        self.with(py, move |session, network| session.follow(network, view, count, &stops, Some(&draws)))
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

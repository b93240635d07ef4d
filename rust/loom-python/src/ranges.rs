//! `loom._native.InputRanges`: what layers are given to read, measured over some rows after others.

use crate::arrays::RealArray;
use crate::error::exception;
use crate::shared::Network;
use loom::network::InputRanges as Engine;
use pyo3::prelude::*;
use std::sync::{Mutex, PoisonError};

/// What was measured so far.
#[pyclass(frozen, module = "loom._native")]
pub struct InputRanges(Mutex<Engine>);

impl InputRanges {
    /// Does something with what was measured; nobody else does meanwhile.
    pub fn with<T>(&self, work: impl FnOnce(&mut Engine) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[pymethods]
impl InputRanges {
    /// Nothing yet, for a percentile above 0 and up to 100.
    #[new]
    fn new(percent: f64) -> PyResult<Self> {
        Ok(Self(Mutex::new(Engine::new(percent).map_err(exception)?)))
    }

    /// Measures these rows, too, so many at a time.
    fn add(
        &self,
        py: Python<'_>,
        network: &Bound<'_, Network>,
        x: &Bound<'_, PyAny>,
        batch_size: usize,
    ) -> PyResult<()> {
        let array = RealArray::borrow(x)?;
        let view = array.view()?;
        network.get().change(py, move |engine| self.with(|ranges| ranges.add(engine, view, batch_size)))
    }
}

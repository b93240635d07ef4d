//! What sessions draw their steps by, as Python hands it over.

use loom::network::Draws;
use loom::ops::Sampling;
use numpy::PyReadonlyArray2;
use pyo3::prelude::*;

/// What steps are drawn by: settings (rows, 9), numbers (rows, count), and biases and counts (rows, classes) where
/// given.
pub type DrawnBy<'py> = (
    PyReadonlyArray2<'py, f64>,
    PyReadonlyArray2<'py, f64>,
    Option<PyReadonlyArray2<'py, f64>>,
    Option<PyReadonlyArray2<'py, f64>>,
);

/// Has this done with what steps are drawn by, as the engine takes it.
pub fn with_draws<T>(
    given: Option<&DrawnBy<'_>>,
    work: impl FnOnce(Option<&Draws<'_>>) -> PyResult<T>,
) -> PyResult<T> {
    let Some((settings, uniforms, biases, counts)) = given else { return work(None) };
    let (settings, _) = settings.as_slice()?.as_chunks();
    let sampling: Vec<Sampling> = settings.iter().map(Sampling::of).collect();
    let biases = biases.as_ref().map(|given| given.as_slice()).transpose()?;
    let counts = counts.as_ref().map(|given| given.as_slice()).transpose()?;
    work(Some(&Draws { sampling: &sampling, uniforms: uniforms.as_slice()?, biases, counts }))
}

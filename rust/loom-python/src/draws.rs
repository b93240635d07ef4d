//! What sessions draw their steps by, as Python hands it over.

use loom::network::Draws;
use loom::ops::{Change, Sampling};
use numpy::PyReadonlyArray2;
use pyo3::prelude::*;

/// What steps are drawn by: settings (rows, 8), numbers (rows, count), and of each row (changes, 3) classes, how often
/// they came, and what is added to their scores; and of how many classes all choose.
pub type DrawnBy<'py> =
    (PyReadonlyArray2<'py, f64>, PyReadonlyArray2<'py, f64>, Vec<PyReadonlyArray2<'py, f64>>, usize);

/// Has this done with what steps are drawn by, as the engine takes it.
pub fn with_draws<T>(
    given: Option<&DrawnBy<'_>>,
    work: impl FnOnce(Option<&Draws<'_>>) -> PyResult<T>,
) -> PyResult<T> {
    let Some((settings, uniforms, changes, classes)) = given else { return work(None) };
    let (settings, _) = settings.as_slice()?.as_chunks();
    let sampling: Vec<Sampling> = settings.iter().map(Sampling::of).collect();
    let list = |list: &PyReadonlyArray2<'_, f64>| {
        let (entries, _) = list.as_slice()?.as_chunks();
        let change =
            |[class, count, bias]: &[f64; 3]| Change { class: *class as usize, count: *count, bias: *bias };
        Ok(entries.iter().map(change).collect())
    };
    let changes: Vec<Vec<Change>> = changes.iter().map(list).collect::<PyResult<_>>()?;
    work(Some(&Draws {
        sampling: &sampling,
        uniforms: uniforms.as_slice()?,
        changes: &changes,
        classes: *classes,
    }))
}

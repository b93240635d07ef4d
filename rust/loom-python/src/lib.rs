//! The Python face of loom: conversion and GIL release, nothing else.

use pyo3::prelude::*;

mod error;

/// The native half of the `loom` package; users import `loom`.
#[pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}

//! What carries bytes between the processes of one training: an object of Python's.

use crate::function::raised;
use loom::Result;
use loom::train::Exchange;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

/// A communicator of `loom.distributed`.
pub struct Communicator {
    object: Py<PyAny>,
    rank: usize,
    ranks: usize,
}

impl Communicator {
    /// Of an object with `rank`, `size`, `to_each` and `to_all`.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let rank = object.getattr("rank")?.extract()?;
        Ok(Self { rank, ranks: object.getattr("size")?.extract()?, object: object.clone().unbind() })
    }
}

impl Exchange for Communicator {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.ranks
    }

    fn to_each(&mut self, parts: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        Python::attach(|py| {
            let parts: Vec<_> = parts.iter().map(|part| PyBytes::new(py, part)).collect();
            let parts = PyList::new(py, parts)?;
            self.object.bind(py).call_method1("to_each", (parts,))?.extract()
        })
        .map_err(raised)
    }

    fn to_all(&mut self, part: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        Python::attach(|py| {
            self.object.bind(py).call_method1("to_all", (PyBytes::new(py, &part),))?.extract()
        })
        .map_err(raised)
    }
}

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
    wish: u8,
    /// What any process wishes.
    pub wishes: u8,
}

impl Communicator {
    /// Of an object with `rank`, `size`, `to_each` and `to_all`, for a process that wishes something.
    pub fn of(object: &Bound<'_, PyAny>, wish: u8) -> PyResult<Self> {
        let (rank, ranks) = (object.getattr("rank")?.extract()?, object.getattr("size")?.extract()?);
        Ok(Self { rank, ranks, wish, wishes: 0, object: object.clone().unbind() })
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

    fn wish(&self) -> u8 {
        self.wish
    }

    fn hear(&mut self, wishes: u8) {
        self.wishes |= wishes;
    }
}

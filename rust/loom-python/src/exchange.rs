//! What carries bytes between the processes of one training: an object of Python's.

use crate::function::raised;
use loom::Result;
use loom::train::{self, Attendant, Exchange, Format, Joint, Work};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use std::sync::Arc;
use std::time::Duration;

/// Where ranks that are threads of this process meet: they hand each other memory, and Python need not run.
#[pyclass(module = "loom._native", frozen)]
pub struct Meeting(Arc<train::Meeting>);

#[pymethods]
impl Meeting {
    #[new]
    fn new(ranks: usize) -> Self {
        Self(Arc::new(train::Meeting::new(ranks)))
    }

    /// Ends it for all, with a reason.
    fn fail(&self, message: &str) {
        self.0.fail(message);
    }
}

/// What processes hold in parts, and how gradients travel.
#[derive(Clone, Copy, Default)]
pub struct Ways {
    moments: bool,
    gradients: bool,
    coding: Option<Format>,
}

impl Ways {
    /// Of "nothing", "moments" or "gradients", and of "float32", "float16" or "int8".
    pub fn named(splits: &str, coding: &str) -> Self {
        let gradients = splits == "gradients";
        Self { moments: gradients || splits == "moments", gradients, coding: Format::by_name(coding) }
    }
}

/// A communicator of `loom.distributed`.
pub struct Communicator {
    object: Py<PyAny>,
    rank: usize,
    ranks: usize,
    wish: u8,
    ways: Ways,
    /// Where its threads meet, if they are of one process.
    thread: Option<Attendant>,
    /// What any process wishes.
    pub wishes: u8,
}

impl Communicator {
    /// Of an object with `rank`, `size`, `to_each` and `to_all`, for a process that wishes something.
    pub fn of(object: &Bound<'_, PyAny>, wish: u8, ways: Ways) -> PyResult<Self> {
        let (rank, ranks) = (object.getattr("rank")?.extract()?, object.getattr("size")?.extract()?);
        let meeting = object.getattr_opt("_meeting")?;
        let meeting = meeting.as_ref().and_then(|it| it.cast::<Meeting>().ok());
        let thread = meeting.map(|it| Attendant { meeting: it.get().0.clone(), rank });
        Ok(Self { rank, ranks, wish, ways, thread, wishes: 0, object: object.clone().unbind() })
    }
}

/// What others have handed over, copied as it is where that is bytes: anything else comes number by number.
fn bytes_of(came: &Bound<'_, PyAny>) -> PyResult<Vec<Vec<u8>>> {
    came.try_iter()?
        .map(|part| {
            let part = part?;
            match part.cast::<PyBytes>() {
                Ok(bytes) => Ok(bytes.as_bytes().to_vec()),
                Err(_) => part.extract(),
            }
        })
        .collect()
}

impl Exchange for Communicator {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.ranks
    }

    fn to_each(&mut self, parts: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        if let Some(thread) = &mut self.thread {
            return thread.to_each(parts);
        }
        Python::attach(|py| {
            let parts: Vec<_> = parts.iter().map(|part| PyBytes::new(py, part)).collect();
            let parts = PyList::new(py, parts)?;
            bytes_of(&self.object.bind(py).call_method1("to_each", (parts,))?)
        })
        .map_err(raised)
    }

    fn to_all(&mut self, part: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        if let Some(thread) = &mut self.thread {
            return thread.to_all(part);
        }
        Python::attach(|py| {
            bytes_of(&self.object.bind(py).call_method1("to_all", (PyBytes::new(py, &part),))?)
        })
        .map_err(raised)
    }

    fn shares_memory(&self) -> bool {
        self.thread.is_some()
    }

    fn join(&mut self, brought: Result<Joint>, work: &Work<'_>) -> Result<(Joint, Duration)> {
        match &mut self.thread {
            Some(thread) => thread.join(brought, work),
            None => train::Alone.join(brought, work),
        }
    }

    fn wish(&self) -> u8 {
        self.wish
    }

    fn splits_moments(&self) -> bool {
        self.ways.moments
    }

    fn splits_gradients(&self) -> bool {
        self.ways.gradients
    }

    fn coding(&self) -> Option<Format> {
        self.ways.coding
    }

    fn hear(&mut self, wishes: u8) {
        self.wishes |= wishes;
    }
}
